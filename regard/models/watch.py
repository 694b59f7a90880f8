"""How a layer attends: whoever watches is told which layer it was."""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention import Mask
from regard.attention.formula import attended
from regard.attention.observers import tell

__all__ = ["regarded"]


def regarded(
    layer: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend`, as a look of this layer."""
    found: Tensor = attended(query, key, value, score, mask, dropout)
    tell(layer, query, key, score, mask)
    return found
