"""The one formula of this project, and the only softmax over scores in it:

    output_i = Σ_j softmax_j( score(query_i, key_j) restricted by mask ) · value_j

`attend` checks the call, folds it to (B, R, n, …) (layout.py), cuts it into pieces that fit in cache (tiling.py), and
solves each: as PyTorch's fused attention where the score is a dot product (fused.py), else by the three lines of
`_solve`. When gradients are wanted, a streamed piece is computed again in the backward pass instead of being kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, overload

import torch
from torch import Tensor, nn
from torch import softmax as softmax_over  # bound here: view/intercept.py must not take ours for a model's

from regard.arguments import check_dropout, check_indices, check_tensor, shape_text
from regard.attention.bound import Tile
from regard.attention.call import Call, working
from regard.attention.dropout import dropout
from regard.attention.fused import additive_mask, fused_attention, plain_attention
from regard.attention.layout import Layout, layout_of
from regard.attention.masks import Mask
from regard.attention.observers import notify
from regard.attention.recompute import full_precision, recompute
from regard.attention.scores import Score
from regard.attention.tiling import Cut, fused_cut, only_causal, shifted, size, streamed_cut, whole

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
    """The weighted average of the values: for each query, by how well each key answers it.

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
        output = plain_attention(query, key, value, score)
        if output is not None:
            return output
    frame = layout_of(query, key, value)
    call = Call.of(frame, score, mask, check_dropout(dropout))
    call.score.check(query, key)
    with full_precision(frame.device):
        rows, keys = call.project(working(query), working(key))
        folded = rows, keys, frame.spread(working(value))
        if need_weights:
            output, found = _with_weights(call, *folded)
            return frame.unfold(output).to(query.dtype), frame.unfold(found).to(query.dtype)
        output = _without_weights(call, *folded, whole(frame.folded[0], frame.n, frame.m))
        return frame.unfold(output).to(query.dtype)


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

    `rows` (queries) and `heads` (dimension −3) choose some of them, at the price of those alone.

    >>> import regard, torch
    >>> query, key = torch.tensor([[2.0]]), torch.tensor([[1.0], [1.0], [0.0]])
    >>> regard.weights(query, key)  # (1, 1) × (3, 1) → (1, 3)
    tensor([[0.4683, 0.4683, 0.0634]])
    """
    frame = layout_of(query, key)
    if rows is not None:
        frame = replace(frame, positions=check_indices("rows", rows, frame.n))
    if heads is not None:
        if not frame.batch:
            raise ValueError(f"heads: expected a query (…, heads, n, size), got shape {shape_text(query)}")
        chosen = check_indices("heads", heads, frame.batch[-1])
        frame = replace(frame, heads=torch.tensor(chosen, dtype=torch.long, device=frame.device))
    call = Call.of(frame, score, mask, 0.0)
    call.score.check(query, key)
    with full_precision(frame.device):
        folded = call.project(working(query), working(key))
        _, found = _with_weights(call, *folded, folded[1][..., :0])
        return frame.unfold(found).to(query.dtype)


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
    frame = Layout(tuple(batch), n, m, 1, scores.device, range(n))
    call = Call.of(frame, None, mask, 0.0)
    piece = whole(frame.folded[0], n, m)
    folded = frame.spread(working(scores))
    return frame.unfold(_softmax(_restricted(folded, *call.mask_of(piece)))).to(scores.dtype)


# ------------------------------------------------------------------------------------------------- the formula itself


def _restricted(scores: Tensor, allowed: Tensor | None, added: Tensor | None) -> Tensor:
    """Scores with the bias added and −inf where a key may not be attended, whatever stood there."""
    if added is not None:
        scores = scores + added.to(scores.dtype)
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


def _softmax(scores: Tensor, may_be_empty: bool = True, place: Tensor | None = None) -> Tensor:
    """softmax over the keys, and 0 for a row that is −inf throughout (where softmax alone would give NaN).

    It is written into `place`, if there is one that it fits into.
    """
    place = place if place is not None and place.dtype == scores.dtype and place.is_contiguous() else None
    if not may_be_empty or not scores.shape[-1]:
        return softmax_over(scores, -1, out=place)
    empty = scores.detach().amax(-1, keepdim=True) == -torch.inf
    if empty.device.type == "cpu" and not bool(empty.any()):
        return softmax_over(scores, -1, out=place)
    return softmax_over(scores.masked_fill(empty, 0), -1).masked_fill(empty, 0)


def _average(found: Tensor, value: Tensor, scores: Tensor) -> Tensor:
    """Σ_j weight_j · value_j, in which a key that may not be attended (score −inf) takes no part, even as 0 · NaN."""
    output = found @ value
    if bool(output.detach().sum().isfinite()) or bool(value.detach().isfinite().all()):
        return output
    seen = (scores.detach() != -torch.inf).to(found.dtype)
    output = found @ value.masked_fill(~value.isfinite(), 0)
    rising, falling, unknown = (
        seen @ hit.to(seen.dtype) > 0 for hit in (value == torch.inf, value == -torch.inf, value.isnan())
    )
    output = output.masked_fill(rising, torch.inf).masked_fill(falling, -torch.inf)
    return output.masked_fill(unknown | (rising & falling), torch.nan)


def _solve(
    call: Call, query: Tensor, key: Tensor, value: Tensor, piece: Tile, place: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Output and weights of one piece, by the formula as it is written above; the weights in `place`, if they fit."""
    allowed, added = call.mask_of(piece)
    # Heads that share keys get copies: the product below would make them, but with other last bits than `_quiet` does.
    key, value = (rows.contiguous() if 0 in rows.stride() else rows for rows in (key, value))
    key, value = _quiet(key, allowed), _quiet(value, allowed)
    if allowed is not None and not bool(query.detach().isfinite().all()):
        query = _quiet(query, allowed.transpose(-2, -1))  # rows that may attend to nothing
    scores = _restricted(_scores(call.score, query, key), allowed, added)
    may_be_empty = call.score.may_exclude or allowed is not None or added is not None
    found = _softmax(scores, may_be_empty, place).to(value.dtype)
    kept = dropout(found, call.dropout) if call.dropout else found
    return _average(kept, value, scores), found


def _scores(score: Score, query: Tensor, key: Tensor) -> Tensor:
    """The scores of a piece, up to a constant of the row; in float64 where float32 would lose what decides."""
    if not score.is_dot or not query.numel() or not key.numel():
        return score.pairs(query, key)
    dotted = score.as_dot(query, key)
    if dotted is None:
        return score.pairs(query.double(), key.double())
    rows, keys, scale = dotted
    return (rows * scale) @ keys.transpose(-2, -1)


def _quiet(rows: Tensor, allowed: Tensor | None) -> Tensor:
    """Keys or values (B, R, m, size) with 0 for those that no query of the piece may attend.

    What stands there, be it NaN, inf or 1e30, can then reach neither an output nor a gradient.
    """
    if allowed is None:
        return rows
    hidden = ~allowed.any(-2, keepdim=True).transpose(-2, -1)  # (B or 1, R or 1, m or 1, 1)
    return rows.masked_fill(hidden, 0) if bool(hidden.any()) else rows


# ------------------------------------------------------------------------------------------------ from a call to pieces


Result = TypeVar("Result")


def _put_together(
    call: Call, solve: Callable[..., Tensor], cut: Cut, piece: Tile, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Solve every piece of a cut and join the outputs.

    Tensors are split, not sliced: the gradient of a slice is a whole tensor of zeros, that of a split is joined once.
    """
    if cut == [[piece]]:
        return solve(call, query, key, value, piece)
    # Without gradients each output goes to its place at once: keeping them all would take the memory twice.
    whole_output = None if call.wants_grad(query, key, value) else _room(query, value)
    batches = []
    parts = zip(*(tensor.split([size(row[0].batch) for row in cut]) for tensor in (query, key, value)), strict=True)
    for row, (own_query, own_key, own_value) in zip(cut, parts, strict=True):
        outputs = []
        for part, rows in zip(row, own_query.split([size(part.rows) for part in row], -2), strict=True):
            keys = shifted(part.keys, piece.keys)
            output = solve(call, rows, own_key[..., keys, :], own_value[..., keys, :], part)
            if whole_output is None:
                outputs.append(output)
            else:
                whole_output[shifted(part.batch, piece.batch), :, shifted(part.rows, piece.rows)] = output
        batches.append(outputs)
    if whole_output is None:
        whole_output = torch.cat([torch.cat(outputs, -2) for outputs in batches])
    return whole_output


def _room(query: Tensor, value: Tensor) -> Tensor:
    """For outputs (B, R, n, size), laid out as (B, n, R, size): layers put heads side by side, without a copy then."""
    batch, shared, n, _ = query.shape
    return value.new_empty(batch, n, shared, value.shape[-1]).transpose(1, 2)


def _without_weights(call: Call, query: Tensor, key: Tensor, value: Tensor, piece: Tile) -> Tensor:
    """The fused kernel where the score is a dot product, else streamed: either way no (n × m) tensor is kept."""
    fusable = (call.score.is_dot or call.score.is_short) and not call.dropout and not call.learns_bias
    if fusable and query.numel() and key.numel() and value.numel():
        return _put_together(call, _fused, fused_cut(piece, call.frame.shared, call.bound), piece, query, key, value)
    return _streamed(call, query, key, value, piece)


def _streamed(call: Call, query: Tensor, key: Tensor, value: Tensor, piece: Tile) -> Tensor:
    cut = streamed_cut(piece, call.frame.shared, call.bound)
    return _put_together(call, _made_again(_output), cut, piece, query, key, value)


def _fused(call: Call, query: Tensor, key: Tensor, value: Tensor, piece: Tile) -> Tensor:
    """One piece by a short way or through the fused kernel; streamed after all where the numbers do not allow that."""
    bound, output = call.bound, None
    repeats = 1 if bound is None else bound.repeats(piece)
    if repeats > 1:
        return _repeated(call, query, key, value, piece, repeats)
    if call.score.is_short and (bound is None or bound.covers(piece)) and not call.wants_grad(query, key, value):
        output = call.score.average(query, key, value)
    if output is None and call.score.is_dot and size(piece.keys):
        plain = bound is None or bound.covers(piece) or not bound.by_row or only_causal(piece, bound)
        # Else PyTorch would keep the mask for the backward pass, and one that differs by row is (n × m).
        output = (_dot if plain else _made_again(_dot))(call, query, key, value, piece)
    return _streamed(call, query, key, value, piece) if output is None else output


def _repeated(call: Call, query: Tensor, key: Tensor, value: Tensor, piece: Tile, repeats: int) -> Tensor:
    """Blocks of one shape, each of which sees all of itself and nothing else, as a batch that nothing restricts."""
    rows, keys, values = (
        tensor.unflatten(2, (repeats, -1)).transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)
    )  # (B, R, repeats · n, size) → (B · repeats, R, n, size)
    alone = replace(call, bound=None)
    output = _without_weights(alone, rows, keys, values, whole(len(rows), rows.shape[2], keys.shape[2]))
    joined: Tensor = output.unflatten(0, (-1, repeats)).transpose(1, 2).flatten(2, 3)
    return joined


def _dot(call: Call, query: Tensor, key: Tensor, value: Tensor, piece: Tile) -> Tensor | None:
    causal = call.bound is not None and not call.bound.covers(piece) and only_causal(piece, call.bound)
    allowed, added = (None, None) if causal else call.mask_of(piece)
    key, value = _quiet(key, allowed), _quiet(value, allowed)
    dotted = call.score.as_dot(query, key)
    if dotted is None:
        return None
    rows, keys, scale = dotted
    return fused_attention(rows, keys, value, scale, additive_mask(allowed, added, rows.dtype), causal)


def _output(call: Call, query: Tensor, key: Tensor, value: Tensor, piece: Tile) -> Tensor:
    return _solve(call, query, key, value, piece)[0]


def _made_again(solve: Callable[..., Result]) -> Callable[..., Result]:
    """The same, but what it computes on the way is computed again in the backward pass instead of being kept."""

    def solved(call: Call, query: Tensor, key: Tensor, value: Tensor, piece: Tile) -> Result:
        if not call.wants_grad(query, key, value):
            return solve(call, query, key, value, piece)
        output: Result = recompute(solve, call, query, key, value, piece)
        return output

    return solved


def _with_weights(call: Call, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Output and weights: in one piece where gradients keep the weights anyway, else piece by piece in cache."""
    (batch, shared), n, m = call.frame.folded, query.shape[-2], key.shape[-2]
    if call.wants_grad(query, key, value):
        return _solve(call, query, key, value, whole(batch, n, m))
    output, found = query.new_empty(batch, shared, n, value.shape[-1]), query.new_empty(batch, shared, n, m)
    if call.bound is None:  # then nothing keeps heads together, and pieces can be few heads whole: neighbours in memory
        folded = (rows.flatten(0, 1).unsqueeze(1) for rows in (query, key, value, output, found))
        _fill(call, *folded)
    else:
        _fill(call, query, key, value, output, found)
    return output, found


def _fill(call: Call, query: Tensor, key: Tensor, value: Tensor, output: Tensor, found: Tensor) -> None:
    """Output and weights into their places, piece by piece."""
    (batch, shared, n, m) = found.shape
    for part in (part for row in streamed_cut(whole(batch, n, m), shared, call.bound) for part in row):
        keys = (part.batch, slice(None), part.keys)
        rows = (part.batch, slice(None), part.rows)
        own = found[rows]
        place = own[..., part.keys]
        output[rows], solved = _solve(call, query[rows], key[keys], value[keys], part, place)
        if solved is not place:
            place.copy_(solved)
        own[..., : part.keys.start] = 0
        own[..., part.keys.stop :] = 0
