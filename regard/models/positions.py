"""Positions. Attention takes its keys as a set: a model that depends on their order has to say where each one stands.

added to the vectors:     sinusoidal (waves of growing length), learned (one vector for each position)
rotating the vectors:     rotary (queries and keys rotate with their positions, so that scores depend on the difference)
added to the scores:      ALiBi (the farther, the lower)
"""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.arguments import has_values


def sinusoidal(positions: Tensor, size: int, *, halves: bool = False) -> Tensor:
    """Waves of growing length: entries 2i and 2i + 1 are sin and cos of position / 10000^(2i/size). (…) → (…, size).

    An odd size ends with a sine. With `halves` the sines come first and the cosines after them, as in Marian.
    """
    angle = _angles(positions, size)
    sine, cosine = angle.sin(), angle.cos()[..., : size // 2]
    waves = torch.cat([sine, cosine], -1)
    if not halves:
        waves[..., 0::2], waves[..., 1::2] = sine, cosine
    return waves.float().to(positions.device)


def _angles(positions: Tensor, size: int, base: float = 10_000.0) -> Tensor:
    """position / base^(2i/size), (…) → (…, half of the size, rounded up). In float64, so on a device that has it."""
    positions = positions if positions.is_meta else positions.cpu()
    entry = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)
    return positions.double().unsqueeze(-1) / base ** (entry / size)


def check_positions(positions: Tensor | int, max_positions: int) -> None:
    """No more positions than a model can read: so many, or those from 0 to the largest of a tensor.

    Of a tensor without values there are as many as in a row.
    """
    if isinstance(positions, Tensor):
        known = has_values(positions)
        positions = positions.shape[-1] if not known else int(positions.max()) + 1 if positions.numel() else 0
    if positions > max_positions:
        raise ValueError(f"ids: expected at most {max_positions} positions, the model's max_positions, got {positions}")


class LearnedPositions(nn.Embedding):
    """One learned vector for each position, up to the model's max_positions."""

    def forward(self, positions: Tensor) -> Tensor:
        check_positions(positions, self.num_embeddings)
        return super().forward(positions)


def add_positions(rows: Tensor, positions: Tensor, kind: str, learned: LearnedPositions | None) -> Tensor:
    """Rows (batch, n, size) plus the vectors of their positions (batch or 1, n); as they are for other kinds."""
    if learned is not None:
        vectors: Tensor = learned(positions)
        return rows + vectors
    if kind in ("sinusoidal", "sinusoidal_halves"):
        halves = kind == "sinusoidal_halves"
        return rows + sinusoidal(positions, rows.shape[-1], halves=halves).to(rows.dtype)
    return rows


class RotaryTable(NamedTuple):
    """The rotation of each row: cosines, and sines with their signs, (batch or 1, 1, n, head size)."""

    cosine: Tensor
    sine: Tensor


def rotary_table(positions: Tensor, head_size: int, base: float = 10_000.0) -> RotaryTable:
    """The rotations of positions (batch or 1, n): pair i rotates by position / base^(2i/head size)."""
    if has_values(positions):
        first = _first_rotations(1 << int(positions.max()).bit_length(), head_size, base)
        tables = [table.to(positions.device)[positions] for table in first]
    else:
        tables = [table.to(positions.device) for table in _rotations(positions, head_size, base)]
    return RotaryTable(*(table.unsqueeze(-3) for table in tables))


@functools.lru_cache(maxsize=8)
def _first_rotations(rows: int, head_size: int, base: float) -> tuple[Tensor, Tensor]:
    """Those of the first positions, (rows, head size)."""
    with torch.inference_mode(False):  # what is cached here may be used in training later
        return _rotations(torch.arange(rows, device="cpu"), head_size, base)


def _rotations(positions: Tensor, head_size: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of positions (…), each (…, head size)."""
    angle = _angles(positions, head_size, base)
    cosine, sine = angle.cos(), angle.sin()
    return torch.cat([cosine, cosine], -1).float(), torch.cat([-sine, sine], -1).float()


def apply_rotary(rows: Tensor, rotary: RotaryTable) -> Tensor:
    """Rows (batch, heads, n, head size), entry i and entry i + half of each rotated together."""
    swapped = rows.roll(rows.shape[-1] // 2, -1)
    return torch.addcmul(rows * rotary.cosine.to(rows.dtype), swapped, rotary.sine.to(rows.dtype))


def alibi_slopes(heads: int) -> Tensor:
    """How fast each head's scores fall with distance: 2^(−8/heads), 2^(−16/heads), … for a power of two.

    Other numbers of heads take the slopes of the power of two below, and in between every other one of the next.
    """
    below = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / below) for head in range(below)]
    between = [2 ** (-4 * (head + 1) / below) for head in range(0, 2 * below, 2)]
    return torch.tensor((slopes + between)[:heads])
