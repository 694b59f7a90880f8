"""Pooling without a query: the baselines of attention. They see the mask, and nothing of what is asked."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.arguments import check_tensor
from regard.attention.formula import attend
from regard.attention.layout import layout_of
from regard.attention.masks import Mask, require_mask
from regard.attention.tiling import whole

__all__ = ["average_pool", "max_pool"]


def average_pool(value: Tensor, mask: Mask | None = None) -> Tensor:
    """The mean of the values that the mask allows, (…, m, size) → (…, 1, size); 0 where nothing is allowed.

    It is attention in which every key scores the same.

    >>> import regard, torch
    >>> regard.average_pool(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    tensor([[2., 4.]])
    """
    return attend(*_nothing_asked(value), value, mask=mask)


def max_pool(value: Tensor, mask: Mask | None = None) -> Tensor:
    """The largest of the values that the mask allows, per feature, (…, m, size) → (…, 1, size); 0 where none is.

    >>> import regard, torch
    >>> regard.max_pool(torch.tensor([[1.0, 9.0], [3.0, 6.0]]))
    tensor([[3., 9.]])
    """
    frame = layout_of(*_nothing_asked(value), value)
    folded = frame.spread(value)  # (B, R, m, size)
    seen = torch.ones(1, 1, frame.m, 1, dtype=torch.bool, device=value.device)
    if mask is not None:
        if require_mask("mask", mask).has_bias:
            raise TypeError("mask: a bias has no meaning for max_pool, which adds no scores; use keep, drop or lengths")
        allowed = mask.bind(frame).allowed(whole(len(folded), 1, frame.m))
        seen = seen if allowed is None else seen & allowed.transpose(-2, -1)
    if not frame.m:
        return frame.unfold(folded.sum(-2, keepdim=True))
    largest = folded.masked_fill(~seen, -torch.inf).amax(-2, keepdim=True)
    return frame.unfold(largest.masked_fill(~seen.any(-2, keepdim=True), 0))


def _nothing_asked(value: Tensor) -> tuple[Tensor, Tensor]:
    """One query and m keys without any feature: every key answers it equally well."""
    check_tensor("value", value, "of shape (…, m, size)")
    return value.new_zeros(*value.shape[:-2], 1, 0), value[..., :0]
