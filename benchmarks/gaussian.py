"""The Gaussian kernel as attention: 10,000 queries over 100,000 samples against KeOps, and one query alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import Row, compare, compare_worst
from regard import Kernel, attend

Sums = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # query, key, value, width → Nadaraya–Watson


def keops(query: Tensor, key: Tensor, value: Tensor, width: float) -> Tensor:
    """Nadaraya–Watson as a ratio of two kernel sums, in one reduction."""
    from pykeops.torch import LazyTensor  # here, because only the extra [bench] installs it

    distance = (LazyTensor(query[:, None] / width) - LazyTensor(key[None] / width)).square().sum(-1)
    sums = (-distance / 2).exp() @ torch.cat([value, torch.ones_like(value)], -1)
    return sums[:, :1] / sums[:, 1:]


def formula(query: Tensor, key: Tensor, value: Tensor, width: float) -> Tensor:
    """The same with the whole matrix of distances."""
    distance = (query[:, None] - key[None]).square().sum(-1) / width**2  # (n, m)
    return torch.softmax(-distance / 2, -1) @ value


def keops_or_formula(tiny: bool) -> tuple[str, Sums]:
    """KeOps, and what the row calls it; the formula where it is tiny, because KeOps compiles C++ at its first use."""
    return ("the formula", formula) if tiny else ("pykeops on the CPU", keops)


@torch.no_grad()
def rows(tiny: bool = False) -> Iterator[Row]:
    """A width that float32 can reduce to dot products, and one that it cannot; a single query."""
    n, m, repeats = (20, 300, 1) if tiny else (10_000, 100_000, 3)
    yield one_query(tiny)  # before KeOps is loaded, after which other rows measured slower than alone
    against, sums = keops_or_formula(tiny)
    torch.manual_seed(0)
    query, key = 5 * torch.rand(n, 1), 5 * torch.rand(m, 1)
    value = 2 * key.sin() + key**0.8 + torch.randn_like(key) / 2
    for width in (0.5, 0.05):
        score = Kernel("gaussian", width)
        truth = attend(query.double(), key.double(), value.double(), score=score).float()
        # Sums of 100,000 terms in float32 are good for four digits, on either side.
        for answer in (attend(query, key, value, score=score), sums(query, key, value, width)):
            torch.testing.assert_close(answer, truth, rtol=5e-4, atol=5e-4)
        yield compare(
            f"Gaussian kernel, width {width}, 1 feature on [0, 5], 10k queries × 100k keys",
            against,
            lambda width=width: sums(query, key, value, width),
            lambda score=score: attend(query, key, value, score=score),
            15,
            repeats,
        )


def one_query(tiny: bool) -> Row:
    m, repeats, calls = (30, 1, 2) if tiny else (65_536, 15, 10)
    cases = {}
    for features, width in ((1, 0.5), (64, 8.0)):
        query, key, value = torch.randn(1, features), torch.randn(m, features), torch.randn(m, features)

        def peer(query: Tensor = query, key: Tensor = key, value: Tensor = value, width: float = width) -> Tensor:
            return torch.softmax(-torch.cdist(query, key).square() / (2 * width**2), -1) @ value

        ours = partial(attend, query, key, value, score=Kernel("gaussian", width))
        torch.testing.assert_close(ours(), peer(), rtol=5e-4, atol=5e-4)
        cases["1 feature" if features == 1 else f"{features} features"] = peer, ours
    work = f"Gaussian kernel, 1 query × {m:,} keys, the slowest of {', '.join(cases)}"
    return compare_worst(work, "cdist and softmax, eager", cases, 1.0, repeats, calls)
