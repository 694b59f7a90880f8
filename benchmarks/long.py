"""Long sequences: a window, and linear attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import elu, scaled_dot_product_attention

from benchmarks.measure import Row, compare
from regard import Separable, attend, causal, window


@torch.no_grad()
def rows(tiny: bool = False) -> Iterator[Row]:
    """Masked by a window; linear."""
    torch.manual_seed(0)
    yield banded(tiny)
    yield linear(tiny)


def problem(heads: int, n: int, size: int) -> list[Tensor]:
    """Query, key and value."""
    return [torch.randn(1, heads, n, size) for _ in range(3)]


def banded(tiny: bool) -> Row:
    heads, n, size, left = (2, 11, 5, 3) if tiny else (8, 8_192, 64, 128)
    tensors, steps = problem(heads, n, size), torch.arange(n)[:, None] - torch.arange(n)
    visible = (steps >= 0) & (steps <= left)  # (n, n)
    torch.testing.assert_close(
        attend(*tensors, mask=window(left, 0)), scaled_dot_product_attention(*tensors, attn_mask=visible)
    )
    return compare(
        f"Dot with window({left}, 0), 1 × {heads} × {n:,} × {size}",
        "F.scaled_dot_product_attention with the boolean mask",
        lambda: scaled_dot_product_attention(*tensors, attn_mask=visible),
        lambda: attend(*tensors, mask=window(left, 0)),
        20,
        1 if tiny else 5,
    )


def linear(tiny: bool) -> Row:
    heads, n, size, few = (2, 11, 5, 3) if tiny else (8, 16_384, 64, 64)
    query, key, value = tensors = problem(heads, n, size)
    score = Separable()
    products = (elu(query[..., -few:, :]) + 1) @ (elu(key) + 1).transpose(-2, -1)  # of the last rows, with all keys
    products = products.tril(n - few)
    expected = products / products.sum(-1, keepdim=True) @ value
    torch.testing.assert_close(
        attend(*tensors, score=score, mask=causal())[..., -few:, :], expected, rtol=1e-4, atol=1e-5
    )
    return compare(
        f"linear attention, Separable(), causal, 1 × {heads} × {n:,} × {size}",
        "softmax attention: F.scaled_dot_product_attention(is_causal=True)",
        lambda: scaled_dot_product_attention(*tensors, is_causal=True),
        lambda: attend(*tensors, score=score, mask=causal()),
        5,
        1 if tiny else 3,
    )
