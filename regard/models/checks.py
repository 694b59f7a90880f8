"""Checks that the models share: sizes before anything is built, ids and lengths before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from regard.attention.layout import shape_text

# Beyond these a config is a mistake, or worse; refusing it takes no memory.
LIMITS = {"layers": 2_048, "decoder_layers": 2_048, "heads": 2_048, "kv_heads": 2_048, "vocab_size": 1 << 24}
LARGEST = 1 << 20


def checked_size(name: str, number: object, limit: int | None = None) -> int:
    """A whole number from 1 up to what anybody could mean."""
    limit = LIMITS.get(name, LARGEST) if limit is None else limit
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name}: expected a whole number, got {type(number).__name__}")
    if not 1 <= number <= limit:
        raise ValueError(f"{name}: expected a number from 1 to {limit}, got {number}")
    return number


def checked_sizes(**sizes: int | None) -> None:
    """The same for several; None is for one that has a default."""
    for name, number in sizes.items():
        if number is not None:
            checked_size(name, number, LIMITS["vocab_size"] if name.endswith("vocab_size") else None)


def checked_positive(name: str, number: object) -> float:
    """A finite number above 0."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{name}: expected a number, got {type(number).__name__}")
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: expected a positive, finite number, got {number}")
    return float(number)


def checked_count(name: str, number: object) -> int:
    """The same as a size, or 0 for none."""
    return 0 if number == 0 and not isinstance(number, bool) else checked_size(name, number)


def checked_choice(name: str, choice: object, choices: Collection[str]) -> str:
    """One of the names in a table."""
    if not isinstance(choice, str) or choice not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(sorted(choices))}, got {choice!r}")
    return choice


def checked_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """Token ids (batch, n), each within the vocabulary."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor of token ids (batch, n), got {type(ids).__name__}")
    if ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name}: expected whole numbers (torch.int64), got dtype {ids.dtype}")
    if ids.dim() != 2:
        raise ValueError(f"{name}: expected shape (batch, n), got {shape_text(ids)}")
    if not ids.shape[1]:
        raise ValueError(f"{name}: expected at least one token in each sequence, got shape {shape_text(ids)}")
    if ids.numel():
        low, high = (int(bound) for bound in ids.aminmax())
        if low < 0 or high >= vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"{name}: expected ids from 0 to {vocab_size - 1}, the model's vocabulary, got {wrong}")


def checked_marks(vocab_size: int, **marks: int | Sequence[int] | None) -> None:
    """Ids with a meaning of their own have to be in the vocabulary as well."""
    for name, mark in marks.items():
        for number in [] if mark is None else [mark] if isinstance(mark, int) else mark:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < vocab_size:
                raise ValueError(f"{name}: expected an id from 0 to {vocab_size - 1}, got {number!r}")


def checked_batch(name: str, rows: Tensor, batch: int, what: str) -> None:
    """As many sequences as something else has."""
    if len(rows) != batch:
        raise ValueError(f"{name}: expected {batch} sequences, as many as {what}, got {len(rows)}")


def checked_lengths(name: str, lengths: Tensor | Sequence[int], batch: int, n: int) -> list[int]:
    """One length for each sequence, from 1 to n."""
    counts = torch.as_tensor(lengths)
    if counts.numel() and (counts.dtype == torch.bool or counts.is_floating_point()):  # an empty list has no type
        raise TypeError(f"{name}: expected whole numbers, got dtype {counts.dtype}")
    if tuple(counts.shape) != (batch,):
        raise ValueError(f"{name}: expected shape ({batch},), one for each sequence, got {shape_text(counts)}")
    found: list[int] = counts.tolist()
    for number in found:
        if not 1 <= number <= n:
            raise ValueError(f"{name}: expected lengths from 1 to {n}, got {number}")
    return found
