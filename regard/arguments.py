"""Checks of arguments, before anything is computed with them.

Each raises TypeError or ValueError with one shape of message: the argument, what was expected, what came.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

_is_mapped = torch._C._functorch.is_functorch_wrapped_tensor
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Beyond these a config is a mistake, or worse; refusing it takes no memory.
LIMITS = {"layers": 2_048, "decoder_layers": 2_048, "heads": 2_048, "kv_heads": 2_048, "vocab_size": 1 << 24}
LARGEST = 1 << 20


def shape_text(tensor: Tensor) -> str:
    """A shape as a reader expects it: (2, 3)."""
    return str(tuple(tensor.shape))


def has_values(*tensors: Tensor) -> bool:
    """Whether tensors can be asked for their values: not while compiled, exported or mapped, nor if only a shape."""
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:  # a decoder asks this for every product
        kind = type(tensor)
        if (kind is not Tensor and kind is not Parameter) or tensor.is_meta or _is_mapped(tensor):
            return False
    return True


# ------------------------------------------------------------------------------------------------------------- numbers


def check_size(name: str, number: object, limit: int | None = None) -> int:
    """A whole number from 1 up to what anybody could mean."""
    limit = LIMITS.get(name, LARGEST) if limit is None else limit
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name}: expected a whole number, got {type(number).__name__}")
    if not 1 <= number <= limit:
        raise ValueError(f"{name}: expected a number from 1 to {limit}, got {number}")
    return number


def check_sizes(**sizes: int | None) -> None:
    """The same for several; None is for one that has a default."""
    for name, number in sizes.items():
        if number is not None:
            check_size(name, number, LIMITS["vocab_size"] if name.endswith("vocab_size") else None)


def check_count(name: str, number: object) -> int:
    """The same as a size, or 0 for none."""
    return 0 if number == 0 and not isinstance(number, bool) else check_size(name, number)


def check_positive(name: str, number: object) -> float:
    """A finite number above 0."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{name}: expected a number, got {type(number).__name__}")
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: expected a positive, finite number, got {number}")
    return float(number)


def check_dropout(dropout: float) -> float:
    """A share of the weights, below 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float):
        raise TypeError(f"dropout: expected a number, got {type(dropout).__name__}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: expected a share from 0 up to, but not including, 1, got {dropout}")
    return float(dropout)


def check_indices(name: str, chosen: Sequence[int] | Tensor, limit: int) -> list[int]:
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


def check_choice(name: str, choice: object, choices: Collection[str]) -> str:
    """One of the names in a table."""
    if not isinstance(choice, str) or choice not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(sorted(choices))}, got {choice!r}")
    return choice


# ------------------------------------------------------------------------------------------------------------- tensors


def check_tensor(name: str, tensor: object, expected: str) -> None:
    """A dense floating-point tensor of at least two dimensions."""
    if type(tensor).__module__ == "numpy":
        raise TypeError(
            f"{name}: expected a torch.Tensor {expected}, got numpy.{type(tensor).__name__}; "
            "torch.from_numpy(array) makes one of it"
        )
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor {expected}, got {type(tensor).__name__}")
    check_not_nested(name, tensor, expected)
    if tensor.dtype not in FLOATS:
        raise TypeError(f"{name}: expected a floating-point tensor {expected}, got dtype {tensor.dtype}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name}: expected a dense tensor {expected}, got layout {tensor.layout}")
    if tensor.dim() < 2:
        raise ValueError(f"{name}: expected at least two dimensions {expected}, got shape {shape_text(tensor)}")


def check_not_nested(name: str, tensor: Tensor, expected: str) -> None:
    """Sequences of different lengths have masks here."""
    if tensor.is_nested:
        raise TypeError(
            f"{name}: expected a dense tensor {expected}, got a nested one; pad sequences of different lengths with "
            "torch.nested.to_padded_tensor and pass mask=lengths(…), or their values() and mask=segments(…)"
        )


def check_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """Token ids (batch, n), each within the vocabulary, if they have values."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor of token ids (batch, n), got {type(ids).__name__}")
    if ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name}: expected whole numbers (torch.int64), got dtype {ids.dtype}")
    if ids.dim() != 2:
        raise ValueError(f"{name}: expected shape (batch, n), got {shape_text(ids)}")
    if not ids.shape[1]:
        raise ValueError(f"{name}: expected at least one token in each sequence, got shape {shape_text(ids)}")
    if has_values(ids) and ids.numel():
        low, high = (int(bound) for bound in ids.aminmax())
        if low < 0 or high >= vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"{name}: expected ids from 0 to {vocab_size - 1}, the model's vocabulary, got {wrong}")


def check_marks(vocab_size: int, **marks: int | Sequence[int] | None) -> None:
    """Ids with a meaning of their own (bos, eos …) have to be in the vocabulary as well."""
    for name, mark in marks.items():
        for number in [] if mark is None else [mark] if isinstance(mark, int) else mark:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < vocab_size:
                raise ValueError(f"{name}: expected an id from 0 to {vocab_size - 1}, got {number!r}")


def check_batch(name: str, rows: Tensor, batch: int, what: str) -> None:
    """As many sequences as something else has."""
    if rows.shape[0] != batch:  # len() would fix a size that export leaves open
        raise ValueError(f"{name}: expected {batch} sequences, as many as {what}, got {rows.shape[0]}")


def check_lengths(name: str, lengths: Tensor | Sequence[int], batch: int, n: int) -> Tensor:
    """One length for each sequence, from 1 to n, if they have values: a copy, (batch,)."""
    counts = torch.as_tensor(lengths)
    if counts.numel() and (counts.dtype == torch.bool or counts.is_floating_point()):  # an empty list has no type
        raise TypeError(f"{name}: expected whole numbers, got dtype {counts.dtype}")
    if counts.dim() != 1 or counts.shape[0] != batch:
        raise ValueError(f"{name}: expected shape ({batch},), one for each sequence, got {shape_text(counts)}")
    if not has_values(counts):
        return counts.long()
    numbers = counts.tolist()
    for number in numbers:
        if not 1 <= number <= n:
            raise ValueError(f"{name}: expected lengths from 1 to {n}, got {number}")
    return torch.tensor(numbers, dtype=torch.long)
