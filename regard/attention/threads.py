"""What compiled loops need: the module that holds them, and threads to run in.

The loops are serial and hold no lock; they run in the threads of PyTorch's own operations, after a fork in Python's.
"""

import ctypes
import functools
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch

SHARE = 1 << 19  # how much work, in steps of a nanosecond or less, is worth waking a thread for


@functools.cache
def load_kernels(name: str, room: str = "attention") -> Any:
    """The module of compiled loops regard/{room}/loops/{name}.py; None without numba."""
    try:
        return importlib.import_module(f"regard.{room}.loops.{name}")
    except ImportError:  # no numba: slower, but right
        return None


def parallel_for(loop: Callable[[int, int], None], count: int, work: int) -> None:
    """loop(start, stop) over all of range(count), in this thread and as many others as PyTorch would use.

    Each thread takes a share, then another, until none is left: one that comes late, or not at all, only costs time.
    """
    workers = min(torch.get_num_threads(), work // SHARE)
    if workers < 2:
        loop(0, count)
        return
    loop(0, 0)  # if it has yet to be compiled, here, and not in all threads at once
    step = max(1, count // (4 * workers))
    starts = iter(range(0, count, step))

    def take_shares() -> None:
        for start in starts:
            loop(start, min(start + step, count))

    run_in_threads(take_shares, workers)


def run_in_openmp(task: Callable[[], None], workers: int) -> None:
    """Call the task in the threads of PyTorch's own operations.

    After an operation these wait for the next at full speed, for many milliseconds: other threads would have to share
    the processors with them, and take almost twice as long.
    """
    errors: list[BaseException] = []

    def call(_: Any) -> None:
        try:
            task()
        except BaseException as error:  # cannot pass through OpenMP; raised below
            errors.append(error)

    _gomp_parallel()(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(call), None, ctypes.c_uint(workers), ctypes.c_uint(0))
    if errors:
        raise errors[0]


def run_task(task: Any, arguments: Sequence[int], workers: int) -> None:
    """Call a compiled task (loops.task), in the threads of PyTorch's own operations if `workers` are more than one.

    No thread needs the interpreter's lock: it is for work that would take less time than waiting for that.
    """
    numbers = (ctypes.c_int64 * len(arguments))(*arguments)
    address = ctypes.addressof(numbers)
    if workers > 1 and shares_openmp():
        functions = ctypes.c_void_p(task.address), ctypes.c_void_p(address)
        _gomp_parallel()(*functions, ctypes.c_uint(workers), ctypes.c_uint(0))
    else:
        task.ctypes(address)


def run_in_pool(task: Callable[[], None], workers: int) -> None:
    """Call the task in Python's threads. Not in numba's: those abort when two callers meet, and die after a fork."""
    others = []
    with suppress(RuntimeError):  # no more threads, or the interpreter is about to exit
        for _ in range(workers - 1):
            others.append(_pool().submit(task))
    task()
    for other in others:
        if not other.cancel():  # begun, else there is nothing to wait for
            other.result()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="regard")


@functools.cache
def _gomp_parallel() -> Any:
    """The function of PyTorch's OpenMP that calls another in several threads; None where it has no such thing."""
    with suppress(AttributeError, OSError, TypeError):
        return ctypes.CDLL(None).GOMP_parallel
    return None


run_in_threads = run_in_pool if _gomp_parallel() is None else run_in_openmp


def shares_openmp() -> bool:
    """Whether loops run in PyTorch's own threads, and not in a pool beside them."""
    return run_in_threads is run_in_openmp


def _after_fork() -> None:
    """Threads stay behind in the parent. OpenMP does not notice, and would wait for them forever."""
    global run_in_threads
    run_in_threads = run_in_pool
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
