"""The scores of one call are cut into tiles, so that nothing (n × m) is ever kept and hidden keys are skipped.

1. `fused_tiles` and `streamed_tiles` decide the cut: rows of tiles, a row for each slice of the batch, in which each
   tile has some queries and the keys that these can see at all.
2. `solve_tiles` calls a function for every tile and joins the outputs.
3. `recompute` makes a tile forget what it computed on the way: the backward pass computes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from regard.attention.layout import Tile
from regard.attention.masks import BoundMask

__all__ = ["full_precision", "fused_tiles", "recompute", "solve_tiles", "streamed_tiles"]

# Scores of a streamed tile: 2 MB of float32, so that softmax and the product with the values find them in cache.
STREAMED = 1 << 19
# Below this many scores a sequence is not worth a call of its own, and its padding is masked instead of skipped.
WORTH_A_CALL = 1 << 16
# Rows of a tile under a mask that differs from row to row: enough for a fused call, few enough to skip hidden keys.
MASKED_ROWS = 256

Tiles = list[list[Tile]]

# ------------------------------------------------------------------------------------------------------------- the cut


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
                dense = mask.by_row and not mask.allows_all(tile) and not mask.is_causal(tile)
                row += [_trim(tile._replace(rows=part), mask) for part in _cut_every(rows, MASKED_ROWS if dense else 0)]
        tiles.append(row)
    return tiles


def streamed_tiles(whole: Tile, sharing: int, mask: BoundMask | None) -> Tiles:
    """Tiles of at most STREAMED scores (one query of all sharing heads, if that is more)."""
    scores_per_sequence = max(1, max(1, sharing * size(whole.keys)) * size(whole.rows))
    tiles = []
    for batch in _cut_batch(whole, sharing, mask, max(1, STREAMED // scores_per_sequence)):
        row = []
        for rows in _cut_at(whole.rows, () if mask is None else mask.breaks):
            tile = _trim(Tile(batch, rows, whole.keys), mask)
            step = max(1, STREAMED // max(1, sharing * size(batch) * size(tile.keys)))
            row += [_trim(tile._replace(rows=part), mask) for part in _cut_every(rows, step)]
        tiles.append(row)
    return tiles


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


# -------------------------------------------------------------------------------------------------------- tile by tile

Solve = Callable[[Tensor, Tensor, Tensor, Tile], Tensor]


def solve_tiles(
    solve: Solve, tiles: Tiles, whole: Tile, query: Tensor, key: Tensor, value: Tensor, needs_grad: bool
) -> Tensor:
    """solve(query, key, value, tile) for every tile, the outputs joined to (B, R, n, size).

    Query, key and value (B, R, rows, size) are those of the whole; each call gets its tile's part of them.
    """
    if tiles == [[whole]]:
        return solve(query, key, value, whole)
    # Without gradients each output is copied to its place at once: keeping them all would take the memory twice.
    output = None if needs_grad else _empty_output(query, value)
    joined = []
    # Split, not sliced: the gradient of a slice is a whole tensor of zeros, that of a split is joined once.
    parts = zip(*(tensor.split([size(row[0].batch) for row in tiles]) for tensor in (query, key, value)), strict=True)
    for row, (queries, keys, values) in zip(tiles, parts, strict=True):
        outputs = []
        for tile, rows in zip(row, queries.split([size(tile.rows) for tile in row], -2), strict=True):
            visible = _within(tile.keys, whole.keys)
            solved = solve(rows, keys[..., visible, :], values[..., visible, :], tile)
            if output is None:
                outputs.append(solved)
            else:
                output[_within(tile.batch, whole.batch), :, _within(tile.rows, whole.rows)] = solved
        joined.append(outputs)
    return torch.cat([torch.cat(outputs, -2) for outputs in joined]) if output is None else output


def _within(part: slice, whole: slice) -> slice:
    """The part, counted from the start of the whole."""
    return slice(part.start - whole.start, part.stop - whole.start)


def _empty_output(query: Tensor, value: Tensor) -> Tensor:
    """(B, R, n, size), in memory as (B, n, R, size): layers put heads side by side, which then takes no copy."""
    batch, sharing, n, _ = query.shape
    return value.new_empty(batch, n, sharing, value.shape[-1]).transpose(1, 2)


# ------------------------------------------------------------------------------------- recomputed in the backward pass


def recompute(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), called once more when the backward pass needs what it saved, instead of keeping that.

    Gradients flow to the arguments and to whatever else the function uses; both calls draw the same random numbers.
    PyTorch has torch.utils.checkpoint for this, whose first call imports the compiler stack: more than a second.
    """
    device = next(argument.device for argument in arguments if isinstance(argument, Tensor))
    states = _random_states(device)
    saved: dict[int, Tensor] = {}
    count = 0

    def forget(_: Tensor) -> int:
        nonlocal count
        count += 1
        return count - 1

    def restore(index: int) -> Tensor:
        if index not in saved:
            with _as_before(device, states):
                saved.update(enumerate(_tensors_saved_by(function, arguments)))
        return saved.pop(index)

    with saved_tensors_hooks(forget, restore):
        return function(*arguments)


def _tensors_saved_by(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Tensor]:
    """What the function saves for the backward pass, in the order in which it saves it."""
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor.detach())
        return saved[-1]

    detached = (
        argument.detach().requires_grad_(argument.requires_grad) if isinstance(argument, Tensor) else argument
        for argument in arguments
    )
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        function(*detached)
    return saved


def _random_states(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


@contextmanager
def _as_before(device: torch.device, states: list[Tensor]) -> Iterator[None]:
    """With gradients, in full precision, and with the random numbers of the first call."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad(), full_precision(device):
        torch.set_rng_state(states[0])
        for cuda, state in zip(devices, states[1:], strict=True):
            torch.cuda.set_rng_state(state, cuda)
        yield


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast would take matrix products to half precision, and would be off when they are recomputed."""
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()
