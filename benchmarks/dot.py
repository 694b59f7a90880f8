"""Dot-product attention against PyTorch's own: plain, ragged, with the weights, and capped."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.bare import products
from benchmarks.measure import Figures, Row, race
from regard import Dot, attend, lengths

SOFTCAP = 50.0


def problem(tiny: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value (batch, heads, n, size)."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, *((3, 2, 7, 5) if tiny else (16, 8, 512, 64)))
    return query, key, value


@torch.no_grad()
def plain(tiny: bool) -> Figures:
    tensors = problem(tiny)
    peer, ours = partial(scaled_dot_product_attention, *tensors), partial(attend, *tensors)
    torch.testing.assert_close(ours(), peer())
    return race(ours, peer, products(ours), tiny=tiny)


@torch.no_grad()
def ragged(tiny: bool) -> Figures:
    tensors = problem(tiny)
    batch, n = tensors[0].shape[0], tensors[0].shape[-2]
    counts = torch.randint(1, n + 1, (batch,))

    def padded() -> Tensor:
        visible = (torch.arange(n) < counts[:, None])[:, None, None, :]  # (batch, 1, 1, m)
        return scaled_dot_product_attention(*tensors, visible)

    def ours() -> Tensor:
        return attend(*tensors, mask=lengths(counts))

    torch.testing.assert_close(ours(), padded())
    return race(ours, padded, products(ours), tiny=tiny)


def multihead_core(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """What nn.MultiheadAttention does between its projections when weights are asked for (per head, not averaged)."""
    weights = functional.softmax(torch.bmm(query / query.shape[-1] ** 0.5, key.transpose(-2, -1)), dim=-1)
    return torch.bmm(weights, value), weights


@torch.no_grad()
def with_weights(tiny: bool) -> Figures:
    tensors = problem(tiny)
    peer = partial(multihead_core, *(tensor.flatten(0, 1) for tensor in tensors))
    ours = partial(attend, *tensors, need_weights=True)
    torch.testing.assert_close(ours()[1].flatten(0, 1), peer()[1])
    return race(ours, peer, products(ours), tiny=tiny)


def capped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The formula as it is written, with scores that softcap bends."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    return torch.softmax(SOFTCAP * torch.tanh(scores / SOFTCAP), -1) @ value


@torch.no_grad()
def softcap(tiny: bool) -> Figures:
    torch.manual_seed(0)
    tensors = torch.randn(3, *((1, 2, 7, 5) if tiny else (1, 8, 2_048, 64)))
    peer, ours = partial(capped, *tensors), partial(attend, *tensors, score=Dot(softcap=SOFTCAP))
    torch.testing.assert_close(ours(), peer())
    return race(ours, peer, products(ours), tiny=tiny)


SHAPE = "16 × 8 × 512 × 64"
ROWS = (
    Row(
        "dot/plain",
        f"Dot, no mask, {SHAPE}",
        "F.scaled_dot_product_attention",
        plain,
        at_least=0.97,
        bound="products",
        why="Both run the same kernel of PyTorch; what differs is the check of the arguments, and noise.",
    ),
    Row(
        "dot/lengths",
        f"Dot with lengths uniform in 1…512, {SHAPE}",
        "F.scaled_dot_product_attention with the padding mask",
        ragged,
        at_least=2,
        bound="products",
        why="Half of the keys are padding, so about 2× is the limit: a call for each sequence has its price.",
    ),
    Row(
        "dot/weights",
        f"Dot with need_weights=True, {SHAPE}",
        "the core of nn.MultiheadAttention with weights",
        with_weights,
        at_least=1.3,
        bound="products",
        why="Both write 134 MB of weights, which takes most of the time.",
    ),
    Row(
        "dot/softcap",
        "Dot with softcap, 1 × 8 × 2,048 × 64",
        "naive formula, eager",
        softcap,
        at_least=1.5,
        bound="products",
    ),
)
