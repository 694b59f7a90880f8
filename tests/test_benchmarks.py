"""Every benchmark runs, at a tiny size; a failed one loses no other's rows; nothing but a test imports from tests."""

import ast
import importlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import SUBJECTS, __main__, front
from benchmarks.measure import Row, compare, compare_time, compare_worst, duration
from tests.browsing import chromium

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_benchmark_runs(subject):
    if subject == "seeing" and chromium() is None and not os.environ.get("CI"):
        pytest.skip("no Chromium here: install Debian's package chromium")
    rows = importlib.import_module(f"benchmarks.{subject}").rows(tiny=True)
    # In a thread without a browser: Playwright refuses to start a second one where that of other tests runs.
    with ThreadPoolExecutor(1) as thread:
        table = thread.submit(list, rows).result()
    assert table
    assert len({(row.work, row.against) for row in table}) == len(table), "two rows have the same name"
    for row in table:
        assert all((row.work, row.ours, row.result, row.bar)), row


def test_subjects_are_the_files_that_have_rows():
    files = (ROOT / "benchmarks").glob("*.py")
    assert {file.stem for file in files if "\ndef rows(" in file.read_text(encoding="utf-8")} == set(SUBJECTS)


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


def test_a_failed_subject_loses_no_rows(tmp_path, monkeypatch, capsys):
    def broken(tiny=False):
        yield Row("first", "peer", "2 s", "1 s", "2.00×", "≥ 1×", True)
        raise AssertionError("the answers differ\nby much")

    def whole(tiny=False):
        yield Row("second", "peer", "3 s", "1 s", "3.00×", "≥ 1×", True)

    monkeypatch.setattr("benchmarks.additive.rows", broken)
    monkeypatch.setattr("benchmarks.dot.rows", whole)
    monkeypatch.setattr(__main__, "SUBJECTS", ("additive", "dot"))
    monkeypatch.setattr(__main__, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(front, "FRONTS", (tmp_path / "README.md",))
    (tmp_path / "README.md").write_text("| second | peer | old |\n", encoding="utf-8")
    assert __main__.main(["dot"]) == 0
    assert not (tmp_path / "benchmarks.md").exists(), "some subjects alone are no page"
    assert __main__.main([]) == 1
    assert capsys.readouterr().err.endswith("failed: additive: AssertionError: the answers differ\n")
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    lines = ["| first | peer | 2 s | 1 s | 2.00× | ≥ 1× | yes |", "| second | peer | 3 s | 1 s | 3.00× | ≥ 1× | yes |"]
    assert "\n".join(lines) in page
    assert "additive: AssertionError: the answers differ\n" in page
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == lines[1] + "\n"


def test_a_subject_that_is_not_there(capsys):
    with pytest.raises(SystemExit):
        __main__.main(["dott"])
    assert f"dott: expected some of {', '.join(SUBJECTS)}" in capsys.readouterr().err


def sleeping(seconds):
    return lambda: time.sleep(seconds)


def test_of_several_cases_the_worst_is_shown():
    cases = {"fast": (sleeping(0.03), sleeping(0.01)), "slow": (sleeping(0.01), sleeping(0.03))}
    row = compare_worst("work", "peer", cases, 1.0, repeats=3)
    assert row.result.endswith("× (slow)")
    assert float(row.result.split("×")[0]) < 0.6
    assert not row.met
    assert compare_worst("work", "peer", {"fast": cases["fast"]}, 1.0, repeats=3).met


def test_a_time_is_that_of_one_call():
    calls = []
    row = compare("work", "peer", sleeping(0.001), lambda: (calls.append(1), time.sleep(0.001)), 0.1, 3, calls=20)
    assert len(calls) == (1 + 3) * 20
    assert 1 <= float(row.ours.removesuffix(" ms")) < 15


def test_a_share_of_the_time_has_a_highest_bar():
    plain, more = sleeping(0.01), sleeping(0.03)
    assert not compare_time("work", "peer", plain, more, 1.5, 3).met
    assert compare_time("work", "peer", more, plain, 1.5, 3).met


@pytest.mark.parametrize(("seconds", "text"), [(8.53e-6, "8.53 µs"), (0.0021, "2.1 ms"), (0.9, "900 ms"), (61, "61 s")])
def test_times_are_shown_in_their_unit(seconds, text):
    assert duration(seconds) == text
