"""Time and memory of a piece of work, for the tour, the benchmarks and the tests."""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Work = Callable[[], object]


def least_seconds(*works: Work, rounds: int) -> tuple[float, ...]:
    """The least processor time that each takes of this thread, in several rounds: a busy machine is not in it.

    works: what to measure, in turn; each is called once before, which compiles and fills caches.
    rounds: how often each is measured.
    """
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    with quick_collections():
        for _ in range(rounds):
            for seconds, work in zip(times, works, strict=True):
                gc.collect()  # so that nobody pays for the garbage of the work before
                start = time.thread_time()
                work()
                seconds.append(time.thread_time() - start)
    return tuple(map(min, times))


@contextmanager
def quick_collections() -> Iterator[None]:
    """Within this block a garbage collection leaves out what is there already: all of torch takes 0.1 s each time."""
    gc.collect()
    was_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:  # else that of an outer block would end, too
            gc.unfreeze()


def peak_memory(work: Work) -> float:
    """The most megabytes that the process holds while it works, beyond what it held before."""
    _return_free_memory()
    before = peak = resident_memory()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident_memory())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _output = work()  # held until the last look, which sees what the watcher may have missed
    finally:
        done.set()
        watcher.join()
    return max(peak, resident_memory()) - before


def _return_free_memory() -> None:
    """Have the C library return what is free to the system, or work that takes it again would seem to take nothing."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def resident_memory() -> float:
    """Megabytes of memory that the process holds now; where the system does not say, the most that it ever held."""
    memory_statistics = Path("/proc/self/statm")
    if memory_statistics.exists():
        return int(memory_statistics.read_text().split()[1]) * 4096 / 1e6
    import resource

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / 1e6 if sys.platform == "darwin" else largest / 1e3
