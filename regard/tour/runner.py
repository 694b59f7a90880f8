"""Running sections, several at once; one that fails does not stop the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import torch

from regard.tour import cells
from regard.tour.cache import kept_folder, read_result, write_result
from regard.tour.section import Need, Picture, Result, Section

MAX_PROCESSES = 8  # each holds some hundred megabytes


def run_section(section: Section, full: bool = False) -> Result:
    """Run the cells of a section, its exercises and its measurement. All start from the same seed, on one thread."""
    start = time.perf_counter()
    run, _ = section.choose(full)
    try:
        with torch.random.fork_rng(devices=[]), _one_thread():
            variables = cells.run_plain(section)
            charts = [] if section.show is None else [section.show(SimpleNamespace(**variables))]
            answers = [cells.answer(exercise, section, variables) for exercise in section.exercises]
            cells.run_short(section, variables)
            torch.manual_seed(0)
            numbers, measured = run()
            pictures = [Picture.of(chart) for chart in (*charts, measured) if chart is not None]
            return Result(section, time.perf_counter() - start, numbers, pictures, answers)
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Result(section, time.perf_counter() - start, error=line)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The number of threads changes the last bits of sums, so it is the same for all sections."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_sections(
    sections: Sequence[Section], *, full: bool = False, no_cache: bool = False, processes: int | None = None
) -> Generator[Result]:
    """The results as they come; those of an earlier tour first.

    full: with more seeds, longer training and larger data.
    no_cache: compute also what an earlier tour has computed.
    processes: how many at once, by default one for each core; 0: all sections in this process.
    """
    remaining = []
    for section in sections:
        cached = None if no_cache else read_result(section, full=full)
        if cached is None:
            remaining.append(section)
        else:
            yield cached
    if processes is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        processes = min(MAX_PROCESSES, cores)
    if processes:
        results = _in_processes(remaining, full, processes)
    else:
        results = (run_section(section, full) for section in remaining)
    for result in results:
        if not result.error:
            write_result(result, full=full)
        yield result


def _in_processes(sections: Sequence[Section], full: bool, processes: int) -> Iterator[Result]:
    """A process that dies takes the others of its pool with it: what is left is then run one by one."""
    remaining = {section.number: section for section in sections}
    try:
        for result in _in_pool(sections, full, processes):
            del remaining[result.section.number]
            yield result
    except BrokenProcessPool:
        for section in remaining.values():
            try:
                yield from _in_pool([section], full, 1)
            except BrokenProcessPool:
                yield Result(section, 0.0, error="its process has died, of too little memory perhaps")


def _in_pool(sections: Sequence[Section], full: bool, processes: int) -> Iterator[Result]:
    """Sections in their order; what several of them need is made once, when the first of them has its turn, and each
    bears its share of the time."""
    needs = {section.number: section.choose(full)[1] for section in sections}
    users = Counter(chain.from_iterable(needs.values()))
    seconds = dict[Need, float]()  # that making it took
    making, running = dict[Future[Any], Need](), set[Future[Any]]()
    waiting = list[Section]()
    kept_folder()
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _start_worker)
    try:
        for section in sections:
            for need in needs[section.number]:
                if need not in making.values():
                    making[pool.submit(_make, need)] = need
            if needs[section.number]:
                waiting.append(section)
            else:
                running.add(pool.submit(run_section, section, full))
        while waiting or running:
            for future in wait([*making, *running], return_when=FIRST_COMPLETED).done:
                if future in making:
                    # Where making it failed, the section that needs it tries again, and says why it fails.
                    seconds[making.pop(future)] = 0.0 if future.exception() else future.result()
                else:
                    running.remove(future)
                    result: Result = future.result()
                    shares = sum(seconds[need] / users[need] for need in needs[result.section.number])
                    yield replace(result, seconds=result.seconds + shares)
            missing = set(making.values())
            for section in [section for section in waiting if missing.isdisjoint(needs[section.number])]:
                waiting.remove(section)
                running.add(pool.submit(run_section, section, full))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _make(need: Need) -> float:
    """How many seconds it takes to make it."""
    start = time.perf_counter()
    need.make(*need.arguments)
    return time.perf_counter() - start


def _start_worker() -> None:
    """Leave Ctrl-C to the process that started this one, keep to one core, and be nice: one may wait for a page."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(5)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    """A process that was killed ends nobody: its workers have to see it themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
