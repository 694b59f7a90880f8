"""Walking through sections: run, judge and draw each, several at once; one that fails does not stop the others."""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch

from regard.tour import cache as kept
from regard.tour.labels import chinese
from regard.tour.section import Criterion, Language, Need, Numbers, Outcome, Section, verdict
from regard.view.pictures import png

MOST = 8  # processes: each holds some hundred megabytes
DIED = "its process has died, of too little memory perhaps"


@dataclass(frozen=True)
class Result:
    """What came of one section. One that failed has an error, in one line, and nothing else."""

    section: Section[Any]
    outcome: Outcome
    seconds: float  # with its share of what it needs
    numbers: Numbers | None = None
    criteria: Sequence[Criterion] = ()
    pictures: Mapping[kept.Picture, bytes] = field(default_factory=dict)
    error: str = ""
    is_kept: bool = False  # from an earlier tour

    @property
    def anchor(self) -> str:
        """The section's place in the page."""
        return f"claim-{self.section.number:02}"

    def picture_name(self, language: Language, theme: str) -> str:
        """The file of its picture: claim-17.png, claim-17-zh.png, claim-17-dark.png, claim-17-zh-dark.png."""
        usual = ("en", "light")
        return "-".join([self.anchor, *(part for part in (language, theme) if part not in usual)]) + ".png"

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
            yield replace(_judged(section, found), is_kept=True)
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
            drawings = {"en": drawing, "zh": chinese(drawing)}
            pictures = {(language, theme): png(drawings[language], theme) for language, theme in kept.PICTURES}
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
    """Sections in processes of their own. One that dies takes the others with it: they are tried again one by one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    died = []
    for result in _in_pool(sections, full=full, processes=min(MOST, count)):
        if result.error == DIED:
            died.append(result.section)
        else:
            yield result
    for section in died:
        yield from _in_pool([section], full=full, processes=1)


def _in_pool(sections: Sequence[Section[Any]], *, full: bool, processes: int) -> Iterator[Result]:
    """Sections in their order; what several of them need is made once, when the first of them has its turn, and each
    bears its share of the time."""
    needs = {own.number: own.full_needs if full and own.full is not None else own.needs for own in sections}
    users = Counter(chain.from_iterable(needs.values()))
    costs = dict[Need, float]()  # seconds
    making, running = dict[Future[Any], Need](), dict[Future[Result], Section[Any]]()
    waiting: list[Section[Any]] = []
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _alone)
    try:
        for section in sections:
            for need in needs[section.number]:
                if need not in making.values():
                    making[_submitted(pool, _made, need)] = need
            if needs[section.number]:
                waiting.append(section)
            else:
                running[_submitted(pool, visit, section, full)] = section
        while waiting or running:
            done, _ = wait([*making, *running], return_when=FIRST_COMPLETED)
            for future in done:
                if future in making:
                    need = making.pop(future)
                    # Where it failed, the section that needs it tries again, and says why it fails.
                    costs[need] = 0.0 if future.exception() else future.result()
                else:
                    section = running.pop(future)
                    shares = sum(costs[need] / users[need] for need in needs[section.number])
                    result = _result(future, section)
                    yield replace(result, seconds=result.seconds + shares)
            missing = set(making.values())
            for section in [own for own in waiting if missing.isdisjoint(needs[own.number])]:
                waiting.remove(section)
                running[_submitted(pool, visit, section, full)] = section
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _made(need: Need) -> float:
    """How many seconds it takes to make it."""
    start = time.perf_counter()
    need.make(*need.of)
    return time.perf_counter() - start


def _submitted(pool: ProcessPoolExecutor, work: Callable[..., Any], *of: object) -> Future[Any]:
    try:
        return pool.submit(work, *of)
    except BrokenProcessPool as error:
        never = Future[Any]()
        never.set_exception(error)
        return never


def _result(future: Future[Result], section: Section[Any]) -> Result:
    try:
        return future.result()
    except BrokenProcessPool:
        return Result(section, Outcome.FAILED, 0.0, error=DIED)


def _alone() -> None:
    """A process that leaves Ctrl-C to the one that started it, and keeps to its core."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
