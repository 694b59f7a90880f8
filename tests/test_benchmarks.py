"""What is measured is stored row by row, and the page says no more than that. That rows run: test_benchmark_rows.py."""

import ast
import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import SUBJECTS, __main__, front, measured
from benchmarks.bare import Bare
from benchmarks.measure import RUNS, Row, duration, load_rows, race, race_worst

ROOT = Path(__file__).parent.parent
ROWS = load_rows()


def test_subjects_are_the_files_that_have_rows():
    files = (ROOT / "benchmarks").glob("*.py")
    assert {file.stem for file in files if "\nROWS = " in file.read_text("utf-8")} == set(SUBJECTS)


def test_names_are_of_their_subjects_and_titles_are_different():
    for subject in SUBJECTS:
        for row in importlib.import_module(f"benchmarks.{subject}").ROWS:
            assert ROWS[row.name] is row, f"two rows are called {row.name}"
            assert row.name.split("/")[0] == subject
            assert [row.at_least, row.at_most, row.limit].count(None) >= 2
    assert len({(row.work, row.against) for row in ROWS.values()}) == len(ROWS)


@pytest.mark.parametrize("folder", ["benchmarks", "experiments"])
def test_nothing_but_a_test_imports_from_tests(folder):
    modules = set()
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(node.module)
    assert "torch" in modules
    assert {module for module in modules if module.split(".")[0] == "tests"} == set()


# ------------------------------------------------------------------------------------------------- rows, and their page


def row(name, seconds, peer=0.02, **more):
    """A row whose figures are these seconds."""
    return Row(name, f"work of {name}", "peer", lambda tiny: {"ours": [seconds] * 3, "peer": [peer] * 3}, **more)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Rows that are measured here, and files of their own; a row that is replaced is measured otherwise."""
    table = {
        "dot/plain": row("dot/plain", 0.01, at_least=1.5),
        "dot/slow": row("dot/slow", 0.03, at_least=0.5, why="It does more."),
        "long/text": row("long/text", 0.01, on_request=True),
    }
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(__main__, "load_rows", lambda: table)
    monkeypatch.setattr(__main__, "measure", lambda name: table[name].measure(False))
    monkeypatch.setattr(__main__, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(workers))
    monkeypatch.setattr(__main__, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(__main__, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(front, "FRONTS", {"en": tmp_path / "README.md", "zh": tmp_path / "README.zh.md"})
    lines = {
        name: {"en": (f"work {name}", "a peer"), "zh": (f"工作 {name}", "对方")} for name in ("dot/plain", "dot/slow")
    }
    monkeypatch.setattr(front, "LINES", lines)
    for path in front.FRONTS.values():
        path.write_text(
            "before\n\n<!-- bench: made by `make bench` -->\nold\n<!-- end of bench -->\n\nafter\n", "utf-8"
        )
    return table


def failing(tiny):
    raise AssertionError("the answers differ")


def test_what_is_measured_is_kept_and_goes_on(rows, tmp_path, capsys):
    rows["dot/slow"] = Row("dot/slow", "work of dot/slow", "peer", failing, at_least=0.5, why="It does more.")
    assert __main__.main([]) == 1
    assert "failed: dot/slow\n" in capsys.readouterr().err
    assert set(__main__.figures_by_name(measured.read(tmp_path / "measured.json"))) == {"dot/plain"}
    page = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert "| work of dot/plain | peer | 20 ms | 10 ms | 2.00× (2.00–2.00) |  | ≥ 1.5× | yes | dot/plain |" in page
    assert "| work of dot/slow | peer |  |  | not measured yet |  | ≥ 0.5× |  | dot/slow |" in page
    assert "Not measured yet: 1 of 3 rows." in page

    rows["dot/plain"] = Row("dot/plain", "work of dot/plain", "peer", failing)  # is not measured again
    rows["dot/slow"] = row("dot/slow", 0.03, at_least=0.5, why="It does more.")
    assert __main__.main([]) == 0
    assert "- `dot/slow`: It does more.\n" in (tmp_path / "benchmarks.md").read_text("utf-8")
    assert __main__.main([]) == 0, "there is nothing left to do"


def test_rows_are_measured_again_by_a_part_of_their_names(rows, tmp_path):
    def ours():
        done = __main__.figures_by_name(measured.read(tmp_path / "measured.json"))
        return {name: figures["ours"][0] for name, figures in done.items()}

    assert __main__.main([]) == 0
    assert ours() == {"dot/plain": 0.01, "dot/slow": 0.03}, "the long one is measured on request"
    rows["dot/plain"], rows["dot/slow"] = row("dot/plain", 0.002), row("dot/slow", 0.004)
    assert __main__.main(["slow"]) == 0
    assert ours() == {"dot/plain": 0.01, "dot/slow": 0.004}
    assert __main__.main(["--page"]) == 0
    assert __main__.main(["--no-cache"]) == 0
    assert ours() == {"dot/plain": 0.002, "dot/slow": 0.004}
    assert __main__.main(["long/text"]) == 0
    assert set(ours()) == set(rows)


def test_a_row_that_is_not_there(rows, capsys):
    for name in ("dott", "long"):  # the whole name is long/text
        with pytest.raises(SystemExit):
            __main__.main([name])
        assert f"{name}: expected parts of dot/plain, dot/slow, long/text" in capsys.readouterr().err


@pytest.mark.parametrize("more", [{"at_least": 0.5}, {"at_least": 3}, {"limit": 0.001}], ids=str)
def test_a_row_below_its_peer_or_aim_needs_a_sentence(rows, tmp_path, capsys, more):
    rows["dot/slow"] = row("dot/slow", 0.03 if more == {"at_least": 0.5} else 0.01, **more)
    assert __main__.main([]) == 1
    assert "without a sentence why: dot/slow\n" in capsys.readouterr().err
    assert "- `dot/slow`: **no sentence yet.**" in (tmp_path / "benchmarks.md").read_text("utf-8")


def test_the_readmes_have_some_of_it_in_words_of_their_own(rows, tmp_path):
    rows["dot/slow"] = row("dot/slow", 0.03, at_most=2, why="It does more.")
    __main__.main(["plain"])
    english, chinese = (path.read_text("utf-8").splitlines() for path in front.FRONTS.values())
    assert english[:2] == ["before", ""]
    assert english[4:8] == [
        "| work | against | result |",
        "| --- | --- | --- |",
        "| work dot/plain | a peer | 2× as fast |",
        "| work dot/slow | a peer | not measured yet |",
    ]
    assert english[-2:] == ["", "after"]
    assert "| 工作 dot/plain | 对方 | 2 倍速度 |" in chinese
    __main__.main([])
    assert "| work dot/slow | a peer | 1.5× the time |" in (tmp_path / "README.md").read_text("utf-8")
    figures = {"ours": [0.2004], "peer": [3]}
    rows["dot/plain"] = row("dot/plain", 0.2, limit=2)
    assert "| 200 ms |" in front.tables(rows, {"dot/plain": figures})["en"]


def test_the_rows_of_the_readmes_are_there():
    assert set(front.LINES) <= set(ROWS)


def test_a_row_is_measured_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(__main__, "MEASURED", tmp_path / "measured.json")
    assert __main__.run(ROWS, "decoding/dot-8", "1 of 1")
    figures = measured.read(tmp_path / "measured.json")["decoding"]["dot-8"]
    assert all(0 < seconds < 1e-2 for seconds in figures["ours"] + figures["peer"])
    assert {"seconds", "versions", "cores", "on"} < figures.keys()


def test_the_page_is_made_of_what_was_measured():
    content = measured.read(__main__.MEASURED)
    done = __main__.figures_by_name(content)
    assert done.keys() <= ROWS.keys()
    assert __main__.unexplained(ROWS, done) == []
    if done:
        assert __main__.PAGE.read_text("utf-8") == __main__.page(ROWS, content), "run `python -m benchmarks --page`"


# ------------------------------------------------------------------------------------------------------------ measuring


def sleeping(seconds):
    return lambda: time.sleep(seconds)


def test_sides_are_measured_in_turn_in_three_runs():
    order = []
    figures = race(
        lambda: order.append("ours"), lambda: order.append("peer"), Bare(lambda: order.append("best")), tiny=True
    )
    assert order == ["peer", "ours", "best"] * RUNS
    assert {name: len(times) for name, times in figures.items()} == {"peer": 3, "ours": 3, "best": 3}


def test_a_time_is_that_of_one_call(monkeypatch):
    monkeypatch.setattr("benchmarks.measure.SECONDS", 0.05)
    calls = []
    figures = race(lambda: (calls.append(1), time.sleep(1e-4)), sleeping(0.1), tiny=False)
    assert len(calls) > 100
    assert all(1e-4 <= seconds < 1e-2 for seconds in figures["ours"])
    assert all(0.1 <= seconds < 0.9 for seconds in figures["peer"])


def test_of_several_cases_the_worst_is_shown():
    cases = {"fast": (sleeping(0.03), sleeping(0.01)), "slow": (sleeping(0.01), sleeping(0.03))}
    figures = race_worst(cases, tiny=True)
    assert figures["case"] == "slow"
    shown = Row("dot/plain", "work", "peer", failing, at_least=1).result(figures)
    assert shown.endswith(", slow")
    assert float(shown.split("×")[0]) < 0.6


def test_results_have_their_spread_and_their_bar():
    figures = {"ours": [0.01, 0.02, 0.04], "peer": [0.04, 0.04, 0.04], "best": [0.005, 0.01, 0.03]}
    fast = Row("a/b", "work", "peer", failing, at_least=3, bound="products", share=0.9)
    assert (fast.result(figures), fast.aim, fast.is_met(figures)) == ("2.00× (1.00–4.00)", "≥ 3×", False)
    assert fast.at_best(figures) == "0.50, products (aim ≥ 0.9)"
    more = Row("a/b", "work", "peer", failing, at_most=1.5)
    assert (more.result(figures), more.is_met(figures)) == ("0.50× the time (0.25–1.00)", True)
    memory = Row("a/b", "work", "peer", failing, limit=5, unit="MB")
    assert (memory.result({"ours": [7.25]}), memory.aim, memory.is_met({"ours": [7.25]})) == (
        "7.25 MB",
        "≤ 5 MB",
        False,
    )
    reported = Row("a/b", "work", "", failing)
    assert (reported.result({"ours": [0.1] * 3}), reported.aim) == ("100 ms (100 ms–100 ms)", "reported")


@pytest.mark.parametrize(("seconds", "text"), [(8.53e-6, "8.53 µs"), (0.0021, "2.1 ms"), (0.9, "900 ms"), (61, "61 s")])
def test_times_are_shown_in_their_unit(seconds, text):
    assert duration(seconds) == text
