"""Numbers that describe weights (…, n, m), in which the row of a query adds up to 1, or to 0 where it is padding."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor


def entropy(weights: Tensor) -> Tensor:
    """−Σ w log w of each row, (…, n): 0 where one key has all the weight, log m where all have the same."""
    terms: Tensor = torch.special.entr(weights.double())
    return terms.sum(-1)


def width(weights: Tensor) -> Tensor:
    """exp of the entropy, (…, n): how many keys share the weight, as if evenly; 0 for padding."""
    return entropy(weights).exp() * _real(weights)


def interval(weights: Tensor, share: float = 0.9) -> tuple[Tensor, Tensor]:
    """The first and the last key, (…, n) each, of the interval that holds the middle `share` of the weight."""
    if not 0 < share <= 1:
        raise ValueError(f"share: expected a number between 0 and 1, got {share}")
    cumulative = weights.double().cumsum(-1)
    total, tail = weights.double().sum(-1, keepdim=True), (1 - share) / 2
    last = max(weights.shape[-1] - 1, 0)
    low, high = ((cumulative < part * total).sum(-1).clamp(max=last) for part in (tail, 1 - tail))
    return low, high


def distance(weights: Tensor, queries: Sequence[int] | None = None) -> Tensor:
    """Σ w · |query − key|, (…, n): the mean distance to the keys. `queries`: their positions, by default 0, 1, 2 …"""
    n, m = weights.shape[-2:]
    positions = torch.arange(n) if queries is None else torch.tensor(list(queries))
    steps = (positions[:, None] - torch.arange(m)).abs().to(weights.device)  # (n, m)
    return (weights.double() * steps).sum(-1)


def sink(weights: Tensor) -> Tensor:
    """The weight of the first key, (…, n), to which many heads attend where nothing else fits."""
    return weights[..., 0].double()


def mean_of_rows(values: Tensor, weights: Tensor) -> Tensor:
    """The mean over the batch and the rows that are no padding: values (batch, heads, n) → (heads,)."""
    real = _real(weights).double()
    return (values * real).sum((0, 2)) / real.sum((0, 2)).clamp(min=1)


def similarity(weights: Tensor) -> Tensor:
    """How alike heads are, (heads, heads): the share of their weight that two heads have on the same keys."""
    heads = weights.transpose(0, 1).double()  # (heads, batch, n, m)
    rows = _real(weights).any(1).sum().clamp(min=1)
    return torch.stack([torch.minimum(head, heads).sum((1, 2, 3)) / rows for head in heads])


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """Attention through all layers, (batch, n, n), by Abnar and Zuidema (2020): in each layer a position takes half
    from itself, half by the mean weights of the heads. layers: weights (batch, heads, n, n), in their order.
    """
    if not layers:
        raise ValueError("layers: expected the weights of one layer or more, got none")
    mixed = []
    for number, weights in enumerate(layers):
        if weights.dim() != 4 or weights.shape[-1] != weights.shape[-2]:
            raise ValueError(f"layers[{number}]: expected weights (batch, heads, n, n), got {tuple(weights.shape)}")
        layer = weights.double().mean(1) + torch.eye(weights.shape[-1], dtype=torch.float64, device=weights.device)
        mixed.append(layer / layer.sum(-1, keepdim=True))  # (batch, n, n)
    return functools.reduce(lambda below, layer: layer @ below, mixed)


def _real(weights: Tensor) -> Tensor:
    """Which rows have any weight, (…, n)."""
    return weights.sum(-1) > 0
