"""One look, as it is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Seen", "joined"]


@dataclass(frozen=True, eq=False)
class Seen:
    """One look of one layer: weights (batch, heads, n, m), a row for each query that looks, a column for each key."""

    name: str  # the path of the module that looked
    kind: str  # self, causal (a query sees no later key) or cross
    weights: Tensor
    heads: tuple[int, ...]  # which heads these are
    queries: tuple[int, ...]  # which queries
    layer: int  # how many other layers looked before it

    def __repr__(self) -> str:
        return f"Seen({self.name!r}, {self.kind}, weights {tuple(self.weights.shape)})"


def joined(looks: list[Seen]) -> Seen:
    """The looks that a layer took one after another, as one: their queries are below each other.

    While a model writes, every look sees the keys of those before it, and one more.
    """
    first = looks[0]
    if len(looks) == 1:
        return first
    if len({(len(own.weights), own.heads) for own in looks}) > 1:
        raise ValueError(f"{first.name}: looks of different batches or heads do not make one")
    most = max(own.weights.shape[-1] for own in looks)
    weights = torch.cat([functional.pad(own.weights, (0, most - own.weights.shape[-1])) for own in looks], -2)
    kind = "causal" if first.kind != "cross" and any(own.weights.shape[-1] < most for own in looks) else first.kind
    return replace(first, weights=weights, kind=kind, queries=tuple(range(weights.shape[-2])))
