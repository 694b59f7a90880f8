"""Does a test notice a mutant? They are tried in copies of the package."""

from __future__ import annotations

import functools
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from experiments.mutants.forks import MINUTE, PATIENCE, Limited, in_fork, run_pytest
from experiments.mutants.mutations import Mutant
from experiments.mutants.tracing import Tests, file_of, function_of, importers, name_of

AT_FIRST = 4.0  # seconds of the processor for the quickest tests: most mutants are killed by them
LIKELY = 3  # files of tests, which try a mutant first
FILES = 8  # of tests, for one mutant
UNTRACED = ("test_faults.py", "test_processes.py", "test_process_memory.py")  # run other processes, for minutes
MADE = (".*", "site", "build", "dist", "regard-*", "output.txt")


def copy(root: Path, to: Path) -> None:
    """The tree without what is hidden or made by make.

    With the folders in which Python and numba keep what they have compiled, for files have their times there as here;
    a copy that is brought up to date keeps its own.
    """
    made = ("__pycache__", *MADE) if to.exists() else MADE
    shutil.copytree(root, to, ignore=shutil.ignore_patterns(*made), dirs_exist_ok=True)
    for path in [*to.glob("regard/**/*.py"), *to.glob("tests/**/*.py")]:
        if not (root / path.relative_to(to)).exists():
            path.unlink()


def is_there(root: Path, test: str) -> bool:
    """Whether a test, or file of tests, that has killed a mutant is there; "time" and "crash" always are."""
    path, _, name = function_of(test).partition("::")
    if path in ("time", "crash"):
        return True
    return (root / path).is_file() and f"def {name}(" in (root / path).read_text("utf-8") + "def ("


def likely(base: Path, mutant: Mutant, files: Sequence[str]) -> list[str]:
    """Files of tests: first those that are called like the mutant's, or like one that imports it; then what names it.

    By its function, or else by others of its file.
    """
    steps = distances(base, mutant.file)
    near = {name for name in mutant.function.split(".") if not name.startswith("__")}
    far = set(re.findall(r"(?m)^(?:def|class) ([a-zA-Z]\w+)", (base / mutant.file).read_text("utf-8")))

    def rank(file: str) -> tuple[int, int, int, int]:
        text = (base / file).read_text("utf-8")
        words = Counter(re.findall(r"\w+", text))
        away = steps.get(Path(file).stem.removeprefix("test_"), len(steps))
        return away, -sum(words[name] for name in near), -len(far & words.keys()), len(text)

    return sorted((file for file in files if not file.endswith(UNTRACED)), key=rank)


@functools.cache
def distances(base: Path, file: str) -> dict[str, int]:
    """The names of modules that import a file of the package, with how many imports lie between: its own has 0."""
    steps, ring = {_module(file).rpartition(".")[2]: 0}, {_module(file)}
    for step in (1, 2, 3):
        imports = re.compile(rf"({'|'.join(map(re.escape, ring))})\b")
        ring = {module for module, text in _modules(base).items() if imports.search(text)}
        for module in ring:
            steps.setdefault(module.rpartition(".")[2], step)
    return steps


@functools.cache
def _modules(base: Path) -> dict[str, str]:
    paths = sorted((base / "regard").rglob("*.py"))
    return {_module(path.relative_to(base).as_posix()): path.read_text("utf-8") for path in paths}


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def attempt(base: Path, mutant: Mutant, reached: Mapping[str, Tests], briefly: bool = False) -> dict[str, Any]:
    """Try a mutant in a copy of `base`: first by the quickest tests that run its line; then, unless briefly, others."""
    quick, others = plan(base, mutant, reached)
    passing = {test for tests in reached.values() for test in tests}
    return attempt_by(base, mutant, [] if briefly else others, quick, passing)


def attempt_by(
    base: Path, mutant: Mutant, tests: Sequence[str], quick: Sequence[str] = (), passing: Collection[str] = ()
) -> dict[str, Any]:
    """Try a mutant by tests or files of them, after quick ones; those that are not `passing` have to pass in `base`."""
    clone, start = base.with_name(f"{base.name}-mutant"), time.monotonic()
    verdict: dict[str, Any] = {"verdict": "survived", "tests": 0}
    if not quick and not tests:
        return verdict
    make_clone(base, clone, mutant)
    patience = PATIENCE * (3 if "/loops/" in mutant.file else 1)  # they have to be compiled
    if quick:
        verdict = _try(clone, quick, False, patience + AT_FIRST)
    failing = set[str]()
    while tests and verdict["verdict"] == "survived":
        verdict = _try(clone, tests, True, patience + MINUTE, failing)
        by = verdict.get("by", "")
        if "::" not in by or by in passing or _try(base, [by], False, patience)["verdict"] == "survived":
            break
        failing.add(by)  # without the fault as well
        verdict = {"verdict": "survived", "tests": 0}
    shutil.rmtree(clone)
    return {**verdict, "seconds": round(time.monotonic() - start, 1)}


def make_clone(base: Path, clone: Path, mutant: Mutant) -> None:
    """A copy with the fault, and without what numba compiled from it: that looks no further than a function's file."""
    shutil.rmtree(clone, ignore_errors=True)
    shutil.copytree(base, clone, copy_function=os.link)
    path = clone / mutant.file
    content = path.read_bytes()
    path.unlink()  # or the file of the base would change with it
    path.write_bytes(mutant.apply(content))
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):  # of as many bytes and the same second, maybe
        compiled.unlink()
    for stale in [mutant.file, *importers(base, mutant.file)]:
        for compiled in (clone / stale).parent.glob(f"__pycache__/{Path(stale).stem}.*.nb?"):
            compiled.unlink()


def plan(base: Path, mutant: Mutant, reached: Mapping[str, Tests]) -> tuple[list[str], list[str]]:
    """The quickest tests that run the line, and all of them; where none does, the files that name function or module.

    One instance of each test goes before the second of any.
    """
    rows = [row for tests in reached.values() for row in tests.items() if name_of(mutant) in row[1][1]]
    instances: Counter[str] = Counter()
    ranked = []
    for test, (seconds, _) in sorted(rows, key=lambda row: row[1][0]):
        instances[function_of(test)] += 1
        ranked.append((seconds * instances[function_of(test)], seconds, test))
    ranked.sort()
    order = [test for _, _, test in ranked]
    if not order:
        names = {mutant.function.rpartition(".")[2], Path(mutant.file).stem} - {"", "__init__"}
        named = re.compile(rf"\b({'|'.join(map(re.escape, names)) or mutant.file})\b")
        return [], [file for file in reached if named.search((base / file).read_text("utf-8"))][:FILES]
    spent = accumulate(seconds for _, seconds, _ in ranked)
    quick = [test for test, seconds in zip(order, spent, strict=True) if seconds < AT_FIRST] or order[:1]
    files = list(dict.fromkeys(map(file_of, order)))[:FILES]
    return quick, [test for test in order if file_of(test) in files]


def _try(root: Path, tests: Sequence[str], others: bool, limit: float, without: Iterable[str] = ()) -> dict[str, Any]:
    """Run tests, or all of a file, until one fails; others=True: then their other instances, `without` these."""

    def work() -> dict[str, Any]:
        plugin = _Selection(tests, others, without)
        run_pytest(list(dict.fromkeys(map(file_of, tests))), plugin, "--exitfirst")
        return {**plugin.failure, "tests": plugin.count}

    result = in_fork(root, work, limit)
    if isinstance(result, str):
        return {"verdict": "killed", "by": result}
    return {"verdict": "killed" if "by" in result else "survived", **result}


class _Selection(Limited):
    """A plugin of pytest: these tests, file by file, in this order; then their other instances."""

    def __init__(self, tests: Sequence[str], others: bool, without: Iterable[str] = ()) -> None:
        self.failure: dict[str, str] = {}
        self.count = 0
        self._order, self._others = {test: place for place, test in enumerate(tests)}, others
        self._without = set(without)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """File by file, so that what a module's tests share is made once."""
        files = {file: place for place, file in enumerate(dict.fromkeys(map(file_of, self._order)))}
        functions = {function_of(test) for test in self._order} if self._others else set()
        wanted = {*self._order, *functions}
        places = {
            item: (files[file_of(item.nodeid)], self._order.get(item.nodeid, len(self._order)))
            for item in items
            if wanted & {item.nodeid, function_of(item.nodeid), file_of(item.nodeid)}
            and item.nodeid not in self._without
        }
        items[:] = sorted(places, key=lambda item: places[item])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A mutant that cannot be imported."""
        if report.failed:
            self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Twice or three times for each test."""
        self.count += report.when == "call"
        if report.failed:
            self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        message = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
        self.failure = self.failure or {"by": report.nodeid, "error": re.split(r"[:\n (]", message)[0]}
