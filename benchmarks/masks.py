"""Biases and masks with gradients: a learned bias, T5's relative positions, any mask (n, m). Forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.bare import products
from benchmarks.measure import Figures, Row, gradients, race
from regard import attend, bias, keep, relative, t5_buckets

Attending = Callable[..., Tensor]


def problem(batch: int, heads: int, n: int, size: int) -> list[Tensor]:
    """Query, key and value."""
    torch.manual_seed(0)
    return [torch.randn(batch, heads, n, size, requires_grad=True) for _ in range(3)]


def train(ours: Attending, peer: Attending, tensors: list[Tensor], tiny: bool) -> Figures:
    """Output and gradients by all tensors, by the peer and by regard."""
    direction = torch.randn(tensors[0].shape)
    works = [partial(gradients, attention, tensors, direction) for attention in (ours, peer)]
    for answer, expected in zip(*(work() for work in works), strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-4)
    return race(*works, products(works[0]), tiny=tiny)


def learned_bias(tiny: bool) -> Figures:
    heads, n, size = (2, 7, 5) if tiny else (8, 2_048, 64)

    def naive(query: Tensor, key: Tensor, value: Tensor, added: Tensor) -> Tensor:
        return torch.softmax(query @ key.transpose(-2, -1) / size**0.5 + added, -1) @ value

    def ours(query: Tensor, key: Tensor, value: Tensor, added: Tensor) -> Tensor:
        return attend(query, key, value, mask=bias(added))

    return train(ours, naive, [*problem(1, heads, n, size), torch.randn(heads, n, n, requires_grad=True)], tiny)


def relative_bias(tiny: bool) -> Figures:
    batch, heads, n, size = (3, 2, 7, 5) if tiny else (4, 8, 512, 64)
    bucket, positions = t5_buckets(), torch.arange(n)
    buckets = bucket(positions - positions[:, None])  # (n, m), which transformers makes anew at each step

    def gathered(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        added = functional.embedding(buckets, table).permute(2, 0, 1)[None]  # (1, heads, n, m)
        return scaled_dot_product_attention(query, key, value, added)

    def ours(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        return attend(query, key, value, mask=relative(table, bucket))

    return train(ours, gathered, [*problem(batch, heads, n, size), torch.randn(32, heads, requires_grad=True)], tiny)


def any_mask(tiny: bool) -> Figures:
    heads, n, size = (2, 7, 5) if tiny else (8, 2_048, 64)
    tensors = problem(1, heads, n, size)
    visible = (torch.rand(n, n) < 0.5) | torch.eye(n, dtype=torch.bool)

    def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, mask=keep(visible))

    return train(ours, partial(scaled_dot_product_attention, attn_mask=visible), tensors, tiny)


ROWS = (
    Row(
        "masks/bias",
        "learned bias (8, 2,048, 2,048), 8 heads × 64, forward + backward",
        "naive formula, eager",
        learned_bias,
        at_least=1.0,
        bound="products",
    ),
    Row(
        "masks/relative",
        "T5's relative bias, 4 × 8 × 512 × 64, forward + backward",
        "F.scaled_dot_product_attention with the bias gathered from the table",
        relative_bias,
        at_least=1.0,
        bound="products",
    ),
    Row(
        "masks/keep",
        "keep (n, m), 1 × 8 × 2,048 × 64, forward + backward",
        "F.scaled_dot_product_attention with the boolean mask",
        any_mask,
        at_least=0.95,
        bound="products",
        why="The same kernels of PyTorch; ours also looks for rows that may attend to nothing, which must give 0.",
    ),
)
