"""Tests are run in forks, and in copies of the package.

A fork of a process that has imported the large packages is ready at once, so that a mutant costs what its tests cost.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

# In seconds of the processor, for on a machine with other work to do a slow test is no sign of a fault.
MINUTE = 60.0  # for the tests that try a mutant
PATIENCE = 40.0  # beyond the time of the tests, after which a mutant hangs
WAITING = 6  # times as long by the clock: it hangs without computing


def in_fork(root: Path, work: Callable[[], Any], limit: float) -> Any:
    """What `work` returns in a fork that has `root` as its folder; "crash" if it dies.

    "time" if it takes the processor for more than `limit` seconds, or waits for `WAITING` times as long.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        process = context.Process(target=_in_root, args=(root, temporary, work, limit, sender))
        process.start()
        sender.close()
        try:
            result = receiver.recv() if receiver.poll(WAITING * limit) else "time"
        except EOFError:
            process.join()
            if (process.exitcode or 0) >= 0:  # not by a signal
                raise RuntimeError(f"a fork failed: {(root / 'output.txt').read_text()[-2000:]}") from None
            result = "time" if process.exitcode == -signal.SIGXCPU else "crash"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)  # and all that it has started
            process.join()
    return result


def _in_root(root: Path, temporary: str, work: Callable[[], Any], limit: float, sender: Connection) -> None:
    """Leave the parent's folder, output and modules behind, then work."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.RLIM_INFINITY))
    sys.stdout = sys.stderr = (root / "output.txt").open("w")
    for descriptor in (1, 2):
        os.dup2(sys.stdout.fileno(), descriptor)
    sys.dont_write_bytecode = False  # it stays in the copy, and saves the next forks the time
    os.chdir(root)
    sys.path.insert(0, str(root))
    for name in list(sys.modules):
        if name.partition(".")[0] in ("regard", "tests", "benchmarks", "experiments"):
            del sys.modules[name]
    os.environ |= {"PYTHONPATH": str(root), "REGARD_PREPARED": temporary, "TMPDIR": temporary}
    tempfile.tempdir = None  # or it would be the parent's
    sender.send(work())


def run_pytest(files: Sequence[str], plugin: object, *options: str) -> None:
    imported = "ignore::pytest.PytestAssertRewriteWarning"  # of plugins, before the fork
    arguments = ["--quiet", "-p", "no:cacheprovider", "--tb=line", "-W", imported, *options, *files]
    code = pytest.main(arguments, plugins=[plugin])
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        raise RuntimeError(f"pytest ended with {code!r}")


class Limited:
    """A plugin of pytest: so many seconds after the first test, no other one is begun."""

    seconds = MINUTE
    start: float | None = None
    is_over = False  # whether a test was not begun

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """True: it has been seen to."""
        self.start = self.start or processor_time()
        self.is_over = processor_time() - self.start > self.seconds
        return True if self.is_over else None


def processor_time() -> float:
    """Seconds, of this process and of those that it has waited for."""
    return sum(os.times()[:4])
