"""Time and memory of a piece of work, for sections that claim something about them."""

import ctypes
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

Work = Callable[[], object]


def seconds(*works: Work, rounds: int = 9) -> tuple[float, ...]:
    """The median time of each, measured in turn, so that what slows the machine down slows down all of them."""
    for work in works:
        work()  # compiles, and fills caches
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for own, work in zip(times, works, strict=True):
            start = time.perf_counter()
            work()
            own.append(time.perf_counter() - start)
    return tuple(statistics.median(own) for own in times)


def megabytes(work: Work) -> float:
    """How much memory the process holds while it works, beyond what it held before, at most."""
    give_back()
    before = peak = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return peak - before


def give_back() -> None:
    """Have the C library return what is free to the system, or work that takes it again would seem to take nothing."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def resident() -> float:
    """Megabytes of memory that the process holds now; where the system does not say, the most that it ever held."""
    statistics_of_memory = Path("/proc/self/statm")
    if statistics_of_memory.exists():
        return int(statistics_of_memory.read_text().split()[1]) * 4096 / 1e6
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most / 1e3
