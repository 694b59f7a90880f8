"""The Gaussian kernel as attention, 10,000 queries over 100,000 samples, against KeOps on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from pykeops.torch import LazyTensor
from torch import Tensor

from benchmarks.measure import Row, compare
from regard import Kernel, attend


def keops(query: Tensor, key: Tensor, value: Tensor, width: float) -> Tensor:
    """Nadaraya–Watson as a ratio of two kernel sums, in one reduction."""
    distance = (LazyTensor(query[:, None] / width) - LazyTensor(key[None] / width)).square().sum(-1)
    sums = (-distance / 2).exp() @ torch.cat([value, torch.ones_like(value)], -1)
    return sums[:, :1] / sums[:, 1:]


@torch.no_grad()
def rows() -> Iterator[Row]:
    """A width that float32 can reduce to dot products, and one that it cannot."""
    torch.manual_seed(0)
    query, key = 5 * torch.rand(10_000, 1), 5 * torch.rand(100_000, 1)
    value = 2 * key.sin() + key**0.8 + torch.randn_like(key) / 2
    for width in (0.5, 0.05):
        score = Kernel("gaussian", width)
        truth = attend(query.double(), key.double(), value.double(), score=score).float()
        # Sums of 100,000 terms in float32 are good for four digits, on either side.
        for answer in (attend(query, key, value, score=score), keops(query, key, value, width)):
            torch.testing.assert_close(answer, truth, rtol=5e-4, atol=5e-4)
        yield compare(
            f"Gaussian kernel, width {width}, 1 feature on [0, 5], 10k queries × 100k keys",
            "pykeops on the CPU",
            lambda width=width: keops(query, key, value, width),
            lambda score=score: attend(query, key, value, score=score),
            15,
            3,
        )
