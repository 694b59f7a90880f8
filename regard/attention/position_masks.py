"""Masks that follow from positions alone: lengths, segments, causal, window. They know which keys a tile can see at
all, so that whole tiles are skipped and padding is not computed.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from regard.arguments import check_not_nested, shape_text
from regard.attention.layout import Layout, Tile
from regard.attention.masks import BoundMask, Mask
from regard.attention.tracing import is_traced


def _check_counts(name: str, counts: Tensor | Sequence[int], shapes: dict[int, str]) -> Tensor:
    """Whole numbers of 0 or more; `shapes` says, by the number of dimensions, which ones there may be."""
    expected = " or ".join(shapes.values())
    try:
        tensor = torch.as_tensor(counts)
    except (TypeError, ValueError, RuntimeError) as error:
        came = f"{type(counts).__name__} ({error})"
        raise TypeError(f"{name}: expected whole numbers, {expected}, got {came}") from error
    check_not_nested(name, tensor, "of whole numbers")
    if not isinstance(counts, Tensor) and not tensor.numel():
        tensor = tensor.long()  # an empty list has no type
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name}: expected whole numbers, got dtype {tensor.dtype}")
    if tensor.dim() not in shapes:
        raise ValueError(f"{name}: expected shape {expected}, got {shape_text(tensor)}")
    if not is_traced(tensor) and tensor.numel() and int(tensor.min()) < 0:
        raise ValueError(f"{name}: expected lengths of 0 or more, got {int(tensor.min())}")
    return tensor.long()


def _counts_on(name: str, counts: Tensor, device: torch.device) -> Tensor:
    if counts.is_meta and device.type != "meta":
        raise ValueError(f"{name}: expected numbers on a device that holds them, got device meta")
    return counts.to(device)


class RangeMask(BoundMask):
    """A bound mask that knows of the rows of a tile which range of keys any of them sees, and which range all see."""

    def ranges(self, tile: Tile) -> tuple[slice, slice]:
        """The keys outside of which nothing is allowed, and those within which everything is, with both ends."""
        raise NotImplementedError

    def visible_keys(self, tile: Tile) -> slice:
        of_any, _ = self.ranges(tile)
        return tile.clip(of_any.start, of_any.stop)

    def allows_all(self, tile: Tile) -> bool:
        _, of_all = self.ranges(tile)
        return bool(of_all.start <= tile.keys.start and tile.keys.stop <= of_all.stop)


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
        self.counts, self.sources = counts, (counts,)

    def __repr__(self) -> str:
        return f"lengths({shape_text(self.counts)})"

    def bind(self, layout: Layout) -> BoundMask:
        counts = _counts_on("lengths", self.counts, layout.device)
        if not layout.batch:
            raise ValueError("lengths: expected a query with a batch dimension in front, got one without")
        (batch, *rest), by_row = layout.batch, counts.dim() == 2
        # Not by `in`, which does not see that a size which the compiler leaves open is the same.
        if counts.shape[0] != batch or (by_row and counts.shape[1] != layout.n):
            expected = f"({batch},) or ({batch}, {layout.n}), (batch,) or (batch, n)"
            raise ValueError(f"lengths: expected shape {expected}, got {shape_text(counts)}")
        if not is_traced(counts) and counts.numel() and int(counts.max()) > layout.m:
            raise ValueError(f"lengths: expected at most {layout.m}, the number of keys, got {int(counts.max())}")
        counts = counts.reshape(batch, *[1] * len(rest), layout.n if by_row else 1, 1)
        return _BoundLengths(layout.fold(layout.select(counts, rows=by_row)))


class _BoundLengths(RangeMask):
    """One length per sequence, counts (B, 1, 1, 1), or one per query, counts (B, 1, n, 1)."""

    ragged = True

    def __init__(self, counts: Tensor) -> None:
        self.counts, self.tensors = counts, (counts,)
        self.by_row = counts.shape[-2] > 1

    @cached_property
    def _ends(self) -> tuple[list[int], list[int]]:
        """The shortest and the longest length of each sequence."""
        flat = self.counts.flatten(1)  # (B, 1 or n)
        shortest, longest = flat.aminmax(dim=1) if flat.shape[1] else [flat.new_zeros(len(flat))] * 2
        return shortest.tolist(), longest.tolist()

    def ranges(self, tile: Tile) -> tuple[slice, slice]:
        shortest, longest = (counts[tile.batch] for counts in self._ends)
        return slice(0, max(longest, default=0)), slice(0, min(shortest, default=0))

    def _of(self, tile: Tile) -> Tensor:
        return self.counts[tile.batch, :, tile.rows if self.by_row else slice(None)]

    def allowed(self, tile: Tile) -> Tensor:
        return _arange(tile.keys, self.counts.device) < self._of(tile)

    def reached(self, tile: Tile) -> Tensor:
        return _arange(tile.keys, self.counts.device) < self._of(tile).amax(-2, keepdim=True)


# ------------------------------------------------------------------------------------------------------- segments


def segments(counts: Tensor | Sequence[int], key_counts: Tensor | Sequence[int] | None = None) -> Mask:
    """Sequences of these lengths, laid end to end: each query sees the keys of its own sequence.

    counts: (sequences,), which have to add up to n; or (batch, sequences) where they differ within the batch, with 0
        for sequences that are not there: what is left over at the end attends to nothing, and nothing attends to it
    key_counts: the lengths among the keys; None: the same

    >>> import regard, torch
    >>> rows = torch.zeros(3, 2)  # a sequence of one row, and one of two
    >>> regard.weights(rows, rows, mask=regard.segments([1, 2]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000],
            [0.0000, 0.5000, 0.5000]])
    """
    shapes = {1: "(sequences,)", 2: "(batch, sequences)"}
    rows = _check_counts("segments", counts, shapes)
    keys = rows if key_counts is None else _check_counts("segments", key_counts, shapes)
    if rows.shape != keys.shape:
        expected = f"as many sequences of keys as of queries, {shape_text(rows)}"
        raise ValueError(f"segments: expected {expected}, got {shape_text(keys)}")
    return _Segments(rows.cumsum(-1), keys.cumsum(-1))


class _Segments(Mask):
    sources = ()  # the ends are copies of what was given

    def __init__(self, row_ends: Tensor, key_ends: Tensor) -> None:
        self.row_ends, self.key_ends = row_ends, key_ends  # (sequences,) or (batch, sequences)

    def __repr__(self) -> str:
        return f"segments({shape_text(self.row_ends)})"

    @property
    def sequences(self) -> tuple[list[int], list[int]] | None:
        return None if self.row_ends.dim() == 2 else (self.row_ends.tolist(), self.key_ends.tolist())

    def bind(self, layout: Layout) -> BoundMask:
        batched = self.row_ends.dim() == 2
        if batched and (not layout.batch or self.row_ends.shape[0] != layout.batch[0]):
            expected = f"({layout.batch[0]}, sequences)" if layout.batch else "(sequences,) for a query without a batch"
            raise ValueError(f"segments: expected shape {expected}, got {shape_text(self.row_ends)}")
        folded = []
        for name, ends, size in (("queries", self.row_ends, layout.n), ("keys", self.key_ends, layout.m)):
            if not is_traced(ends):
                total = int(ends[..., -1].max()) if ends.numel() else 0
                if total > size or (total < size and not batched):
                    expected = f"{'at most' if batched else 'lengths that add up to'} {size}, the number of {name}"
                    raise ValueError(f"segments: expected {expected}, got {total}")
            ends = _counts_on("segments", ends, layout.device)
            if batched:
                ends = ends.reshape(ends.shape[0], *[1] * (len(layout.batch) - 1), 1, ends.shape[-1])
                ends = layout.fold(layout.select(ends, rows=False))[:, :, 0]  # (B, R or 1, sequences)
            folded.append(ends if batched else ends[None, None])
        return _BoundSegments(folded[0], folded[1], layout)


class _BoundSegments(RangeMask):
    """Where sequences end, among the queries and among the keys, each (B or 1, R or 1, sequences)."""

    by_row = True

    def __init__(self, row_ends: Tensor, key_ends: Tensor, layout: Layout) -> None:
        self.tensors, self.layout = (row_ends, key_ends), layout
        self.ragged = row_ends.shape[0] > 1
        self.alike = row_ends.shape[:2] == (1, 1) and layout.positions is None  # for all of the batch, row after row

    @cached_property
    def _ends(self) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
        """The same as lists."""
        row_ends, key_ends = self.tensors
        return row_ends.tolist(), key_ends.tolist()

    @cached_property
    def breaks(self) -> Sequence[int]:
        return self._ends[0][0][0] if self.alike else ()

    @cached_property
    def shape_breaks(self) -> Sequence[int]:
        if not self.breaks:
            return ()
        (((row_ends,),), ((key_ends,),)) = self._ends
        shapes = list(zip(differences(row_ends), differences(key_ends), strict=True))
        return [end for end, shape, after in zip(row_ends, shapes, shapes[1:], strict=False) if shape != after]

    def _blocks(self, tile: Tile) -> list[tuple[int, int, slice, slice]]:
        """For each entry of the batch: the first and the last sequence of the tile's rows, and where these two lie.

        The number of sequences stands for what is left over.
        """
        if tile.rows.start >= tile.rows.stop:
            return []  # without rows
        first, last = _ends_of(self.layout, tile)
        blocks = []
        batch = tile.batch if self.ragged else slice(None)
        entries = (zip(*pair, strict=True) for pair in zip(*(ends[batch] for ends in self._ends), strict=True))
        for row_ends, key_ends in chain.from_iterable(entries):
            start, stop = bisect_right(row_ends, first), bisect_right(row_ends, last)
            rows, keys = (
                slice(ends[start - 1] if start else 0, ends[min(stop, len(ends) - 1)] if start < len(ends) else 0)
                for ends in (row_ends, key_ends)
            )
            blocks.append((start, stop, rows, keys))
        return blocks

    def ranges(self, tile: Tile) -> tuple[slice, slice]:
        blocks = self._blocks(tile)
        # Rows of several sequences see no key in common.
        common = [keys if start == stop else slice(0, -1) for start, stop, _, keys in blocks] or [tile.keys]
        visible = [keys for _, _, _, keys in blocks if keys.start < keys.stop] or [slice(0, 0)]
        of_any = slice(min(keys.start for keys in visible), max(keys.stop for keys in visible))
        return of_any, slice(max(keys.start for keys in common), min(keys.stop for keys in common))

    def equal_blocks(self, tile: Tile) -> int:
        if not self.alike:
            return 1
        for start, stop, rows, keys in self._blocks(tile):
            if (rows, keys) == (tile.rows, tile.keys) and keys.start < keys.stop and tile.rows.stop == rows.stop:
                return stop - start + 1
        return 1

    def _labels(self, tile: Tile) -> list[Tensor]:
        """To which sequence each row, and each key, belongs, (B or 1, R or 1, positions); their number for none."""
        places = self.layout.query_indices(tile.rows), _arange(tile.keys, self.layout.device)
        labels: list[Tensor] = []  # not by a comprehension: see `BoundMask`
        for ends, at in zip(self.tensors, places, strict=True):
            part = (ends[tile.batch] if ends.shape[0] > 1 else ends).contiguous()
            labels.append(torch.searchsorted(part, at.expand(*part.shape[:2], -1).contiguous(), right=True))
        return labels

    def allowed(self, tile: Tile) -> Tensor:
        rows, keys = self._labels(tile)
        return (rows[..., None] == keys[..., None, :]) & (rows < self.tensors[0].shape[-1])[..., None]

    def reached(self, tile: Tile) -> Tensor:
        rows, keys = self._labels(tile)
        with_rows = rows.new_zeros(*rows.shape[:2], self.tensors[0].shape[-1] + 1, dtype=torch.bool)
        with_rows.scatter_(-1, rows, True)[..., -1] = False  # what is left over belongs to no sequence
        return with_rows.gather(-1, keys)[..., None, :]


def differences(ends: Sequence[int]) -> list[int]:
    """How long sequences with these ends are."""
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _ends_of(layout: Layout, tile: Tile) -> tuple[int, int]:
    """The first and the last position of the tile's rows; 0 where there is none."""
    if layout.positions is None or tile.rows.start >= tile.rows.stop:
        return tile.rows.start, max(tile.rows.stop - 1, tile.rows.start)
    positions = layout.positions[tile.rows]
    return min(positions), max(positions)


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


class Offset:
    """Which key belongs to which query: key i + offset to query i. Where n ≠ m, the caller has to say."""

    def __init__(self, name: str, offset: int | None, align: Align | None) -> None:
        if offset is not None and align is not None:
            raise ValueError(f"{name}: expected offset or align, got both")
        if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
            raise TypeError(f"{name}: expected offset to be a whole number, got {type(offset).__name__}")
        if align not in (None, "start", "end"):
            raise ValueError(f"{name}: expected align to be 'start' or 'end', got {align!r}")
        self.name, self.offset, self.align = name, offset, align

    def __repr__(self) -> str:
        return f"offset={self.offset}, align={self.align!r}"

    def of(self, layout: Layout) -> int:
        """The offset for these shapes."""
        if self.offset is not None:
            return self.offset
        if self.align is None and layout.n != layout.m:
            raise ValueError(
                f"{self.name}: with {layout.n} queries and {layout.m} keys it is not clear which key belongs to which "
                "query; say offset=… (key i + offset belongs to query i), align='start' or align='end'"
            )
        return layout.m - layout.n if self.align == "end" else 0


class _Band(Mask):
    sources = ()

    def __init__(self, name: str, left: int | None, right: int | None, offset: int | None, align: Align | None) -> None:
        self.name, self.left, self.right, self.offset = name, left, right, Offset(name, offset, align)

    def __repr__(self) -> str:
        sides = "" if self.name == "causal" else f"{self.left}, {self.right}, "
        return f"{self.name}({sides}{self.offset})"

    def bind(self, layout: Layout) -> BoundMask:
        offset = self.offset.of(layout)
        # Bounds wider than the scores are no bounds: clipping them keeps the arithmetic far from overflow.
        reach = layout.n + layout.m
        low = -reach if self.left is None else max(-reach, min(offset - self.left, reach))
        high = reach if self.right is None else max(-reach, min(offset + self.right, reach))
        return _BoundBand(low, high, layout)


class _BoundBand(RangeMask):
    """Key j is visible to the query at position i when i + low ≤ j ≤ i + high."""

    by_row = True

    def __init__(self, low: int, high: int, layout: Layout) -> None:
        self.low, self.high, self.layout = low, high, layout

    def ranges(self, tile: Tile) -> tuple[slice, slice]:
        first, last = _ends_of(self.layout, tile)
        low, high = self.low, self.high + 1
        return slice(first + low, last + high), slice(last + low, first + high)

    def is_causal(self, tile: Tile) -> bool:
        if self.layout.positions is not None:
            return False
        first, last = _ends_of(self.layout, tile)
        return bool(tile.keys.start == first + self.high and last + self.low <= tile.keys.start)

    def allowed(self, tile: Tile) -> Tensor:
        rows, keys = self.layout.query_indices(tile.rows)[:, None], _arange(tile.keys, self.layout.device)
        return ((keys >= rows + self.low) & (keys <= rows + self.high))[None, None]

    def reached(self, tile: Tile) -> Tensor | None:
        if self.layout.positions is not None:  # there may be keys between that none of these rows sees
            return super().reached(tile)
        keys, visible = _arange(tile.keys, self.layout.device), self.visible_keys(tile)
        return torch.logical_and(keys >= visible.start, keys < visible.stop)[None, None, None]
