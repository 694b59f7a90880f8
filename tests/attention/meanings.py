"""Masks and what they have to mean, pair by pair: the table of them. A new mask is one row here; random_masks.py."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import NamedTuple

import torch
from torch import Tensor

from regard import (
    Mask,
    alibi,
    bias,
    causal,
    drop,
    keep,
    lengths,
    relative,
    segments,
    t5_buckets,
    visible,
    window,
)
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
    learned: list[Tensor] = field(default_factory=list)  # biases, or what they are made of, that want gradients
    formula: Callable[[Tensor], Tensor] | None = (
        None  # makes `added` of the only one that is learned, if it is not that
    )

    def __and__(self, other: "Meaning") -> "Meaning":
        joined = [
            reduce(join, parts) if (parts := [part for part in pair if part is not None]) else None
            for join, pair in (
                (and_, (self.mask, other.mask)),
                (and_, (self.allowed, other.allowed)),
                (torch.add, (self.added, other.added)),
            )
        ]
        return Meaning(*joined, self.learned + other.learned, self.formula or other.formula)

    def __or__(self, other: "Meaning") -> "Meaning":
        return Meaning(self.mask | other.mask, self.allowed | other.allowed)

    def __invert__(self) -> "Meaning":
        return Meaning(~self.mask, ~self.allowed)

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


def ragged_segments_of(rows: Tensor, keys: Tensor, shape: tuple[int, ...]) -> Meaning:
    """rows and keys (batch, sequences) for scores (batch, …, n, m); what is left over belongs to no sequence."""
    batch, *middle, n, m = shape
    row_segments, key_segments = (
        torch.stack([_labels(counts, size) for counts in table.tolist()]) if batch else torch.zeros(0, size)
        for table, size in ((rows, n), (keys, m))
    )
    same = (row_segments[:, :, None] == key_segments[:, None]) & (row_segments >= 0)[:, :, None]
    return Meaning(segments(rows, keys), same.reshape(batch, *[1] * len(middle), n, m))


def _labels(counts: list[int], size: int) -> Tensor:
    labels = [number for number, count in enumerate(counts) for _ in range(count)]
    return torch.tensor(labels + [-1] * (size - len(labels)), dtype=torch.long)


def steps_of(shape: tuple[int, ...], shift: int) -> Tensor:
    """How far each key is from its query, (n, m)."""
    return torch.arange(shape[-1]) - torch.arange(shape[-2])[:, None] - shift


def alibi_of(slopes: Tensor, shape: tuple[int, ...], shift: int, learned: bool = False, **options) -> Meaning:
    """slopes (heads,) or (1,)."""

    def formula(slopes: Tensor) -> Tensor:
        added = -slopes[:, None, None] * steps_of(shape, shift).abs()
        return added if len(shape) > 2 else added[0]

    slopes = slopes.detach().requires_grad_(learned)
    return Meaning(alibi(slopes, **options), None, formula(slopes), [slopes] if learned else [], formula)


def relative_of(
    table: Tensor, bucket: Callable, shape: tuple[int, ...], shift: int, learned=False, **options
) -> Meaning:
    """table (buckets, heads) or (buckets, 1)."""

    def formula(table: Tensor) -> Tensor:
        added = table[bucket(steps_of(shape, shift))].movedim(-1, 0)  # (heads, n, m)
        return added if len(shape) > 2 else added[0]

    table = table.detach().requires_grad_(learned)
    return Meaning(relative(table, bucket, **options), None, formula(table), [table] if learned else [], formula)


def near(steps: Tensor) -> Tensor:
    """Five buckets: far behind, one behind, at the query, one ahead, far ahead."""
    return steps.clamp(-2, 2) + 2


def visible_of(mask_mod: Callable, shape: tuple[int, ...]) -> Meaning:
    *front, n, m = shape
    heads, batch = front[-1] if front else 1, math.prod(front[:-1])
    b, h, q, k = torch.meshgrid(*(torch.arange(size) for size in (batch, heads, n, m)), indexing="ij")
    return Meaning(visible(mask_mod), mask_mod(b, h, q, k).reshape(shape))


DOCUMENTS = torch.tensor([0, 0, 1, 1, 1, 0, 2])


def same_document(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return (DOCUMENTS[q_idx % 7] == DOCUMENTS[kv_idx % 7]) & (kv_idx <= q_idx + 4)


def by_head(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return (q_idx - kv_idx).abs() <= 1 + h % 3


def by_sequence(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return (kv_idx < 2 + b) & (DOCUMENTS[(b + q_idx) % 7] < 2) | (kv_idx == h)


MASK_MODS = [same_document, by_head, by_sequence]


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


def _ragged_segments(s: Shape) -> Meaning:
    """Sequences of every entry of the batch, some of nothing, and something left over in most entries."""
    draw = Draw(11)
    rows, keys = (draw.integers(0, size // 3 + 1, (s.batch, 3)) for size in (s.n, s.m))
    if s.batch:
        rows[0], keys[0] = torch.tensor([0, 0, s.n]), torch.tensor([s.m // 2, 0, s.m - s.m // 2])
    return ragged_segments_of(rows, keys, s)


def _alibi(learned: bool = False) -> Callable[[Shape], Meaning]:
    return lambda s: alibi_of(Draw(12).normal(s.heads), s, s.m - s.n, learned, align="end")


def _relative(learned: bool = False, holes: float = 0.0) -> Callable[[Shape], Meaning]:
    def build(s: Shape) -> Meaning:
        table = Draw(13).normal(5, s.heads).masked_fill(Draw(14).booleans((5, s.heads), holes), -torch.inf)
        return relative_of(table, near, s, 2, learned, offset=2)

    return build


def _t5(s: Shape) -> Meaning:
    return relative_of(Draw(15).normal(8, s.heads), t5_buckets(8, 6), s, 0, learned=True, align="start")


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
    "segments-ragged": _ragged_segments,
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
    "alibi": _alibi(),
    "alibi-learned": _alibi(learned=True),
    "relative": _relative(),
    "relative-holes": _relative(holes=0.4),
    "relative-learned": _relative(learned=True),
    "relative-t5-learned": _t5,
    **{f"visible-{mod.__name__}": lambda s, mod=mod: visible_of(mod, s) for mod in MASK_MODS},
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
    "~lengths": lambda s: ~_lengths(s),
    "~segments": lambda s: ~_segments(s),
    "~segments-ragged&causal": lambda s: ~_ragged_segments(s) & _end(s),
    "~keep": lambda s: ~_pairs(s),
    "~causal": lambda s: ~_end(s),
    "~window": lambda s: ~_window(2, 1, "end")(s),
    "~(drop&window)": lambda s: ~(_heads_dropped(s) & _window(3, 2, "end")(s)),
    "~(lengths|causal)": lambda s: ~(_lengths(s) | _start(s)),
    "segments-ragged&alibi": lambda s: _ragged_segments(s) & _alibi(learned=True)(s),
    "~visible&lengths": lambda s: ~visible_of(by_head, s) & _lengths(s),
    "alibi&relative&causal": lambda s: _alibi()(s) & _relative(learned=True)(s) & _end(s),
    "(lengths&causal)|window": lambda s: (_lengths(s) & _start(s)) | _window(0, 0, "start")(s),
}
