"""The scores of one call are cut into tiles, so that nothing (n × m) is ever kept and hidden keys are skipped.

Rows of tiles, a row for each slice of the batch, in which each tile has some queries and the keys that these can see at
all. engine.py solves them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from regard.attention.layout import Tile
from regard.attention.masks import BoundMask

# Scores of a streamed tile: 2 MB of float32, so that softmax and the product with the values find them in cache.
STREAMED = 1 << 19
# Below this many scores a sequence is not worth a call of its own, and its padding is masked instead of skipped.
WORTH_A_CALL = 1 << 16
# Rows of a tile under a mask that differs from row to row: enough for a fused call, few enough to skip hidden keys.
MASKED_ROWS = 128
# Where there is nothing to skip, the kernel is faster with more rows: a mask of so many numbers, 16 MB of float32.
DENSE = 1 << 22

Tiles = list[list[Tile]]


def fused_tiles(whole: Tile, sharing: int, mask: BoundMask | None) -> Tiles:
    """Tiles for the fused kernel: as few as the mask allows. `sharing` is R of the layout."""
    if mask is None:
        return [[whole]]
    tiles = []
    for batch in _cut_batch(whole, sharing, mask, size(whole.batch)):
        row = []
        for block in _cut_at(whole.rows, mask.shape_breaks):
            tile = _trim(Tile(batch, block, whole.keys), mask)
            if mask.equal_blocks(tile) > 1:
                row.append(tile)
                continue
            for rows in _cut_at(block, mask.breaks):
                tile = _trim(Tile(batch, rows, whole.keys), mask)
                row += [_trim(tile._replace(rows=part), mask) for part in _cut_every(rows, _rows_at_once(tile, mask))]
        tiles.append(row)
    return tiles


def _rows_at_once(tile: Tile, mask: BoundMask) -> int:
    """How many rows of the tile the fused kernel takes at once; 0 for all."""
    if mask.learned:  # the gradient of a bias is had from the scores of a tile, which should fit in cache
        return max(1, STREAMED // max(1, size(tile.keys)))
    if not mask.by_row or mask.allows_all(tile) or mask.is_causal(tile):
        return 0
    few = slice(tile.rows.start, min(tile.rows.start + MASKED_ROWS, tile.rows.stop))
    if size(mask.visible_keys(tile._replace(rows=few))) < size(tile.keys):
        return MASKED_ROWS
    row = tile._replace(rows=slice(few.start, few.start + 1))  # a mask may differ from head to head, or be the same
    numbers = max(1 if part is None else part.numel() for part in (mask.allowed(row), mask.bias(row)))
    return max(MASKED_ROWS, DENSE // max(numbers, 1))


def streamed_tiles(whole: Tile, sharing: int, mask: BoundMask | None, times: int = 1) -> Tiles:
    """Tiles of at most STREAMED scores, or so many times that (one query of all sharing heads, if that is more)."""
    limit = STREAMED * times
    scores_per_sequence = max(1, max(1, sharing * size(whole.keys)) * size(whole.rows))
    tiles = []
    for batch in _cut_batch(whole, sharing, mask, max(1, limit // scores_per_sequence)):
        row = []
        for rows in _cut_at(whole.rows, () if mask is None else mask.breaks):
            tile = _trim(Tile(batch, rows, whole.keys), mask)
            step = max(1, limit // max(1, sharing * size(batch) * size(tile.keys)))
            row += [_trim(tile._replace(rows=part), mask) for part in _cut_every(rows, step)]
        tiles.append(row)
    return tiles


def reached_keys(whole: Tile, sharing: int, mask: BoundMask) -> Tensor | None:
    """Which keys any row sees, boolean (B or 1, R or 1, 1, m or 1); None: all."""
    step = max(1, STREAMED // max(1, sharing * size(whole.batch) * size(whole.keys))) if mask.by_row else 0
    reached: Tensor | None = None
    for rows in _cut_every(whole.rows, step):
        part = mask.reached(whole._replace(rows=rows))
        if part is None:
            return None
        reached = part if reached is None else reached | part
    return reached


def size(part: slice) -> int:
    """How many indices a slice with both ends holds."""
    return int(part.stop - part.start)


def _trim(tile: Tile, mask: BoundMask | None) -> Tile:
    """The tile with only those keys that its rows can see."""
    return tile if mask is None else tile._replace(keys=mask.visible_keys(tile))


def _cut_batch(whole: Tile, sharing: int, mask: BoundMask | None, step: int) -> list[slice]:
    """The batch in slices of `step` sequences, or one by one where each has enough padding to skip."""
    worth = sharing * size(whole.rows) * size(whole.keys) >= WORTH_A_CALL
    return _cut_every(whole.batch, 1 if mask is not None and mask.ragged and worth else step)


def _cut_at(rows: slice, breaks: Sequence[int]) -> list[slice]:
    """The rows, cut before each break that lies within them."""
    if not breaks:
        return [rows]
    inside = [row for row in breaks if rows.start < row < rows.stop]
    ends = [rows.start, *dict.fromkeys(inside), rows.stop]
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _cut_every(part: slice, step: int) -> list[slice]:
    """The part in slices of `step` (0: in one); an empty part is one empty slice."""
    if step <= 0 or size(part) <= step:
        return [part]
    return [slice(start, min(start + step, part.stop)) for start in range(part.start, part.stop, step)]


def simplest(mask: BoundMask | None, tile: Tile) -> tuple[BoundMask | None, bool, int]:
    """How a mask restricts a tile: by itself, or None and whether it is causal, and of how many blocks it is made.

    Blocks are of one shape and each attends to itself: they are a batch without a mask (`in_blocks`).
    """
    if mask is None or mask.allows_all(tile):
        return None, False, 1
    if mask.is_causal(tile):  # a flag, for which the kernel needs no mask tensor
        return None, True, 1
    blocks = mask.equal_blocks(tile)
    return None if blocks > 1 else mask, False, blocks


def in_blocks(part: Tensor, blocks: int) -> Tensor:
    """(B, R, blocks · n, …) → (B · blocks, R, n, …)."""
    return part if blocks <= 1 else part.unflatten(2, (blocks, -1)).transpose(1, 2).flatten(0, 1)


def join_blocks(part: Tensor, whole: Tensor) -> Tensor:
    """The reverse of it: (B · blocks, R, n, …) as part of the whole (B, R, blocks · n, …) again."""
    blocks = len(part) // max(1, len(whole))
    return part if blocks <= 1 else part.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast would take matrix products to half precision, and would be off when they are recomputed."""
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):  # which meta is not asked, it would raise
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
