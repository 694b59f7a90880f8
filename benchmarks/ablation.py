"""What each hand-made engine brings: regard against its plain way to the same answer.

The plain way is one that anybody can take: a score or a mask that says the same but that no engine knows, the padding
computed, the search written with scipy, the products of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bare import reading
from benchmarks.kernel_ablation import compressed, grid, kernel_windows, slopes, sums_nd
from benchmarks.long import band, problem
from benchmarks.measure import Figures, Row, gradients, race, race_worst
from benchmarks.models import cross_entropy, ragged_problem, recurrent_problem, training
from regard import (
    Additive,
    Dot,
    FeedForward,
    Kernel,
    LanguageModel,
    Score,
    Separable,
    attend,
    bias,
    causal,
    keep,
    lengths,
    relative,
    summarize,
    t5_buckets,
    weights,
    window,
)
from regard.attention.sorting import sort_numbers
from regard.models import decode_kernels


class Plain(Score):
    """The same scores, of which nothing else is known: they go through the formula, tile by tile."""

    def __init__(self, score: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.score = score

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        return self.score(query, key)


def checked(ours: Callable[[], Tensor], plain: Callable[[], Tensor], tiny: bool, *, rtol: float = 1e-4) -> Figures:
    """The race, after a comparison of the answers."""
    torch.testing.assert_close(ours(), plain(), rtol=rtol, atol=rtol)
    return race(ours, plain, tiny=tiny)


# ------------------------------------------------------------------------------------------------------------ attention


@torch.no_grad()
def additive(tiny: bool) -> Figures:
    torch.manual_seed(0)
    batch, n, hidden = (2, 7, 5) if tiny else (4, 512, 128)
    query, key, value = torch.randn(3, batch, n, hidden)
    score = Additive(hidden, hidden, hidden)

    def tanh_of_sums(query: Tensor, key: Tensor) -> Tensor:
        projected = (query @ score.query_weight.T).unsqueeze(-2) + (key @ score.key_weight.T).unsqueeze(-3)
        return torch.tanh(projected) @ score.value_weight  # (…, n, m, hidden) → (…, n, m)

    plain = partial(attend, query, key, value, score=Plain(tanh_of_sums))
    return checked(partial(attend, query, key, value, score=score), plain, tiny)


def fused(tiny: bool) -> Figures:
    """Forward and backward."""
    torch.manual_seed(0)
    tensors = [torch.randn((3, 2, 7, 5) if tiny else (4, 8, 512, 64), requires_grad=True) for _ in range(3)]
    direction = torch.randn(tensors[0].shape)

    def products(query: Tensor, key: Tensor) -> Tensor:
        return query @ key.mT / query.shape[-1] ** 0.5

    ours, plain = (
        partial(gradients, partial(attend, score=score), tensors, direction) for score in (Dot(), Plain(products))
    )
    for answer, expected in zip(ours(), plain(), strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-4)
    return race(ours, plain, tiny=tiny)


@torch.no_grad()
def ragged(tiny: bool) -> Figures:
    torch.manual_seed(0)
    batch, n = (3, 7) if tiny else (16, 512)
    tensors = torch.randn(3, batch, 8, n, 64)
    counts = torch.randint(1, n + 1, (batch,))
    visible = (torch.arange(n) < counts[:, None])[:, None, None, :].expand(batch, 1, n, n)
    plain = partial(attend, *tensors, mask=keep(visible.clone()))
    return checked(partial(attend, *tensors, mask=lengths(counts)), plain, tiny)


@torch.no_grad()
def windows(tiny: bool) -> Figures:
    n, left = (11, 3) if tiny else (4_096, 128)
    tensors = problem(8, n, 64)
    plain = partial(attend, *tensors, mask=keep(band(n, left)))
    return checked(partial(attend, *tensors, mask=window(left, 0)), plain, tiny)


def relative_bias(tiny: bool) -> Figures:
    """Forward and backward, the gradient of the table included."""
    torch.manual_seed(0)
    heads, n = (2, 7) if tiny else (8, 1_024)
    tensors = [torch.randn(1, heads, n, 64, requires_grad=True) for _ in range(3)]
    table, direction, bucket = torch.randn(32, heads, requires_grad=True), torch.randn(1, heads, n, 64), t5_buckets()
    buckets = bucket(torch.arange(n) - torch.arange(n)[:, None])  # (n, m)

    def diagonals(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        return attend(query, key, value, mask=relative(table, bucket))

    def gathered(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        return attend(query, key, value, mask=bias(functional.embedding(buckets, table).permute(2, 0, 1)))

    ours, plain = (partial(gradients, way, [*tensors, table], direction) for way in (diagonals, gathered))
    for answer, expected in zip(ours(), plain(), strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-3, atol=1e-3)
    return race(ours, plain, tiny=tiny)


@torch.no_grad()
def linear(tiny: bool) -> Figures:
    tensors, score = problem(8, 11 if tiny else 2_048, 64), Separable()
    plain = partial(attend, *tensors, score=Plain(score), mask=causal())
    return checked(partial(attend, *tensors, score=score, mask=causal()), plain, tiny)


@torch.no_grad()
def summary(tiny: bool) -> Figures:
    query, key, _ = problem(2, 11 if tiny else 4_096, 64)
    best = summarize(query, key).top_weights.shape[-1]

    def plain() -> Tensor:
        shares = weights(query, key)
        shares.topk(best)
        shares.sum(-2)
        return torch.special.entr(shares).sum(-1)

    torch.testing.assert_close(summarize(query, key).entropy, plain(), rtol=1e-4, atol=1e-4)
    return race(partial(summarize, query, key), plain, tiny=tiny)


@torch.no_grad()
def sums_1d(tiny: bool) -> Figures:
    torch.manual_seed(0)
    n, m = (20, 300) if tiny else (2_000, 20_000)
    query, key = 5 * torch.rand(n, 1, dtype=torch.float64), 5 * torch.rand(m, 1, dtype=torch.float64)
    cases: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {}
    for name in ("gaussian", "laplace", "epanechnikov"):
        score = Kernel(name, 0.5)
        plain, ours = (partial(attend, query, key, key.sin(), score=way) for way in (Plain(score), score))
        torch.testing.assert_close(ours(), plain(), rtol=1e-6, atol=1e-6)
        cases[name] = plain, ours
    return race_worst(cases, tiny=tiny)


def sorting(tiny: bool) -> Figures:
    x = numpy.random.default_rng(0).random(1_000 if tiny else 1_000_000)

    def plain() -> Any:
        order = numpy.argsort(x, kind="stable")
        return x[order], order

    numpy.testing.assert_array_equal(sort_numbers(x)[1], plain()[1])
    return race(partial(sort_numbers, x), plain, tiny=tiny)


# --------------------------------------------------------------------------------------------------------------- models


@torch.no_grad()
def decode(tiny: bool) -> Figures:
    """One row through layers of SmolLM2's sizes, which are read from memory."""
    torch.manual_seed(0)
    size, ffn_size, count = (16, 24, 2) if tiny else (576, 1_536, 12)
    layers = [FeedForward(size, ffn_size) for _ in range(count)]
    row = torch.randn(1, 1, size)

    def through(layer: Callable[[FeedForward, Tensor], Tensor]) -> Tensor:
        rows = row
        for feed_forward in layers:
            rows = rows + layer(feed_forward, rows)
        return rows

    def by_torch(layer: FeedForward, rows: Tensor) -> Tensor:
        inner = functional.linear(rows, layer.in_proj.weight, layer.in_proj.bias)
        return functional.linear(functional.gelu(inner), layer.out_proj.weight, layer.out_proj.bias)

    ours, plain = partial(through, FeedForward.__call__), partial(through, by_torch)
    torch.testing.assert_close(ours(), plain(), rtol=1e-3, atol=1e-3)
    size = sum(parameter.nbytes for layer in layers for parameter in layer.parameters())
    return race(ours, plain, reading(size, tiny=tiny), tiny=tiny)


@torch.no_grad()
def packing(tiny: bool) -> Figures:
    encoder, ids, counts = ragged_problem(tiny)
    ours, plain = partial(encoder, ids, counts), partial(encoder, ids)
    torch.testing.assert_close(ours()[0], plain()[0], rtol=1e-4, atol=1e-4)  # the longest, which has no padding
    return race(ours, plain, tiny=tiny)


class AnotherAdditive(Additive):
    """The same score by another name, for which no backward pass is written out."""


def recurrence(tiny: bool) -> Figures:
    """A training step."""
    steps, losses = [], []
    for kind in (Additive, AnotherAdditive):
        model, source, target = recurrent_problem(tiny)
        assert isinstance(model.score, nn.Module)
        model.score.__class__ = kind
        loss = partial(_loss, model, source, target)
        losses.append(loss())
        steps.append(training(model, loss))
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
    return race(*steps, tiny=tiny)


def _loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(model(source, target), target)


def products(tiny: bool) -> Figures:
    """A training step of a language model, whose time is that of its products for the most part."""
    torch.manual_seed(0)
    vocab_size, size, layers, batch, length = (50, 16, 1, 2, 8) if tiny else (4_000, 256, 6, 8, 256)
    model = LanguageModel(vocab_size, size, layers, 4, max_positions=length).train()
    ids = torch.randint(vocab_size, (batch, length))
    step = training(model, lambda: cross_entropy(model(ids)[:, :-1], ids[:, 1:]))

    def plain() -> None:
        with mock.patch.object(decode_kernels, "is_mkl_slow", return_value=False):
            step()

    return race(step, plain, tiny=tiny)


ROWS = (
    Row(
        "ablation/additive",
        "loops of the additive score, 4 × 512 × 512, hidden 128, forward",
        "the same score without loops, tile by tile",
        additive,
        at_least=1,
    ),
    Row(
        "ablation/fused",
        "the fused kernel for Dot, 4 × 8 × 512 × 64, forward + backward",
        "the same score without it, tile by tile",
        fused,
        at_least=1,
    ),
    Row(
        "ablation/lengths",
        "padding skipped, Dot, lengths uniform in 1…512, 16 × 8 × 512 × 64",
        "the same mask as keep",
        ragged,
        at_least=1,
    ),
    Row(
        "ablation/window",
        "hidden keys skipped, Dot, window(128, 0), 1 × 8 × 4,096 × 64",
        "the same mask as keep",
        windows,
        at_least=1,
    ),
    Row(
        "ablation/relative",
        "bias by diagonals, T5's, 1 × 8 × 1,024 × 64, forward + backward",
        "the same bias (heads, n, m) as bias",
        relative_bias,
        at_least=1,
    ),
    Row(
        "ablation/linear",
        "Separable in linear time, causal, 1 × 8 × 2,048 × 64",
        "the same score, tile by tile",
        linear,
        at_least=1,
    ),
    Row(
        "ablation/summary",
        "summarize, 1 × 2 × 4,096 × 64",
        "entropy, best keys and sums of all weights (n, m)",
        summary,
        at_least=1,
    ),
    Row(
        "ablation/sums-1d",
        "kernel sums of one feature, 2k queries × 20k keys, the slowest of gaussian, laplace, epanechnikov",
        "the same score, tile by tile",
        sums_1d,
        at_least=1,
        why="At this size the slowest kernel is level with the plain way: what sorted sums gain grows with the keys.",
    ),
    Row("ablation/sorting", "10⁶ numbers sorted, with their order", "numpy.argsort", sorting, at_least=1),
    Row(
        "ablation/sums-nd",
        "kernel sums of 5 features, predict, 5k × 20k",
        "every pair: cdist and softmax, in parts",
        sums_nd,
        at_least=1,
    ),
    Row(
        "ablation/grid",
        "kernel sums of 2 features by way of a grid, predict, 50k × 50k",
        "regard pair by pair",
        grid,
        at_least=1,
    ),
    Row(
        "ablation/compressed",
        "bandwidth searched on compressed samples, 1 feature, 500k",
        "as many widths, the leave-one-out error of each of all samples",
        compressed,
        at_least=1,
    ),
    Row(
        "ablation/slopes",
        "bandwidths searched by their gradient, 3 features, 3k",
        "scipy Nelder–Mead on loo_error_",
        slopes,
        at_least=1,
    ),
    Row(
        "ablation/kernel-window",
        "KernelRegressor.window, 500 queries on 20k samples",
        "the weights (n, m), their entropy and sums",
        kernel_windows,
        at_least=1,
    ),
    Row(
        "ablation/decode",
        "products of one row with weights, 12 feed-forward layers 576 × 1,536",
        "PyTorch's products",
        decode,
        at_least=1.2,
        bound="memory's bandwidth",
        why="Both read the weights from memory; how much of its bandwidth is left to gain depends on the machine.",
    ),
    Row(
        "ablation/products",
        "training step, GPT 256 × 6, length 256, batch 8, products by oneDNN where MKL is slow",
        "the same with PyTorch's products everywhere",
        products,
        at_least=1.2,
        why="MKL is slow on AMD's processors with AVX-512: on others both are the same products.",
    ),
    Row(
        "ablation/packing",
        "encoder 256 × 4 on a ragged batch, 32 lengths uniform in 1…256, without padding",
        "the same encoder on the padded batch",
        packing,
        at_least=1,
    ),
    Row(
        "ablation/recurrence",
        "Seq2Seq with additive attention, GRU 256/256, batch 64, length 20, training step",
        "the same without the backward pass written out",
        recurrence,
        at_least=1.2,
    ),
)
