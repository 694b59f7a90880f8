"""Masks tied to the shapes of one call. They answer for a Tile of the folded scores (B, R, n, m), never for all of it.

A bound mask says which keys can matter to a piece at all (`span`), whether all of its pairs may be seen (`covers`), and
only where something really needs them, which ones (`allowed`) and with what bias (`added`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.layout import Layout


@dataclass(frozen=True)
class Tile:
    """A block of the folded scores (B, R, n, m): some of B, all of R, some rows, some keys."""

    batch: slice
    rows: slice
    keys: slice


class Bound:
    """A mask tied to the shapes of one call. This one forbids nothing; each mask overrides what it knows better."""

    by_row = False  # whether queries of one sequence may see different keys
    ragged = False  # whether sequences of the batch may see different numbers of keys
    learned = False  # whether gradients flow into a bias
    breaks: Sequence[int] = ()  # rows before which it pays to cut, because other keys are seen from there on
    runs: Sequence[int] = ()  # those of them where what is seen also gets another shape

    def span(self, piece: Tile) -> tuple[int, int]:
        """The range of keys outside which nothing may be seen."""
        return piece.keys.start, piece.keys.stop

    def covers(self, piece: Tile) -> bool:
        """Whether every pair of the piece is allowed, with no bias: then nobody needs `allowed` and `added`."""
        return False

    def repeats(self, piece: Tile) -> int:
        """How many blocks of one shape the piece is made of, each of which sees all of itself and nothing else."""
        return 1

    def allowed(self, piece: Tile) -> Tensor | None:
        """Boolean, broadcastable to the piece's (B, R, n, m); None where all is allowed."""
        return None

    def added(self, piece: Tile) -> Tensor | None:
        """What is added to the scores, broadcastable to the piece; None for nothing."""
        return None


def _block(tensor: Tensor, piece: Tile) -> Tensor:
    """The piece of a dense folded tensor; dimensions of size 1 stay as they are."""
    rows = piece.rows if tensor.shape[-2] > 1 else slice(None)
    keys = piece.keys if tensor.shape[-1] > 1 else slice(None)
    return tensor[piece.batch, :, rows, keys]


class BoundKeep(Bound):
    """A dense boolean mask, folded (B, R or 1, n or 1, m or 1); negated where True forbids."""

    def __init__(self, tensor: Tensor, negate: bool) -> None:
        self.tensor, self.negate = tensor, negate
        self.by_row = tensor.shape[-2] > 1

    def allowed(self, piece: Tile) -> Tensor:
        block = _block(self.tensor, piece)
        return ~block if self.negate else block


class BoundBias(Bound):
    """A dense bias, folded (B, R or 1, n or 1, m or 1); −inf in it forbids."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.by_row = tensor.shape[-2] > 1
        self.learned = tensor.requires_grad

    def allowed(self, piece: Tile) -> Tensor:
        return _block(self.tensor.detach(), piece) != -torch.inf

    def added(self, piece: Tile) -> Tensor:
        block = _block(self.tensor, piece)
        return block.masked_fill(block.detach() == -torch.inf, 0.0)


class BoundLengths(Bound):
    """Valid lengths: one per sequence, counts (B, 1, 1, 1), or one per query, counts (B, 1, n, 1)."""

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts
        self.by_row = counts.shape[-2] > 1
        self.ragged = True
        flat = counts.flatten(1)  # (B, 1 or n)
        self.shortest = flat.amin(1).tolist() if flat.shape[1] else [0] * len(flat)
        self.longest = flat.amax(1).tolist() if flat.shape[1] else [0] * len(flat)

    def span(self, piece: Tile) -> tuple[int, int]:
        start, stop = piece.keys.start, piece.keys.stop
        return start, max(start, min(stop, max(self.longest[piece.batch], default=0)))

    def covers(self, piece: Tile) -> bool:
        shortest: int = min(self.shortest[piece.batch], default=0)
        return int(piece.keys.stop) <= shortest

    def allowed(self, piece: Tile) -> Tensor:
        rows = piece.rows if self.by_row else slice(None)
        keys = torch.arange(piece.keys.start, piece.keys.stop, device=self.counts.device)
        return keys < self.counts[piece.batch, :, rows]


class BoundBand(Bound):
    """Key j is visible to the query at position i when i − left ≤ j − offset ≤ i + right; None is no limit."""

    by_row = True

    def __init__(self, left: int | None, right: int | None, offset: int, frame: Layout) -> None:
        self.positions, self.m, self.device = frame.positions, frame.m, frame.device
        # Bounds wider than the scores are no bounds: clipping them keeps the arithmetic far from overflow.
        reach = frame.n + frame.m
        self.low = -reach if left is None else max(-reach, min(offset - left, reach))
        self.high = reach if right is None else max(-reach, min(offset + right, reach))

    def is_causal(self, piece: Tile) -> bool:
        """Exactly what PyTorch's is_causal means: key j of the piece is visible to its row i when j ≤ i."""
        if not isinstance(self.positions, range):
            return False
        first, last = self._ends(piece)
        return int(piece.keys.start) == first + self.high and last + self.low <= int(piece.keys.start)

    def _ends(self, piece: Tile) -> tuple[int, int]:
        rows = self.positions[piece.rows]
        return (min(rows), max(rows)) if len(rows) else (0, 0)

    def span(self, piece: Tile) -> tuple[int, int]:
        first, last = self._ends(piece)
        start = max(piece.keys.start, min(first + self.low, piece.keys.stop))
        return start, max(start, min(piece.keys.stop, last + self.high + 1))

    def covers(self, piece: Tile) -> bool:
        first, last = self._ends(piece)
        return last + self.low <= int(piece.keys.start) and int(piece.keys.stop) <= first + self.high + 1

    def allowed(self, piece: Tile) -> Tensor:
        rows = torch.tensor(list(self.positions[piece.rows]), device=self.device, dtype=torch.long)[:, None]
        keys = torch.arange(piece.keys.start, piece.keys.stop, device=self.device)
        return ((keys >= rows + self.low) & (keys <= rows + self.high))[None, None]


class BoundSegments(Bound):
    """Sequences laid end to end: a query sees the keys of its own. `rows` and `keys` say where each one ends."""

    by_row = True

    def __init__(self, rows: list[int], keys: list[int], frame: Layout) -> None:
        self.rows, self.keys = rows, keys
        self.positions, self.device = frame.positions, frame.device
        if isinstance(self.positions, range):
            self.breaks = rows
            sizes = list(zip(_differences(rows), _differences(keys), strict=True))
            self.runs = [end for end, own, after in zip(rows, sizes, sizes[1:], strict=False) if own != after]

    def _segments(self, piece: Tile) -> tuple[int, int]:
        """The first and the last sequence that rows of the piece belong to."""
        rows = self.positions[piece.rows]
        return bisect_right(self.rows, min(rows)), bisect_right(self.rows, max(rows))

    def repeats(self, piece: Tile) -> int:
        if not isinstance(self.positions, range) or not len(self.positions[piece.rows]):
            return 1
        first, last = self._segments(piece)
        count = last - first + 1
        ends = (self.rows[first - 1] if first else 0, self.rows[last], self._start(first), self.keys[last])
        whole = ends == (piece.rows.start, piece.rows.stop, piece.keys.start, piece.keys.stop)
        alike = whole and not any(ends[0] < place < ends[1] for place in self.runs)
        return count if alike and ends[2] < ends[3] else 1

    def _start(self, segment: int) -> int:
        return self.keys[segment - 1] if segment else 0

    def span(self, piece: Tile) -> tuple[int, int]:
        if not len(self.positions[piece.rows]):
            return piece.keys.start, piece.keys.start
        first, last = self._segments(piece)
        start = max(piece.keys.start, min(self._start(first), piece.keys.stop))
        return start, max(start, min(piece.keys.stop, self.keys[last]))

    def covers(self, piece: Tile) -> bool:
        if not len(self.positions[piece.rows]):
            return True
        first, last = self._segments(piece)
        return first == last and self._start(first) <= piece.keys.start and piece.keys.stop <= self.keys[first]

    def allowed(self, piece: Tile) -> Tensor:
        rows = torch.tensor(list(self.positions[piece.rows]), device=self.device, dtype=torch.long)
        keys = torch.arange(piece.keys.start, piece.keys.stop, device=self.device)
        of_rows, of_keys = (
            torch.bucketize(places, torch.tensor(ends, device=self.device), right=True)
            for places, ends in ((rows, self.rows), (keys, self.keys))
        )
        return (of_rows[:, None] == of_keys)[None, None]


def _differences(ends: Sequence[int]) -> list[int]:
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


class BoundBoth(Bound):
    """What every one of the parts allows, with the sum of their biases."""

    def __init__(self, parts: list[Bound]) -> None:
        self.parts = parts
        self.by_row = any(part.by_row for part in parts)
        self.ragged = any(part.ragged for part in parts)
        self.learned = any(part.learned for part in parts)
        self.breaks, self.runs = (
            sorted({place for part in parts for place in getattr(part, name)}) for name in ("breaks", "runs")
        )

    def span(self, piece: Tile) -> tuple[int, int]:
        for part in self.parts:
            piece = Tile(piece.batch, piece.rows, slice(*part.span(piece)))
        return piece.keys.start, piece.keys.stop

    def covers(self, piece: Tile) -> bool:
        return all(part.covers(piece) for part in self.parts)

    def repeats(self, piece: Tile) -> int:
        left = [part for part in self.parts if not part.covers(piece)]
        return left[0].repeats(piece) if len(left) == 1 else 1

    def allowed(self, piece: Tile) -> Tensor | None:
        joined: Tensor | None = None
        for part in self.parts:
            mask = None if part.covers(piece) else part.allowed(piece)
            if mask is not None:
                joined = mask if joined is None else joined & mask
        return joined

    def added(self, piece: Tile) -> Tensor | None:
        total: Tensor | None = None
        for part in self.parts:
            more = part.added(piece)
            if more is not None:
                total = more if total is None else total + more
        return total


class BoundEither(Bound):
    """What at least one of the parts allows."""

    def __init__(self, parts: list[Bound]) -> None:
        self.parts = parts
        self.by_row = any(part.by_row for part in parts)
        self.ragged = any(part.ragged for part in parts)

    def span(self, piece: Tile) -> tuple[int, int]:
        starts, stops = zip(*(part.span(piece) for part in self.parts), strict=True)
        return min(starts), max(stops)

    def covers(self, piece: Tile) -> bool:
        return any(part.covers(piece) for part in self.parts)

    def allowed(self, piece: Tile) -> Tensor | None:
        joined: Tensor | None = None
        for part in self.parts:
            mask = part.allowed(piece)
            if mask is None:
                return None
            joined = mask if joined is None else joined | mask
        return joined
