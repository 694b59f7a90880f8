"""The command: exit codes, what goes to stdout and what to stderr, and what happens when something goes wrong."""

import json
from functools import partial

import pytest

from regard import cli, tour
from regard.tour import report, runner, sections
from regard.view.chart import Chart
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
    assert progress[0].startswith(f"1/{len(progress)}  claim 1: ")
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


def test_after_the_first_claim_it_is_said_where_the_page_is(tmp_path, capsys, tour_of):
    tour_of([small.section(7), small.section(8)], tmp_path, language="en")
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == f"The page fills while the claims are run: {tmp_path / 'index.html'}"
    assert len(lines) == 3
    tour_of([small.section(7)], tmp_path, language="en")  # nothing to wait for
    assert len(capsys.readouterr().err.splitlines()) == 1


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
    assert claims[1]["answers"] == []
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert '<p class="error">ValueError: two lines &amp; &lt;more&gt;</p>' in page
    assert page.count("<figure>") == 4  # of the cell and of the measurement, twice
    assert page.count("Title 9 &lt;&amp;&gt;") >= 3


def test_a_picture_that_cannot_be_drawn_is_a_failure(tmp_path, tour_of, monkeypatch):
    monkeypatch.setattr(Chart, "svg", lambda *_: 1 / 0)
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
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "write_text", full)
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


def test_the_language_is_that_of_the_locale_unless_given(tmp_path, capsys, tour_of, monkeypatch):
    for key in ("LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(key, raising=False)
    for locale, title in (("zh_CN.UTF-8", "标题 7"), ("de_DE.UTF-8", "Title 7"), ("C", "Title 7")):
        monkeypatch.setenv("LANG", locale)
        assert tour_of([small.section(7)], tmp_path) == 0
        assert title in capsys.readouterr().out
    assert tour_of([small.section(7)], tmp_path, language="zh") == 0
    assert "标题 7" in capsys.readouterr().out


def test_the_page_fills_while_the_sections_run(tmp_path, tour_of, monkeypatch):
    """After the first section, the second is being run, and the page says so; at the end it does not."""
    pages = []

    def look():
        pages.append((tmp_path / "index.html").read_text(encoding="utf-8"))
        return small.half()

    assert tour_of([small.section(7), small.section(8, look)], tmp_path, no_cache=True) == 0
    (during,) = pages
    assert 'data-pending="8"' in during
    assert 'data-pending="7"' not in during
    after = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'data-pending="' not in after
