"""Measuring: two functions in turn, in one process, and the ratio of their medians. Times do not travel, ratios do."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table: what was done, against what, what came out, and what had to."""

    work: str
    against: str
    peer: str
    ours: str
    result: str
    bar: str
    met: bool


Work = Callable[[], object]


def compare(work: str, against: str, peer: Work, ours: Work, at_least: float, repeats: int) -> Row:
    """Median of interleaved repeats, after one warm-up of each; the result is how many times faster ours is."""
    peer(), ours()
    times: dict[Work, list[float]] = {peer: [], ours: []}
    for _ in range(repeats):
        for function in (peer, ours):
            gc.collect()
            start = time.perf_counter()
            function()
            times[function].append(time.perf_counter() - start)
    slow, fast = statistics.median(times[peer]), statistics.median(times[ours])
    ratio = slow / fast
    shown = (milliseconds(slow), milliseconds(fast), f"{ratio:.2f}×", f"≥ {at_least}×")
    return Row(work, against, *shown, ratio >= at_least)


def milliseconds(seconds: float) -> str:
    """A time as the page shows it."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def peak_extra_memory(function: Callable[[], Work]) -> float:
    """Megabytes that a child process takes beyond what it held before: `function()` prepares and returns the work."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_watched, args=(function, sender))
    child.start()
    megabytes: float = receiver.recv()
    child.join()
    return megabytes


def _watched(function: Callable[[], Work], sender: multiprocessing.connection.Connection) -> None:
    work = function()
    work_done = threading.Event()
    before = peak = _resident()

    def watch() -> None:
        nonlocal peak
        while not work_done.is_set():
            peak = max(peak, _resident())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    work_done.set()
    watcher.join()
    # The kernel's own high-water mark sees what falls between two looks; it also counts the preparation.
    sender.send(peak - before)


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6
