"""Masks that follow from positions alone, without a dense tensor: lengths, segments, causal, window.

They know which keys a tile can see at all, so that whole tiles are skipped and padding is never computed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from regard.arguments import shape_text
from regard.attention.layout import Layout, Tile
from regard.attention.masks import BoundMask, Mask

__all__ = ["causal", "lengths", "segments", "window"]


def _check_counts(name: str, counts: Tensor | Sequence[int], shapes: dict[int, str]) -> Tensor:
    """Whole numbers of 0 or more; `shapes` says, by the number of dimensions, which ones there may be."""
    expected = " or ".join(shapes.values())
    try:
        tensor = torch.as_tensor(counts)
    except (TypeError, ValueError, RuntimeError) as error:
        came = f"{type(counts).__name__} ({error})"
        raise TypeError(f"{name}: expected whole numbers, {expected}, got {came}") from error
    if not isinstance(counts, Tensor) and not tensor.numel():
        tensor = tensor.long()  # an empty list has no type
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name}: expected whole numbers, got dtype {tensor.dtype}")
    if tensor.is_meta:
        raise ValueError(f"{name}: expected numbers on a device that holds them, got device meta")
    if tensor.dim() not in shapes:
        raise ValueError(f"{name}: expected shape {expected}, got {shape_text(tensor)}")
    if tensor.numel() and int(tensor.min()) < 0:
        raise ValueError(f"{name}: expected lengths of 0 or more, got {int(tensor.min())}")
    return tensor.long()


def _clip(keys: slice, start: int, stop: int) -> slice:
    """The part of the keys from `start` up to `stop`; empty where there is none."""
    start = max(keys.start, min(start, keys.stop))
    return slice(start, max(start, min(keys.stop, stop)))


def _arange(keys: slice, device: torch.device) -> Tensor:
    return torch.arange(keys.start, keys.stop, device=device)


# -------------------------------------------------------------------------------------------------------- lengths


def lengths(counts: Tensor | Sequence[int]) -> Mask:
    """Valid lengths: the first `length` keys may be attended. One per sequence, (batch,), or per query, (batch, n).

    >>> import regard, torch
    >>> query, key = torch.zeros(2, 1, 3), torch.zeros(2, 3, 3)  # a batch of two: one query and three keys each
    >>> regard.weights(query, key, mask=regard.lengths([1, 2]))[:, 0]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000]])
    """
    return _Lengths(_check_counts("lengths", counts, {1: "(batch,)", 2: "(batch, n)"}))


class _Lengths(Mask):
    def __init__(self, counts: Tensor) -> None:
        self.counts = counts

    def __repr__(self) -> str:
        return f"lengths({shape_text(self.counts)})"

    def bind(self, layout: Layout) -> BoundMask:
        counts = self.counts.to(layout.device)
        if not layout.batch:
            raise ValueError("lengths: expected a query with a batch dimension in front, got one without")
        batch, *rest = layout.batch
        if tuple(counts.shape) not in ((batch,), (batch, layout.n)):
            expected = f"({batch},) or ({batch}, {layout.n}), (batch,) or (batch, n)"
            raise ValueError(f"lengths: expected shape {expected}, got {shape_text(counts)}")
        if counts.numel() and int(counts.max()) > layout.m:
            raise ValueError(f"lengths: expected at most {layout.m}, the number of keys, got {int(counts.max())}")
        by_row = counts.dim() == 2
        counts = counts.reshape(batch, *[1] * len(rest), layout.n if by_row else 1, 1)
        return _BoundLengths(layout.fold(layout.select(counts, rows=by_row)))


class _BoundLengths(BoundMask):
    """One length per sequence, counts (B, 1, 1, 1), or one per query, counts (B, 1, n, 1)."""

    ragged = True

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts
        self.by_row = counts.shape[-2] > 1
        flat = counts.flatten(1)  # (B, 1 or n)
        self.shortest = flat.amin(1).tolist() if flat.shape[1] else [0] * len(flat)
        self.longest = flat.amax(1).tolist() if flat.shape[1] else [0] * len(flat)

    def visible_keys(self, tile: Tile) -> slice:
        return _clip(tile.keys, tile.keys.start, max(self.longest[tile.batch], default=0))

    def allows_all(self, tile: Tile) -> bool:
        return bool(tile.keys.stop <= min(self.shortest[tile.batch], default=0))

    def allowed(self, tile: Tile) -> Tensor:
        rows = tile.rows if self.by_row else slice(None)
        return _arange(tile.keys, self.counts.device) < self.counts[tile.batch, :, rows]

    def reached(self, tile: Tile) -> Tensor:
        return self.allowed(tile).any(-2, keepdim=True)


# ------------------------------------------------------------------------------------------------------- segments


def segments(counts: Tensor | Sequence[int], key_counts: Tensor | Sequence[int] | None = None) -> Mask:
    """Sequences of these lengths, laid end to end: each query sees the keys of its own sequence, and no padding exists.

    `key_counts` says how long the sequences of the keys are, where that is not the same.

    >>> import regard, torch
    >>> rows = torch.zeros(3, 2)  # a sequence of one row, and one of two
    >>> regard.weights(rows, rows, mask=regard.segments([1, 2]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000],
            [0.0000, 0.5000, 0.5000]])
    """
    shape = {1: "(sequences,)"}
    rows = _check_counts("segments", counts, shape)
    keys = rows if key_counts is None else _check_counts("segments", key_counts, shape)
    if len(rows) != len(keys):
        raise ValueError(f"segments: expected as many sequences of keys as of queries, {len(rows)}, got {len(keys)}")
    return _Segments(rows.cumsum(0).tolist(), keys.cumsum(0).tolist())


class _Segments(Mask):
    def __init__(self, row_ends: list[int], key_ends: list[int]) -> None:
        self.row_ends, self.key_ends = row_ends, key_ends

    def __repr__(self) -> str:
        return f"segments({len(self.row_ends)} sequences)"

    @property
    def sequences(self) -> tuple[list[int], list[int]]:
        return self.row_ends, self.key_ends

    def bind(self, layout: Layout) -> BoundMask:
        for name, ends, size in (("queries", self.row_ends, layout.n), ("keys", self.key_ends, layout.m)):
            total = ends[-1] if ends else 0
            if total != size:
                raise ValueError(f"segments: expected lengths that add up to {size}, the number of {name}, got {total}")
        return _BoundSegments(self.row_ends, self.key_ends, layout)


class _BoundSegments(BoundMask):
    by_row = True

    def __init__(self, row_ends: list[int], key_ends: list[int], layout: Layout) -> None:
        self.row_ends, self.key_ends = row_ends, key_ends
        self.positions, self.device = layout.positions, layout.device
        self.contiguous = isinstance(layout.positions, range)
        if self.contiguous:
            self.breaks = row_ends
            shapes = list(zip(_differences(row_ends), _differences(key_ends), strict=True))
            self.shape_breaks = [
                end for end, shape, following in zip(row_ends, shapes, shapes[1:], strict=False) if shape != following
            ]

    def _segments(self, tile: Tile) -> tuple[int, int] | None:
        """The first and the last segment that rows of the tile belong to; None for a tile without rows."""
        rows = self.positions[tile.rows]
        return (bisect_right(self.row_ends, min(rows)), bisect_right(self.row_ends, max(rows))) if len(rows) else None

    def _first_key(self, segment: int) -> int:
        return self.key_ends[segment - 1] if segment else 0

    def visible_keys(self, tile: Tile) -> slice:
        segments = self._segments(tile)
        if segments is None:
            return slice(tile.keys.start, tile.keys.start)
        return _clip(tile.keys, self._first_key(segments[0]), self.key_ends[segments[1]])

    def allows_all(self, tile: Tile) -> bool:
        segments = self._segments(tile)
        if segments is None:
            return True
        first, last = segments
        return first == last and self._first_key(first) <= tile.keys.start and tile.keys.stop <= self.key_ends[first]

    def equal_blocks(self, tile: Tile) -> int:
        segments = self._segments(tile)
        if segments is None or not self.contiguous:
            return 1
        first, last = segments
        rows = slice(self.row_ends[first - 1] if first else 0, self.row_ends[last])
        keys = slice(self._first_key(first), self.key_ends[last])
        return last - first + 1 if (rows, keys) == (tile.rows, tile.keys) and keys.start < keys.stop else 1

    def allowed(self, tile: Tile) -> Tensor:
        rows = torch.tensor(list(self.positions[tile.rows]), device=self.device, dtype=torch.long)
        keys = _arange(tile.keys, self.device)
        row_segments, key_segments = (
            torch.bucketize(positions, torch.tensor(ends, device=self.device), right=True)
            for positions, ends in ((rows, self.row_ends), (keys, self.key_ends))
        )
        return (row_segments[:, None] == key_segments)[None, None]


def _differences(ends: Sequence[int]) -> list[int]:
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


# ---------------------------------------------------------------------------------------------------------- bands


Align = Literal["start", "end"]


def causal(offset: int | None = None, align: Align | None = None) -> Mask:
    """Key j is visible to query i when j ≤ i + offset. Where n ≠ m, say offset= or align="start" (0), "end" (m − n).

    >>> import regard, torch
    >>> rows = torch.zeros(3, 2)
    >>> regard.weights(rows, rows, mask=regard.causal())
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.3333, 0.3333, 0.3333]])
    """
    return _Band("causal", None, 0, offset, align)


def window(left: int | None, right: int | None, offset: int | None = None, align: Align | None = None) -> Mask:
    """Query i sees the keys from i − left to i + right (None: no limit on that side), shifted by the offset rule.

    >>> import regard, torch
    >>> rows = torch.zeros(4, 2)
    >>> regard.weights(rows, rows, mask=regard.window(1, 0))
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.5000, 0.5000]])
    """
    for name, side in (("left", left), ("right", right)):
        if side is not None and (isinstance(side, bool) or not isinstance(side, int)):
            raise TypeError(f"window: expected {name} to be a whole number or None, got {type(side).__name__}")
        if side is not None and side < 0:
            raise ValueError(f"window: expected {name} to be 0 or more, got {side}")
    return _Band("window", left, right, offset, align)


class _Band(Mask):
    def __init__(self, name: str, left: int | None, right: int | None, offset: int | None, align: Align | None) -> None:
        if offset is not None and align is not None:
            raise ValueError(f"{name}: expected offset or align, got both")
        if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
            raise TypeError(f"{name}: expected offset to be a whole number, got {type(offset).__name__}")
        if align not in (None, "start", "end"):
            raise ValueError(f"{name}: expected align to be 'start' or 'end', got {align!r}")
        self.name, self.left, self.right, self.offset, self.align = name, left, right, offset, align

    def __repr__(self) -> str:
        sides = "" if self.name == "causal" else f"{self.left}, {self.right}, "
        return f"{self.name}({sides}offset={self.offset}, align={self.align!r})"

    def bind(self, layout: Layout) -> BoundMask:
        n, m, offset = layout.n, layout.m, self.offset
        if offset is None:
            if self.align is None and n != m:
                raise ValueError(
                    f"{self.name}: with {n} queries and {m} keys it is not clear which key belongs to which query; say "
                    "offset=… (key j is visible to query i when j ≤ i + offset), align='start' or align='end'"
                )
            offset = m - n if self.align == "end" else 0
        # Bounds wider than the scores are no bounds: clipping them keeps the arithmetic far from overflow.
        reach = n + m
        low = -reach if self.left is None else max(-reach, min(offset - self.left, reach))
        high = reach if self.right is None else max(-reach, min(offset + self.right, reach))
        return _BoundBand(low, high, layout)


class _BoundBand(BoundMask):
    """Key j is visible to the query at position i when i + low ≤ j ≤ i + high."""

    by_row = True

    def __init__(self, low: int, high: int, layout: Layout) -> None:
        self.low, self.high = low, high
        self.positions, self.device = layout.positions, layout.device

    def _ends(self, tile: Tile) -> tuple[int, int]:
        """The first and the last position of the tile's rows."""
        rows = self.positions[tile.rows]
        return (min(rows), max(rows)) if len(rows) else (0, 0)

    def visible_keys(self, tile: Tile) -> slice:
        first, last = self._ends(tile)
        return _clip(tile.keys, first + self.low, last + self.high + 1)

    def allows_all(self, tile: Tile) -> bool:
        first, last = self._ends(tile)
        return bool(last + self.low <= tile.keys.start and tile.keys.stop <= first + self.high + 1)

    def is_causal(self, tile: Tile) -> bool:
        if not isinstance(self.positions, range):
            return False
        first, last = self._ends(tile)
        return bool(tile.keys.start == first + self.high and last + self.low <= tile.keys.start)

    def allowed(self, tile: Tile) -> Tensor:
        rows = torch.tensor(list(self.positions[tile.rows]), device=self.device, dtype=torch.long)[:, None]
        keys = _arange(tile.keys, self.device)
        return ((keys >= rows + self.low) & (keys <= rows + self.high))[None, None]
