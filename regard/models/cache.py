"""What a decoder has read so far, as a value: passed in, passed out, never hidden in a module.

    rows, cache = model.extend(ids, cache)      # the old cache is still what it was, and can be continued otherwise

Keys and values of the batch lie in columns, in the order of reading. Sequences of different lengths leave columns that
nobody looks at, on the left or on the right: `real` says which ones count, `positions` which place each one has.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Cache", "KVBuffer", "KVCache", "Memory"]

ROOM = 64  # columns that a growing buffer has to spare at first


class Memory(Protocol):
    """What one layer keeps of the rows it has read: keys and values, a hidden state, the last few rows."""

    @property
    def batch(self) -> int:
        """Of how many sequences."""
        ...

    def select(self, rows: Tensor) -> Memory:
        """Of these sequences, in this order: for beams, and for batches that lose their finished sequences."""
        ...


class KVBuffer:
    """Rows (batch, heads, n, size) that grow at their end without being copied each time, and still are a value.

    Appending writes behind the end of this value, in a buffer that it shares with its continuation. Whoever appends to
    the same value a second time finds that place taken, and gets a copy.
    """

    def __init__(self, rows: Tensor, buffer: _Buffer | None = None) -> None:
        self.rows = rows
        self._buffer = buffer

    def append(self, more: Tensor) -> KVBuffer:
        if torch.is_grad_enabled():
            return KVBuffer(torch.cat([self.rows, more], -2))  # what autograd remembers must not be written over
        start, stop = self.rows.shape[-2], self.rows.shape[-2] + more.shape[-2]
        buffer = self._buffer
        locked = buffer is not None and buffer.rows.is_inference() and not torch.is_inference_mode_enabled()
        if buffer is None or locked or not buffer.take(start, stop):
            buffer = _Buffer(more.new_empty(*more.shape[:-2], max(2 * start, stop + ROOM), more.shape[-1]), stop)
            buffer.rows[..., :start, :] = self.rows
        buffer.rows[..., start:stop, :] = more
        return KVBuffer(buffer.rows[..., :stop, :], buffer)

    def select(self, rows: Tensor) -> KVBuffer:
        if self._buffer is None:
            return KVBuffer(self.rows.index_select(0, rows))
        count = self.rows.shape[-2]  # room to grow comes along, so that the next row is not one more copy
        buffer = _Buffer(self._buffer.rows.index_select(0, rows), count)
        return KVBuffer(buffer.rows[..., :count, :], buffer)


class _Buffer:
    """Room for rows, and how much of it is written."""

    def __init__(self, rows: Tensor, used: int) -> None:
        self.rows, self.used, self.lock = rows, used, threading.Lock()

    def take(self, start: int, stop: int) -> bool:
        """Claim the place from start to stop, if nobody has and there is room."""
        with self.lock:
            free = self.used == start and stop <= self.rows.shape[-2]
            self.used = stop if free else self.used
        return free


class KVCache:
    """Keys and values of one attention layer, (batch, kv heads, m, head size) each; they grow together."""

    def __init__(self, keys: Tensor, values: Tensor, both: KVBuffer | None = None) -> None:
        self.keys, self.values = keys, values
        self._both = both  # side by side, (batch, 2 · kv heads, m, head size), once they have grown

    @classmethod
    def _of(cls, both: KVBuffer) -> KVCache:
        keys, values = both.rows.chunk(2, 1)
        return cls(keys, values, both)

    @property
    def batch(self) -> int:
        return len(self.keys)

    def append(self, keys: Tensor, values: Tensor) -> KVCache:
        both = self._both or KVBuffer(torch.cat([self.keys, self.values], 1))
        return self._of(both.append(torch.cat([keys, values], 1)))

    def select(self, rows: Tensor) -> KVCache:
        if self._both is None:
            return KVCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))
        return self._of(self._both.select(rows))


@dataclass(frozen=True)
class Cache:
    """All layers' memories, and what the columns are."""

    layers: tuple[Memory, ...]
    positions: Tensor  # (batch or 1, m): the place of each column in its sequence
    real: Tensor | None = None  # (batch, m): which columns hold a token; None: all
    counts: Tensor = field(default_factory=lambda: torch.zeros(1, 1, dtype=torch.long))  # (batch or 1, 1): tokens read

    @property
    def batch(self) -> int:
        """How many sequences were read."""
        return self.layers[0].batch

    @property
    def columns(self) -> int:
        return self.positions.shape[-1]

    def select(self, rows: Tensor) -> Cache:
        """Of these sequences, in this order."""
        positions, counts = (
            own if len(own) == 1 else own.index_select(0, rows) for own in (self.positions, self.counts)
        )
        real = None if self.real is None else self.real.index_select(0, rows)
        return Cache(tuple(layer.select(rows) for layer in self.layers), positions, real, counts)
