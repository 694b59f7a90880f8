"""Which tests run the line of a mutant?"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from experiments.mutants.forks import PATIENCE, Limited, in_fork, processor_time, run_pytest
from experiments.mutants.mutations import WHOLE_FILE, Mutant

INSTANCES = 3  # of a parametrised test, which are traced; the others are run when one of these runs the line
# Seconds of the processor, for the tests of a file: at first, and where that was not enough to kill a mutant.
TRACED, WHOLE = 5.0, 60.0
Tests = dict[str, tuple[float, list[str]]]  # test → its seconds, the names of the mutants whose lines it runs


def test_files(root: Path, rooms: Iterable[str]) -> list[str]:
    """The files of tests of these rooms."""
    paths = [path for room in rooms for path in sorted((root / "tests" / room).rglob("test_*.py"))]
    return [path.relative_to(root).as_posix() for path in paths]


def digest(root: Path, tests: Iterable[str]) -> str:
    """Of the content of these files."""
    return hashlib.sha256(b"".join((root / file).read_bytes() for file in tests)).hexdigest()[:12]


def traced(base: Path, file: str, mutants: Sequence[Mutant], seconds: float = TRACED) -> Tests:
    """The tests of a file, with the mutants whose lines they run; kept beside `base` until the file changes."""
    content = _kept(base, file)
    if content["seconds"] < seconds:
        content = {**content, "names": [], "seconds": seconds}
    if missing := [mutant for mutant in mutants if name_of(mutant) not in content["names"]]:
        tests, is_whole = trace(base, file, missing, content["seconds"])
        for test, (taken, names) in tests.items():
            content["tests"][test] = (taken, sorted({*names, *content["tests"].get(test, (0, []))[1]}))
        content["names"] += map(name_of, missing)
        content["seconds"] = max(content["seconds"], WHOLE) if is_whole else content["seconds"]
        _path(base, file).parent.mkdir(exist_ok=True)
        _path(base, file).write_text(json.dumps(content), "utf-8")
    return content["tests"]


def is_traced(base: Path, file: str, mutant: Mutant) -> bool:
    """Whether it is known which tests of a file run the line of a mutant."""
    return name_of(mutant) in _kept(base, file)["names"]


def _path(base: Path, file: str) -> Path:
    return base.with_name("traced") / f"{file.replace('/', '.')}.json"


def _kept(base: Path, file: str) -> dict[str, Any]:
    content = json.loads(_path(base, file).read_text("utf-8")) if _path(base, file).exists() else {}
    now = digest(base, [file])
    same = content.get("digest") == now
    return content if same and "seconds" in content else {"digest": now, "seconds": 0.0, "names": [], "tests": {}}


def trace(root: Path, file: str, mutants: Sequence[Mutant], seconds: float) -> tuple[Tests, bool]:
    """The tests of a file that pass, with their seconds and the mutants whose lines they run; whether these are all.

    In a file that takes long, as many as it has time for.
    """

    def work() -> tuple[Tests, bool]:
        plugin = _Tracer(_lines_to_trace(root, mutants), seconds)
        run_pytest([file], plugin)
        return plugin.tests, not plugin.is_over

    result = in_fork(root, work, seconds + 3 * PATIENCE)
    return ({}, True) if isinstance(result, str) else result


def name_of(mutant: Mutant) -> str:
    """Short, and another one when the mutant's function changes."""
    return hashlib.sha256(repr((mutant.key, mutant.source)).encode()).hexdigest()[:12]


def _lines_to_trace(root: Path, mutants: Sequence[Mutant]) -> dict[str, dict[int, set[str]]]:
    """File → line → the mutants that it concerns. Compiled code runs no lines: instead, those of files that load it."""
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for mutant in mutants:
        compiled = "/loops/" in mutant.file
        for file in _users(root, mutant.file) if compiled else [mutant.file]:
            first, last = WHOLE_FILE if compiled else mutant.lines
            length = len((root / file).read_text("utf-8").splitlines())
            for line in range(first, min(last, length) + 1):
                lines[str(root / file)][line].add(name_of(mutant))
    return lines


def _users(root: Path, file: str) -> list[str]:
    """The files that load a module of compiled loops, or one that imports it."""
    names = {Path(path).stem for path in [file, *importers(root, file)]}
    loads = re.compile(rf"load_kernels\(\"({'|'.join(names)})\"")
    paths = sorted((root / "regard").rglob("*.py"))
    return [path.relative_to(root).as_posix() for path in paths if loads.search(path.read_text("utf-8"))]


def importers(root: Path, file: str) -> list[str]:
    """The modules of compiled loops that import this file, directly or through others of them."""
    loops = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.glob("regard/*/loops/*.py")}
    paths: list[str] = []
    for imported in (todo := [file]):
        module = re.escape(imported.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        for path, text in loops.items():
            if path not in paths and re.search(rf"^from {module} import", text, re.MULTILINE):
                paths.append(path)
                todo.append(path)
    return paths


class _Tracer(Limited):
    """A plugin of pytest that notes which lines each test runs."""

    def __init__(self, lines: Mapping[str, Mapping[int, set[str]]], seconds: float) -> None:
        self.seconds = seconds
        self.tests: Tests = {}
        self._lines, self._names, self._began = lines, set[str](), 0.0
        self._functions: dict[CodeType, dict[int, set[str]]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Some instances of each test, from the first to the last; one of each test before the second of any."""
        instances: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            instances[function_of(item.nodeid)].append(item)
        some = [group[:: -(-len(group) // INSTANCES)] for group in instances.values()]
        items[:] = [item for turn in zip_longest(*some) for item in turn if item is not None]

    def pytest_runtest_logstart(self) -> None:
        """Before its fixtures."""
        self._names, self._began = set(), processor_time()
        threading.settrace(self._call)
        sys.settrace(self._call)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Twice or three times for each test."""
        if report.when == "call" and report.passed:
            self.tests[report.nodeid] = (round(processor_time() - self._began, 4), sorted(self._names))
        elif report.failed:
            self.tests.pop(report.nodeid, None)

    def pytest_runtest_logfinish(self) -> None:
        """After its fixtures."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: Any, event: str, argument: object) -> Any:
        lines = self._functions.get(frame.f_code)
        if lines is None:
            wanted = self._lines.get(frame.f_code.co_filename, {})
            lines = {line: wanted[line] for *_, line in frame.f_code.co_lines() if line in wanted}
            self._functions[frame.f_code] = lines
        if not lines:  # the others run at their speed
            return None

        def note(frame: Any, event: str, argument: object) -> Any:
            if event == "line" and frame.f_lineno in lines:
                self._names |= lines[frame.f_lineno]
            return note

        return note


def function_of(test: str) -> str:
    """The name of a test without its parameters."""
    return test.partition("[")[0]


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]
