"""What weights say, as numbers. Weights are (…, n, m): a row for each query that adds up to 1, or to 0 for padding."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["distance", "entropy", "interval", "mean_of_rows", "rollout", "similarity", "sink", "width"]


def entropy(weights: Tensor) -> Tensor:
    """−Σ w log w of each row, (…, n): 0 where one key has all the weight, log m where all have the same."""
    terms: Tensor = torch.special.entr(weights.double())
    return terms.sum(-1)


def width(weights: Tensor) -> Tensor:
    """exp of the entropy, (…, n): how many keys share the weight, as if evenly; 0 for padding."""
    return entropy(weights).exp() * _real(weights)


def interval(weights: Tensor, share: float = 0.9) -> tuple[Tensor, Tensor]:
    """The first and the last key, (…, n) each, of those that hold the share of the weight, the middle of it."""
    if not 0 < share <= 1:
        raise ValueError(f"share: expected a number between 0 and 1, got {share}")
    grown = weights.double().cumsum(-1)
    total, aside = weights.double().sum(-1, keepdim=True), (1 - share) / 2
    last = max(weights.shape[-1] - 1, 0)
    low, high = ((grown < part * total).sum(-1).clamp(max=last) for part in (aside, 1 - aside))
    return low, high


def distance(weights: Tensor, queries: Sequence[int] | None = None) -> Tensor:
    """Σ w · |query − key|, (…, n): how far a row looks on average. `queries`: where they stand, else 0, 1, 2 …"""
    n, m = weights.shape[-2:]
    places = torch.arange(n) if queries is None else torch.tensor(list(queries))
    far = (places[:, None] - torch.arange(m)).abs().to(weights.device)  # (n, m)
    return (weights.double() * far).sum(-1)


def sink(weights: Tensor) -> Tensor:
    """The weight of the first key, (…, n), at which many heads look when they look at nothing."""
    return weights[..., 0].double()


def mean_of_rows(values: Tensor, weights: Tensor) -> Tensor:
    """The mean over the batch and the rows that are no padding: values (batch, heads, n) → (heads,)."""
    real = _real(weights).double()
    return (values * real).sum((0, 2)) / real.sum((0, 2)).clamp(min=1)


def similarity(weights: Tensor) -> Tensor:
    """How alike heads look, (heads, heads): the share of weight that two heads have on the same keys; 1: all of it."""
    heads = weights.transpose(0, 1).double()  # (heads, batch, n, m)
    rows = _real(weights).any(1).sum().clamp(min=1)
    return torch.stack([torch.minimum(one, heads).sum((1, 2, 3)) / rows for one in heads])


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """Attention through all layers, (batch, n, n): half of what a place holds it has from itself, half from where it
    looks, on average over its heads (Abnar and Zuidema 2020). layers: weights (batch, heads, n, n), the first first.
    """
    if not layers:
        raise ValueError("layers: expected the weights of one layer or more, got none")
    for number, weights in enumerate(layers):
        if weights.dim() != 4 or weights.shape[-1] != weights.shape[-2]:
            raise ValueError(f"layers[{number}]: expected weights (batch, heads, n, n), got {tuple(weights.shape)}")
    return functools.reduce(lambda before, after: after @ before, map(_with_itself, layers))


def _with_itself(weights: Tensor) -> Tensor:
    """Weights (batch, heads, n, n) → (batch, n, n): as much from the place itself as from where it looks."""
    mixed = weights.double().mean(1) + torch.eye(weights.shape[-1], dtype=torch.float64, device=weights.device)
    return mixed / mixed.sum(-1, keepdim=True)


def _real(weights: Tensor) -> Tensor:
    """Which rows look at anything, (…, n)."""
    return weights.sum(-1) > 0
