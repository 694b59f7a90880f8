"""Measuring: two functions in turn, in one process, and the ratio of their medians. Times do not travel, ratios do."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from regard.tour.measure import Work, megabytes


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
    taken: float = receiver.recv()
    child.join()
    return taken


def _watched(function: Callable[[], Work], sender: multiprocessing.connection.Connection) -> None:
    sender.send(megabytes(function()))
