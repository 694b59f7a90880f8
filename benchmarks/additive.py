"""Additive attention against the textbook formula, which holds a (batch, n, m, hidden) tensor of tanh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import Row, compare, peak_memory_alone
from regard import Additive, attend


def textbook(score: Additive, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The formula as it is written, with its (batch, n, m, hidden) tensor."""
    features = torch.tanh((query @ score.query_weight.T)[:, :, None] + (key @ score.key_weight.T)[:, None])
    return torch.softmax(features @ score.value_weight, -1) @ value


def problem(batch: int, n: int, hidden: int, values: int) -> tuple[Additive, list[Tensor]]:
    """A score, and a query, key and value for it."""
    torch.manual_seed(0)
    sizes = (hidden, hidden, values)
    return Additive(hidden, hidden, hidden), [torch.randn(batch, n, size, requires_grad=True) for size in sizes]


def long_sequence(n: int, hidden: int, values: int) -> Callable[[], object]:
    """Compile first, on a problem just large enough for the loops, so that only the work itself is measured."""
    small, large = problem(1, 64, hidden, values), problem(1, n, hidden, values)
    forward_and_backward(*small)
    return lambda: forward_and_backward(*large)


def forward_and_backward(score: Additive, tensors: list[Tensor]) -> None:
    """One training step's share of the work."""
    attend(*tensors, score=score).sum().backward()


def rows(tiny: bool = False) -> Iterator[Row]:
    """Forward, forward and backward, memory."""
    batch, n, long, hidden, values = (2, 7, 11, 5, 3) if tiny else (4, 512, 4_096, 128, 64)
    score, tensors = problem(batch, n, hidden, values)
    plain = [tensor.detach() for tensor in tensors]

    @torch.no_grad()
    def peer() -> Tensor:
        return textbook(score, *plain)

    @torch.no_grad()
    def ours() -> Tensor:
        return attend(*plain, score=score)

    torch.testing.assert_close(ours(), peer())
    work = f"additive, batch {batch}, n = m = {n}, hidden {hidden}, values {values}, "
    yield compare(work + "forward", "textbook formula, eager", peer, ours, 50, 1 if tiny else 9)
    yield compare(
        work + "forward + backward",
        "textbook formula, eager",
        lambda: textbook(score, *tensors).sum().backward(),
        lambda: forward_and_backward(score, tensors),
        28,
        1 if tiny else 7,
    )
    megabytes = peak_memory_alone(partial(long_sequence, long, hidden, values))
    yield Row(
        f"additive, n = m = {long:,}, hidden {hidden}, forward + backward",
        "peak extra memory",
        f"{long**2 * hidden * 4 / 1e6:,.0f} MB for one of the textbook's tensors",
        f"{megabytes:.0f} MB",
        f"{megabytes:.0f} MB",
        "≤ 200 MB",
        megabytes <= 200,
    )
