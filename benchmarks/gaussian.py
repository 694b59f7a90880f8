"""The Gaussian kernel as attention: 10,000 queries over 100,000 samples against KeOps, and one query alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import Figures, Row, race, race_worst
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


def keops_or_formula(tiny: bool) -> Sums:
    """The formula where it is tiny, because KeOps compiles C++ at its first use."""
    return formula if tiny else keops


@torch.no_grad()
def many_queries(width: float, tiny: bool) -> Figures:
    n, m = (20, 300) if tiny else (10_000, 100_000)
    torch.manual_seed(0)
    query, key = 5 * torch.rand(n, 1), 5 * torch.rand(m, 1)
    value = 2 * key.sin() + key**0.8 + torch.randn_like(key) / 2
    score = Kernel("gaussian", width)
    ours = partial(attend, query, key, value, score=score)
    peer = partial(keops_or_formula(tiny), query, key, value, width)
    truth = attend(query.double(), key.double(), value.double(), score=score).float()
    for answer in (ours(), peer()):  # sums of 100,000 terms in float32 are good for four digits, on either side
        torch.testing.assert_close(answer, truth, rtol=5e-4, atol=5e-4)
    return race(ours, peer, tiny=tiny)


@torch.no_grad()
def one_query(tiny: bool) -> Figures:
    torch.manual_seed(0)
    m, cases = 30 if tiny else 65_536, {}
    for features, width in ((1, 0.5), (64, 8.0)):
        query, key, value = torch.randn(1, features), torch.randn(m, features), torch.randn(m, features)

        def peer(query: Tensor = query, key: Tensor = key, value: Tensor = value, width: float = width) -> Tensor:
            return torch.softmax(-torch.cdist(query, key).square() / (2 * width**2), -1) @ value

        ours = partial(attend, query, key, value, score=Kernel("gaussian", width))
        torch.testing.assert_close(ours(), peer(), rtol=5e-4, atol=5e-4)
        cases["1 feature" if features == 1 else f"{features} features"] = peer, ours
    return race_worst(cases, tiny=tiny)


ROWS = (
    Row(
        "gaussian/one-query",
        "Gaussian kernel, 1 query × 65,536 keys, the slowest of 1 feature, 64 features",
        "cdist and softmax, eager",
        one_query,
        at_least=1.0,
        why="Few queries are compared by differences, exact for near points far from 0; the products of cdist are not.",
    ),
    *(
        Row(
            f"gaussian/width-{width}",
            f"Gaussian kernel, width {width}, 1 feature on [0, 5], 10k queries × 100k keys",
            "pykeops on the CPU",
            partial(many_queries, width),
            at_least=15,
        )
        for width in (0.5, 0.05)
    ),
)
