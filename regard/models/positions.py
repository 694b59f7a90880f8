"""Positions. Attention takes its keys as a set: whoever cares about their order has to say where each one stands.

added to the vectors:   sinusoidal (waves of growing length), learned (one vector for each place)
turned into them:       rotary (queries and keys are rotated by their place, so that scores see the difference)
added to the scores:    ALiBi (the farther, the lower)
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["LearnedPositions", "RotaryTable", "alibi_slopes", "apply_rotary", "rotary", "sinusoidal"]


def sinusoidal(positions: Tensor, size: int, *, halves: bool = False) -> Tensor:
    """Waves of growing length: entries 2i and 2i + 1 are sin and cos of position / 10000^(2i/size). (…) → (…, size).

    An odd size ends with a sine. With `halves` the sines come first and the cosines after them, as in Marian.
    """
    # In float64, which not every device has: so on the CPU.
    entry = torch.arange(0, size, 2, dtype=torch.float64, device="cpu")
    angle = positions.cpu().double().unsqueeze(-1) / 10_000 ** (entry / size)  # (…, half of the size, rounded up)
    sine, cosine = angle.sin(), angle.cos()[..., : size // 2]
    waves = torch.cat([sine, cosine], -1)
    if not halves:
        waves[..., 0::2], waves[..., 1::2] = sine, cosine
    return waves.float().to(positions.device)


class LearnedPositions(nn.Embedding):
    """One learned vector for each place, up to a maximum."""

    def forward(self, positions: Tensor) -> Tensor:
        last = int(positions.max()) if positions.numel() else 0
        if last >= self.num_embeddings:
            raise ValueError(
                f"ids: expected at most {self.num_embeddings} positions, the model's max_positions, got {last + 1}"
            )
        return super().forward(positions)


class RotaryTable(NamedTuple):
    """By how much each row is rotated: cosines, and sines with their signs, (batch or 1, 1, n, head size)."""

    cosine: Tensor
    sine: Tensor


def rotary(positions: Tensor, head_size: int, base: float = 10_000.0) -> RotaryTable:
    """The rotations of places (batch or 1, n): pair i turns by position / base^(2i/head size)."""
    rows = 1 << int(positions.max()).bit_length()
    return RotaryTable(
        *(table.to(positions.device)[positions].unsqueeze(-3) for table in _turns(rows, head_size, base))
    )


@functools.lru_cache(maxsize=8)
def _turns(rows: int, head_size: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of the first places, (rows, head size)."""
    with torch.inference_mode(False):  # what is kept from here may serve training later
        entry = torch.arange(0, head_size, 2, dtype=torch.float64, device="cpu")
        angle = torch.arange(rows, device="cpu")[:, None] / base ** (entry / head_size)
        cosine, sine = angle.cos(), angle.sin()
        return torch.cat([cosine, cosine], -1).float(), torch.cat([-sine, sine], -1).float()


def apply_rotary(rows: Tensor, turn: RotaryTable) -> Tensor:
    """Rows (batch, heads, n, head size), entry i and entry i + half of each rotated together."""
    swapped = rows.roll(rows.shape[-1] // 2, -1)
    return torch.addcmul(rows * turn.cosine.to(rows.dtype), swapped, turn.sine.to(rows.dtype))


def alibi_slopes(heads: int) -> Tensor:
    """How fast each head's scores fall with distance: 2^(−8/heads), 2^(−16/heads), … for a power of two.

    Other numbers of heads take the slopes of the power of two below, and in between every other one of the next.
    """
    below = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / below) for head in range(below)]
    between = [2 ** (-4 * (head + 1) / below) for head in range(0, 2 * below, 2)]
    return torch.tensor((slopes + between)[:heads])
