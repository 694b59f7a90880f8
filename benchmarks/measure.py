"""Measuring: regard, its peer and the bare work in turn, in one process, in three runs. Ratios travel, times do not."""

from __future__ import annotations

import gc
import importlib
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from benchmarks import SUBJECTS
from benchmarks.bare import Bare
from regard.measure import Work, peak_memory, quick_collections

# Of a row: "ours" and, where there are any, "peer" and "best" (the bare work), a number for each run; and "case", the
# name of the case, where the row shows the worst of several.
Figures = dict[str, Any]

RUNS = 3
SECONDS = 1.0  # that each side of a row has in a run, if one measurement does not take longer
ROUNDS = 51  # measurements of each side in a run, at most
TICK = 1e-3  # seconds: calls that are shorter are measured several at a time


@dataclass(frozen=True)
class Row:
    """One line of the table: what is done, against what, how it is measured, and what has to come out.

    name: stable and short, subject/row. measure: tiny → figures. at_least: times as fast as the peer. at_most: times
    the peer's time, or memory, where ours does more than the peer. limit: of the figure itself. (With none of the three
    it is only reported.) unit: of the figures, s or MB. bound: what "best" is. share: how much of the time that
    should be. why: the sentence that a row needs which is below its peer or misses its aim.
    on_request: measured only where its whole name is given.
    """

    name: str
    work: str
    against: str
    measure: Callable[[bool], Figures]
    at_least: float | None = None
    at_most: float | None = None
    limit: float | None = None
    unit: str = "s"
    bound: str = ""
    share: float | None = None
    why: str = ""
    on_request: bool = False

    @property
    def aim(self) -> str:
        """The bar as the page shows it."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}×"
        if self.at_most is not None:
            return f"≤ {self.at_most:g}× {self._of_peer}"
        return "reported" if self.limit is None else f"≤ {self.amount(self.limit)}"

    def numbers(self, figures: Figures) -> list[float]:
        """What is held against the bar, of each run."""
        if not self._is_ratio(figures):
            return list(figures["ours"])
        ratios = [peer / max(ours, 1e-9) for peer, ours in zip(figures["peer"], figures["ours"], strict=True)]
        return ratios if self.at_most is None else [1 / max(ratio, 1e-9) for ratio in ratios]

    def is_met(self, figures: Figures) -> bool:
        """Whether the median of the runs keeps the bar."""
        number = statistics.median(self.numbers(figures))
        if self.at_least is not None:
            return number >= self.at_least
        highest = self.at_most if self.limit is None else self.limit
        return highest is None or number <= highest

    def is_below_peer(self, figures: Figures) -> bool:
        """Whether the peer takes less time, or memory."""
        return "peer" in figures and statistics.median(figures["peer"]) < statistics.median(figures["ours"])

    def result(self, figures: Figures) -> str:
        """The median of the runs, their range, and the case that it is of."""
        numbers = self.numbers(figures)
        shown = _ratio if self._is_ratio(figures) else self.amount
        middle, *ends = (shown(number) for number in (statistics.median(numbers), min(numbers), max(numbers)))
        unit = "" if shown == self.amount else "×" if self.at_most is None else f"× {self._of_peer}"
        spread = "" if len(numbers) == 1 else f" ({'–'.join(ends)})"
        case = f", {figures['case']}" if figures.get("case") else ""
        return f"{middle}{unit}{spread}{case}"

    def at_best(self, figures: Figures) -> str:
        """The share of the time that the bare work takes."""
        if "best" not in figures:
            return ""
        share = statistics.median(best / ours for best, ours in zip(figures["best"], figures["ours"], strict=True))
        aim = "" if self.share is None else f" (aim ≥ {self.share:g})"
        return f"{share:.2f}, {self.bound}{aim}"

    def amount(self, number: float) -> str:
        """A figure in its unit."""
        return duration(number) if self.unit == "s" else f"{number:{'.3g' if number < 1_000 else ',.0f'}} {self.unit}"

    def _is_ratio(self, figures: Figures) -> bool:
        return self.limit is None and "peer" in figures

    @property
    def _of_peer(self) -> str:
        return "the time" if self.unit == "s" else "the memory"


def _ratio(number: float) -> str:
    return f"{number:.2f}" if number < 100 else f"{number:.0f}"


def load_rows() -> dict[str, Row]:
    """All rows, by name."""
    modules = [importlib.import_module(f"benchmarks.{subject}") for subject in SUBJECTS]
    return {row.name: row for module in modules for row in module.ROWS}


def measure(name: str) -> Figures:
    """The figures of one row, for which no other subject is imported."""
    rows = importlib.import_module(f"benchmarks.{name.split('/')[0]}").ROWS
    return next(row for row in rows if row.name == name).measure(False)


def race(ours: Work, peer: Work | None = None, bare: Bare | None = None, *, tiny: bool) -> Figures:
    """Seconds of each, the median of a run, for every run; in each of which they are measured in turn."""
    sides = {"peer": peer, "ours": ours, "best": None if bare is None else bare.work}
    works = {name: work for name, work in sides.items() if work is not None}
    figures: dict[str, list[float]] = {name: [] for name in works}
    with quick_collections():
        plans = {name: (1, 1) if tiny else _plan(work) for name, work in works.items()}
        for _ in range(RUNS):
            times: dict[str, list[float]] = {name: [] for name in works}
            for number in range(max(rounds for rounds, _ in plans.values())):
                for name, work in works.items():
                    rounds, calls = plans[name]
                    if number < rounds:
                        times[name].append(_seconds(work, calls))
            for name, seconds in times.items():
                figures[name].append(statistics.median(seconds) * (bare.times if bare and name == "best" else 1))
    return figures


def race_worst(cases: Mapping[str, tuple[Work, Work]], *, tiny: bool) -> Figures:
    """`race` for several cases, each a peer and ours: the figures of the one with the lowest ratio, and its name."""
    outcomes = {name: race(ours, peer, tiny=tiny) for name, (peer, ours) in cases.items()}

    def speed(name: str) -> float:
        return statistics.median(outcomes[name]["peer"]) / statistics.median(outcomes[name]["ours"])

    worst = min(outcomes, key=speed)
    return {**outcomes[worst], "case": worst}


def _plan(work: Work) -> tuple[int, int]:
    """How many measurements make a run, and how many calls a measurement, by the time of a few calls."""
    seconds = _seconds(work, 1)  # which compiles and fills caches
    if seconds < SECONDS:
        seconds = _seconds(work, 1)
    if seconds < SECONDS / 20:  # of short ones some are interrupted
        seconds = min(seconds, *(_seconds(work, 1) for _ in range(4)))
    calls = math.ceil(min(1_000, max(1, TICK / seconds)))
    return round(min(ROUNDS, max(1, SECONDS / (calls * seconds)))), calls


def _seconds(work: Work, calls: int) -> float:
    gc.collect()  # so that nobody pays for the garbage of the work before
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - start) / calls


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch with one thread: for work so short that waking up a second one takes longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def gradients(attention: Callable[..., Tensor], tensors: Sequence[Tensor], direction: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward: the output for these tensors, and the gradients of output · direction by each of them."""
    output = attention(*tensors)
    return output.detach(), *torch.autograd.grad(output, tensors, direction)


def duration(seconds: float) -> str:
    """A time as the page shows it."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def peak_memory_alone(prepare: Callable[[], Work]) -> float:
    """`peak_memory` in a process of its own, in which `prepare()` prepares and returns the work."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_peak_memory, args=(prepare, sender))
    child.start()
    sender.close()  # so that a child which dies ends the waiting
    megabytes: float = receiver.recv()
    child.join()
    return megabytes


def _send_peak_memory(prepare: Callable[[], Work], sender: Connection) -> None:
    sender.send(peak_memory(prepare()))
