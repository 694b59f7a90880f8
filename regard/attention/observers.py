"""The one road by which attention weights leave a model: somebody watches, and is told of every look.

Nothing is computed for a watcher that the watcher does not ask for, and nothing of what the model computes changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor, nn

from regard.attention.masks import Mask

__all__ = ["AttentionCall", "tell", "watching"]


@dataclass(frozen=True)
class AttentionCall:
    """One call of `attend`: who looked, from where, at what."""

    layer: nn.Module | None  # None: not one of regard's layers
    query: Tensor  # (…, n, query size), in layers (batch, heads, n, query size)
    key: Tensor  # (…, m, key size)
    score: nn.Module | None
    mask: Mask | None

    def weights(self, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> Tensor:
        """The weights (…, n, m) of this look, or of some rows and heads, computed now."""
        from regard.attention.formula import weights  # which tells of looks

        return weights(self.query, self.key, score=self.score, mask=self.mask, rows=rows, heads=heads)


_watchers: ContextVar[tuple[Callable[[AttentionCall], None], ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(see: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Within this block `see` is told of every look in this thread."""
    token = _watchers.set((*_watchers.get(), see))
    try:
        yield
    finally:
        _watchers.reset(token)


def tell(
    layer: nn.Module | None, query: Tensor, key: Tensor, score: nn.Module | None = None, mask: Mask | None = None
) -> None:
    """Tell whoever watches."""
    watchers = _watchers.get()
    if watchers:
        look = AttentionCall(layer, query, key, score, mask)
        for see in watchers:
            see(look)
