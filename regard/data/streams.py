"""Items that come one after the other and do not fit in memory together: worked on by threads, or read by several."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_count() -> int:
    """How many threads can work at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results in the order of the items, of which at most two for each thread are in memory.

    Threads are daemons: the work of one cannot be interrupted, and Ctrl-C should not wait for it.
    """
    tasks: SimpleQueue[tuple[Item, Future[Result]] | None] = SimpleQueue()
    threads = thread_count()

    def run() -> None:
        while (task := tasks.get()) is not None:
            item, future = task
            try:
                future.set_result(work(item))
            except BaseException as error:  # raised again where the result is asked for
                future.set_exception(error)

    for _ in range(threads):
        threading.Thread(target=run, daemon=True).start()
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(Future())
            tasks.put((item, waiting[-1]))
            if len(waiting) == 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for _ in range(threads):
            tasks.put(None)


def fork(items: Iterable[Item], count: int) -> list[Iterator[Item]]:
    """So many iterators over the same items, each of which is in memory until the last of them has taken it.

    (itertools.tee keeps 57 of them beyond that, which are megabytes each here.)
    """
    source, queues = iter(items), [deque[Item]() for _ in range(count)]

    def take(queue: deque[Item]) -> Iterator[Item]:
        while True:
            if not queue:
                try:
                    item = next(source)
                except StopIteration:
                    return
                for other in queues:
                    other.append(item)
                del item
            yield queue.popleft()

    return list(map(take, queues))
