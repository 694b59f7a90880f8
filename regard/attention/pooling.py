"""Pooling without a query: the baselines of attention. It depends on the values and the mask alone."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.arguments import check_tensor
from regard.attention.api import attend
from regard.attention.layout import Tile, check_layout
from regard.attention.masks import Mask, check_mask

__all__ = ["average_pool", "max_pool"]


def average_pool(value: Tensor, mask: Mask | None = None) -> Tensor:
    """The mean of the values that the mask allows, (…, m, size) → (…, 1, size); 0 where nothing is allowed.

    It is attention in which every key scores the same.

    >>> import regard, torch
    >>> regard.average_pool(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    tensor([[2., 4.]])
    """
    return attend(*_featureless(value), value, mask=mask)


def max_pool(value: Tensor, mask: Mask | None = None) -> Tensor:
    """The largest of the values that the mask allows, per feature, (…, m, size) → (…, 1, size); 0 where none is.

    >>> import regard, torch
    >>> regard.max_pool(torch.tensor([[1.0, 9.0], [3.0, 6.0]]))
    tensor([[3., 9.]])
    """
    layout = check_layout(*_featureless(value), value)
    folded = layout.spread(value)  # (B, R, m, size)
    visible = torch.ones(1, 1, layout.m, 1, dtype=torch.bool, device=value.device)
    if mask is not None:
        if check_mask("mask", mask).has_bias:
            raise TypeError("mask: a bias has no meaning for max_pool, which adds no scores; use keep, drop or lengths")
        allowed = mask.bind(layout).allowed(Tile.whole(len(folded), 1, layout.m))
        visible = visible if allowed is None else visible & allowed.transpose(-2, -1)
    if not layout.m:
        return layout.unfold(folded.sum(-2, keepdim=True))
    largest = folded.masked_fill(~visible, -torch.inf).amax(-2, keepdim=True)
    return layout.unfold(largest.masked_fill(~visible.any(-2, keepdim=True), 0))


def _featureless(value: Tensor) -> tuple[Tensor, Tensor]:
    """One query and m keys without any feature: every key scores the same."""
    check_tensor("value", value, "of shape (…, m, size)")
    return value.new_zeros(*value.shape[:-2], 1, 0), value[..., :0]
