"""Where the rows of a batch stand: what every layer of a stack is told besides the rows themselves.

Outside, a batch is padded: ids (batch, n) and lengths. Inside there is no padding: the sequences lie end to end as rows
of one long batch entry, (1, total, size), and the mask `segments` keeps each to itself. Nothing is computed for what
does not exist. In a block only attention looks beyond a row, so nothing else has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.arguments import check_lengths
from regard.attention import Mask, segments
from regard.models.positions import RotaryTable

__all__ = ["PackedBatch", "Places", "pack"]


@dataclass(frozen=True)
class Places:
    """What mixers need to know of their rows (batch, n, size)."""

    mask: Mask | None = None  # whom each row may look at; what was read before counts as keys in front
    turn: RotaryTable | None = None  # rotary positions
    counts: tuple[int, ...] | None = None  # the rows are sequences of these lengths, end to end; None: they are not
    real: Tensor | None = None  # (batch, n): which rows hold a token; None: all of them


@dataclass(frozen=True)
class PackedBatch:
    """A batch laid out for the layers, and the way back."""

    ids: Tensor  # (batch, n), or (1, total) end to end
    positions: Tensor  # the same shape, or (1, n)
    counts: tuple[int, ...] | None
    mask: Mask | None
    index: Tensor | None  # where each row of the total stands in (batch · n)
    shape: tuple[int, int]

    def pick(self, tensor: Tensor) -> Tensor:
        """Another tensor (batch, n, …), laid out in the same way."""
        return tensor if self.index is None else tensor.flatten(0, 1)[self.index].unsqueeze(0)

    def unpack(self, rows: Tensor) -> Tensor:
        """Rows (1, total, size) → (batch, n, size), with zeros where there is no token."""
        if self.index is None:
            return rows
        padded = rows.new_zeros(self.shape[0] * self.shape[1], rows.shape[-1])
        padded = padded.index_copy(0, self.index, rows[0])
        return padded.view(*self.shape, rows.shape[-1])


def pack(ids: Tensor, lengths: Tensor | Sequence[int] | None, name: str = "lengths") -> PackedBatch:
    """A padded batch (batch, n) end to end; as it is where nothing is padded."""
    batch, n = ids.shape
    counts = None if lengths is None else check_lengths(name, lengths, batch, n)
    steps = torch.arange(n, device=ids.device)
    if counts is None or min(counts, default=n) == n:
        return PackedBatch(ids, steps[None], None, None, None, (batch, n))
    real = steps < torch.tensor(counts, device=ids.device)[:, None]  # (batch, n)
    index = real.flatten().nonzero().squeeze(1)  # (total,)
    positions = index % n
    return PackedBatch(ids.flatten()[index][None], positions[None], tuple(counts), segments(counts), index, (batch, n))


def by_sequence(rows: Tensor, counts: Sequence[int], work: Callable[[Tensor], Tensor]) -> Tensor:
    """work((batch, n, size), …) on each sequence of rows (1, total, size) that lie end to end."""
    return torch.cat([work(own) for own in rows.split(list(counts), 1)], 1)
