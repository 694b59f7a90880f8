"""Measuring: two functions in turn, in one process, and the ratio of their medians. Times do not travel, ratios do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from regard.measure import Work, median_seconds, peak_memory


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


def compare(work: str, against: str, peer: Work, ours: Work, at_least: float, repeats: int, calls: int = 1) -> Row:
    """Median of interleaved repeats, after one warm-up of each; the result is how many times faster ours is.

    calls: how many make one measurement, where a single one is too short for the clock.
    """
    return compare_worst(work, against, {"": (peer, ours)}, at_least, repeats, calls)


def compare_worst(
    work: str,
    against: str,
    cases: Mapping[str, tuple[Work, Work]],
    at_least: float,
    repeats: int,
    calls: int = 1,
) -> Row:
    """`compare` for several cases, each a peer and ours: the row of the one with the lowest ratio, and its name."""
    times = {
        name: median_seconds(_repeat(peer, calls), _repeat(ours, calls), rounds=repeats)
        for name, (peer, ours) in cases.items()
    }
    ratio, name = min((slow / fast, name) for name, (slow, fast) in times.items())
    result = f"{ratio:.2f}× ({name})" if name else f"{ratio:.2f}×"
    slow, fast = (duration(seconds / calls) for seconds in times[name])
    return Row(work, against, slow, fast, result, f"≥ {at_least}×", ratio >= at_least)


def compare_time(work: str, against: str, peer: Work, ours: Work, at_most: float, repeats: int) -> Row:
    """`compare`, where ours does more than the peer; the result is its share of the peer's time."""
    plain, more = median_seconds(peer, ours, rounds=repeats)
    ratio = more / plain
    shown = (duration(plain), duration(more), f"{ratio:.2f}× the time", f"≤ {at_most}× the time")
    return Row(work, against, *shown, ratio <= at_most)


def compare_bandwidth(work: str, ours: Work, size: int, megabytes: int, repeats: int) -> Row:
    """The bytes that ours has to read each second, as a share of those that can be read; which is reported.

    size: bytes that ours reads. megabytes: of the tensor that is read in turn with it.
    """
    tensor = torch.ones(megabytes << 18)  # of four bytes
    reading, seconds = median_seconds(tensor.sum, ours, rounds=repeats)
    rates = tensor.nbytes / reading, size / seconds
    shown = (*(f"{rate / 1e9:.3g} GB/s" for rate in rates), f"{rates[1] / rates[0]:.2f} of the bandwidth")
    return Row(f"{work}: weights read", f"the sum of {megabytes} MB", *shown, "reported", True)


def _repeat(work: Work, calls: int) -> Work:
    def run() -> None:
        for _ in range(calls):
            work()

    return work if calls == 1 else run


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
