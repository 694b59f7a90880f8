"""Random masks, with what they have to mean pair by pair (meanings.py)."""

import itertools

import torch

from regard import causal, t5_buckets, window
from tests.attention.meanings import (
    DTYPES,
    MASK_MODS,
    Draw,
    Meaning,
    alibi_of,
    band,
    biased,
    dropped,
    kept,
    lengths_of,
    near,
    ragged_segments_of,
    relative_of,
    segments_of,
    visible_of,
)


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

    if len(shape) > 2 and draw.flip(0.4):
        rows, keys = (
            torch.tensor([cut(size) for _ in range(shape[0])], dtype=torch.long).reshape(shape[0], count)
            for size in shape[-2:]
        )
        gone = draw.booleans(tuple(rows.shape), 0.2)
        return ragged_segments_of(rows.masked_fill(gone, 0), keys.masked_fill(gone, 0), shape)
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


def draw_visible(draw: Draw, shape: tuple[int, ...]) -> Meaning:
    return visible_of(draw.choice(MASK_MODS), shape)


def draw_relative(draw: Draw, shape: tuple[int, ...]) -> Meaning:
    """A learned bias that depends on distances."""
    shift, heads = draw.random.randint(-2, 2), shape[-3] if len(shape) > 2 and draw.flip(0.8) else 1
    if draw.flip(0.4):
        return alibi_of(draw.normal(heads), shape, shift, learned=True, offset=shift)
    bucket = draw.choice([near, t5_buckets(8, 20), t5_buckets(16, 12, bidirectional=False)])
    return relative_of(draw.normal(16, heads), bucket, shape, shift, learned=True, offset=shift)


def draw_dense(draw: Draw, shape: tuple[int, ...]) -> Meaning:
    allowed = draw.booleans(dense_shape(draw, shape), draw.choice([0.2, 0.5, 0.9, 1.0]))
    return dropped(~allowed) if draw.flip(0.5) else kept(allowed)


def dense_shape(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """With ones, and without some dimensions in front."""
    full = [1 if draw.flip(0.2) else size for size in shape]
    return tuple(full[draw.random.randint(0, len(shape) - 2) :])


def draw_meaning(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> Meaning:
    """Up to three masks that restrict, some of them joined by |, and sometimes a bias."""
    kinds = [draw_band, draw_band, draw_dense, draw_segments, draw_visible] + [draw_lengths] * 3 * (len(shape) > 2)
    meaning = Meaning()
    for _ in range(draw.choice([0, 0, 1, 1, 1, 2, 2, 3])):
        part = draw.choice(kinds)(draw, shape)
        if draw.flip(0.15):
            part = part | draw.choice(kinds)(draw, shape)
        if draw.flip(0.1):
            part = ~part
        meaning = meaning & part
    if draw.flip(0.1):
        return meaning & draw_relative(draw, shape)
    if draw.flip(0.25):
        added = draw.normal(*dense_shape(draw, shape))
        if draw.flip(0.5):
            added = torch.where(draw.booleans(tuple(added.shape), 0.2), -torch.inf, added)
        meaning = meaning & biased(added.to(dtype if draw.flip(0.7) else draw.choice(DTYPES)), learned=True)
    return meaning
