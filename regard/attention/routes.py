"""Which way a call goes: by the score's own average, by the fused kernel, or by the formula in one tile or in many.

While a call is traced (compiled, exported, mapped …), it is one tile, and no tensor is asked for its value.
"""

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention import fused
from regard.attention.engine import solve_tiles
from regard.attention.formula import Call, TileInput, solve
from regard.attention.layout import Tile
from regard.attention.masks import additive_mask, zero_hidden
from regard.attention.normalizers import Softmax
from regard.attention.tiling import fused_tiles, in_blocks, join_blocks, simplest, size, streamed_tiles
from regard.attention.tracing import is_traced


def without_weights(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """By the score's own average, by the fused kernel or by the formula: no (n × m) tensor is kept."""
    if is_traced(query):
        return _traced(call, query, key, value)
    whole, needs_grad = call.layout.whole, call.needs_grad(query, key, value)
    # What is dropped must not depend on gradients: a checkpoint runs first without them, and then again with them.
    in_training = needs_grad or call.dropout > 0
    # Solving a score twice would change what it keeps (running averages): its graph is kept instead.
    once = in_training and call.is_foreign and any(True for _ in call.score.buffers())
    plain = not call.dropout and type(call.normalizer) is Softmax
    if not (plain and call.score.is_dot and call.score.dot_is_exact):  # else the tiles of the kernel are blanked
        key, value = call.without_hidden(key, value)
    if plain and query.numel() and key.numel() and value.numel():
        if call.score.has_average and call.per_head is None and not call.learns_bias:
            output = _averaged(call, query, key, value, whole)
            if output is not None:
                return output
        if call.score.is_dot and call.uses_dot:
            output = _by_dot(call, query, key, value, whole, needs_grad)
            if output is not None:
                return output
    small = len(query) * query.shape[1] * query.shape[2] * key.shape[2] <= fused.SMALL
    if once or (small and not in_training):
        given, guarded = TileInput(query, key, value), in_training and not fused.are_finite(query, key, value)
        output = solve(call, whole, given, guarded=guarded)[0]  # by the formula as it stands, with PyTorch's own graph
        return output if in_training or fused.are_finite(output) else solve(call, whole, given, guarded=True)[0]
    tiles = streamed_tiles(whole, call.layout.sharing, call.mask)
    return solve_tiles(call, tiles, query, key, value, needs_grad)


def _by_dot(call: Call, query: Tensor, key: Tensor, value: Tensor, whole: Tile, needs_grad: bool) -> Tensor | None:
    """By the fused kernel; None where the numbers do not allow a dot product."""
    dot = call.score.as_dot(query, key)
    if dot is None:
        return None
    rows, keys, scale = dot
    width, inner = value.shape[-1], max(rows.shape[-1], value.shape[-1])
    rows, keys, values = fused.pad(rows, inner), fused.pad(keys, inner), fused.pad(value.to(rows.dtype), inner)
    output = None
    small = len(query) * query.shape[1] * query.shape[2] * key.shape[2] <= fused.SMALL
    if small and not needs_grad and call.per_head is None:
        output = fused.attend_small(rows, keys, values, call.mask, call.layout, scale)
    if output is None:
        tiles = fused_tiles(whole, call.layout.sharing, call.mask)
        output = solve_tiles(replace(call, scale=scale), tiles, rows, keys, values, needs_grad)
    return (output if width == inner else output[..., :width]).to(value.dtype)


def _averaged(call: Call, query: Tensor, key: Tensor, value: Tensor, whole: Tile) -> Tensor | None:
    """By the score's own `average`, which visits no pairs; None where it has none."""
    outputs = []
    for row in fused_tiles(whole, call.layout.sharing, call.mask):
        batch = row[0].batch
        # Split, not sliced: the gradient of a slice is a whole tensor of zeros, that of a split is joined once.
        parts = query[batch].split([size(tile.rows) for tile in row], -2)
        solved = []
        for tile, rows in zip(row, parts, strict=True):
            mask, causal, blocks = simplest(call.mask, tile)
            if mask is not None and (mask.by_row or mask.bias(tile) is not None):
                return None
            parts_of_tile = (in_blocks(part, blocks) for part in (rows, key[tile.at_keys], value[tile.at_keys]))
            visible = None if mask is None else mask.allowed(tile)
            output = call.score.average(*parts_of_tile, causal=causal, visible=visible)
            if output is None:
                return None
            solved.append(join_blocks(output, rows))
        outputs.append(torch.cat(solved, -2) if len(solved) > 1 else solved[0])
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _traced(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Without looking at a number: by one operator where the score is a dot product, else by the formula in one tile.

    Keys that no query sees are blanked. A NaN that some rows see is kept from others only on the eager way.
    """
    whole = call.layout.whole
    if not call.dropout and type(call.normalizer) is Softmax and call.score.is_dot and call.score.dot_is_exact:
        allowed, bias = call.restrictions(whole)
        causal = call.mask is not None and call.mask.is_causal(whole)
        if not (causal and key.shape[2] <= query.shape[2]):  # there the last row sees all
            key, value = zero_hidden(allowed, key, value)
        rows, keys, scale = call.score.as_dot(query, key)  # type: ignore[misc]
        mask = None if causal else additive_mask(allowed, bias, rows.dtype)
        sink = None if call.per_head is None else call.per_head.to(rows.dtype)
        output = fused.dot_attention(rows * scale, keys, value, mask, sink, causal)
        if output is not None:
            return output
    return _traced_solve(call, query, key, value, whole)[0]


def _traced_solve(call: Call, query: Tensor, key: Tensor, value: Tensor, whole: Tile) -> tuple[Tensor, Tensor]:
    allowed, _ = call.restrictions(whole)
    return solve(call, whole, TileInput(query, *zero_hidden(allowed, key, value)))


def with_weights(call: Call, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Output and weights: in one tile where gradients keep the weights anyway, else tile by tile."""
    (batch, sharing, n, _), m = query.shape, key.shape[2]
    whole = call.layout.whole
    if is_traced(query):
        return _traced_solve(call, query, key, value, whole)
    key, value = call.without_hidden(key, value)
    if call.needs_grad(query, key, value) or call.dropout:  # see `without_weights`
        guarded = not fused.are_finite(query, key, value)
        return solve(call, whole, TileInput(query, key, value), guarded=guarded)
    output, weights = query.new_empty(batch, sharing, n, value.shape[-1]), query.new_empty(batch, sharing, n, m)
    guarded, parts = not fused.are_finite(query, key, value), [query, key, value, output, weights]
    # Where nothing keeps heads together, a tile of whole heads is contiguous in memory.
    if call.mask is None and call.per_head is None and not call.score.has_positions:
        parts = [tensor.flatten(0, 1).unsqueeze(1) for tensor in parts]
        whole, sharing = Tile.whole(batch * sharing, n, m), 1
    rows, keys, values, outputs, all_weights = parts
    for tile in (tile for row in streamed_tiles(whole, sharing, call.mask) for tile in row):
        rows_of_weights = all_weights[tile.at_rows]
        out = rows_of_weights[..., tile.keys]
        given = TileInput(rows[tile.at_rows], keys[tile.at_keys], values[tile.at_keys])
        outputs[tile.at_rows], solved = solve(call, tile, given, guarded=guarded, out=out)
        if solved is not out:
            out.copy_(solved)
        rows_of_weights[..., : tile.keys.start] = 0
        rows_of_weights[..., tile.keys.stop :] = 0
    return output, weights
