"""Masks say what a query may look at. They are objects, never bare tensors, so that no polarity can be guessed wrong.

    keep(t)  drop(t)  bias(t)  lengths(t)  segments(t)  causal()  window(left, right)    a & b: both    a | b: either

A mask is a predicate until something needs it dense: it is written without sizes, and `bind` ties it to the shapes of
one call (bound.py), where a wrong shape, device or length is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.arguments import shape_text
from regard.attention.bound import (
    Bound,
    BoundBand,
    BoundBias,
    BoundBoth,
    BoundEither,
    BoundKeep,
    BoundLengths,
    BoundSegments,
)
from regard.attention.layout import Layout

__all__ = ["Mask", "bias", "causal", "drop", "keep", "lengths", "segments", "window"]


KINDS = "keep, drop, bias, lengths, segments, causal, window"


class Mask:
    """What a query may look at. Build one with keep, lengths, causal …; join them with & and |.

    >>> import regard, torch
    >>> rows = torch.zeros(3, 1)  # alike, so each query shares its weight evenly
    >>> regard.weights(rows, rows, mask=regard.causal() & regard.window(1, 1))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """

    def bind(self, frame: Layout) -> Bound:
        raise NotImplementedError(f"{type(self).__name__} must say how it binds to a Layout")

    @property
    def has_bias(self) -> bool:
        return False

    @property
    def sequences(self) -> tuple[list[int], list[int]] | None:
        """Where sequences that lie end to end have their ends, among the queries and among the keys; None: none do."""
        return None

    def __and__(self, other: object) -> Mask:
        return _Both(_flat(_Both, self) + _flat(_Both, require_mask("&", other)))

    def __or__(self, other: object) -> Mask:
        parts = _flat(_Either, self) + _flat(_Either, require_mask("|", other))
        if any(part.has_bias for part in parts):
            raise TypeError("mask: | joins masks that allow or forbid; a bias has no meaning there, use &")
        return _Either(parts)

    # A tensor on the left (tensor & mask) must not be taken for a mask either.
    def __rand__(self, other: object) -> Mask:
        return require_mask("&", other) & self

    def __ror__(self, other: object) -> Mask:
        return require_mask("|", other) | self

    def __bool__(self) -> bool:
        raise TypeError("mask: a mask is neither true nor false; join masks with & and |, not with 'and' and 'or'")


def require_mask(name: str, mask: object) -> Mask:
    """The mask itself, or a TypeError that says how to wrap what came."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        wrap = {torch.bool: "keep(t) if True means 'may be attended', drop(t) if True means 'must not'"}
        hint = wrap.get(mask.dtype, "bias(t) if it is added to the scores, lengths(t) if it counts valid keys")
        raise TypeError(f"{name}: a bare tensor {shape_text(mask)} of {mask.dtype} has no polarity; wrap it: {hint}")
    raise TypeError(
        f"{name}: expected a mask (keep, drop, bias, lengths, segments, causal, window), got {type(mask).__name__}"
    )


# ---------------------------------------------------------------------------------------------------- dense masks


def _check_dense(name: str, tensor: Tensor, frame: Layout) -> Tensor:
    """A mask tensor's shape against the scores': (…, n or 1, m or 1), the front broadcasting without growing."""
    expected = f"{name}: expected shape (…, {frame.n} or 1, {frame.m} or 1)"
    if tensor.device != frame.device:
        raise ValueError(f"{name}: expected device {frame.device} like query, got {tensor.device}")
    if tensor.shape[-2] not in (1, frame.n) or tensor.shape[-1] not in (1, frame.m):
        raise ValueError(f"{expected} for {frame.n} queries and {frame.m} keys, got {shape_text(tensor)}")
    lead = tuple(tensor.shape[:-2])
    batch = frame.batch
    padded = (1,) * (len(batch) - len(lead)) + lead
    if len(padded) > len(batch) or any(own not in (1, size) for own, size in zip(padded, batch, strict=True)):
        raise ValueError(f"{expected} with leading dimensions that broadcast to {batch}, got {shape_text(tensor)}")
    return frame.fold(frame.select(tensor, rows=True))


class _Keep(Mask):
    def __init__(self, tensor: Tensor, negate: bool) -> None:
        self.tensor, self.negate = tensor, negate

    def __repr__(self) -> str:
        return f"{'drop' if self.negate else 'keep'}({shape_text(self.tensor)})"

    def bind(self, frame: Layout) -> Bound:
        return BoundKeep(_check_dense("drop" if self.negate else "keep", self.tensor, frame), self.negate)


class _Bias(Mask):
    has_bias = True

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __repr__(self) -> str:
        return f"bias({shape_text(self.tensor)})"

    def bind(self, frame: Layout) -> Bound:
        return BoundBias(_check_dense("bias", self.tensor, frame))


def _mask_tensor(name: str, tensor: object) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor (…, n or 1, m or 1), got {type(tensor).__name__}")
    if tensor.dim() < 2:
        raise ValueError(
            f"{name}: expected at least two dimensions (…, n or 1, m or 1), got shape {shape_text(tensor)}; "
            "a mask over keys alone is t[..., None, :]"
        )
    return tensor


def _boolean(name: str, tensor: object) -> Tensor:
    tensor = _mask_tensor(name, tensor)
    if tensor.dtype != torch.bool:
        raise TypeError(f"{name}: expected a boolean tensor, got dtype {tensor.dtype}")
    return tensor


def keep(tensor: Tensor) -> Mask:
    """True where a key may be attended. Shape (…, n or 1, m or 1).

    >>> import regard, torch
    >>> mask = regard.keep(torch.tensor([[True, False, True, True]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(4, 2), mask=mask)
    tensor([[0.3333, 0.0000, 0.3333, 0.3333]])
    """
    return _Keep(_boolean("keep", tensor), negate=False)


def drop(tensor: Tensor) -> Mask:
    """True where a key must not be attended. Shape (…, n or 1, m or 1).

    >>> import regard, torch
    >>> mask = regard.drop(torch.tensor([[True, False, True, True]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(4, 2), mask=mask)
    tensor([[0., 1., 0., 0.]])
    """
    return _Keep(_boolean("drop", tensor), negate=True)


def bias(tensor: Tensor) -> Mask:
    """Added to the scores; −inf forbids. Shape (…, n or 1, m or 1). Gradients flow into it.

    >>> import regard, torch
    >>> mask = regard.bias(torch.tensor([[0.0, 1.0, float("-inf")]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(3, 2), mask=mask)
    tensor([[0.2689, 0.7311, 0.0000]])
    """
    tensor = _mask_tensor("bias", tensor)
    if not tensor.is_floating_point():
        raise TypeError(
            f"bias: expected a floating-point tensor, got dtype {tensor.dtype}; for booleans use keep or drop"
        )
    return _Bias(tensor)


# -------------------------------------------------------------------------------------------------------- lengths


class _Lengths(Mask):
    def __init__(self, counts: Tensor) -> None:
        self.counts = counts

    def __repr__(self) -> str:
        return f"lengths({shape_text(self.counts)})"

    def bind(self, frame: Layout) -> Bound:
        counts = self.counts.to(frame.device)
        if not frame.batch:
            raise ValueError("lengths: expected a query with a batch dimension in front, got one without")
        expected = f"({frame.batch[0]},) or ({frame.batch[0]}, {frame.n})"
        if tuple(counts.shape) not in ((frame.batch[0],), (frame.batch[0], frame.n)):
            raise ValueError(f"lengths: expected shape {expected}, (batch,) or (batch, n), got {shape_text(counts)}")
        if counts.numel() and int(counts.max()) > frame.m:
            raise ValueError(f"lengths: expected at most {frame.m}, the number of keys, got {int(counts.max())}")
        front = (len(counts),) + (1,) * (len(frame.batch) - 1)
        by_row = counts.dim() == 2
        counts = counts.reshape(*front, frame.n if by_row else 1, 1)
        return BoundLengths(frame.fold(frame.select(counts, rows=by_row)))


def _counted(name: str, counts: Tensor | Sequence[int], shapes: dict[int, str]) -> Tensor:
    """Whole numbers of 0 or more; `shapes` says, by the number of dimensions, which ones there may be."""
    expected = " or ".join(shapes.values())
    try:
        tensor = torch.as_tensor(counts)
    except (TypeError, ValueError, RuntimeError) as error:
        came = f"{type(counts).__name__} ({error})"
        raise TypeError(f"{name}: expected whole numbers, {expected}, got {came}") from error
    if not isinstance(counts, Tensor) and not tensor.numel():
        tensor = tensor.long()  # an empty list has no type
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name}: expected whole numbers, got dtype {tensor.dtype}")
    if tensor.is_meta:
        raise ValueError(f"{name}: expected numbers on a device that holds them, got device meta")
    if tensor.dim() not in shapes:
        raise ValueError(f"{name}: expected shape {expected}, got {shape_text(tensor)}")
    if tensor.numel() and int(tensor.min()) < 0:
        raise ValueError(f"{name}: expected lengths of 0 or more, got {int(tensor.min())}")
    return tensor.long()


def lengths(counts: Tensor | Sequence[int]) -> Mask:
    """Valid lengths: the first `length` keys may be attended. One per sequence, (batch,), or per query, (batch, n).

    >>> import regard, torch
    >>> query, key = torch.zeros(2, 1, 3), torch.zeros(2, 3, 3)  # a batch of two: one query and three keys each
    >>> regard.weights(query, key, mask=regard.lengths([1, 2]))[:, 0]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000]])
    """
    return _Lengths(_counted("lengths", counts, {1: "(batch,)", 2: "(batch, n)"}))


# ------------------------------------------------------------------------------------------------------- segments


class _Segments(Mask):
    def __init__(self, rows: list[int], keys: list[int]) -> None:
        self.rows, self.keys = rows, keys

    def __repr__(self) -> str:
        return f"segments({len(self.rows)} sequences)"

    @property
    def sequences(self) -> tuple[list[int], list[int]]:
        return self.rows, self.keys

    def bind(self, frame: Layout) -> Bound:
        for name, ends, size in (("queries", self.rows, frame.n), ("keys", self.keys, frame.m)):
            total = ends[-1] if ends else 0
            if total != size:
                raise ValueError(f"segments: expected lengths that add up to {size}, the number of {name}, got {total}")
        return BoundSegments(self.rows, self.keys, frame)


def segments(counts: Tensor | Sequence[int], key_counts: Tensor | Sequence[int] | None = None) -> Mask:
    """Sequences of these lengths, laid end to end: each query sees the keys of its own sequence, and no padding exists.

    `key_counts` says how long the sequences of the keys are, where that is not the same.

    >>> import regard, torch
    >>> rows = torch.zeros(3, 2)  # a sequence of one row, and one of two
    >>> regard.weights(rows, rows, mask=regard.segments([1, 2]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000],
            [0.0000, 0.5000, 0.5000]])
    """
    shape = {1: "(sequences,)"}
    rows = _counted("segments", counts, shape)
    keys = rows if key_counts is None else _counted("segments", key_counts, shape)
    if len(rows) != len(keys):
        raise ValueError(f"segments: expected as many sequences of keys as of queries, {len(rows)}, got {len(keys)}")
    return _Segments(rows.cumsum(0).tolist(), keys.cumsum(0).tolist())


# ---------------------------------------------------------------------------------------------------------- bands


Align = Literal["start", "end"]


class _Band(Mask):
    def __init__(self, name: str, left: int | None, right: int | None, offset: int | None, align: Align | None) -> None:
        if offset is not None and align is not None:
            raise ValueError(f"{name}: expected offset or align, got both")
        if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
            raise TypeError(f"{name}: expected offset to be a whole number, got {type(offset).__name__}")
        if align not in (None, "start", "end"):
            raise ValueError(f"{name}: expected align to be 'start' or 'end', got {align!r}")
        self.name, self.left, self.right, self.offset, self.align = name, left, right, offset, align

    def __repr__(self) -> str:
        sides = "" if self.name == "causal" else f"{self.left}, {self.right}, "
        return f"{self.name}({sides}offset={self.offset}, align={self.align!r})"

    def bind(self, frame: Layout) -> Bound:
        return BoundBand(self.left, self.right, self._offset(frame.n, frame.m), frame)

    def _offset(self, n: int, m: int) -> int:
        if self.offset is not None:
            return self.offset
        if self.align is None and n != m:
            raise ValueError(
                f"{self.name}: with {n} queries and {m} keys it is not clear which key belongs to which query; say "
                "offset=… (key j is visible to query i when j ≤ i + offset), align='start' or align='end'"
            )
        return m - n if self.align == "end" else 0


def causal(offset: int | None = None, align: Align | None = None) -> Mask:
    """Key j is visible to query i when j ≤ i + offset. Where n ≠ m, say offset= or align="start" (0), "end" (m − n).

    >>> import regard, torch
    >>> rows = torch.zeros(3, 2)
    >>> regard.weights(rows, rows, mask=regard.causal())
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.3333, 0.3333, 0.3333]])
    """
    return _Band("causal", None, 0, offset, align)


def window(left: int | None, right: int | None, offset: int | None = None, align: Align | None = None) -> Mask:
    """Query i sees the keys from i − left to i + right (None: no limit on that side), shifted by the offset rule.

    >>> import regard, torch
    >>> rows = torch.zeros(4, 2)
    >>> regard.weights(rows, rows, mask=regard.window(1, 0))
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.5000, 0.5000]])
    """
    for name, side in (("left", left), ("right", right)):
        if side is not None and (isinstance(side, bool) or not isinstance(side, int)):
            raise TypeError(f"window: expected {name} to be a whole number or None, got {type(side).__name__}")
        if side is not None and side < 0:
            raise ValueError(f"window: expected {name} to be 0 or more, got {side}")
    return _Band("window", left, right, offset, align)


# ---------------------------------------------------------------------------------------------------------- joins


@dataclass(frozen=True, repr=False)
class _Join(Mask):
    parts: tuple[Mask, ...]

    @property
    def has_bias(self) -> bool:
        return any(part.has_bias for part in self.parts)


class _Both(_Join):
    def __repr__(self) -> str:
        return " & ".join(map(repr, self.parts))

    @property
    def sequences(self) -> tuple[list[int], list[int]] | None:
        return next((part.sequences for part in self.parts if part.sequences is not None), None)

    def bind(self, frame: Layout) -> Bound:
        return BoundBoth([part.bind(frame) for part in self.parts])


class _Either(_Join):
    def __repr__(self) -> str:
        return f"({' | '.join(map(repr, self.parts))})"

    def bind(self, frame: Layout) -> Bound:
        return BoundEither([part.bind(frame) for part in self.parts])


def _flat(kind: type[_Join], mask: Mask) -> tuple[Mask, ...]:
    return mask.parts if isinstance(mask, kind) else (mask,)
