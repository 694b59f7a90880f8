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

__all__ = ["Cache", "Context", "KVBuffer", "KVCache", "LayerState"]

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


class KVBuffer:
    """Rows (batch, heads, n, size) that grow at their end without being copied each time, and still are a value.

    Appending writes behind the end of this value, in a buffer that it shares with its continuation. A second append to
    the same value finds that range taken, and copies.
    """

    def __init__(self, rows: Tensor, buffer: _Buffer | None = None) -> None:
        self.rows = rows
        self._buffer = buffer

    def append(self, more: Tensor) -> KVBuffer:
        """A buffer with more rows (batch, heads, n, size) at the end."""
        if torch.is_grad_enabled():
            return KVBuffer(torch.cat([self.rows, more], -2))  # what autograd has saved must not be overwritten
        start, stop = self.rows.shape[-2], self.rows.shape[-2] + more.shape[-2]
        buffer = self._buffer
        locked = buffer is not None and buffer.rows.is_inference() and not torch.is_inference_mode_enabled()
        if buffer is None or locked or not buffer.claim(start, stop):
            buffer = _Buffer(more.new_empty(*more.shape[:-2], max(2 * start, stop + SPARE), more.shape[-1]), stop)
            buffer.rows[..., :start, :] = self.rows
        buffer.rows[..., start:stop, :] = more
        return KVBuffer(buffer.rows[..., :stop, :], buffer)

    def select(self, rows: Tensor) -> KVBuffer:
        """These entries of the batch, in this order."""
        if self._buffer is None:
            return KVBuffer(self.rows.index_select(0, rows))
        # With spare columns again, so that the next append is not one more copy; they are not copied themselves.
        count, shape = self.rows.shape[-2], (len(rows), *self._buffer.rows.shape[1:])
        buffer = _Buffer(self.rows.new_empty(shape), count)
        return KVBuffer(torch.index_select(self.rows, 0, rows, out=buffer.rows[..., :count, :]), buffer)


class _Buffer:
    """Memory for rows, and how much of it is written."""

    def __init__(self, rows: Tensor, used: int) -> None:
        self.rows, self.used, self.lock = rows, used, threading.Lock()

    def claim(self, start: int, stop: int) -> bool:
        """Reserve the columns from start to stop, if they are free and there is room."""
        with self.lock:
            free = self.used == start and stop <= self.rows.shape[-2]
            self.used = stop if free else self.used
        return free


class KVCache:
    """Keys and values of one attention layer, (batch, kv heads, m, head size) each; they grow together."""

    def __init__(self, keys: Tensor, values: Tensor, buffer: KVBuffer | None = None) -> None:
        self.keys, self.values = keys, values
        self._buffer = buffer  # both side by side, (batch, 2 · kv heads, m, head size), once they have grown

    @classmethod
    def _of(cls, buffer: KVBuffer) -> KVCache:
        keys, values = buffer.rows.chunk(2, 1)
        return cls(keys, values, buffer)

    @property
    def batch(self) -> int:
        return len(self.keys)

    def append(self, keys: Tensor, values: Tensor) -> KVCache:
        """A cache with more columns."""
        buffer = self._buffer or KVBuffer(torch.cat([self.keys, self.values], 1))
        return self._of(buffer.append(torch.cat([keys, values], 1)))

    def select(self, rows: Tensor) -> KVCache:
        if self._buffer is None:
            return KVCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))
        return self._of(self._buffer.select(rows))


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
    cache: Cache | None  # of the sequences that fit, in their order; None: none does

    @classmethod
    def of(cls, ids: Tensor, lengths: Sequence[int], max_positions: int, cache: Cache) -> Context:
        """After prompts (batch, n) that fit, padded on the right."""
        shifts = ids.shape[1] - torch.tensor(lengths, dtype=torch.long, device=ids.device)[:, None]
        columns = (torch.arange(ids.shape[1], device=ids.device) - shifts).clamp(min=0)  # (batch, n)
        return cls(ids.gather(1, columns), tuple(lengths), max_positions, cache)

    def fitting(self) -> list[int]:
        """The sequences that are seen from their beginning."""
        return [row for row, length in enumerate(self.lengths) if length <= self.max_positions]

    def append(self, ids: Tensor) -> Context:
        """With more tokens (batch, n). The cache does not hold them yet, and has lost the sequences that do not fit."""
        lengths = tuple(length + ids.shape[1] for length in self.lengths)
        seen = torch.cat([self.ids, ids], 1)[:, -self.max_positions :]
        after = Context(seen, lengths, self.max_positions, None)
        return after._with_cache_of(self, after.fitting())

    def select(self, rows: Tensor) -> Context:
        """These sequences, in this order."""
        chosen = rows.tolist()
        lengths = tuple(self.lengths[row] for row in chosen)
        selected = Context(self.ids.index_select(0, rows), lengths, self.max_positions, None)
        return selected._with_cache_of(self, [chosen[row] for row in selected.fitting()])

    def _with_cache_of(self, other: Context, rows: list[int]) -> Context:
        """With those rows of another one's cache."""
        if other.cache is None or not rows:
            return self
        places = {row: place for place, row in enumerate(other.fitting())}
        if rows == list(places):
            return replace(self, cache=other.cache)
        chosen = torch.tensor([places[row] for row in rows], device=self.ids.device)
        return replace(self, cache=other.cache.select(chosen))
