"""Long sequences: a window, linear attention, and what the weights amount to."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import elu, scaled_dot_product_attention

from benchmarks.measure import Row, compare, compare_time
from regard import Separable, attend, causal, summarize, window


@torch.no_grad()
def rows(tiny: bool = False) -> Iterator[Row]:
    """From 8,192 rows to 32,768."""
    torch.manual_seed(0)
    yield banded(tiny)
    yield linear(tiny)
    yield summary(tiny)


def problem(heads: int, n: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value."""
    query, key, value = torch.randn(3, 1, heads, n, size)
    return query, key, value


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


def summary(tiny: bool) -> Row:
    n, size, step = (11, 5, 4) if tiny else (32_768, 64, 1_024)
    query, key, value = problem(1, n, size)
    check_summary(query, key, step)
    return compare_time(
        f"summarize: entropy, width, best keys and weight received, 1 × 1 × {n:,} × {size}",
        "attend, which gives the output alone",
        lambda: attend(query, key, value),
        lambda: summarize(query, key),
        2,
        1 if tiny else 3,
    )


def check_summary(query: Tensor, key: Tensor, step: int) -> None:
    """Compare with the weights themselves, some rows at a time."""
    ours, received = summarize(query, key), 0
    for start in range(0, query.shape[-2], step):
        rows = slice(start, start + step)
        scores = query[..., rows, :] @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        weights = scores.softmax(-1)
        received = received + weights.sum(-2)
        for answer, expected in (
            (ours.log_sum_exp[..., rows], scores.logsumexp(-1)),
            (ours.entropy[..., rows], torch.special.entr(weights).sum(-1)),
            (ours.top_weights[..., rows, :], weights.topk(ours.top_weights.shape[-1]).values),
        ):
            torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.received, received, rtol=1e-4, atol=1e-5)
