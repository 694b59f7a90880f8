"""The command: exit codes, what goes to stdout and what to stderr, and what happens when something goes wrong."""

import contextlib
import io
import json

import matplotlib
import pytest
from matplotlib.figure import Figure

from regard import cli, tour
from regard.tour import runner, sections, walk
from regard.view import pictures
from tests.tour import dying


def test_a_tour_ends_well(finished):
    assert finished.code == 0
    assert finished.stdout.splitlines()[-1] == f"Page: {(finished.out / 'index.html').resolve()}"
    assert all(line == line.rstrip() for line in finished.stdout.splitlines())
    progress = finished.stderr.splitlines()
    assert len(progress) == len(sections.load())
    assert progress[0].startswith(f"1/{len(progress)}  claim 1: Pooling ignores what is asked")


def test_chinese_throughout(tmp_path, capsys, small_section):
    assert tour.run(tour.Request(tmp_path, "zh"), [small_section(7, 0.5), small_section(8, -0.5)]) == 0
    printed = capsys.readouterr().out
    assert "标题 7" in printed
    assert "不成立" in printed
    assert printed.splitlines()[-1].startswith("页面：")
    assert (tmp_path / "index.html").read_bytes() == (tmp_path / "zh.html").read_bytes()
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["claims"][0]["title"] == "标题 7"


def test_some_claims_for_a_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "load", lambda: [dying.section(number) for number in (3, 5, 7)])
    monkeypatch.setattr(runner, "walk_together", lambda chosen, **_: walk.walk(chosen))
    assert cli.main(["tour", "--only", "7,3", "--json", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert [claim["number"] for claim in json.loads(printed)["claims"]] == [3, 7]
    assert (tmp_path / "results.json").read_text(encoding="utf-8") == printed
    assert cli.main(["tour", "--only", "7,11", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "regard: --only: expected claims from 3 to 7, got 11\n"


def test_full_and_again_are_passed_on(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(runner, "load", lambda: [dying.section(3)])
    monkeypatch.setattr(runner, "walk_together", lambda chosen, **how: asked.append(how) or walk.walk(chosen))
    assert cli.main(["tour", "--full", "--out", str(tmp_path)]) == 0
    assert cli.main(["tour", "--no-cache", "--out", str(tmp_path)]) == 0
    assert asked == [{"full": True, "again": False}, {"full": False, "again": True}]


def test_a_claim_that_does_not_hold_is_a_result(tmp_path, capsys, small_section):
    assert tour.run(tour.Request(tmp_path, "en"), [small_section(7, -0.5)]) == 0
    assert "did not hold" in capsys.readouterr().out
    assert "not-met" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_a_section_that_fails_does_not_stop_the_others(tmp_path, capsys, small_section):
    chain = [small_section(7, 0.5), small_section(8, ValueError("two\nlines & <more>")), small_section(9, 0.5)]
    assert tour.run(tour.Request(tmp_path, "en"), chain) == 1
    printed = capsys.readouterr()
    assert "claim-08: ValueError: two lines & <more>" in printed.err.splitlines()
    claims = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["claims"]
    assert [claim["verdict"] for claim in claims] == ["held", "failed", "held"]
    assert claims[1]["error"] == "ValueError: two lines & <more>"
    assert claims[1]["numbers"] == {}
    assert claims[1]["pictures"] == []
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert '<p class="error">ValueError: two lines &amp; &lt;more&gt;</p>' in page
    assert page.count("<img ") == 2
    assert page.count("Title 9 &lt;&amp;&gt;") >= 3


def test_a_picture_that_cannot_be_drawn_is_a_failure(tmp_path, small_section, monkeypatch):
    monkeypatch.setattr(Figure, "draw", lambda *_, **__: 1 / 0)
    assert tour.run(tour.Request(tmp_path, "en"), [small_section(7, 0.5)]) == 1


def test_nan_is_null_in_json(tmp_path, small_section):
    assert tour.run(tour.Request(tmp_path, "en"), [small_section(7, float("nan"))]) == 0
    (claim,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["claims"]
    assert (claim["verdict"], claim["numbers"]) == ("did not hold", {"size": None})


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_an_unwritable_folder_is_one_line(tmp_path, capsys, small_section, below):
    (tmp_path / "file").touch()
    assert (
        tour.run(tour.Request(tmp_path / "file" / below, "en"), [small_section(7, RuntimeError("not to be run"))]) == 2
    )
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("regard: --out: cannot write into")
    assert printed.err.count("\n") == 1


def test_a_full_disk_is_one_line(tmp_path, capsys, small_section, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "write_bytes", full)
    assert tour.run(tour.Request(tmp_path, "en"), [small_section(7, 0.5)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("No space left on device")


def test_control_c_stops_it(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "load", lambda: [dying.section(7, dying.interrupt)])
    assert cli.main(["tour", "--out", str(tmp_path / "out")]) == 130
    assert list((tmp_path / "out").iterdir()) == []


def test_a_terminal_gets_a_bar(tmp_path, capsys, small_section, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert tour.run(tour.Request(tmp_path, "en"), [small_section(7, 0.5), small_section(8, OSError("gone"))]) == 1
    progress = capsys.readouterr().err
    assert "claim-08: OSError: gone" in progress
    assert "\x1b[" in progress


def test_a_poor_terminal_is_no_reason_to_stop(tmp_path, small_section):
    poor = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with contextlib.redirect_stdout(poor):
        assert tour.run(tour.Request(tmp_path, "zh"), [small_section(7, 1e-9)]) == 0


def test_pictures_do_not_depend_on_the_users_settings(small_section):
    def drawing():
        figure = pictures.figure(height=1, width=1)
        figure.subplots().plot([0, 1])
        return figure

    plain = pictures.png(drawing, "light")
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "figure.dpi": 30}):
        assert pictures.png(drawing, "light") == plain
    assert pictures.png(drawing, "dark") != plain
