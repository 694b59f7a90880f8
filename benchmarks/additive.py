"""Additive attention against the textbook formula, which holds a (batch, n, m, hidden) tensor of tanh."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import RUNS, Figures, Row, peak_memory_alone, race
from regard import Additive, attend

LONG = 4_096


def textbook(score: Additive, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The formula as it is written, with its (batch, n, m, hidden) tensor."""
    features = torch.tanh((query @ score.query_weight.T)[:, :, None] + (key @ score.key_weight.T)[:, None])
    return torch.softmax(features @ score.value_weight, -1) @ value


def problem(batch: int, n: int, hidden: int, values: int) -> tuple[Additive, list[Tensor]]:
    """A score, and a query, key and value for it."""
    torch.manual_seed(0)
    sizes = (hidden, hidden, values)
    return Additive(hidden, hidden, hidden), [torch.randn(batch, n, size, requires_grad=True) for size in sizes]


def forward_and_backward(score: Additive, tensors: list[Tensor]) -> None:
    """One training step's share of the work."""
    attend(*tensors, score=score).sum().backward()


@torch.no_grad()
def forward(tiny: bool) -> Figures:
    score, tensors = problem(*((2, 7, 5, 3) if tiny else (4, 512, 128, 64)))
    peer, ours = partial(textbook, score, *tensors), partial(attend, *tensors, score=score)
    torch.testing.assert_close(ours(), peer())
    return race(ours, peer, tiny=tiny)


def backward(tiny: bool) -> Figures:
    score, tensors = problem(*((2, 7, 5, 3) if tiny else (4, 512, 128, 64)))
    ours = partial(forward_and_backward, score, tensors)
    return race(ours, lambda: textbook(score, *tensors).sum().backward(), tiny=tiny)


def long_sequence(n: int, hidden: int, values: int) -> Callable[[], object]:
    """Compile first, on a problem just large enough for the loops, so that only the work itself is measured."""
    small, large = problem(1, 64, hidden, values), problem(1, n, hidden, values)
    forward_and_backward(*small)
    return lambda: forward_and_backward(*large)


def memory(tiny: bool) -> Figures:
    """Of the textbook's tensors one alone, by arithmetic."""
    sizes = (11, 5, 3) if tiny else (LONG, 128, 64)
    peaks = [peak_memory_alone(partial(long_sequence, *sizes)) for _ in range(1 if tiny else RUNS)]
    return {"ours": peaks, "peer": [sizes[0] ** 2 * sizes[1] * 4 / 1e6] * len(peaks)}


WORK = "additive, batch 4, n = m = 512, hidden 128, values 64"
ROWS = (
    Row("additive/forward", f"{WORK}, forward", "textbook formula, eager", forward, at_least=50),
    Row("additive/backward", f"{WORK}, forward + backward", "textbook formula, eager", backward, at_least=28),
    Row(
        "additive/memory",
        f"additive, n = m = {LONG:,}, hidden 128, forward + backward: peak extra memory",
        "one of the textbook's tensors, by arithmetic",
        memory,
        limit=200,
        unit="MB",
    ),
)
