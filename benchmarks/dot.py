"""Dot-product attention against PyTorch's own: plain, ragged, with the weights, and capped."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.measure import Row, compare
from regard import Dot, attend, lengths


def multihead_core(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """What nn.MultiheadAttention does between its projections when weights are asked for (per head, not averaged)."""
    weights = functional.softmax(torch.bmm(query / query.shape[-1] ** 0.5, key.transpose(-2, -1)), dim=-1)
    return torch.bmm(weights, value), weights


def capped(query: Tensor, key: Tensor, value: Tensor, softcap: float) -> Tensor:
    """The formula as it is written, with scores that softcap bends."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    return torch.softmax(softcap * torch.tanh(scores / softcap), -1) @ value


@torch.no_grad()
def rows(tiny: bool = False) -> Iterator[Row]:
    """Plain, ragged, with weights, capped."""
    batch, heads, n, size = (3, 2, 7, 5) if tiny else (16, 8, 512, 64)
    torch.manual_seed(0)
    query, key, value = (torch.randn(batch, heads, n, size) for _ in range(3))
    shape = f"{batch} × {heads} × {n} × {size}"

    fused = functional.scaled_dot_product_attention
    torch.testing.assert_close(attend(query, key, value), fused(query, key, value))
    yield compare(
        f"Dot, no mask, {shape}",
        "F.scaled_dot_product_attention",
        lambda: fused(query, key, value),
        lambda: attend(query, key, value),
        0.97,
        1 if tiny else 31,
    )

    counts = torch.randint(1, n + 1, (batch,))

    def padded() -> Tensor:
        return fused(query, key, value, (torch.arange(n) < counts[:, None])[:, None, None, :])

    torch.testing.assert_close(attend(query, key, value, mask=lengths(counts)), padded())
    yield compare(
        f"Dot with lengths uniform in 1…{n}, {shape}",
        "F.scaled_dot_product_attention with the padding mask",
        padded,
        lambda: attend(query, key, value, mask=lengths(counts)),
        2,
        1 if tiny else 21,
    )

    flat = [tensor.flatten(0, 1) for tensor in (query, key, value)]
    torch.testing.assert_close(attend(query, key, value, need_weights=True)[1].flatten(0, 1), multihead_core(*flat)[1])
    yield compare(
        f"Dot with need_weights=True, {shape}",
        "the core of nn.MultiheadAttention with weights",
        lambda: multihead_core(*flat),
        lambda: attend(query, key, value, need_weights=True),
        1.3,
        1 if tiny else 15,
    )

    n, softcap = 7 if tiny else 2_048, 50.0
    query, key, value = (torch.randn(1, heads, n, size) for _ in range(3))
    score = Dot(softcap=softcap)
    torch.testing.assert_close(attend(query, key, value, score=score), capped(query, key, value, softcap))
    yield compare(
        f"Dot with softcap, 1 × {heads} × {n:,} × {size}",
        "naive formula, eager",
        lambda: capped(query, key, value, softcap),
        lambda: attend(query, key, value, score=score),
        1.5,
        1 if tiny else 9,
    )
