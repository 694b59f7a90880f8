"""One call of `attend`, as all of its pieces see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention.bound import Bound, Tile
from regard.attention.layout import HALVES, Layout
from regard.attention.masks import Mask, require_mask
from regard.attention.scores import Score, require_score

__all__ = ["Call", "working"]


@dataclass(frozen=True)
class Call:
    """What all pieces of one call share."""

    frame: Layout
    score: Score
    bound: Bound | None
    dropout: float

    @classmethod
    def of(cls, frame: Layout, score: nn.Module | None, mask: Mask | None, dropout: float) -> Call:
        bound = None if mask is None else require_mask("mask", mask).bind(frame)
        return cls(frame, require_score(score), bound, dropout)

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Everything that belongs to one row, once per row, before heads are spread."""
        query, key = self.frame.select(query, rows=True), self.frame.select(key, rows=False)
        rows, keys = _projected(self.score.project_query, query), _projected(self.score.project_key, key)
        return self.frame.spread(rows), self.frame.spread(keys)

    def wants_grad(self, *tensors: Tensor) -> bool:
        learned = (*tensors, *self.score.parameters())
        return torch.is_grad_enabled() and (self.learns_bias or any(tensor.requires_grad for tensor in learned))

    @property
    def learns_bias(self) -> bool:
        return self.bound is not None and self.bound.learned

    def mask_of(self, piece: Tile) -> tuple[Tensor | None, Tensor | None]:
        """What the piece allows and what is added to its scores; None for all and for nothing."""
        if self.bound is None or self.bound.covers(piece):
            return None, None
        return self.bound.allowed(piece), self.bound.added(piece)


def _projected(project: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """project(rows), in which rows that are not finite take part without gradients.

    Where they are hidden, or have nothing to attend to, 0 · NaN must not reach the score's parameters.
    """
    projected = project(rows)
    if projected is rows or not projected.requires_grad:
        return projected
    broken = ~rows.detach().isfinite().all(-1, keepdim=True)
    if not bool(broken.any()):
        return projected
    return torch.where(broken, projected.detach(), project(rows.masked_fill(broken, 0)))


def working(rows: Tensor) -> Tensor:
    """The rows as they are computed with, in one layout: strides of their own would change the last bits of a result.

    Half precision is computed in float32, so that sums are kept in float32 (and no CPU meets a bfloat16 kernel).
    """
    rows = rows.float() if rows.dtype in HALVES else rows
    return rows if rows.stride(-1) == 1 else rows.contiguous()
