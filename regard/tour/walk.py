"""Walking through sections: run, judge and draw each, several at once; one that fails does not stop the others."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.tour import kept
from regard.tour.section import Criterion, Language, Need, Numbers, Outcome, Section, verdict
from regard.view.pictures import THEMES, png

MOST = 8  # processes: each holds some hundred megabytes


@dataclass(frozen=True)
class Result:
    """What came of one section. One that failed has an error, in one line, and nothing else."""

    section: Section[Any]
    outcome: Outcome
    seconds: float
    numbers: Numbers | None = None
    criteria: Sequence[Criterion] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)  # theme → PNG
    error: str = ""

    @property
    def anchor(self) -> str:
        """The section's place in the page."""
        return f"claim-{self.section.number:02}"

    def picture_name(self, theme: str) -> str:
        """The file of its picture."""
        return f"{self.anchor}.png" if theme == "light" else f"{self.anchor}-{theme}.png"

    def notebook_name(self, language: Language) -> str:
        """The file of its notebook."""
        return f"notebooks/{language}/{self.anchor}.ipynb"


def walk(sections: Iterable[Section[Any]]) -> Iterator[Result]:
    """The results, one by one."""
    return map(visit, sections)


def walk_together(sections: Sequence[Section[Any]], *, full: bool, again: bool) -> Iterator[Result]:
    """The results as they come, in as many processes as there are cores; what is kept from before comes first."""
    left = []
    for section in sections:
        found = None if again else kept.find(section, full=full)
        if found is None:
            left.append(section)
        else:
            yield _judged(section, found)
    for result in _side_by_side(left, full=full):
        if result.numbers is not None:
            kept.keep(result.section, kept.Kept(result.numbers, dict(result.pictures), result.seconds), full=full)
        yield result


def visit(section: Section[Any], full: bool = False) -> Result:
    """Run, judge and draw a section. It starts from the same seed, on one thread, whatever ran before it."""
    start = time.perf_counter()
    try:
        with torch.random.fork_rng(devices=[]), _one_thread():
            torch.manual_seed(0)
            numbers, drawing = section.full() if full and section.full is not None else section.run()
            pictures = {theme: png(drawing, theme) for theme in THEMES}
            return _judged(section, kept.Kept(numbers, pictures, time.perf_counter() - start))
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Result(section, Outcome.FAILED, time.perf_counter() - start, error=line)


def _judged(section: Section[Any], found: kept.Kept) -> Result:
    criteria = section.judge(found.numbers)
    return Result(section, verdict(criteria), found.seconds, found.numbers, criteria, found.pictures)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The number of threads changes the last bits of sums, so it is always the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _side_by_side(sections: Sequence[Section[Any]], *, full: bool) -> Iterator[Result]:
    """Sections in processes of their own. What several of them need is made first, each by itself."""
    if not sections:
        return
    count = min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    needs = {section.number: set(() if full else section.needs) for section in sections}
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _alone)
    try:
        making: dict[Future[Any], Need] = {
            pool.submit(need.make, *need.of): need for need in dict.fromkeys(_all_needs(sections, needs))
        }
        waiting, running = list(sections), dict[Future[Result], Section[Any]]()
        while waiting or running:
            missing = set(making.values())
            for section in [own for own in waiting if not needs[own.number] & missing]:
                waiting.remove(section)
                running[pool.submit(visit, section, full)] = section
            done, _ = wait([*making, *running], return_when=FIRST_COMPLETED)
            for future in done:
                if future in running:
                    yield _result(future, running.pop(future))
                else:
                    del making[future]  # if it failed, the section that needs it tries again, and says why it fails
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _all_needs(sections: Sequence[Section[Any]], needs: Mapping[int, set[Need]]) -> Iterator[Need]:
    for section in sections:
        yield from (need for need in section.needs if need in needs[section.number])


def _result(future: Future[Result], section: Section[Any]) -> Result:
    try:
        return future.result()
    except BrokenProcessPool:
        return Result(section, Outcome.FAILED, 0.0, error="its process has died, of too little memory perhaps")


def _alone() -> None:
    """A process that leaves Ctrl-C to the one that started it, and keeps to its core."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
