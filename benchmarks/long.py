"""Long sequences: a window, linear attention, and what the weights amount to."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import elu, scaled_dot_product_attention

from benchmarks.bare import products
from benchmarks.measure import Figures, Row, race
from regard import Separable, attend, causal, summarize, window


def problem(heads: int, n: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, heads, n, size)
    return query, key, value


def band(n: int, left: int) -> Tensor:
    """Which keys window(left, 0) lets each query see, (n, n)."""
    steps = torch.arange(n)[:, None] - torch.arange(n)
    return (steps >= 0) & (steps <= left)


@torch.no_grad()
def banded(tiny: bool) -> Figures:
    heads, n, size, left = (2, 11, 5, 3) if tiny else (8, 8_192, 64, 128)
    tensors = problem(heads, n, size)
    peer = partial(scaled_dot_product_attention, *tensors, attn_mask=band(n, left))

    def ours() -> Tensor:
        return attend(*tensors, mask=window(left, 0))

    torch.testing.assert_close(ours(), peer())
    return race(ours, peer, products(ours), tiny=tiny)


@torch.no_grad()
def linear(tiny: bool) -> Figures:
    heads, n, size, few = (2, 11, 5, 3) if tiny else (8, 16_384, 64, 64)
    query, key, value = tensors = problem(heads, n, size)
    weights = (elu(query[..., -few:, :]) + 1) @ (elu(key) + 1).transpose(-2, -1)  # of the last rows, with all keys
    weights = weights.tril(n - few)
    expected = weights / weights.sum(-1, keepdim=True) @ value

    def ours() -> Tensor:
        return attend(*tensors, score=Separable(), mask=causal())

    torch.testing.assert_close(ours()[..., -few:, :], expected, rtol=1e-4, atol=1e-5)
    return race(ours, partial(scaled_dot_product_attention, *tensors, is_causal=True), products(ours), tiny=tiny)


@torch.no_grad()
def summary(tiny: bool) -> Figures:
    n, size, step = (11, 5, 4) if tiny else (16_384, 64, 1_024)
    query, key, value = problem(1, n, size)
    check_summary(query, key, step)
    return race(partial(summarize, query, key), partial(attend, query, key, value), tiny=tiny)


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


ROWS = (
    Row(
        "long/window",
        "Dot with window(128, 0), 1 × 8 × 8,192 × 64",
        "F.scaled_dot_product_attention with the boolean mask",
        banded,
        at_least=20,
        bound="products",
    ),
    Row(
        "long/linear",
        "linear attention, Separable(), causal, 1 × 8 × 16,384 × 64",
        "softmax attention: F.scaled_dot_product_attention(is_causal=True)",
        linear,
        at_least=5,
        bound="products",
        why="It grows with the length where the peer grows with its square: longer sequences gain more.",
    ),
    Row(
        "long/summary",
        "summarize: entropy, width, best keys and weight received, 1 × 1 × 16,384 × 64",
        "attend, which gives the output alone",
        summary,
        at_most=2,
        why="It does more: the scores are visited for the sums and the best keys as well.",
    ),
)
