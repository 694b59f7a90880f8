"""Batches without padding, and what the layers of a stack know of their rows besides the rows themselves.

Outside, a batch is padded: ids (batch, n) and lengths. Inside, the sequences lie end to end as rows of one long batch
entry, (1, total, size), and the mask `segments` keeps each to itself: nothing is computed for padding. In a block only
the mixer reads other rows, so nothing else has to know.

How long that would be is not known while a call is traced: such a batch stays padded, and the mask `lengths` hides its
padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.arguments import check_lengths, has_values
from regard.attention import Mask, segments
from regard.attention import lengths as valid_lengths
from regard.models.positions import RotaryTable


@dataclass(frozen=True)
class SequenceInfo:
    """What mixers know of their rows (batch, n, size)."""

    mask: Mask | None = None  # which keys each row may attend to; what a cache holds counts as keys in front
    rotary: RotaryTable | None = None  # rotary positions
    lengths: tuple[int, ...] | None = None  # of packed sequences, end to end; None: the rows are not packed
    valid: Tensor | None = None  # (batch, n): which rows hold a token; None: all of them
    first: int | None = None  # the position of the first row after others; None: it is 0, or they are packed


@dataclass(frozen=True)
class PackedBatch:
    """A batch without its padding, and the way back."""

    ids: Tensor  # (batch, n), or (1, total) end to end
    positions: Tensor  # the same shape, or (1, n)
    shape: tuple[int, int]
    info: SequenceInfo  # of its rows; no default: torch.compile knows no constant of this type
    index: Tensor | None = None  # of each packed row in (batch · n); None: nothing is packed

    def pack_like(self, tensor: Tensor) -> Tensor:
        """Another tensor (batch, n, …), packed in the same way."""
        return tensor if self.index is None else tensor.flatten(0, 1)[self.index].unsqueeze(0)

    def unpack(self, rows: Tensor) -> Tensor:
        """Rows (1, total, size) → (batch, n, size), with zeros where there is no token."""
        if self.info.valid is not None:
            return rows.masked_fill(~self.info.valid[..., None], 0)
        if self.index is None:
            return rows
        padded = rows.new_zeros(self.shape[0] * self.shape[1], rows.shape[-1])
        return padded.index_copy(0, self.index, rows[0]).view(*self.shape, rows.shape[-1])


def pack(ids: Tensor, lengths: Tensor | Sequence[int] | None, name: str = "lengths") -> PackedBatch:
    """A padded batch (batch, n) end to end; as it is where nothing is padded."""
    batch, n = ids.shape
    counts = None if lengths is None else check_lengths(name, lengths, batch, n)
    steps = torch.arange(n, device=ids.device)
    if counts is None or (has_values(counts) and bool((counts == n).all())):
        return PackedBatch(ids, steps[None], (batch, n), SequenceInfo())
    valid = steps < counts.to(ids.device)[:, None]  # (batch, n)
    if not has_values(ids, counts):
        return PackedBatch(ids, steps[None], (batch, n), SequenceInfo(valid_lengths(counts), valid=valid))
    index = valid.flatten().nonzero().squeeze(1)  # (total,)
    info = SequenceInfo(segments(counts), lengths=tuple(counts.tolist()))
    return PackedBatch(ids.flatten()[index][None], (index % n)[None], (batch, n), info, index)
