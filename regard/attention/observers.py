"""How attention weights leave a model: observers are called with an `AttentionCall` whenever attention is computed.

`attend` and regard's layers notify them; for attention that other libraries compute, view/intercept.py does. Weights
are computed only where an observer asks for them, and nothing that the model computes changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock

import torch
from torch import Tensor, nn

from regard.attention.masks import Mask

__all__ = ["AttentionCall", "Observer", "notify", "observe", "observed"]

Indices = Sequence[int] | None  # None: all


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One computation of attention: in which module, from which queries, over which keys.

    module: the module that attends; None: not known
    query, key: (…, n, query size) and (…, m, key size), in layers (batch, heads, …); of size 0 if only `known` is known
    score, mask, normalizer: as `attend` was given them
    cross: whether the keys are of another sequence than the queries; None: not known
    within: path from the module to the part of it that attends, if that part is not called itself
    known: weights (batch, heads, n, m) that the model computed by itself, without any function for attention
    """

    module: nn.Module | None
    query: Tensor
    key: Tensor
    score: nn.Module | None = None
    mask: Mask | None = None
    normalizer: nn.Module | None = None
    cross: bool | None = None
    within: str = ""
    known: Tensor | None = None

    @property
    def heads(self) -> int:
        """How many heads there are; queries of up to three dimensions have one."""
        return int(self.query.shape[-3]) if self.query.dim() > 3 else 1

    @property
    def queries(self) -> int:
        """How many queries there are; of packed sequences, those of the longest."""
        sequences = self._sequences
        return int(self.query.shape[-2]) if sequences is None else max(_counts(sequences[0]), default=0)

    def weights(self, queries: Indices = None, heads: Indices = None) -> Tensor:
        """The weights (batch, heads, n, m), of all or some queries and heads, computed now and without gradients.

        Sequences that are packed end to end come as the padded batch that they were, with zeros for padding.
        Computing them notifies no observer.
        """
        sequences, token = self._sequences, _observers.set(())
        try:
            with torch.no_grad():
                if sequences is None:
                    return self._weights(queries, heads)
                return self._unpacked(*sequences, range(self.queries) if queries is None else queries, heads)
        finally:
            _observers.reset(token)

    @property
    def _sequences(self) -> tuple[list[int], list[int]] | None:
        """Where packed sequences end, among the queries and among the keys; None: they are not packed."""
        return None if self.mask is None else self.mask.sequences

    def _weights(self, queries: Indices, heads: Indices) -> Tensor:
        if self.known is not None:
            chosen = self.known if heads is None else self.known[:, list(heads)]
            return (chosen if queries is None else chosen[:, :, list(queries)]).clone()  # the model may write into it
        from regard.attention.api import weights  # which imports this module

        has_heads = self.query.dim() > 3
        computed = weights(
            self.query,
            self.key,
            score=self.score,
            mask=self.mask,
            normalizer=self.normalizer,
            rows=queries,
            heads=heads if has_heads else None,
        )
        return computed.flatten(0, -4) if has_heads else computed.reshape(-1, 1, *computed.shape[-2:])

    def _unpacked(self, ends: list[int], key_ends: list[int], queries: Sequence[int], heads: Indices) -> Tensor:
        counts, key_counts = _counts(ends), _counts(key_ends)
        batch = []
        for end, count, key_end, key_count in zip(ends, counts, key_ends, key_counts, strict=True):
            rows = [row for row, query in enumerate(queries) if query < count]
            block = self._weights([end - count + queries[row] for row in rows], heads)  # (1, heads, rows, all keys)
            padded = block.new_zeros(*block.shape[:2], len(queries), max(key_counts))
            padded[:, :, rows, :key_count] = block[..., key_end - key_count : key_end]
            batch.append(padded)
        return torch.cat(batch)


def _counts(ends: list[int]) -> list[int]:
    """How long sequences with these ends are."""
    return [end - start for start, end in pairwise([0, *ends])]


Observer = Callable[[AttentionCall], None]
_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())
_blocks = 0  # how many blocks of `observe` are open, in all threads: a number, unlike a ContextVar, can be compiled
_counting = Lock()


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Within this block the observer is called with every AttentionCall of this thread."""
    global _blocks
    token = _observers.set((*_observers.get(), observer))
    with _counting:
        _blocks += 1
    try:
        yield
    finally:
        with _counting:
            _blocks -= 1
        _observers.reset(token)


def observed() -> bool:
    """Whether there is an observer in this thread."""
    return bool(_observers.get())


def notify(
    module: nn.Module | None,
    query: Tensor,
    key: Tensor,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    normalizer: nn.Module | None = None,
    *,
    cross: bool | None = None,
    within: str = "",
    known: Tensor | None = None,
) -> None:
    """Call the observers, if there are any."""
    if not _blocks:
        return
    observers = _observers.get()
    if observers:
        call = AttentionCall(module, query, key, score, mask, normalizer, cross, within, known)
        for observer in observers:
            observer(call)
