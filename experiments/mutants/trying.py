"""Which tests run the line of a mutant, and does one of them notice it? All in forks, and in copies of the package.

A fork of a process that has imported the large packages is ready at once, so that a mutant costs what its tests cost.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from experiments.mutants.mutations import WHOLE_FILE, Mutant

INSTANCES = 6  # of a parametrised test, which are traced before any others
TRACED = 90.0  # seconds, for the tests of a file
MINUTE = 60.0  # for the tests that try a mutant
AT_FIRST = 4.0  # seconds of the quickest tests: most mutants are killed by them
PATIENCE = 90.0  # seconds beyond the time of the tests, after which a mutant hangs
FILES = 8  # of tests, for one mutant
UNTRACED = ("test_faults.py", "test_processes.py", "test_process_memory.py")  # run other processes, for minutes
MADE = (".*", "site", "build", "dist", "regard-*", "output.txt")
Tests = dict[str, tuple[float, list[str]]]  # test → its seconds, the names of the mutants whose lines it runs


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


def test_files(root: Path, rooms: Iterable[str]) -> list[str]:
    """The files of tests of these rooms."""
    paths = [path for room in rooms for path in sorted((root / "tests" / room).rglob("test_*.py"))]
    return [path.relative_to(root).as_posix() for path in paths]


def digest(root: Path, tests: Iterable[str]) -> str:
    """Of the content of these files."""
    return hashlib.sha256(b"".join((root / file).read_bytes() for file in tests)).hexdigest()[:12]


def is_there(root: Path, test: str) -> bool:
    """Whether a test, or file of tests, that has killed a mutant is there; "time" and "crash" always are."""
    path, _, name = _function(test).partition("::")
    if path in ("time", "crash"):
        return True
    return (root / path).is_file() and f"def {name}(" in (root / path).read_text("utf-8") + "def ("


# ------------------------------------------------------------------------------------------------------------- forks


def in_fork(root: Path, work: Callable[[], Any], limit: float) -> Any:
    """What `work` returns in a fork that has `root` as its folder; "time" if it takes longer, "crash" if it dies."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        process = context.Process(target=_in_root, args=(root, temporary, work, sender))
        process.start()
        sender.close()
        try:
            result = receiver.recv() if receiver.poll(limit) else "time"
        except EOFError:
            process.join()
            if (process.exitcode or 0) >= 0:  # not by a signal
                raise RuntimeError(f"a fork failed: {(root / 'output.txt').read_text()[-2000:]}") from None
            result = "crash"
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # and all that it has started
        process.join()
    return result


def _in_root(root: Path, temporary: str, work: Callable[[], Any], sender: Connection) -> None:
    """Leave the parent's folder, output and modules behind, then work."""
    os.setsid()
    sys.stdout = sys.stderr = (root / "output.txt").open("w")
    for descriptor in (1, 2):
        os.dup2(sys.stdout.fileno(), descriptor)
    os.chdir(root)
    sys.path.insert(0, str(root))
    for name in list(sys.modules):
        if name.partition(".")[0] in ("regard", "tests", "benchmarks", "experiments"):
            del sys.modules[name]
    os.environ |= {"PYTHONPATH": str(root), "REGARD_PREPARED": temporary, "TMPDIR": temporary}
    tempfile.tempdir = None  # or it would be the parent's
    sender.send(work())


def _pytest(files: Sequence[str], plugin: object, *options: str) -> None:
    imported = "ignore::pytest.PytestAssertRewriteWarning"  # of plugins, before the fork
    arguments = ["--quiet", "-p", "no:cacheprovider", "--tb=line", "-W", imported, *options, *files]
    code = pytest.main(arguments, plugins=[plugin])
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        raise RuntimeError(f"pytest ended with {code!r}")


class _Limited:
    """A plugin of pytest: so many seconds after the first test, no other one is begun."""

    seconds = MINUTE
    start: float | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """True: it has been seen to."""
        self.start = self.start or time.monotonic()
        return True if time.monotonic() - self.start > self.seconds else None


# ------------------------------------------------------------------------------------------------- who runs the line


def traced(base: Path, file: str, mutants: Sequence[Mutant]) -> Tests:
    """The tests of a file, with the mutants whose lines they run; kept beside `base` until the file changes."""
    if file.endswith(UNTRACED):
        return {}
    kept = base.with_name("traced") / f"{file.replace('/', '.')}.json"
    content = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    if content.get("digest") != digest(base, [file]):
        content = {"digest": digest(base, [file]), "names": [], "tests": {}}
    if missing := [mutant for mutant in mutants if _name(mutant) not in content["names"]]:
        for test, (seconds, names) in trace(base, file, missing).items():
            content["tests"][test] = (seconds, [*names, *content["tests"].get(test, (0, []))[1]])
        content["names"] += map(_name, missing)
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(content), "utf-8")
    return content["tests"]


def trace(root: Path, file: str, mutants: Sequence[Mutant]) -> Tests:
    """The tests of a file that pass, with their seconds and the mutants whose lines they run.

    In a file that takes long, as many as it has time for.
    """

    def work() -> Tests:
        plugin = _Tracer(_lines_to_trace(root, mutants))
        _pytest([file], plugin)
        return plugin.tests

    result = in_fork(root, work, TRACED + 3 * PATIENCE)
    return {} if isinstance(result, str) else result


def _name(mutant: Mutant) -> str:
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
                lines[str(root / file)][line].add(_name(mutant))
    return lines


def _users(root: Path, file: str) -> list[str]:
    """The files that load a module of compiled loops, or one that imports it."""
    names = {Path(path).stem for path in [file, *_importers(root, file)]}
    loads = re.compile(rf"load_kernels\(\"({'|'.join(names)})\"")
    paths = sorted((root / "regard").rglob("*.py"))
    return [path.relative_to(root).as_posix() for path in paths if loads.search(path.read_text("utf-8"))]


def _importers(root: Path, file: str) -> list[str]:
    """The modules of compiled loops that import this file, directly or through others of them."""
    loops = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.glob("regard/*/loops/*.py")}
    importers: list[str] = []
    for imported in (todo := [file]):
        module = re.escape(imported.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        for path, text in loops.items():
            if path not in importers and re.search(rf"^from {module} import", text, re.MULTILINE):
                importers.append(path)
                todo.append(path)
    return importers


class _Tracer(_Limited):
    """A plugin of pytest that notes which lines each test runs."""

    seconds = TRACED

    def __init__(self, lines: Mapping[str, Mapping[int, set[str]]]) -> None:
        self.tests: Tests = {}
        self._lines, self._names, self._began = lines, set[str](), 0.0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """First some instances of each test, from the first to the last; the others if there is time."""
        instances: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            instances[_function(item.nodeid)].append(item)
        some = [item for group in instances.values() for item in group[:: -(-len(group) // INSTANCES)]]
        items[:] = dict.fromkeys([*some, *items])

    def pytest_runtest_logstart(self) -> None:
        """Before its fixtures."""
        self._names, self._began = set(), time.monotonic()
        threading.settrace(self._call)
        sys.settrace(self._call)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Twice or three times for each test."""
        if report.when == "call" and report.passed:
            self.tests[report.nodeid] = (round(time.monotonic() - self._began, 4), sorted(self._names))
        elif report.failed:
            self.tests.pop(report.nodeid, None)

    def pytest_runtest_logfinish(self) -> None:
        """After its fixtures."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: Any, event: str, argument: object) -> Any:
        lines = self._lines.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def note(frame: Any, event: str, argument: object) -> Any:
            if event == "line" and frame.f_lineno in lines:
                self._names |= lines[frame.f_lineno]
            return note

        return note


# ------------------------------------------------------------------------------------------------------- who notices


def attempt(base: Path, mutant: Mutant, reached: Mapping[str, Tests]) -> dict[str, Any]:
    """Try a mutant in a copy of `base`: first by the quickest tests that run its line, then by the others."""
    clone, start = base.with_name(f"{base.name}-mutant"), time.monotonic()
    make_clone(base, clone, mutant)
    quick, others = plan(base, mutant, reached)
    patience = PATIENCE * (3 if "/loops/" in mutant.file else 1)  # they have to be compiled
    verdict: dict[str, Any] = {"verdict": "survived", "tests": 0}
    if quick:
        verdict = _try(clone, quick, False, patience + AT_FIRST)
    passing, failing = {test for tests in reached.values() for test in tests}, set[str]()
    while others and verdict["verdict"] == "survived":
        verdict = _try(clone, others, True, patience + MINUTE, failing)
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
    for stale in [mutant.file, *_importers(base, mutant.file)]:
        for compiled in (clone / stale).parent.glob(f"__pycache__/{Path(stale).stem}.*.nb?"):
            compiled.unlink()


def plan(base: Path, mutant: Mutant, reached: Mapping[str, Tests]) -> tuple[list[str], list[str]]:
    """The quickest tests that run the line, and all of them; where none does, the files that name function or module.

    One instance of each test goes before the second of any.
    """
    rows = [row for tests in reached.values() for row in tests.items() if _name(mutant) in row[1][1]]
    instances: Counter[str] = Counter()
    ranked = []
    for test, (seconds, _) in sorted(rows, key=lambda row: row[1][0]):
        instances[_function(test)] += 1
        ranked.append((seconds * instances[_function(test)], seconds, test))
    ranked.sort()
    order = [test for _, _, test in ranked]
    if not order:
        names = {mutant.function.rpartition(".")[2], Path(mutant.file).stem} - {"", "__init__"}
        named = re.compile(rf"\b({'|'.join(map(re.escape, names)) or mutant.file})\b")
        return [], [file for file in reached if named.search((base / file).read_text("utf-8"))][:FILES]
    spent = accumulate(seconds for _, seconds, _ in ranked)
    quick = [test for test, seconds in zip(order, spent, strict=True) if seconds < AT_FIRST] or order[:1]
    files = list(dict.fromkeys(map(_file, order)))[:FILES]
    return quick, [test for test in order if _file(test) in files]


def _try(root: Path, tests: Sequence[str], others: bool, limit: float, without: Iterable[str] = ()) -> dict[str, Any]:
    """Run tests, or all of a file, until one fails; others=True: then their other instances, `without` these."""

    def work() -> dict[str, Any]:
        plugin = _Selection(tests, others, without)
        _pytest(list(dict.fromkeys(map(_file, tests))), plugin, "--exitfirst")
        return {**plugin.failure, "tests": plugin.count}

    result = in_fork(root, work, limit)
    if isinstance(result, str):
        return {"verdict": "killed", "by": result}
    return {"verdict": "killed" if "by" in result else "survived", **result}


class _Selection(_Limited):
    """A plugin of pytest: these tests, file by file, in this order; then their other instances."""

    def __init__(self, tests: Sequence[str], others: bool, without: Iterable[str] = ()) -> None:
        self.failure: dict[str, str] = {}
        self.count = 0
        self._order, self._others = {test: place for place, test in enumerate(tests)}, others
        self._without = set(without)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """File by file, so that what a module's tests share is made once."""
        files = {file: place for place, file in enumerate(dict.fromkeys(map(_file, self._order)))}
        functions = {_function(test) for test in self._order} if self._others else set()
        wanted = {*self._order, *functions}
        places = {
            item: (files[_file(item.nodeid)], self._order.get(item.nodeid, len(self._order)))
            for item in items
            if wanted & {item.nodeid, _function(item.nodeid), _file(item.nodeid)} and item.nodeid not in self._without
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


def _function(test: str) -> str:
    return test.partition("[")[0]


def _file(test: str) -> str:
    return test.partition("::")[0]
