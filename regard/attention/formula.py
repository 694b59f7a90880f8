"""The one formula of this project, and with normalizers.py the only place in it where scores become weights:

    output_i = Σ_j normalize_j( score(query_i, key_j) restricted by mask ) · value_j

The way of a call, from `attend` to the kernel:

    layout.py   checks the shapes against each other and folds the leading dimensions to (B, R)
    masks.py    ties the mask to these shapes
    tiling.py   cuts the scores (B, R, n, m) into tiles that fit in cache
    engine.py   goes through the tiles, and through them again for gradients
    fused.py    solves a tile by PyTorch's fused kernel, where the score is a dot product
    here        `_solve` solves any other tile by the formula as it stands above

While a call is traced (compiled, exported, mapped …), it is one tile, and no tensor is asked for its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch import softmax as softmax_over  # bound here: view/intercept.py must not take ours for a model's

from regard.arguments import check_dropout, check_indices, check_tensor, shape_text
from regard.attention import fused
from regard.attention.custom import require_score
from regard.attention.dropout import dropout
from regard.attention.engine import TileInput, is_foreign, solve_tiles
from regard.attention.layout import Layout, Tile, check_layout, prepare
from regard.attention.masks import BoundMask, Mask, additive_mask, check_mask, zero_hidden
from regard.attention.normalizers import Normalizer, Softmax, require_normalizer
from regard.attention.observers import notify
from regard.attention.operators import dot_attention
from regard.attention.scores import Score
from regard.attention.tiling import full_precision, fused_tiles, reached_keys, size, streamed_tiles
from regard.attention.tracing import is_traced

__all__ = ["attend", "attend_in", "masked_softmax", "open_call", "weights"]


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = ...,
    mask: Mask | None = ...,
    normalizer: nn.Module | None = ...,
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
    normalizer: nn.Module | None = ...,
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
    normalizer: nn.Module | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """For each query the average of the values, weighted by score(query, key), normalised over the keys.

    query (…, n, query size) · key (…, m, key size) · value (…, m, value size) → output (…, n, value size), and with
    need_weights=True also the weights (…, n, m), as they are before dropout. Leading dimensions broadcast; H query
    heads may share G key heads (dimension −3, H a multiple of G). `score` defaults to Dot(), `normalizer` to Softmax().
    `dropout` drops that share of the weights whenever it is positive: pass 0 outside training.

    A query that may attend to nothing gets output 0 and weights 0, with finite gradients.

    >>> import regard, torch
    >>> query, key, value = torch.zeros(1, 4), torch.zeros(2, 4), torch.tensor([[1.0], [3.0]])
    >>> regard.attend(query, key, value, need_weights=True)  # two equal keys share the weight
    (tensor([[2.]]), tensor([[0.5000, 0.5000]]))
    """
    if not isinstance(need_weights, bool):
        raise TypeError(f"need_weights: expected True or False, got {type(need_weights).__name__}")
    result: Tensor | tuple[Tensor, Tensor] = _attend(query, key, value, score, mask, normalizer, dropout, need_weights)
    notify(None, query, key, score, mask, normalizer)
    return result


def attend_in(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    normalizer: nn.Module | None = None,
    dropout: float = 0.0,
    cross: bool | None = None,
) -> Tensor:
    """`attend` for a layer: observers get to know which module attends, and whether to another sequence (`cross`)."""
    output: Tensor = _attend(query, key, value, score, mask, normalizer, dropout)
    notify(module, query, key, score, mask, normalizer, cross=cross)
    return output


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: nn.Module | None,
    mask: Mask | None,
    normalizer: nn.Module | None,
    dropout: float,
    need_weights: bool = False,
) -> Any:
    """`attend`, without notifying observers."""
    if normalizer is None and not need_weights and type(dropout) is float and not dropout:
        output = fused.quick_attention(query, key, value, score, mask)
        if output is not None:
            return output
    layout = check_layout(query, key, value)
    call = _Call.of(layout, score, mask, normalizer, check_dropout(dropout))
    call.score.check(query, key)
    with full_precision(layout.device):
        rows, keys = call.project(query, key)
        values = layout.spread(prepare(value))
        if need_weights:
            output, weights = _with_weights(call, rows, keys, values)
            return layout.unfold(output).to(query.dtype), layout.unfold(weights).to(query.dtype)
        output = _traced(call, rows, keys, values) if is_traced(query) else _without_weights(call, rows, keys, values)
        return layout.unfold(output).to(query.dtype)


def weights(
    query: Tensor,
    key: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    normalizer: nn.Module | None = None,
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
    call = _Call.of(layout, score, mask, normalizer)
    call.score.check(query, key)
    with full_precision(layout.device):
        projected_query, projected_key = call.project(query, key)
        no_values = projected_key[..., :0]
        return layout.unfold(_with_weights(call, projected_query, projected_key, no_values)[1]).to(query.dtype)


def open_call(
    query: Tensor, key: Tensor, score: nn.Module | None, mask: Mask | None, normalizer: nn.Module | None
) -> tuple[_Call, Tensor, Tensor]:
    """A call without values, and its projected queries and keys (B, R, rows, inner size); for summary.py."""
    call = _Call.of(check_layout(query, key), score, mask, normalizer)
    call.score.check(query, key)
    with full_precision(call.layout.device):
        return call, *call.project(query, key)


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
    call = _Call.of(layout, None, mask, None)
    allowed, bias = call.restrictions(Tile.whole(layout.folded[0], n, m))
    restricted = _restrict(layout.spread(prepare(scores)), allowed, bias)
    return layout.unfold(_normalize(call.normalizer, restricted)).to(scores.dtype)


# ------------------------------------------------------------------------------------------------------------ one call


SOFTMAX = Softmax()


@dataclass(frozen=True)
class _Call:
    """What all tiles of one call share."""

    layout: Layout
    score: Score
    mask: BoundMask | None
    normalizer: Normalizer
    per_head: Tensor | None  # the normaliser's, (B or 1, R or 1, 1, 1)
    dropout: float
    scale: float | None = None  # not None: scores are scale · query · key, whatever the score
    exact: bool = False  # whether scores are wanted as they are, and not up to a constant of the row

    @classmethod
    def of(
        cls,
        layout: Layout,
        score: nn.Module | None,
        mask: Mask | None,
        normalizer: nn.Module | None,
        dropout: float = 0.0,
    ) -> _Call:
        bound = None if mask is None else check_mask("mask", mask).bound(layout)
        if normalizer is None:
            return cls(layout, require_score(score), bound, SOFTMAX, None, dropout)
        normalizer = require_normalizer(normalizer)
        return cls(layout, require_score(score), bound, normalizer, _fold_per_head(normalizer, layout), dropout)

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """What the score computes once per row, before heads are spread: (…, n, size) → (B, R, n, inner size)."""
        query, key = self.layout.select(prepare(query), rows=True), self.layout.select(prepare(key), rows=False)
        rows, keys = _project(self.score.project_query, query), _project(self.score.project_key, key)
        return self.layout.spread(rows), self.layout.spread(keys)

    def without_hidden(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Keys and values (B, R, m, size) with 0 for those that no query sees: not even their size may matter then."""
        if self.mask is None or not self.layout.rows or is_traced(*tensors):
            return tensors
        whole = Tile.whole(len(tensors[0]), self.layout.rows, tensors[0].shape[2])
        return zero_hidden(reached_keys(whole, self.layout.sharing, self.mask), *tensors)

    def needs_grad(self, *tensors: Tensor) -> bool:
        if not torch.is_grad_enabled():
            return False
        given = tensors if self.per_head is None else (*tensors, self.per_head)
        learned = self.learns_bias or any(tensor.requires_grad for tensor in (*given, *self.tensors()))
        return learned or self.is_foreign  # who knows what a module reads that is not regard's

    @property
    def learns_bias(self) -> bool:
        return self.mask is not None and self.mask.learned

    @property
    def is_foreign(self) -> bool:
        return is_foreign(self.score) or is_foreign(self.normalizer)

    def tensors(self) -> list[Tensor]:
        """What scores and normaliser are known to read beside their arguments."""
        listed = [tensor for part in (self.score, self.normalizer) for tensor in (*part.parameters(), *part.buffers())]
        return [*listed, *self.score.captured(self.layout)]

    def restrictions(self, tile: Tile) -> tuple[Tensor | None, Tensor | None]:
        """Which pairs of the tile are allowed and what is added to their scores; None for all and for nothing."""
        if self.mask is None or (not is_traced(*self.mask.tensors) and self.mask.allows_all(tile)):
            return None, None
        return self.mask.allowed(tile), self.mask.bias(tile)

    def scores(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """The scores of a tile; in float64 where float32 would lose the digits that matter."""
        if self.scale is not None:
            return (query * self.scale) @ key.transpose(-2, -1)
        reduces = self.score.is_dot and self.uses_dot and query.numel() and key.numel() and not is_traced(query)
        dot = self.score.as_dot(query, key) if reduces else None
        scores = self.score.pairs(query, key) if dot is None else (dot[0] * dot[2]) @ dot[1].transpose(-2, -1)
        return self.score.modify(scores, self.layout.indices(tile)) if self.score.has_positions else scores

    @property
    def uses_dot(self) -> bool:
        """Whether the dot product that the score can be written as, perhaps up to a constant of the row, will do."""
        return self.score.dot_is_exact or (self.normalizer.shift_invariant and not self.exact)

    def solve(self, tile: Tile, given: TileInput, *, live: Tensor | None, guarded: bool, seed: int | None) -> Tensor:
        """The output of one tile, for engine.py."""
        return _solve(self, tile, given, live=live, guarded=guarded, seed=seed)[0]

    def restricted(self, tile: Tile, query: Tensor, key: Tensor, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
        """The scores of a tile, or of some of its heads, restricted by what `restrictions` gave; for summary.py."""
        return _restrict(self.scores(query, key, tile), allowed, bias)

    def normalize(self, scores: Tensor, per_head: Tensor | None, may_be_empty: bool, out: Tensor | None) -> Tensor:
        """The weights of restricted scores, for summary.py; without a per_head, a softmax has no sink."""
        return _normalize(self.normalizer, scores, per_head, may_be_empty, out)


def _fold_per_head(normalizer: Normalizer, layout: Layout) -> Tensor | None:
    numbers = normalizer.per_head()
    if numbers is None:
        return None
    heads = layout.batch[-1] if layout.batch else 1
    count = numbers.shape[0] if numbers.dim() else 1
    if count != 1 and count != heads:  # not `in`, and not len(), which would fix a traced size
        raise ValueError(f"normalizer: expected one number, or one for each of {heads} heads, got {count}")
    numbers = numbers.to(layout.device).reshape((-1, 1, 1) if layout.batch else (1, 1))  # (1 or heads, 1, 1)
    return layout.fold(layout.select(numbers, rows=False))


def _project(project: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """project(rows), where rows that are not finite give no gradients.

    Where they are hidden, or have nothing to attend to, 0 · NaN must not reach the score's parameters.
    """
    projected = project(rows)
    if projected is rows or not projected.requires_grad or is_traced(rows) or fused.are_finite(rows):
        return projected
    broken = ~rows.detach().isfinite().all(-1, keepdim=True)
    return torch.where(broken, projected.detach(), project(rows.masked_fill(broken, 0)))


# ------------------------------------------------------------------------------------------------- the formula itself


def _solve(
    call: _Call,
    tile: Tile,
    given: TileInput,
    *,
    live: Tensor | None = None,
    guarded: bool = False,
    seed: int | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Output and weights of one tile: score, restrict, normalise, average. Weights are written to `out` if they fit.

    guarded: some numbers may not be finite, and those that a row may not see must not reach it.
    """
    allowed, bias = call.restrictions(tile)
    bias = bias if given.bias is None else given.bias
    # Heads that share keys get copies: the product would make them, but with other last bits than `zero_hidden`.
    query, key, value = (rows.contiguous() if 0 in rows.stride() else rows for rows in given[:3])
    if guarded:
        scores, value, allowed = _scores_of_broken(call, query, key, value, tile, allowed, live)
    else:
        scores = call.scores(query, key, tile)
    scores = _restrict(scores, allowed, bias)
    may_be_empty = call.score.may_exclude or allowed is not None or bias is not None
    per_head = given.per_head if given.per_head is not None else _of_batch(call.per_head, tile)
    weights = _normalize(call.normalizer, scores, per_head, may_be_empty, out).to(value.dtype)
    kept = dropout(weights, call.dropout, generator=_generator(seed)) if call.dropout else weights
    return (_average_of_broken(kept, value, scores) if guarded else kept @ value), weights


def _restrict(scores: Tensor, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
    """Scores with the bias added and −inf where a key may not be attended, whatever stood there."""
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


def _normalize(
    normalizer: Normalizer,
    scores: Tensor,
    per_head: Tensor | None = None,
    may_be_empty: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """Weights from scores; a row that is −inf throughout gets 0, and so does any −inf."""
    if may_be_empty and scores.shape[-1]:
        empty = scores.detach().amax(-1, keepdim=True) == -torch.inf
        if is_traced(scores) or bool(empty.any()):
            filled = _normalize(normalizer, scores.masked_fill(empty, 0), per_head, may_be_empty=False)
            return filled.masked_fill(scores == -torch.inf, 0)
    if isinstance(normalizer, Softmax) and per_head is None:
        fits = out is not None and out.dtype == scores.dtype and out.is_contiguous()
        return softmax_over(scores, -1, out=out if fits else None)
    weights: Tensor = normalizer(scores, per_head)
    return weights


# ------------------------------------------------------------------------------------------ numbers that are not finite


def _scores_of_broken(
    call: _Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tile: Tile,
    allowed: Tensor | None,
    live: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores, values and allowed pairs where queries, keys or values may not be finite.

    What no row may see becomes 0. What some rows see has its score, but no gradient of 0 · NaN for the others.
    """
    if live is not None:  # rows that do not count see nothing
        allowed = live if allowed is None else allowed & live
    if not query.shape[2]:  # without a query nothing attends to any key
        allowed = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=query.device)
    key, value = zero_hidden(allowed, key, value)
    if allowed is not None:
        (query,) = zero_hidden(allowed.transpose(-2, -1), query)  # rows that may attend to nothing
    scores = call.scores(query, key, tile)
    if scores.requires_grad and not fused.are_finite(query, key):
        broken_rows, broken_keys = (~rows.detach().isfinite().all(-1, keepdim=True) for rows in (query, key))
        finite = call.scores(query.masked_fill(broken_rows, 0), key.masked_fill(broken_keys, 0), tile)
        scores = torch.where(broken_rows | broken_keys.transpose(-2, -1), scores.detach(), finite)
    return scores, value, allowed


def _average_of_broken(weights: Tensor, value: Tensor, scores: Tensor) -> Tensor:
    """Σ_j weight_j · value_j, in which a key that may not be attended (score −inf) takes no part, even as 0 · NaN."""
    if fused.are_finite(value):
        return weights @ value
    visible = (scores.detach() != -torch.inf).to(weights.dtype)
    output = weights @ value.masked_fill(~value.isfinite(), 0)
    rising, falling, unknown = (
        visible @ hit.to(visible.dtype) > 0 for hit in (value == torch.inf, value == -torch.inf, value.isnan())
    )
    output = output.masked_fill(rising, torch.inf).masked_fill(falling, -torch.inf)
    return output.masked_fill(unknown | (rising & falling), torch.nan)


def _of_batch(per_head: Tensor | None, tile: Tile) -> Tensor | None:
    return per_head if per_head is None or per_head.shape[0] == 1 else per_head[tile.batch]


def _generator(seed: int | None) -> torch.Generator | None:
    return None if seed is None else torch.Generator().manual_seed(seed)


# --------------------------------------------------------------------------------------------------- which way it goes


def _without_weights(call: _Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """By the score's own average, by the fused kernel or by the formula: no (n × m) tensor is kept."""
    whole = Tile.whole(len(query), query.shape[2], key.shape[2])
    needs_grad = call.needs_grad(query, key, value)
    if not (call.score.is_dot and call.score.dot_is_exact):
        key, value = call.without_hidden(key, value)
    plain = not call.dropout and type(call.normalizer) is Softmax
    if plain and query.numel() and key.numel() and value.numel():
        if call.score.has_average and call.per_head is None and not call.learns_bias:
            output = _averaged(call, query, key, value, whole, needs_grad)
            if output is not None:
                return output
        if call.score.is_dot and call.uses_dot:
            output = _by_dot(call, query, key, value, whole, needs_grad)
            if output is not None:
                return output
    small = len(query) * query.shape[1] * query.shape[2] * key.shape[2] <= fused.SMALL
    # Solving a score twice would change what it keeps (running averages): its graph is kept instead.
    if (small and not needs_grad) or (needs_grad and call.is_foreign and any(True for _ in call.score.buffers())):
        return _in_one_tile(call, query, key, value, whole, needs_grad)
    tiles = streamed_tiles(whole, call.layout.sharing, call.mask)
    return solve_tiles(call, tiles, query, key, value, needs_grad)


def _in_one_tile(call: _Call, query: Tensor, key: Tensor, value: Tensor, whole: Tile, needs_grad: bool) -> Tensor:
    """By the formula as it stands, with PyTorch's own graph."""
    given = TileInput(query, key, value)
    if needs_grad:
        return _solve(call, whole, given, guarded=not fused.are_finite(query, key, value))[0]
    output = _solve(call, whole, given)[0]
    return output if fused.are_finite(output) else _solve(call, whole, given, guarded=True)[0]


def _by_dot(call: _Call, query: Tensor, key: Tensor, value: Tensor, whole: Tile, needs_grad: bool) -> Tensor | None:
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
        mask = None if call.mask is None else call.mask.added(rows.dtype, call.layout)
        output = fused.attend_small(rows, keys, values, mask, scale)
        if output is None and call.mask is not None:  # what nobody sees may be all that is in the way
            allowed, _ = call.restrictions(whole)
            keys, values = zero_hidden(allowed, keys, values)
            output = fused.attend_small(rows, keys, values, mask, scale)
    if output is None:
        tiles = fused_tiles(whole, call.layout.sharing, call.mask)
        output = solve_tiles(replace(call, scale=scale), tiles, rows, keys, values, needs_grad)
    return (output if width == inner else output[..., :width]).to(value.dtype)


def _averaged(call: _Call, query: Tensor, key: Tensor, value: Tensor, whole: Tile, needs_grad: bool) -> Tensor | None:
    """By the score's own `average`, which visits no pairs; None where it has none."""
    outputs = []
    for row in fused_tiles(whole, call.layout.sharing, call.mask):
        batch = row[0].batch
        # Split, not sliced: the gradient of a slice is a whole tensor of zeros, that of a split is joined once.
        parts = query[batch].split([size(tile.rows) for tile in row], -2)
        solved = []
        for tile, rows in zip(row, parts, strict=True):
            output = _average_of_tile(
                call, tile, rows, key[batch, :, tile.keys], value[batch, :, tile.keys], needs_grad
            )
            if output is None:
                return None
            solved.append(output)
        outputs.append(torch.cat(solved, -2) if len(solved) > 1 else solved[0])
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _average_of_tile(
    call: _Call, tile: Tile, query: Tensor, key: Tensor, value: Tensor, needs_grad: bool
) -> Tensor | None:
    mask = None if call.mask is None or call.mask.allows_all(tile) else call.mask
    if mask is None:
        return call.score.average(query, key, value, needs_grad=needs_grad)
    if mask.is_causal(tile):
        return call.score.average(query, key, value, causal=True, needs_grad=needs_grad)
    if (blocks := mask.equal_blocks(tile)) > 1:  # of one shape, each of which attends to itself: as a batch
        rows, keys, values = (
            tensor.unflatten(2, (blocks, -1)).transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)
        )  # (B, R, blocks · n, size) → (B · blocks, R, n, size)
        output = call.score.average(rows, keys, values, needs_grad=needs_grad)
        return None if output is None else output.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)
    if mask.by_row or mask.bias(tile) is not None:
        return None
    return call.score.average(query, key, value, visible=mask.allowed(tile), needs_grad=needs_grad)


def _traced(call: _Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Without looking at a number: by one operator where the score is a dot product, else by the formula in one tile.

    Keys that no query sees are blanked. A NaN that some rows see is kept from others only on the eager way.
    """
    whole = Tile.whole(query.shape[0], query.shape[2], key.shape[2])
    if not call.dropout and type(call.normalizer) is Softmax and call.score.is_dot and call.score.dot_is_exact:
        allowed, bias = call.restrictions(whole)
        causal = call.mask is not None and call.mask.is_causal(whole)
        key, value = zero_hidden(allowed, key, value)
        rows, keys, scale = call.score.as_dot(query, key)  # type: ignore[misc]
        mask = None if causal else additive_mask(allowed, bias, rows.dtype)
        output = dot_attention(rows * scale, keys, value, mask, call.per_head, causal)
        if output is not None:
            return output
    return _traced_solve(call, query, key, value, whole)[0]


def _traced_solve(call: _Call, query: Tensor, key: Tensor, value: Tensor, whole: Tile) -> tuple[Tensor, Tensor]:
    allowed, _ = call.restrictions(whole)
    return _solve(call, whole, TileInput(query, *zero_hidden(allowed, key, value)))


def _with_weights(call: _Call, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Output and weights: in one tile where gradients keep the weights anyway, else tile by tile."""
    (batch, sharing, n, _), m = query.shape, key.shape[2]
    whole = Tile.whole(batch, n, m)
    if is_traced(query):
        return _traced_solve(call, query, key, value, whole)
    key, value = call.without_hidden(key, value)
    if call.needs_grad(query, key, value):
        guarded = not fused.are_finite(query, key, value)
        return _solve(call, whole, TileInput(query, key, value), guarded=guarded)
    output, weights = query.new_empty(batch, sharing, n, value.shape[-1]), query.new_empty(batch, sharing, n, m)
    tensors = [query, key, value, output, weights]
    # Where nothing keeps heads together, a tile of whole heads is contiguous in memory.
    if call.mask is None and call.per_head is None and not call.score.has_positions:
        tensors = [tensor.flatten(0, 1).unsqueeze(1) for tensor in tensors]
    _fill(call, *tensors)
    return output, weights


def _fill(call: _Call, query: Tensor, key: Tensor, value: Tensor, output: Tensor, weights: Tensor) -> None:
    """Compute output and weights in place, tile by tile."""
    batch, sharing, n, m = weights.shape
    guarded = not fused.are_finite(query, key, value)
    for tile in (tile for row in streamed_tiles(Tile.whole(batch, n, m), sharing, call.mask) for tile in row):
        rows, keys = (tile.batch, slice(None), tile.rows), (tile.batch, slice(None), tile.keys)
        rows_of_weights = weights[rows]
        out = rows_of_weights[..., tile.keys]
        given = TileInput(query[rows], key[keys], value[keys])
        output[rows], solved = _solve(call, tile, given, guarded=guarded, out=out)
        if solved is not out:
            out.copy_(solved)
        rows_of_weights[..., : tile.keys.start] = 0
        rows_of_weights[..., tile.keys.stop :] = 0
