"""Biases and masks with gradients: a learned bias, T5's relative positions, any mask (n, m)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure import Row, compare, gradients
from regard import attend, bias, keep, relative, t5_buckets


def rows(tiny: bool = False) -> Iterator[Row]:
    """Forward and backward for each."""
    torch.manual_seed(0)
    yield learned_bias(tiny)
    yield relative_bias(tiny)
    yield any_mask(tiny)


def learned_bias(tiny: bool) -> Row:
    heads, n, size = (2, 7, 5) if tiny else (8, 2_048, 64)

    def naive(query: Tensor, key: Tensor, value: Tensor, added: Tensor) -> Tensor:
        return torch.softmax(query @ key.transpose(-2, -1) / size**0.5 + added, -1) @ value

    return train(
        f"learned bias ({heads}, {n:,}, {n:,}), {heads} heads × {size}, forward + backward",
        "naive formula, eager",
        naive,
        lambda query, key, value, added: attend(query, key, value, mask=bias(added)),
        [*problem(heads, n, size), torch.randn(heads, n, n, requires_grad=True)],
        1.0,
        tiny,
    )


def relative_bias(tiny: bool) -> Row:
    batch, heads, n, size = (3, 2, 7, 5) if tiny else (4, 8, 512, 64)
    bucket, positions = t5_buckets(), torch.arange(n)
    buckets = bucket(positions - positions[:, None])  # (n, m), which transformers makes anew at each step

    def gathered(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        added = functional.embedding(buckets, table).permute(2, 0, 1)[None]  # (1, heads, n, m)
        return scaled_dot_product_attention(query, key, value, added)

    return train(
        f"T5's relative bias, {batch} × {heads} × {n} × {size}, forward + backward",
        "F.scaled_dot_product_attention with the bias gathered from the table",
        gathered,
        lambda query, key, value, table: attend(query, key, value, mask=relative(table, bucket)),
        [*problem(heads, n, size, batch), torch.randn(32, heads, requires_grad=True)],
        1.0,
        tiny,
    )


def any_mask(tiny: bool) -> Row:
    heads, n, size = (2, 7, 5) if tiny else (8, 2_048, 64)
    visible = (torch.rand(n, n) < 0.5) | torch.eye(n, dtype=torch.bool)
    return train(
        f"keep (n, m), 1 × {heads} × {n:,} × {size}, forward + backward",
        "F.scaled_dot_product_attention with the boolean mask",
        lambda query, key, value: scaled_dot_product_attention(query, key, value, visible),
        lambda query, key, value: attend(query, key, value, mask=keep(visible)),
        problem(heads, n, size),
        0.95,
        tiny,
    )


def problem(heads: int, n: int, size: int, batch: int = 1) -> list[Tensor]:
    """Query, key and value."""
    return [torch.randn(batch, heads, n, size, requires_grad=True) for _ in range(3)]


def train(
    work: str,
    against: str,
    peer: Callable[..., Tensor],
    ours: Callable[..., Tensor],
    tensors: list[Tensor],
    at_least: float,
    tiny: bool,
) -> Row:
    """Output and gradients by all tensors, by the peer and by regard."""
    direction = torch.randn(tensors[0].shape)
    for answer, expected in zip(*(gradients(attention, tensors, direction) for attention in (ours, peer)), strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-4)
    return compare(
        work,
        against,
        lambda: gradients(peer, tensors, direction),
        lambda: gradients(ours, tensors, direction),
        at_least,
        1 if tiny else 7,
    )
