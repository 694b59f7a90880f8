"""The command: exit codes, what goes to stdout and what to stderr, and what happens when something goes wrong."""

import contextlib
import io
import json
from functools import partial

import matplotlib
import pytest
from matplotlib.figure import Figure

from regard import cli, tour
from regard.tour import report, runner, sections
from regard.view import pictures
from tests.tour import small


@pytest.fixture
def tour_of(monkeypatch):
    """Runs a tour of these sections alone, in this process: tour_of([section, …], out, language="zh")."""
    monkeypatch.setattr(runner, "run_sections", partial(runner.run_sections, processes=0))

    def run(chosen, out, **options):
        monkeypatch.setattr(sections, "load", lambda: chosen)
        return tour.run(out, **options)

    return run


def claims_in(out):
    return json.loads((out / "results.json").read_text(encoding="utf-8"))["claims"]


def test_progress_and_table_of_a_whole_tour(finished, capsys):
    results = list(report.with_progress(iter(finished.results), len(finished.results), "en"))
    progress = capsys.readouterr().err.splitlines()
    assert len(progress) == len(results) == len(sections.load())
    assert progress[0].startswith(f"1/{len(progress)}  claim 1: Pooling ignores what is asked")
    report.print_table(results, "en")
    lines = capsys.readouterr().out.splitlines()
    assert all(line == line.rstrip() for line in lines)


def test_english_and_chinese(tmp_path, capsys, tour_of):
    chosen = [small.section(7), small.section(8, small.below)]
    out = tmp_path / "made" / "by the tour"
    for language, expected in (("en", ("Title 7", "did not hold", "Page: ")), ("zh", ("标题 7", "不成立", "页面："))):
        assert tour_of(chosen, out, language=language) == 0  # a claim that does not hold is a result
        printed = capsys.readouterr().out
        assert all(text in printed for text in expected)
        assert printed.splitlines()[-1] == f"{expected[-1]}{(out / 'index.html').resolve()}"
        assert (out / "index.html").read_bytes() == (out / f"{language}.html").read_bytes()
        assert claims_in(out)[0]["title"].startswith(expected[0])
    assert "not-met" in (out / "index.html").read_text(encoding="utf-8")


def test_some_claims_for_a_program(tmp_path, capsys, tour_of, monkeypatch):
    monkeypatch.setattr(sections, "load", lambda: [small.section(number, full=small.tiny) for number in (3, 5, 7)])
    arguments = ["tour", "--only", "7,3", "--json", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "results.json").read_text(encoding="utf-8") == printed
    assert [(claim["number"], claim["numbers"]["size"]) for claim in json.loads(printed)["claims"]] == [
        (3, 0.5),
        (7, 0.5),
    ]
    assert cli.main([*arguments, "--full"]) == 0
    captured = capsys.readouterr()
    assert [claim["numbers"]["size"] for claim in json.loads(captured.out)["claims"]] == [1e-9, 1e-9]
    assert "(cached)" not in captured.err
    cli.main(arguments)
    assert capsys.readouterr().err.count("(cached)") == 2
    cli.main([*arguments, "--no-cache"])
    assert "(cached)" not in capsys.readouterr().err
    assert cli.main(["tour", "--only", "7,11", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "regard: --only: expected claims from 3 to 7, got 11\n"


def test_a_section_that_fails_does_not_stop_the_others(tmp_path, capsys, tour_of):
    assert tour_of([small.section(7), small.section(8, small.fail), small.section(9)], tmp_path) == 1
    assert "claim-08: ValueError: two lines & <more>" in capsys.readouterr().err.splitlines()
    claims = claims_in(tmp_path)
    assert [claim["verdict"] for claim in claims] == ["held", "failed", "held"]
    assert claims[1]["error"] == "ValueError: two lines & <more>"
    assert claims[1]["numbers"] == {}
    assert claims[1]["pictures"] == []
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert '<p class="error">ValueError: two lines &amp; &lt;more&gt;</p>' in page
    assert page.count("<img ") == 2
    assert page.count("Title 9 &lt;&amp;&gt;") >= 3


def test_a_picture_that_cannot_be_drawn_is_a_failure(tmp_path, tour_of, monkeypatch):
    monkeypatch.setattr(Figure, "draw", lambda *_, **__: 1 / 0)
    assert tour_of([small.section(7)], tmp_path) == 1


def test_nan_is_null_in_json(tmp_path, tour_of):
    assert tour_of([small.section(7, small.unknown)], tmp_path) == 0
    (claim,) = claims_in(tmp_path)
    assert (claim["verdict"], claim["numbers"]) == ("did not hold", {"size": None, "parts": [2, 3]})


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_an_unwritable_folder_is_refused_before_the_work(tmp_path, capsys, tour_of, below):
    (tmp_path / "file").touch()
    with pytest.raises(
        tour.TourError, match=r"^--out: cannot write into .*: there is a file in the way of that folder$"
    ):
        tour_of([small.section(7)], tmp_path / "file" / below)
    assert capsys.readouterr() == ("", "")  # nothing was run


def test_a_full_disk_is_told(tmp_path, tour_of, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "write_bytes", full)
    with pytest.raises(tour.TourError, match=r"No space left on device$"):
        tour_of([small.section(7)], tmp_path)


def test_control_c_stops_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "load", lambda: [small.section(7, small.interrupt)])
    assert cli.main(["tour", "--out", str(tmp_path / "out")]) == 130
    assert list((tmp_path / "out").iterdir()) == []


def test_a_terminal_gets_a_bar(tmp_path, capsys, tour_of, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert tour_of([small.section(7), small.section(8, small.fail)], tmp_path) == 1
    progress = capsys.readouterr().err
    assert "claim-08: ValueError: two lines & <more>" in progress
    assert "\x1b[" in progress


def test_a_poor_terminal_is_no_reason_to_stop(tmp_path, tour_of):
    poor = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with contextlib.redirect_stdout(poor):
        assert tour_of([small.section(7, small.tiny)], tmp_path, language="zh") == 0


def test_pictures_do_not_depend_on_the_users_settings():
    def drawing():
        figure = pictures.figure(height=1, width=1)
        figure.subplots().plot([0, 1])
        return figure

    plain = pictures.png(drawing, "light")
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "figure.dpi": 30}):
        assert pictures.png(drawing, "light") == plain
    assert pictures.png(drawing, "dark") != plain
