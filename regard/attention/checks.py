"""Checks of the arguments of `attend` and `weights` that are plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def checked_dropout(dropout: float) -> float:
    """A share of the weights, below 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float):
        raise TypeError(f"dropout: expected a number, got {type(dropout).__name__}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: expected a share from 0 up to, but not including, 1, got {dropout}")
    return float(dropout)


def chosen_indices(name: str, chosen: Sequence[int] | Tensor, limit: int) -> list[int]:
    """Indices as non-negative whole numbers below the limit; negative ones count from the end."""
    if isinstance(chosen, Tensor):
        chosen = chosen.tolist()
    if not isinstance(chosen, Sequence):
        raise TypeError(f"{name}: expected a sequence of whole numbers, got {type(chosen).__name__}")
    for number in chosen:
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name}: expected whole numbers, got {type(number).__name__}")
        if not -limit <= number < limit:
            raise ValueError(f"{name}: expected numbers from {-limit} to {limit - 1}, got {number}")
    return [number % limit for number in chosen]
