"""The one formula of this project, and the only softmax over attention scores in it:

    output_i = Σ_j softmax_j( score(query_i, key_j) restricted by mask ) · value_j

The way of a call, from `attend` to the kernel:

    layout.py   checks the shapes against each other and folds the leading dimensions to (B, R)
    masks.py    ties the mask to these shapes
    tiling.py   cuts the scores (B, R, n, m) into tiles that fit in cache, and joins what comes out of them
    fused.py    solves a tile by PyTorch's fused kernel, where the score is a dot product
    here        `_solve` solves any other tile by the formula as it stands above

When gradients are wanted, a tile is computed again in the backward pass instead of being kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch import softmax as softmax_over  # bound here: view/intercept.py must not take ours for a model's

from regard.arguments import check_dropout, check_indices, check_tensor, shape_text
from regard.attention.dropout import dropout
from regard.attention.fused import solve_fused, unmasked_dot_attention
from regard.attention.layout import Layout, Tile, check_layout, prepare
from regard.attention.masks import BoundMask, Mask, check_mask, zero_hidden
from regard.attention.observers import notify
from regard.attention.scores import Score, require_score
from regard.attention.tiling import full_precision, fused_tiles, recompute, solve_tiles, streamed_tiles

__all__ = ["attend", "attend_in", "masked_softmax", "weights"]


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = ...,
    mask: Mask | None = ...,
    dropout: float = ...,
    need_weights: Literal[False] = ...,
) -> Tensor: ...
@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = ...,
    mask: Mask | None = ...,
    dropout: float = ...,
    need_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """For each query the average of the values, weighted by the softmax of score(query, key) over the keys.

    query (…, n, query size) · key (…, m, key size) · value (…, m, value size) → output (…, n, value size), and with
    need_weights=True also the weights (…, n, m), as they are before dropout. Leading dimensions broadcast; H query
    heads may share G key heads (dimension −3, H a multiple of G). `score` defaults to Dot(). `dropout` drops that share
    of the weights whenever it is positive: pass 0 outside training.

    A query that may attend to nothing gets output 0 and weights 0, with finite gradients.

    >>> import regard, torch
    >>> query, key, value = torch.zeros(1, 4), torch.zeros(2, 4), torch.tensor([[1.0], [3.0]])
    >>> regard.attend(query, key, value, need_weights=True)  # two equal keys share the weight
    (tensor([[2.]]), tensor([[0.5000, 0.5000]]))
    """
    if not isinstance(need_weights, bool):
        raise TypeError(f"need_weights: expected True or False, got {type(need_weights).__name__}")
    result: Tensor | tuple[Tensor, Tensor] = _attend(query, key, value, score, mask, dropout, need_weights)
    notify(None, query, key, score, mask)
    return result


def attend_in(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    dropout: float = 0.0,
    cross: bool | None = None,
) -> Tensor:
    """`attend` for a layer: observers get to know which module attends, and whether to another sequence (`cross`)."""
    output: Tensor = _attend(query, key, value, score, mask, dropout)
    notify(module, query, key, score, mask, cross=cross)
    return output


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: nn.Module | None,
    mask: Mask | None,
    dropout: float,
    need_weights: bool = False,
) -> Any:
    """`attend`, without notifying observers."""
    if mask is None and not need_weights and type(dropout) is float and not dropout:
        output = unmasked_dot_attention(query, key, value, score)
        if output is not None:
            return output
    layout = check_layout(query, key, value)
    call = _Call.of(layout, score, mask, check_dropout(dropout))
    call.score.check(query, key)
    with full_precision(layout.device):
        rows, keys = call.project(query, key)
        values = layout.spread(prepare(value))
        if need_weights:
            output, weights = _with_weights(call, rows, keys, values)
            return layout.unfold(output).to(query.dtype), layout.unfold(weights).to(query.dtype)
        output = _without_weights(call, rows, keys, values)
        return layout.unfold(output).to(query.dtype)


def weights(
    query: Tensor,
    key: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    rows: Sequence[int] | Tensor | None = None,
    heads: Sequence[int] | Tensor | None = None,
) -> Tensor:
    """The weights (…, n, m) that `attend` gives to the keys.

    `rows` (queries) and `heads` (dimension −3) choose some of them: only these are computed.

    >>> import regard, torch
    >>> query, key = torch.tensor([[2.0]]), torch.tensor([[1.0], [1.0], [0.0]])
    >>> regard.weights(query, key)  # (1, 1) × (3, 1) → (1, 3)
    tensor([[0.4683, 0.4683, 0.0634]])
    """
    layout = check_layout(query, key)
    if rows is not None:
        layout = replace(layout, positions=check_indices("rows", rows, layout.n))
    if heads is not None:
        if not layout.batch:
            raise ValueError(f"heads: expected a query (…, heads, n, size), got shape {shape_text(query)}")
        chosen = check_indices("heads", heads, layout.batch[-1])
        layout = replace(layout, heads=torch.tensor(chosen, dtype=torch.long, device=layout.device))
    call = _Call.of(layout, score, mask, 0.0)
    call.score.check(query, key)
    with full_precision(layout.device):
        projected_query, projected_key = call.project(query, key)
        no_values = projected_key[..., :0]
        return layout.unfold(_with_weights(call, projected_query, projected_key, no_values)[1]).to(query.dtype)


def masked_softmax(scores: Tensor, mask: Mask | None = None) -> Tensor:
    """softmax over the last dimension of scores (…, n, m), of the allowed keys only.

    It is exactly 0 elsewhere, and a row with nothing allowed is all 0.

    >>> import regard, torch
    >>> scores = torch.zeros(2, 1, 4)  # a batch of two: one query and four keys each
    >>> regard.masked_softmax(scores, regard.lengths([1, 2]))[:, 0]
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000]])
    """
    check_tensor("scores", scores, "of shape (…, n, m)")
    *batch, n, m = scores.shape
    layout = Layout(tuple(batch), n, m, 1, scores.device)
    allowed, bias = _Call.of(layout, None, mask, 0.0).restrictions(Tile.whole(layout.folded[0], n, m))
    folded = layout.spread(prepare(scores))
    return layout.unfold(_softmax(_restrict(folded, allowed, bias))).to(scores.dtype)


# ------------------------------------------------------------------------------------------------------------ one call


@dataclass(frozen=True)
class _Call:
    """What all tiles of one call share."""

    layout: Layout
    score: Score
    mask: BoundMask | None
    dropout: float

    @classmethod
    def of(cls, layout: Layout, score: nn.Module | None, mask: Mask | None, dropout: float) -> _Call:
        bound = None if mask is None else check_mask("mask", mask).bind(layout)
        return cls(layout, require_score(score), bound, dropout)

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """What the score computes once per row, before heads are spread: (…, n, size) → (B, R, n, inner size)."""
        query, key = self.layout.select(prepare(query), rows=True), self.layout.select(prepare(key), rows=False)
        rows, keys = _project(self.score.project_query, query), _project(self.score.project_key, key)
        return self.layout.spread(rows), self.layout.spread(keys)

    def needs_grad(self, *tensors: Tensor) -> bool:
        learned = (*tensors, *self.score.parameters())
        return torch.is_grad_enabled() and (self.learns_bias or any(tensor.requires_grad for tensor in learned))

    @property
    def learns_bias(self) -> bool:
        return self.mask is not None and self.mask.learned

    def restrictions(self, tile: Tile) -> tuple[Tensor | None, Tensor | None]:
        """Which pairs of the tile are allowed and what is added to their scores; None for all and for nothing."""
        if self.mask is None or self.mask.allows_all(tile):
            return None, None
        return self.mask.allowed(tile), self.mask.bias(tile)


def _project(project: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """project(rows), where rows that are not finite give no gradients.

    Where they are hidden, or have nothing to attend to, 0 · NaN must not reach the score's parameters.
    """
    projected = project(rows)
    if projected is rows or not projected.requires_grad:
        return projected
    broken = ~rows.detach().isfinite().all(-1, keepdim=True)
    if not bool(broken.any()):
        return projected
    return torch.where(broken, projected.detach(), project(rows.masked_fill(broken, 0)))


# ------------------------------------------------------------------------------------------------- the formula itself


def _solve(
    call: _Call, query: Tensor, key: Tensor, value: Tensor, tile: Tile, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Output and weights of one tile: score, restrict, softmax, average. Weights are written to `out` if they fit."""
    allowed, bias = call.restrictions(tile)
    if not query.shape[2]:  # without a query nothing attends to any key, which must not reach a gradient then
        allowed = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=query.device)
    # Heads that share keys get copies: the product below would make them, but with other last bits than `zero_hidden`.
    key, value = (rows.contiguous() if 0 in rows.stride() else rows for rows in (key, value))
    key, value = zero_hidden(key, allowed), zero_hidden(value, allowed)
    if allowed is not None and not bool(query.detach().isfinite().all()):
        query = zero_hidden(query, allowed.transpose(-2, -1))  # rows that may attend to nothing
    scores = _restrict(_scores(call.score, query, key), allowed, bias)
    may_be_empty = call.score.may_exclude or allowed is not None or bias is not None
    weights = _softmax(scores, may_be_empty, out).to(value.dtype)
    kept = dropout(weights, call.dropout) if call.dropout else weights
    return _average(kept, value, scores), weights


def _scores(score: Score, query: Tensor, key: Tensor) -> Tensor:
    """The scores of a tile, up to a constant of the row; in float64 where float32 would lose the digits that matter."""
    if not score.is_dot or not query.numel() or not key.numel():
        return score.pairs(query, key)
    dot = score.as_dot(query, key)
    if dot is None:
        return score.pairs(query.double(), key.double())
    rows, keys, scale = dot
    return (rows * scale) @ keys.transpose(-2, -1)


def _restrict(scores: Tensor, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
    """Scores with the bias added and −inf where a key may not be attended, whatever stood there."""
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


def _softmax(scores: Tensor, may_be_empty: bool = True, out: Tensor | None = None) -> Tensor:
    """The one place where scores become weights: softmax over the keys, and 0 for a row that is −inf throughout."""
    out = out if out is not None and out.dtype == scores.dtype and out.is_contiguous() else None
    if not may_be_empty or not scores.shape[-1]:
        return softmax_over(scores, -1, out=out)
    empty = scores.detach().amax(-1, keepdim=True) == -torch.inf
    if empty.device.type == "cpu" and not bool(empty.any()):
        return softmax_over(scores, -1, out=out)
    return softmax_over(scores.masked_fill(empty, 0), -1).masked_fill(empty, 0)


def _average(weights: Tensor, value: Tensor, scores: Tensor) -> Tensor:
    """Σ_j weight_j · value_j, in which a key that may not be attended (score −inf) takes no part, even as 0 · NaN."""
    output = weights @ value
    if bool(output.detach().sum().isfinite()) or bool(value.detach().isfinite().all()):
        return output
    visible = (scores.detach() != -torch.inf).to(weights.dtype)
    output = weights @ value.masked_fill(~value.isfinite(), 0)
    rising, falling, unknown = (
        visible @ hit.to(visible.dtype) > 0 for hit in (value == torch.inf, value == -torch.inf, value.isnan())
    )
    output = output.masked_fill(rising, torch.inf).masked_fill(falling, -torch.inf)
    return output.masked_fill(unknown | (rising & falling), torch.nan)


# -------------------------------------------------------------------------------------------------------- tile by tile


def _without_weights(call: _Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The fused kernel where the score is a dot product, else streamed: either way no (n × m) tensor is kept."""
    whole = Tile.whole(len(query), query.shape[2], key.shape[2])
    needs_grad = call.needs_grad(query, key, value)
    fusable = (call.score.is_dot or call.score.has_average) and not call.dropout and not call.learns_bias
    if not (fusable and query.numel() and key.numel() and value.numel()):
        return _streamed(call, needs_grad, query, key, value, whole)
    tiles = fused_tiles(whole, call.layout.sharing, call.mask)
    return solve_tiles(partial(_fused, call, needs_grad), tiles, whole, query, key, value, needs_grad)


def _streamed(call: _Call, needs_grad: bool, query: Tensor, key: Tensor, value: Tensor, whole: Tile) -> Tensor:
    """By the formula, in tiles so small that their scores stay in cache."""

    def output_of(*arguments: Any) -> Tensor:
        return _solve(call, *arguments)[0]

    solve = partial(recompute, output_of) if needs_grad else output_of
    tiles = streamed_tiles(whole, call.layout.sharing, call.mask)
    return solve_tiles(solve, tiles, whole, query, key, value, needs_grad)


def _fused(call: _Call, needs_grad: bool, query: Tensor, key: Tensor, value: Tensor, tile: Tile) -> Tensor:
    """One tile by the score's own `average` or by the fused kernel; streamed where the numbers allow neither."""
    score, mask, output = call.score, call.mask, None
    blocks = 1 if mask is None else mask.equal_blocks(tile)
    if blocks > 1:
        return _blockwise(call, query, key, value, blocks)
    if mask is not None and mask.allows_all(tile):
        mask = None
    if score.has_average and mask is None and not needs_grad:
        output = score.average(query, key, value)
    if output is None and score.is_dot and key.shape[2]:
        # A mask that differs by row is (n × m), and PyTorch would keep it for the backward pass.
        dense = mask is not None and mask.by_row and not mask.is_causal(tile)
        solve = partial(recompute, solve_fused) if dense and needs_grad else solve_fused
        output = solve(score, mask, query, key, value, tile)
    return _streamed(call, needs_grad, query, key, value, tile) if output is None else output


def _blockwise(call: _Call, query: Tensor, key: Tensor, value: Tensor, blocks: int) -> Tensor:
    """A tile that is made of blocks of one shape, each of which attends to itself: as a batch without a mask."""
    rows, keys, values = (
        tensor.unflatten(2, (blocks, -1)).transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)
    )  # (B, R, blocks · n, size) → (B · blocks, R, n, size)
    output = _without_weights(replace(call, mask=None), rows, keys, values)
    joined: Tensor = output.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)
    return joined


def _with_weights(call: _Call, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Output and weights: in one tile where gradients keep the weights anyway, else tile by tile."""
    (batch, sharing, n, _), m = query.shape, key.shape[2]
    if call.needs_grad(query, key, value):
        return _solve(call, query, key, value, Tile.whole(batch, n, m))
    output, weights = query.new_empty(batch, sharing, n, value.shape[-1]), query.new_empty(batch, sharing, n, m)
    tensors = [query, key, value, output, weights]
    if call.mask is None:  # then nothing keeps heads together, and a tile of whole heads is contiguous in memory
        tensors = [tensor.flatten(0, 1).unsqueeze(1) for tensor in tensors]
    _fill(call, *tensors)
    return output, weights


def _fill(call: _Call, query: Tensor, key: Tensor, value: Tensor, output: Tensor, weights: Tensor) -> None:
    """Compute output and weights in place, tile by tile."""
    batch, sharing, n, m = weights.shape
    for tile in (tile for row in streamed_tiles(Tile.whole(batch, n, m), sharing, call.mask) for tile in row):
        rows, keys = (tile.batch, slice(None), tile.rows), (tile.batch, slice(None), tile.keys)
        rows_of_weights = weights[rows]
        out = rows_of_weights[..., tile.keys]
        output[rows], solved = _solve(call, query[rows], key[keys], value[keys], tile, out)
        if solved is not out:
            out.copy_(solved)
        rows_of_weights[..., : tile.keys.start] = 0
        rows_of_weights[..., tile.keys.stop :] = 0
