"""The one road by which attention weights leave a model: somebody watches, and is told of every look.

Nothing is computed for a watcher that the watcher does not ask for, and nothing of what the model computes changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor, nn

from regard.attention import Mask, attend
from regard.attention.formula import weights

__all__ = ["Look", "regarded", "tell", "watching"]


@dataclass(frozen=True)
class Look:
    """One call of `attend`: who looked, from where, at what."""

    layer: nn.Module
    query: Tensor  # (batch, heads, n, query size)
    key: Tensor  # (batch, kv heads, m, key size)
    score: nn.Module | None
    mask: Mask | None

    def weights(self) -> Tensor:
        """The weights (batch, heads, n, m) of this look, computed now."""
        return weights(self.query, self.key, score=self.score, mask=self.mask)


_watchers: ContextVar[tuple[Callable[[Look], None], ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(see: Callable[[Look], None]) -> Iterator[None]:
    """Within this block `see` is told of every look of regard's layers in this thread."""
    token = _watchers.set((*_watchers.get(), see))
    try:
        yield
    finally:
        _watchers.reset(token)


def tell(look: Look) -> None:
    """Tell whoever watches."""
    for see in _watchers.get():
        see(look)


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
    """`attend`, told to whoever watches."""
    tell(Look(layer, query, key, score, mask))
    return attend(query, key, value, score=score, mask=mask, dropout=dropout)
