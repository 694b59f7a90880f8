"""What a decoder has read so far, as a value: passed in, passed out, not hidden in a module.

    rows, cache = model.extend(ids, cache)      # the old cache is unchanged, and can be continued in another way

Keys and values of the batch lie in columns, in the order of reading. Sequences of different lengths leave columns of
padding, on the left or on the right: `valid` says which columns hold a token, `positions` which position each has.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

SPARE = 64  # columns that a new buffer has beyond those that are needed


class LayerState(Protocol):
    """What one layer keeps of the rows it has read: keys and values, a hidden state, the last few rows."""

    @property
    def batch(self) -> int:
        """The number of sequences."""
        ...

    def select(self, rows: Tensor) -> LayerState:
        """These sequences, in this order: for beams, and for batches that lose their finished sequences."""
        ...


class KVCache:
    """Keys and values of one attention layer, (batch, kv heads, m, head size) each, which grow without being copied.

    Appending writes behind the end of this value, in a buffer that it shares with its continuation. A second append to
    the same value finds that range taken, and copies.
    """

    def __init__(self, keys: Tensor, values: Tensor, buffer: _Buffer | None = None) -> None:
        self.keys, self.values = keys, values
        self._buffer = buffer  # where both lie, once they have grown

    @property
    def batch(self) -> int:
        return len(self.keys)

    def append(self, keys: Tensor, values: Tensor) -> KVCache:
        """A cache with more columns."""
        if torch.is_grad_enabled():  # what autograd has saved must not be overwritten
            return KVCache(torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2))
        (batch, heads, start, size), buffer = self.keys.shape, self._buffer
        stop = start + keys.shape[-2]
        locked = buffer is not None and buffer.rows.is_inference() and not torch.is_inference_mode_enabled()
        if buffer is None or locked or not buffer.claim(start, stop):
            buffer = _Buffer(keys.new_empty(batch, 2 * heads, max(2 * start, stop + SPARE), size), stop)
            buffer.rows.narrow(2, 0, start).copy_(torch.cat([self.keys, self.values], 1))
        buffer.rows.narrow(2, start, stop - start).copy_(torch.cat([keys, values], 1))
        return buffer.first(stop)

    def select(self, rows: Tensor) -> KVCache:
        if self._buffer is None:
            return KVCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))
        # With spare columns again, so that the next append is not one more copy; they are not copied themselves, and
        # few: memory that is touched for the first time is slow.
        count, before = self.keys.shape[-2], self._buffer.rows
        columns = count + SPARE // 8
        buffer = _Buffer(before.new_empty(len(rows), before.shape[1], columns, before.shape[3]), count)
        torch.index_select(before.narrow(2, 0, count), 0, rows, out=buffer.rows.narrow(2, 0, count))
        return buffer.first(count)


class _Buffer:
    """Memory for keys and values side by side, (batch, 2 · kv heads, columns, head size), and how much is written."""

    def __init__(self, rows: Tensor, used: int) -> None:
        self.rows, self.used, self.lock = rows, used, threading.Lock()

    def claim(self, start: int, stop: int) -> bool:
        """Reserve the columns from start to stop, if they are free and there is room."""
        with self.lock:
            free = self.used == start and stop <= self.rows.shape[-2]
            self.used = stop if free else self.used
        return free

    def first(self, count: int) -> KVCache:
        """The keys and values in the first columns."""
        keys, values = self.rows.narrow(2, 0, count).chunk(2, 1)
        return KVCache(keys, values, self)


@dataclass(frozen=True)
class Cache:
    """The states of all layers, and what the columns are."""

    layers: tuple[LayerState, ...]
    positions: Tensor  # (batch or 1, m): the position of each column in its sequence
    valid: Tensor | None = None  # (batch, m): which columns hold a token; None: all
    lengths: Tensor = field(default_factory=lambda: torch.zeros(1, 1, dtype=torch.long))  # (batch or 1, 1): tokens read

    @property
    def batch(self) -> int:
        """The number of sequences."""
        return self.layers[0].batch

    @property
    def columns(self) -> int:
        """The number of columns, padding included."""
        return self.positions.shape[-1]

    def select(self, rows: Tensor) -> Cache:
        """These sequences, in this order."""

        def chosen(tensor: Tensor) -> Tensor:
            return tensor if len(tensor) == 1 else tensor.index_select(0, rows)

        valid = None if self.valid is None else self.valid.index_select(0, rows)
        layers = tuple(layer.select(rows) for layer in self.layers)
        return Cache(layers, chosen(self.positions), valid, chosen(self.lengths))


@dataclass(frozen=True)
class Context:
    """What a language model sees while it generates: the last tokens of each sequence, as many as it has positions for.

    A sequence that has more tokens than that is read again for each new one. Nothing of a cache could be kept: when the
    oldest token leaves, the others move to other positions, and what upper layers hold of them depends on it.
    """

    ids: Tensor  # (batch, n): the last tokens, at the end of each row; short sequences have anything in front
    lengths: tuple[int, ...]  # of the sequences, with the tokens that are not seen any more
    max_positions: int
    cache: Cache | None  # what it holds of sequences that do not fit means nothing; None: none fits

    @classmethod
    def of(cls, ids: Tensor, lengths: Sequence[int], max_positions: int, cache: Cache) -> Context:
        """After prompts (batch, n) that fit, padded on the right."""
        shifts = ids.shape[1] - torch.tensor(lengths, dtype=torch.long, device=ids.device)[:, None]
        columns = (torch.arange(ids.shape[1], device=ids.device) - shifts).clamp(min=0)  # (batch, n)
        return cls(ids.gather(1, columns), tuple(lengths), max_positions, cache)

    @property
    def too_long(self) -> list[int]:
        """The sequences that are not seen from their beginning."""
        return [row for row, length in enumerate(self.lengths) if length > self.max_positions]

    def append(self, ids: Tensor) -> Context:
        """With more tokens (batch, n), which the cache does not hold yet."""
        lengths = tuple(length + ids.shape[1] for length in self.lengths)
        last = torch.cat([self.ids, ids], 1)[:, -self.max_positions :]
        after = Context(last, lengths, self.max_positions, self.cache)
        too_long = len(after.too_long)
        if not too_long or self.cache is None:
            return after
        if too_long == len(lengths):
            return replace(after, cache=None)
        room = self.max_positions - ids.shape[1]  # sequences that do not fit stay at the last position
        return replace(after, cache=replace(self.cache, lengths=self.cache.lengths.clamp(max=room)))

    def select(self, rows: Tensor) -> Context:
        """These sequences, in this order."""
        lengths = tuple(self.lengths[row] for row in rows.tolist())
        cache = None if self.cache is None else self.cache.select(rows)
        return Context(self.ids.index_select(0, rows), lengths, self.max_positions, cache)
