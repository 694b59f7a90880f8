"""The one formula of this project, and with normalizers.py the only place in it where scores become weights:

    output_i = Σ_j normalize_j( score(query_i, key_j) restricted by mask ) · value_j

The way of a call, from `attend` to the kernel:

    api.py      what users call
    layout.py   checks the shapes against each other and folds the leading dimensions to (B, R)
    masks.py    ties the mask to these shapes
    routes.py   decides which way a call goes
    tiling.py   cuts the scores (B, R, n, m) into tiles that fit in cache
    engine.py   goes through the tiles, and through them again for gradients
    fused.py    solves a tile by PyTorch's fused kernel, where the score is a dot product
    here        `solve` solves any other tile by the formula as it stands above
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch import softmax as softmax_over  # bound here: view/intercept.py must not take ours for a model's

from regard.attention import fused
from regard.attention.dropout import dropout
from regard.attention.layout import Layout, Tile, prepare
from regard.attention.masks import BoundMask, Mask, check_mask, zero_hidden
from regard.attention.mods import require_score
from regard.attention.normalizers import SOFTMAX, Normalizer, Softmax, require_normalizer
from regard.attention.scores import Score
from regard.attention.tiling import full_precision, reached_keys
from regard.attention.tracing import is_traced, needs_grad


class TileInput(NamedTuple):
    """What one tile is solved from. Bias and per_head are those of the tile: leaves of the backward pass, else None."""

    query: Tensor  # (B, R, n, size)
    key: Tensor  # (B, R, m, size)
    value: Tensor  # (B, R, m, value size)
    bias: Tensor | None = None
    per_head: Tensor | None = None


@dataclass(frozen=True)
class Call:
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
    ) -> Call:
        bound = None if mask is None else check_mask("mask", mask).bound(layout)
        normalizer = require_normalizer(normalizer)
        per_head = normalizer.per_head()
        if per_head is not None:
            heads, count = layout.batch[-1] if layout.batch else 1, per_head.shape[0] if per_head.dim() else 1
            if count != 1 and count != heads:  # not `in`, and not len(), which would fix a traced size
                raise ValueError(f"normalizer: expected one number, or one for each of {heads} heads, got {count}")
            shape = (-1, 1, 1) if layout.batch else (1, 1)  # (1 or heads, 1, 1)
            per_head = layout.fold(layout.select(per_head.to(layout.device).reshape(shape), rows=False))
        return cls(layout, require_score(score), bound, normalizer, per_head, dropout)

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """What the score computes once per row, before heads are spread: (…, n, size) → (B, R, n, inner size)."""
        self.score.check(query, key)
        query, key = self.layout.select(prepare(query), rows=True), self.layout.select(prepare(key), rows=False)
        with full_precision(self.layout.device):
            rows, keys = _project(self.score.project_query, query), _project(self.score.project_key, key)
        return self.layout.spread(rows), self.layout.spread(keys)

    def without_hidden(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Keys and values (B, R, m, size) with 0 for those that no query sees: not even their size may matter then."""
        if self.mask is None or not self.layout.rows or is_traced(*tensors):
            return tensors
        return zero_hidden(reached_keys(self.layout.whole, self.layout.sharing, self.mask), *tensors)

    def needs_grad(self, *tensors: Tensor) -> bool:
        if not torch.is_grad_enabled():
            return False
        given = tensors if self.per_head is None else (*tensors, self.per_head)
        # Who knows what a module reads that is not regard's?
        return self.learns_bias or needs_grad(*given, *self.tensors()) or self.is_foreign

    @property
    def learns_bias(self) -> bool:
        return self.mask is not None and self.mask.learned

    @property
    def is_foreign(self) -> bool:
        """Whether a module takes part that regard does not know."""
        modules = (*self.score.modules(), *self.normalizer.modules())
        return any(not type(module).__module__.startswith("regard.") for module in modules)

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


def solve(
    call: Call,
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
    scores = restrict(scores, allowed, bias)
    may_be_empty = call.score.may_exclude or allowed is not None or bias is not None
    per_head = given.per_head if given.per_head is not None else of_batch(call.per_head, tile)
    weights = normalize(call.normalizer, scores, per_head, may_be_empty, out).to(value.dtype)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    kept = dropout(weights, call.dropout, generator=generator) if call.dropout else weights
    return (_average_of_broken(kept, value, scores) if guarded else kept @ value), weights


def solve_plainly(query: Tensor, key: Tensor, value: Tensor, score: nn.Module | None) -> Tensor | None:
    """The output of a small call without mask and gradients, by the formula and nothing else; None for other calls.

    As `fused.quick_attention`, for any score of regard's.
    """
    if not isinstance(score, Score) or torch.is_grad_enabled() or score.has_positions:
        return None
    batch, n, m = query.shape[:-2], query.shape[-2], key.shape[-2]
    if not batch == key.shape[:-2] == value.shape[:-2] or m != value.shape[-2] or batch.numel() * n * m > fused.SMALL:
        return None
    score.check(query, key)
    scores = score.pairs(score.project_query(query), score.project_key(key))
    output = normalize(SOFTMAX, scores, may_be_empty=False).to(value.dtype) @ value
    return output if math.isfinite(output.min().item()) else None  # see `fused.is_trusted`


def restrict(scores: Tensor, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
    """Scores with the bias added and −inf where a key may not be attended, whatever stood there."""
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


def normalize(
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
            filled = normalize(normalizer, scores.masked_fill(empty, 0), per_head, may_be_empty=False)
            return filled.masked_fill(scores == -torch.inf, 0)
    if isinstance(normalizer, Softmax) and per_head is None:
        fits = out is not None and out.dtype == scores.dtype and out.is_contiguous()
        return softmax_over(scores, -1, out=out if fits else None)
    weights: Tensor = normalizer(scores, per_head)
    return weights


# ------------------------------------------------------------------------------------------ numbers that are not finite


def _scores_of_broken(
    call: Call, query: Tensor, key: Tensor, value: Tensor, tile: Tile, allowed: Tensor | None, live: Tensor | None
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


def of_batch(per_head: Tensor | None, tile: Tile) -> Any:
    """The tile's part of (B or 1, R or 1, 1, 1), or None."""
    return per_head if per_head is None or per_head.shape[0] == 1 else per_head[tile.batch]
