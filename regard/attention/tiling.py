"""How the scores of one call are cut into pieces, so that nothing (n × m) is ever kept and hidden keys are skipped.

A cut is a list, over slices of the batch, of lists, over slices of rows, of Pieces; each piece's keys are those that
its rows can see at all. Only sizes are decided here; what is done with a piece is in formula.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from regard.attention.bound import Bound, BoundBand, BoundBoth, Tile

# Scores of a streamed piece: 2 MB of float32, so that softmax and the product with the values find them in cache.
STREAMED = 1 << 19
# Below this many scores a sequence is not worth a call of its own, and its padding is masked instead of skipped.
WORTH_A_CALL = 1 << 16
# Rows of a piece under a mask that differs from row to row: enough for a fused call, few enough to skip hidden keys.
MASKED_ROWS = 256

Cut = list[list[Tile]]


def whole(batch: int, n: int, m: int) -> Tile:
    """All of the folded scores."""
    return Tile(slice(0, batch), slice(0, n), slice(0, m))


def size(part: slice) -> int:
    """How much a slice with both ends holds."""
    return int(part.stop - part.start)


def shifted(part: slice, origin: slice) -> slice:
    """Where a part of the origin lies within it."""
    return slice(part.start - origin.start, part.stop - origin.start)


def fused_cut(piece: Tile, shared: int, bound: Bound | None) -> Cut:
    """Pieces for a fused call: as few as the mask allows."""
    if bound is None:
        return [[piece]]
    cut = []
    for batch in _batches(piece, shared, bound, size(piece.batch)):
        row = []
        for rows in _broken(piece.rows, bound.runs):
            part = trimmed(Tile(batch, rows, piece.keys), bound)
            if bound.repeats(part) > 1:
                row.append(part)
                continue
            for own in _broken(rows, bound.breaks):
                part = trimmed(Tile(batch, own, piece.keys), bound)
                in_rows = bound.by_row and not bound.covers(part) and not only_causal(part, bound)
                row += [trimmed(part, bound, some) for some in _slices(own, MASKED_ROWS if in_rows else 0)]
        cut.append(row)
    return cut


def streamed_cut(piece: Tile, shared: int, bound: Bound | None) -> Cut:
    """Pieces of at most STREAMED scores (one row of all sharing heads, if that is more)."""
    per_row = max(1, shared * size(piece.keys))
    per_sequence = max(1, per_row * size(piece.rows))
    cut = []
    for batch in _batches(piece, shared, bound, max(1, STREAMED // per_sequence)):
        row = []
        for rows in _broken(piece.rows, () if bound is None else bound.breaks):
            part = trimmed(Tile(batch, rows, piece.keys), bound)
            most = max(1, STREAMED // max(1, shared * size(batch) * size(part.keys)))
            row += [trimmed(part, bound, some) for some in _slices(rows, most)]
        cut.append(row)
    return cut


def trimmed(piece: Tile, bound: Bound | None, rows: slice | None = None) -> Tile:
    """The piece, of these rows, with the keys that they can see."""
    piece = Tile(piece.batch, piece.rows if rows is None else rows, piece.keys)
    return piece if bound is None else Tile(piece.batch, piece.rows, slice(*bound.span(piece)))


def only_causal(piece: Tile, bound: Bound) -> bool:
    """Whether all that restricts this piece is what PyTorch calls is_causal, which needs no mask tensor."""
    parts = bound.parts if isinstance(bound, BoundBoth) else [bound]
    left = [part for part in parts if not part.covers(piece)]
    return all(isinstance(part, BoundBand) and part.is_causal(piece) for part in left)


def _batches(piece: Tile, shared: int, bound: Bound | None, most: int) -> list[slice]:
    """The batch in slices of at most `most` sequences, one by one where each has padding to skip."""
    worth = shared * size(piece.rows) * size(piece.keys) >= WORTH_A_CALL
    return _slices(piece.batch, 1 if bound is not None and bound.ragged and worth else most)


def _broken(rows: slice, breaks: Sequence[int]) -> list[slice]:
    """The rows, cut where the mask says that other keys are seen from there on."""
    if not breaks:
        return [rows]
    inside = [place for place in breaks if rows.start < place < rows.stop]
    places = [rows.start, *dict.fromkeys(inside), rows.stop]
    return [slice(start, stop) for start, stop in pairwise(places)]


def _slices(part: slice, step: int) -> list[slice]:
    """The part in slices of `step` (0: in one); an empty part is one empty slice."""
    if step <= 0 or size(part) <= step:
        return [part]
    return [slice(start, min(start + step, part.stop)) for start in range(part.start, part.stop, step)]
