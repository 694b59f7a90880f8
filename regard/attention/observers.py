"""How attention weights leave a model: observers are called with an `AttentionCall` whenever attention is computed.

`attend` and regard's layers notify them; for attention that other libraries compute, view/intercept.py does. Weights
are computed only where an observer asks for them, and nothing that the model computes changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from regard.attention.masks import Mask
from regard.attention.position_masks import differences

if TYPE_CHECKING:
    from regard.attention.summary import Summary


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
    value, output: (batch, heads, m, size) and (batch, heads, n, size), as far as known; values may have fewer heads
    scores: what `known` was made of, masked · sink: (batch, heads, n), what went to a sink beside `known`
    causal: whether no query may attend to a later key; None: the weights tell
    positions, key_positions: of the queries and keys in their sequences; None: 0, 1, 2 …, as far as known
    index: who has counted, and how many calls of the module came before; None: nobody
    watch: how to be called with the gradient of the weights, where that is not simply by the output's
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
    value: Tensor | None = None
    output: Tensor | None = None
    scores: Tensor | None = None
    sink: Tensor | None = None
    causal: bool | None = None
    positions: Sequence[int] | None = None
    key_positions: Sequence[int] | None = None
    index: tuple[int, int] | None = None
    watch: Callable[[Callable[[Tensor], None]], None] | None = None

    @property
    def heads(self) -> int:
        """How many heads there are; queries of up to three dimensions have one."""
        if self.known is not None:
            return int(self.known.shape[1])
        return int(self.query.shape[-3]) if self.query.dim() > 3 else 1

    @property
    def queries(self) -> int:
        """How many queries there are; of packed sequences, those of the longest."""
        sequences = self._sequences
        if self.known is not None:
            return int(self.known.shape[2])
        return int(self.query.shape[-2]) if sequences is None else max(differences(sequences[0]), default=0)

    def weights(self, queries: Indices = None, heads: Indices = None) -> Tensor:
        """The weights (batch, heads, n, m), of all or some queries and heads, computed now and without gradients.

        Sequences that are packed end to end come as the padded batch that they were, with zeros for padding.
        Computing them notifies no observer.
        """
        sequences = self._sequences
        with _silenced(_observers), torch.no_grad():
            if sequences is None:
                return self._weights(queries, heads)
            return self._unpacked(*sequences, range(self.queries) if queries is None else queries, heads)

    def live_weights(self) -> Tensor:
        """The weights (batch, heads, n, m) through which gradients pass. Computing them notifies no observer."""
        with _silenced(_observers, _editors):
            return self._computed()

    @property
    def packed(self) -> bool:
        """Whether sequences lie end to end, without padding."""
        return self._sequences is not None

    def summary(self, queries: Indices = None, heads: Indices = None) -> Summary:
        """What the weights amount to, (batch, heads, …), without keeping them."""
        from regard.attention.summary import of_weights, summarize  # which import this module

        with _silenced(_observers), torch.no_grad():
            if self.known is not None or self.packed or queries is not None or heads is not None:
                scores = None if self.scores is None else pick(self.scores, queries, heads)
                return of_weights(self.weights(queries, heads), scores)
            whole = summarize(self.query, self.key, score=self.score, mask=self.mask, normalizer=self.normalizer)
            return whole.with_heads(self.query.dim())

    def sink_of(self, queries: Indices = None, heads: Indices = None) -> Tensor | None:
        """What went to a sink, (batch, heads, n)."""
        return None if self.sink is None else pick(self.sink, queries, heads).clone()

    def operands(self, queries: Indices = None, heads: Indices = None) -> dict[str, Tensor]:
        """Copies of query, key, value and output, (batch, heads, n or m, size) each, as far as they are known."""
        if self._sequences is not None:
            return {}
        copies = {}
        for name, rows in (("query", queries), ("key", None), ("value", None), ("output", queries)):
            tensor: Tensor | None = getattr(self, name)
            if tensor is not None and tensor.shape[-1]:
                copies[name] = pick(self.for_each_head(tensor.detach()), rows, heads).clone()
        return copies

    def for_each_head(self, tensor: Tensor) -> Tensor:
        """(batch, heads, rows, size), with heads that are shared repeated."""
        folded = _with_heads(tensor)
        return folded.repeat_interleave(self.heads // folded.shape[1], 1) if tensor.dim() > 3 else folded

    def on_gradient(self, receive: Callable[[Tensor], None]) -> None:
        """Call `receive` with the gradient of the weights (batch, heads, n, m) when a backward pass computes it."""
        if self.watch is not None:
            self.watch(receive)
        elif self.output is not None and self.value is not None and self.output.requires_grad:
            others = replace(self, output=None)  # a hook that holds its own tensor would never be freed
            self.output.register_hook(lambda gradient: receive(others.weights_gradient(gradient)))

    def weights_gradient(self, gradient: Tensor) -> Tensor:
        """d loss / d w_ij = d loss / d output_i · value_j, from the gradient of the output."""
        assert self.value is not None
        return self.for_each_head(gradient.detach()) @ self.for_each_head(self.value.detach()).mT

    @property
    def _sequences(self) -> tuple[list[int], list[int]] | None:
        """Where packed sequences end, among the queries and among the keys; None: they are not packed."""
        return None if self.mask is None else self.mask.sequences

    def _weights(self, queries: Indices, heads: Indices) -> Tensor:
        if self.known is not None:
            return pick(self.known, queries, heads).clone()  # the model may write into it
        return self._computed(rows=queries, heads=heads if self.query.dim() > 3 else None)

    def _computed(self, **chosen: Indices) -> Tensor:
        from regard.attention.api import weights  # which imports this module

        options: dict[str, Any] = {"score": self.score, "mask": self.mask, "normalizer": self.normalizer, **chosen}
        return _with_heads(weights(self.query, self.key, **options))

    def _unpacked(self, ends: list[int], key_ends: list[int], queries: Sequence[int], heads: Indices) -> Tensor:
        counts, key_counts = differences(ends), differences(key_ends)
        batch = []
        for end, count, key_end, key_count in zip(ends, counts, key_ends, key_counts, strict=True):
            rows = [row for row, query in enumerate(queries) if query < count]
            block = self._weights([end - count + queries[row] for row in rows], heads)  # (1, heads, rows, all keys)
            padded = block.new_zeros(*block.shape[:2], len(queries), max(key_counts))
            padded[:, :, rows, :key_count] = block[..., key_end - key_count : key_end]
            batch.append(padded)
        return torch.cat(batch)


def pick(tensor: Tensor, queries: Indices, heads: Indices) -> Tensor:
    """Some heads and queries of (batch, heads, n, …)."""
    chosen = tensor if heads is None else tensor[:, list(heads)]
    return chosen if queries is None else chosen[:, :, list(queries)]


def _with_heads(tensor: Tensor) -> Tensor:
    """(…, heads, rows, size) → (batch, heads, rows, size); tensors of up to three dimensions have one head."""
    return tensor.flatten(0, -4) if tensor.dim() > 3 else tensor.reshape(-1, 1, *tensor.shape[-2:])


Observer = Callable[[AttentionCall], object]
Part = Literal["weights", "output"]
Editor = Callable[[AttentionCall, Part], AttentionCall]  # a call → the call with another output, and perhaps weights
_editors: ContextVar[tuple[Editor, ...]] = ContextVar("editors", default=())
_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())
_blocks = 0  # how many blocks of `observe` are open, in all threads: a number, unlike a ContextVar, can be compiled
_counting = Lock()


def observe(observer: Observer) -> AbstractContextManager[None]:
    """Within this block the observer is called with every AttentionCall of this thread, as editors have left it."""
    return _opened(_observers, observer)


def edit(editor: Editor) -> AbstractContextManager[None]:
    """Within this block what the editor makes of an AttentionCall of this thread takes its place."""
    return _opened(_editors, editor)


@contextmanager
def _opened(those: ContextVar[tuple[Any, ...]], one: Any) -> Iterator[None]:
    global _blocks
    token = those.set((*those.get(), one))
    with _counting:
        _blocks += 1
    try:
        yield
    finally:
        with _counting:
            _blocks -= 1
        those.reset(token)


@contextmanager
def _silenced(*those: ContextVar[tuple[Any, ...]]) -> Iterator[None]:
    """Without the observers or editors of this thread."""
    tokens = [(one, one.set(())) for one in those]
    try:
        yield
    finally:
        for one, token in tokens:
            one.reset(token)


def edited(call: AttentionCall) -> AttentionCall:
    """A call as the editors of this thread leave it: all edit the weights before any edits what these average."""
    parts: tuple[Part, ...] = ("weights", "output")
    for part in parts:
        for editor in _editors.get():
            call = editor(call, part)
    return call


def has_editors() -> bool:
    """Whether there is an editor in this thread."""
    return _blocks > 0 and bool(_editors.get())  # in this order, for a ContextVar cannot be compiled


def notify(
    module: nn.Module | None,
    query: Tensor,
    key: Tensor,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    normalizer: nn.Module | None = None,
    *,
    cross: bool | None = None,
    value: Tensor | None = None,
    output: Tensor,
    first: int | None = None,
) -> Tensor:
    """Call editors and observers, if there are any; the output, or what editors have made of it.

    first: position of the first query in its sequence
    """
    if not _blocks or not (_observers.get() or _editors.get()):
        return output
    places = None if first is None else range(first, first + query.shape[-2])
    options: dict[str, Any] = {"cross": cross, "value": value, "output": output, "positions": places}
    call = edited(AttentionCall(module, query, key, score, mask, normalizer, **options))
    for observer in _observers.get():
        observer(call)
    assert call.output is not None
    return call.output
