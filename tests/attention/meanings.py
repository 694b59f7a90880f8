"""Masks and what they have to mean, pair by pair: the table of them, and random ones. A new mask is one row here."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import NamedTuple

import torch
from torch import Tensor

from regard import Mask, bias, causal, drop, keep, lengths, segments, window
from tests.attention import reference

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


class Draw:
    """A source of random choices and tensors that one number determines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.choice = self.random.choice

    def flip(self, probability: float) -> bool:
        return self.random.random() < probability

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator)

    def booleans(self, shape: tuple[int, ...], probability: float = 0.6) -> Tensor:
        return torch.rand(shape, generator=self.generator) < probability

    def permutation(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)


@dataclass(frozen=True)
class Meaning:
    """A mask and what it has to mean, pair by pair."""

    mask: Mask | None = None
    allowed: Tensor | None = None  # broadcastable to the scores; None: all
    added: Tensor | None = None
    learned: list[Tensor] = field(default_factory=list)  # biases that want gradients

    def __and__(self, other: "Meaning") -> "Meaning":
        joined = [
            reduce(join, parts) if (parts := [part for part in pair if part is not None]) else None
            for join, pair in (
                (and_, (self.mask, other.mask)),
                (and_, (self.allowed, other.allowed)),
                (torch.add, (self.added, other.added)),
            )
        ]
        return Meaning(*joined, self.learned + other.learned)

    def __or__(self, other: "Meaning") -> "Meaning":
        return Meaning(self.mask | other.mask, self.allowed | other.allowed)

    def hides(self, shape: tuple[int, ...]) -> Tensor:
        """Which pairs of the scores (…, n, m) are forbidden."""
        return reference.restrict(torch.zeros(shape, dtype=torch.float64), self.allowed, self.added).isneginf()


# ---------------------------------------------------------------------------------------------------------- the kinds


def lengths_of(counts: Tensor | list[int], shape: tuple[int, ...]) -> Meaning:
    """counts (batch,) or (batch, n) for scores (batch, …, n, m)."""
    batch, *middle, n, m = shape
    table = torch.as_tensor(counts)
    table = table.reshape(batch, *[1] * len(middle), n if table.dim() == 2 else 1, 1)
    return Meaning(lengths(counts), torch.arange(m) < table)


def band(mask: Mask, shape: tuple[int, ...], left: int | None, right: int | None, shift: int) -> Meaning:
    """Query i sees the keys from i + shift − left to i + shift + right."""
    n, m = shape[-2:]
    ahead = torch.arange(m) - torch.arange(n)[:, None] - shift
    far = n + m + abs(shift)
    return Meaning(mask, (ahead >= -(far if left is None else left)) & (ahead <= (far if right is None else right)))


def segments_of(rows: list[int], keys: list[int]) -> Meaning:
    row_segments, key_segments = (
        torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)) for counts in (rows, keys)
    )
    return Meaning(segments(rows, keys), row_segments[:, None] == key_segments)


def kept(tensor: Tensor) -> Meaning:
    return Meaning(keep(tensor), tensor)


def dropped(tensor: Tensor) -> Meaning:
    return Meaning(drop(tensor), ~tensor)


def biased(tensor: Tensor, learned: bool = False) -> Meaning:
    tensor = tensor.detach().requires_grad_(learned)
    return Meaning(bias(tensor), None, tensor, [tensor] if learned else [])


# ---------------------------------------------------------------------------------------------------------- the table


class Shape(NamedTuple):
    """Of the scores: sequences, heads, queries, keys."""

    batch: int
    heads: int
    n: int
    m: int


def _random(make: Callable, *sizes: str, holes: float = 0.0, **options: bool) -> Callable[[Shape], Meaning]:
    """A mask made of a random tensor with these dimensions, named as in Shape, or "1"."""

    def build(s: Shape) -> Meaning:
        draw, shape = Draw(3), tuple(1 if size == "1" else getattr(s, size) for size in sizes)
        if make is not biased:
            return make(draw.booleans(shape, 0.4 if make is dropped else 0.6))
        return biased(draw.normal(*shape).masked_fill(draw.booleans(shape, holes), -torch.inf), **options)

    return build


def _lengths(s: Shape) -> Meaning:
    """With the two ends of the range among them."""
    return lengths_of([[0, s.m, s.m // 2][i % 3] for i in range(s.batch)], s)


def _segments(s: Shape) -> Meaning:
    """One of nothing but keys, one of nothing but queries, and the rest."""
    rows, keys = min(2, s.n), min(1, s.m)
    return segments_of([0, rows, s.n - rows], [keys, 0, s.m - keys])


def _equal_segments(s: Shape) -> Meaning:
    """As many of one shape as there is room for, and what is left."""
    count = min(3, s.n, s.m)
    rows, keys = ([size // max(count, 1)] * count for size in (s.n, s.m))
    return segments_of([*rows, s.n - sum(rows)], [*keys, s.m - sum(keys)])


def _causal(offset: int) -> Callable[[Shape], Meaning]:
    return lambda s: band(causal(offset), s, None, 0, offset)


def _window(left: int | None, right: int | None, align: str) -> Callable[[Shape], Meaning]:
    return lambda s: band(window(left, right, align=align), s, left, right, s.m - s.n if align == "end" else 0)


def _start(s: Shape) -> Meaning:
    return band(causal(align="start"), s, None, 0, 0)


def _end(s: Shape) -> Meaning:
    return band(causal(align="end"), s, None, 0, s.m - s.n)


_pairs = _random(kept, "batch", "heads", "n", "m")
_heads_dropped = _random(dropped, "heads", "n", "m")
_bias = _random(biased, "heads", "n", "m")

MASKS: dict[str, Callable[[Shape], Meaning]] = {
    "none": lambda s: Meaning(),
    "lengths": _lengths,
    "lengths-by-row": lambda s: lengths_of(Draw(6).integers(0, s.m + 1, (s.batch, s.n)), s),
    "segments": _segments,
    "segments-equal": _equal_segments,
    "keep": _pairs,
    "keep-keys": _random(kept, "batch", "1", "1", "m"),
    "keep-rows": _random(kept, "n", "1"),
    "keep-nothing": lambda s: kept(torch.zeros(1, 1, dtype=torch.bool)),
    "drop": _heads_dropped,
    "bias": _bias,
    "bias-holes": _random(biased, "batch", "1", "n", "m", holes=0.4),
    "bias-keys-holes": _random(biased, "batch", "1", "1", "m", holes=0.4),
    "bias-learned": _random(biased, "heads", "n", "m", learned=True),
    "bias-keys-learned": _random(biased, "1", "m", learned=True),
    "bias-rows-learned": _random(biased, "heads", "n", "1", learned=True),
    "bias-holes-learned": _random(biased, "batch", "heads", "n", "m", holes=0.4, learned=True),
    "causal-start": _start,
    "causal-end": _end,
    "causal-before": _causal(-2),
    "causal-after": _causal(3),
    "window": _window(2, 1, "end"),
    "window-past": _window(3, 0, "start"),
    "window-future": _window(0, None, "start"),
    "lengths&causal": lambda s: _lengths(s) & _start(s),
    "lengths&causal&bias": lambda s: _lengths(s) & _end(s) & _bias(s),
    "segments&causal": lambda s: _segments(s) & _causal(1)(s),
    "segments&lengths": lambda s: _segments(s) & _lengths(s),
    "segments-equal&lengths": lambda s: _equal_segments(s) & _lengths(s),
    "segments|window": lambda s: _segments(s) | _window(1, 1, "end")(s),
    "drop&window&learned": lambda s: (
        _heads_dropped(s) & _window(3, 2, "end")(s) & _random(biased, "n", "m", learned=True)(s)
    ),
    "bias&bias": lambda s: (
        _random(biased, "1", "m", holes=0.2)(s) & _random(biased, "heads", "n", "m", learned=True)(s)
    ),
    "lengths|causal": lambda s: _lengths(s) | _start(s),
    "keep|window": lambda s: _pairs(s) | _window(1, 1, "end")(s),
    "(lengths|keep)&causal": lambda s: (_lengths(s) | _pairs(s)) & _end(s),
    "(lengths&causal)|window": lambda s: (_lengths(s) & _start(s)) | _window(0, 0, "start")(s),
}


# ------------------------------------------------------------------------------------------------------- random masks


def draw_lengths(draw: Draw, shape: tuple[int, ...]) -> Meaning:
    counts = draw.integers(0, shape[-1] + 1, (shape[0], shape[-2]) if draw.flip(0.4) else (shape[0],))
    return lengths_of(counts.tolist() if draw.flip(0.2) and counts.numel() else counts, shape)


def draw_segments(draw: Draw, shape: tuple[int, ...]) -> Meaning:
    """Some of them empty, some of one shape."""
    count = draw.choice([1, 2, 3, 5])

    def cut(size: int) -> list[int]:
        if draw.flip(0.5):
            return [size // count] * (count - 1) + [size - size // count * (count - 1)]
        ends = [0, *sorted(draw.random.randint(0, size) for _ in range(count - 1)), size]
        return [stop - start for start, stop in itertools.pairwise(ends)]

    return segments_of(cut(shape[-2]), cut(shape[-1]))


def draw_band(draw: Draw, shape: tuple[int, ...]) -> Meaning:
    n, m = shape[-2:]
    align = draw.choice(["start", "end", None])
    offset = draw.random.randint(-n - 2, m + 2)
    shift = {"start": 0, "end": m - n, None: offset}[align]
    options = {"align": align} if align else {"offset": offset}
    if draw.flip(0.6):
        return band(causal(**options), shape, None, 0, shift)
    left, right = (draw.choice([None, 0, 1, 2, 5, 100]) for _ in range(2))
    return band(window(left, right, **options), shape, left, right, shift)


def draw_dense(draw: Draw, shape: tuple[int, ...]) -> Meaning:
    allowed = draw.booleans(dense_shape(draw, shape), draw.choice([0.2, 0.5, 0.9, 1.0]))
    return dropped(~allowed) if draw.flip(0.5) else kept(allowed)


def dense_shape(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """With ones, and without some dimensions in front."""
    full = [1 if draw.flip(0.2) else size for size in shape]
    return tuple(full[draw.random.randint(0, len(shape) - 2) :])


def draw_meaning(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> Meaning:
    """Up to three masks that restrict, some of them joined by |, and sometimes a bias."""
    kinds = [draw_band, draw_band, draw_dense, draw_segments] + [draw_lengths] * 3 * (len(shape) > 2)
    meaning = Meaning()
    for _ in range(draw.choice([0, 0, 1, 1, 1, 2, 2, 3])):
        part = draw.choice(kinds)(draw, shape)
        if draw.flip(0.15):
            part = part | draw.choice(kinds)(draw, shape)
        meaning = meaning & part
    if draw.flip(0.25):
        added = draw.normal(*dense_shape(draw, shape))
        if draw.flip(0.5):
            added = torch.where(draw.booleans(tuple(added.shape), 0.2), -torch.inf, added)
        meaning = meaning & biased(added.to(dtype if draw.flip(0.7) else draw.choice(DTYPES)), learned=True)
    return meaning
