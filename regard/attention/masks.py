"""Masks say what a query may attend to. They are objects, not bare tensors, so that no polarity can be guessed wrong.

    keep(t)  drop(t)  bias(t)  lengths(t)  segments(t)  causal()  window(left, right)    a & b: both    a | b: either

A mask has two forms. A `Mask` is what the caller writes: it knows no sizes. `bind` ties it to the layout of one call,
where a wrong shape, device or length is refused, and gives a `BoundMask`, which answers for one tile of the scores at a
time. Here are the two bases and the joins. The masks: dense_masks.py (and ALiBi, T5's bias), position_masks.py
(lengths, segments, causal, window), mods.py (FlexAttention's).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from ctypes import string_at
from functools import cached_property, reduce
from itertools import islice
from typing import Any, TypeGuard

import torch
from torch import Tensor

from regard.arguments import check_not_nested, shape_text
from regard.attention.layout import Layout, Tile
from regard.attention.tracing import is_traced

COMPARED = 1 << 15  # so many bytes of a mask are compared at every call, which takes a microsecond or two


class Mask:
    """What a query may attend to. Build one with keep, lengths, causal …; join them with & and |.

    >>> import regard, torch
    >>> rows = torch.zeros(3, 1)  # alike, so each query shares its weight evenly
    >>> regard.weights(rows, rows, mask=regard.causal() & regard.window(1, 1))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """

    # The tensors that the mask is made of, if no other can change what `bind` gives; None: bound anew at every call.
    sources: tuple[Tensor, ...] | None = None
    _last: tuple[Layout, tuple[object, ...], BoundMask] | None = None

    def bind(self, layout: Layout) -> BoundMask:
        """This mask for the shapes of one call; ValueError where they do not fit it."""
        raise NotImplementedError(f"{type(self).__name__} must define bind(layout)")

    def bound(self, layout: Layout) -> BoundMask:
        """The same, remembered: while a text is decoded, one mask meets the same shapes thousands of times."""
        if self.sources is None or torch.compiler.is_compiling() or layout.heads is not None:
            return self.bind(layout)
        last = self._last
        if last is not None and (last[0] is layout or last[0] == layout) and last[1] == _state_of(self.sources):
            return last[2]
        bound = self.bind(layout)
        if layout.positions is None and not is_traced(*self.sources):
            state = _state_of(self.sources)
            if state is not None:
                object.__setattr__(self, "_last", (layout, state, bound))
        return bound

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_last"}

    @property
    def has_bias(self) -> bool:
        """Whether anything is added to the scores."""
        return False

    @property
    def sequences(self) -> tuple[list[int], list[int]] | None:
        """The ends of sequences laid end to end, among the queries and among the keys; None without `segments`."""
        return None

    def __and__(self, other: object) -> Mask:
        return _Join("&", self, check_mask("&", other))

    def __or__(self, other: object) -> Mask:
        joined = _Join("|", self, check_mask("|", other))
        if joined.has_bias:
            raise TypeError("mask: | joins masks that allow or forbid; a bias has no meaning there, use &")
        return joined

    def __invert__(self) -> Mask:
        if self.has_bias:
            raise TypeError(f"~: expected a mask that allows or forbids, got {self!r}; a bias has no opposite")
        return _Not(self)

    # A tensor on the left (tensor & mask) must not be taken for a mask either.
    def __rand__(self, other: object) -> Mask:
        return check_mask("&", other) & self

    def __ror__(self, other: object) -> Mask:
        return check_mask("|", other) | self

    def __bool__(self) -> bool:
        raise TypeError("mask: a mask is neither true nor false; join masks with & and |, not with 'and' and 'or'")


class BoundMask:
    """A mask tied to the layout of one call. This base forbids nothing; a subclass overrides what it knows better.

    The better `visible_keys` and `allows_all` answer, the less is computed: `allowed` and `bias` make tensors, and are
    called only for tiles in which something is forbidden or added. While traced, only these two and `is_causal` are
    called, for the whole: nothing there may ask a tensor for its value, and no comprehension may capture the tile, or
    the compiler fixes sizes that it would leave open.
    """

    by_row = False  # whether queries of one sequence may see different keys
    ragged = False  # whether sequences of the batch may see different numbers of keys
    learned = False  # whether gradients flow into a bias
    tensors: tuple[Tensor, ...] = ()  # what `allowed` and `bias` read
    _added: tuple[torch.dtype, Tensor | None] | None = None

    @property
    def breaks(self) -> Sequence[int]:
        """The rows before which it pays to cut, because other keys are visible from there on."""
        return ()

    @property
    def shape_breaks(self) -> Sequence[int]:
        """Those breaks behind which the blocks of visible keys have another shape."""
        return ()

    def visible_keys(self, tile: Tile) -> slice:
        """The range of the tile's keys outside of which nothing is allowed."""
        return tile.keys

    def allows_all(self, tile: Tile) -> bool:
        """Whether every pair of the tile is allowed, without a bias."""
        return False

    def is_causal(self, tile: Tile) -> bool:
        """Whether it restricts the tile as PyTorch's is_causal does: the tile's key j is visible to its row i ≥ j."""
        return False

    def equal_blocks(self, tile: Tile) -> int:
        """How many blocks lie along the diagonal of a tile between two shape_breaks, if exactly these are allowed.

        1 where the tile is not made of such blocks.
        """
        return 1

    def allowed(self, tile: Tile) -> Tensor | None:
        """Boolean, broadcastable to the tile's (B, R, n, m); None where all is allowed."""
        return None

    def bias(self, tile: Tile) -> Tensor | None:
        """What is added to the scores, broadcastable to the tile; None for nothing."""
        return None

    def added(self, dtype: torch.dtype, layout: Layout) -> Tensor | None:
        """What is added to the scores of a small call as a whole, broadcastable to (B, R, n, m), made once."""
        if self._added is None or self._added[0] is not dtype:
            whole = layout.whole
            added = None if self.allows_all(whole) else additive_mask(self.allowed(whole), self.bias(whole), dtype)
            self._added = (dtype, added)
        return self._added[1]

    def reached(self, tile: Tile) -> Tensor | None:
        """Which keys any row of the tile sees, (B or 1, R or 1, 1, m or 1); None: all. The others will be blanked."""
        allowed = self.allowed(tile)
        return None if allowed is None else allowed.any(-2, keepdim=True)

    def add_gradient(self, tile: Tile, grad: Tensor, sums: Sequence[Tensor | None]) -> None:
        """Add what the gradient of the tile's bias makes for each of `tensors` to its sum; None: it is not wanted."""
        wanted = [(tensor, total) for tensor, total in zip(self.tensors, sums, strict=True) if total is not None]
        with torch.enable_grad():
            bias = self.bias(tile) if wanted else None
        if bias is None or not bias.requires_grad:  # a tile without rows or keys has none
            return
        parts = torch.autograd.grad(bias, [tensor for tensor, _ in wanted], grad.sum_to_size(bias.shape).to(bias.dtype))
        for (_, total), part in zip(wanted, parts, strict=True):
            total += part


def _state_of(sources: tuple[Tensor, ...]) -> tuple[object, ...] | None:
    """The numbers that the tensors hold: no version counts what `.data`, NumPy or another process writes there.

    None: they are too many to compare, or apart in memory, or have to be read anew because gradients flow into them.
    """
    state: list[object] = [torch.is_inference_mode_enabled()]  # what was made there must not be trained with
    for tensor in sources:
        if tensor.requires_grad or not tensor.is_cpu or tensor.nbytes > COMPARED or not tensor.is_contiguous():
            return None
        state += (tensor.data_ptr(), string_at(tensor.data_ptr(), tensor.nbytes))
    return tuple(state)


def check_mask(name: str, mask: object) -> Mask:
    """The mask itself, or a TypeError that says how to wrap what came."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        check_not_nested(name, mask, "in keep(t), drop(t) or bias(t)")
        wrap = {torch.bool: "keep(t) if True means 'may be attended', drop(t) if True means 'must not'"}
        hint = wrap.get(mask.dtype, "bias(t) if it is added to the scores, lengths(t) if it counts valid keys")
        raise TypeError(f"{name}: a bare tensor {shape_text(mask)} of {mask.dtype} has no polarity; wrap it: {hint}")
    raise TypeError(
        f"{name}: expected a mask (keep, drop, bias, lengths, segments, causal, window), got {type(mask).__name__}"
    )


def additive_mask(allowed: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores: the bias, and −inf where nothing is allowed, in the query's dtype."""
    bias = None if bias is None else bias.to(dtype)
    if allowed is None:
        return bias
    nothing = torch.zeros((), dtype=dtype, device=allowed.device) if bias is None else bias
    return torch.where(allowed, nothing, -torch.inf)


def zero_hidden(allowed: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Keys and values (B, R, m, size) with 0 for those that no query of the tile may attend.

    What stands there, be it NaN, inf or 1e30, can then reach neither an output nor a gradient.
    """
    if allowed is None:
        return tensors
    hidden = ~allowed.any(-2, keepdim=True).transpose(-2, -1)  # (B or 1, R or 1, m or 1, 1)
    if is_traced(allowed, *tensors):
        return tuple(rows.masked_fill(hidden, 0) for rows in tensors)
    if not bool(hidden.any()):
        return tensors
    filled = []
    for rows in tensors:
        distinct = rows
        for dim in range(2):  # what heads share stays shared: other strides would change the last bits of a product
            if rows.stride(dim) == 0 and hidden.shape[dim] == 1 < rows.shape[dim]:
                distinct = distinct.narrow(dim, 0, 1)
        # A clone keeps its strides, which decide the last bits of a product; masked_fill would choose others.
        filled.append(distinct.clone().masked_fill_(hidden, 0).expand_as(rows))
    return tuple(filled)


# ---------------------------------------------------------------------------------------------------------- joins


class _Join(Mask):
    """Several masks as one: what all of them allow, with the sum of their biases (&), or what at least one does (|)."""

    def __init__(self, symbol: str, *masks: Mask) -> None:
        self.symbol = symbol
        self.parts: tuple[Mask, ...] = ()
        for mask in masks:
            self.parts += mask.parts if _is_join(mask, symbol) else (mask,)
        sources = [part.sources for part in self.parts]
        self.sources = None if None in sources else tuple(tensor for part in sources for tensor in part or ())

    def __repr__(self) -> str:
        text = f" {self.symbol} ".join(map(repr, self.parts))
        return text if self.symbol == "&" else f"({text})"

    @property
    def has_bias(self) -> bool:
        return any(part.has_bias for part in self.parts)

    @property
    def sequences(self) -> tuple[list[int], list[int]] | None:
        of_parts = (part.sequences for part in self.parts if self.symbol == "&")
        return next((ends for ends in of_parts if ends is not None), None)

    def bind(self, layout: Layout) -> BoundMask:
        joined = _BoundAnd if self.symbol == "&" else _BoundOr
        return joined([part.bound(layout) for part in self.parts])


def _is_join(mask: Mask, symbol: str) -> TypeGuard[_Join]:
    return isinstance(mask, _Join) and mask.symbol == symbol


class _BoundJoin(BoundMask):
    def __init__(self, parts: list[BoundMask]) -> None:
        self.parts = parts
        self.tensors = tuple(tensor for part in parts for tensor in part.tensors)
        self.by_row = any(part.by_row for part in parts)
        self.ragged = any(part.ragged for part in parts)
        self.learned = any(part.learned for part in parts)


class _BoundAnd(_BoundJoin):
    @cached_property
    def breaks(self) -> Sequence[int]:
        return sorted({row for part in self.parts for row in part.breaks})

    @cached_property
    def shape_breaks(self) -> Sequence[int]:
        return sorted({row for part in self.parts for row in part.shape_breaks})

    def visible_keys(self, tile: Tile) -> slice:
        for part in self.parts:
            tile = tile._replace(keys=part.visible_keys(tile))
        return tile.keys

    def allows_all(self, tile: Tile) -> bool:
        return all(part.allows_all(tile) for part in self.parts)

    def is_causal(self, tile: Tile) -> bool:
        return all(part.is_causal(tile) for part in self._restricting(tile))

    def equal_blocks(self, tile: Tile) -> int:
        parts = self._restricting(tile)
        return parts[0].equal_blocks(tile) if len(parts) == 1 else 1

    def _restricting(self, tile: Tile) -> list[BoundMask]:
        if is_traced(*self.tensors):
            return self.parts
        return [part for part in self.parts if not part.allows_all(tile)]

    def allowed(self, tile: Tile) -> Tensor | None:
        joined: Tensor | None = None
        for part in self._restricting(tile):
            mask = part.allowed(tile)
            if mask is not None:
                joined = mask if joined is None else joined & mask
        return joined

    def bias(self, tile: Tile) -> Tensor | None:
        total: Tensor | None = None
        for part in self.parts:
            added = part.bias(tile)
            if added is not None:
                # In half precision a sum would lose digits, or overflow.
                added = added.to(torch.promote_types(added.dtype, torch.float32))
                total = added if total is None else total + added
        return total

    def reached(self, tile: Tile) -> Tensor | None:
        if sum(part.by_row for part in self.parts) > 1:  # each may show a key to a row from which another hides it
            return super().reached(tile)
        reached = [keys for keys in [part.reached(tile) for part in self.parts] if keys is not None]
        return reduce(torch.logical_and, reached) if reached else None

    def add_gradient(self, tile: Tile, grad: Tensor, sums: Sequence[Tensor | None]) -> None:
        rest = iter(sums)
        for part in self.parts:
            of_part = list(islice(rest, len(part.tensors)))
            if part.learned:
                part.add_gradient(tile, grad, of_part)


class _BoundOr(_BoundJoin):
    def visible_keys(self, tile: Tile) -> slice:
        ranges = [part.visible_keys(tile) for part in self.parts]
        return slice(min(keys.start for keys in ranges), max(keys.stop for keys in ranges))

    def allows_all(self, tile: Tile) -> bool:
        return any(part.allows_all(tile) for part in self.parts)

    def allowed(self, tile: Tile) -> Tensor | None:
        joined: Tensor | None = None
        for part in self.parts:
            mask = part.allowed(tile)
            if mask is None:
                return None
            joined = mask if joined is None else joined | mask
        return joined


class _Not(Mask):
    """What a mask forbids."""

    def __init__(self, mask: Mask) -> None:
        self.mask, self.sources = mask, mask.sources

    def __repr__(self) -> str:
        return f"~({self.mask!r})" if _is_join(self.mask, "&") else f"~{self.mask!r}"

    def __invert__(self) -> Mask:
        return self.mask

    def bind(self, layout: Layout) -> BoundMask:
        return _BoundNot(self.mask.bound(layout), layout.device)


class _BoundNot(BoundMask):
    def __init__(self, mask: BoundMask, device: torch.device) -> None:
        self.mask, self.device, self.tensors = mask, device, mask.tensors
        self.by_row, self.ragged = mask.by_row, mask.ragged

    def visible_keys(self, tile: Tile) -> slice:
        """Without the keys at either end that the mask allows to every row."""
        start, stop = tile.keys.start, tile.keys.stop
        start += bisect_left(range(stop - start), True, key=lambda i: not self._allows(tile, start, start + i + 1))
        stop -= bisect_left(range(stop - start), True, key=lambda i: not self._allows(tile, stop - i - 1, stop))
        return slice(start, stop)

    def _allows(self, tile: Tile, start: int, stop: int) -> bool:
        return self.mask.allows_all(tile._replace(keys=slice(start, stop)))

    def allows_all(self, tile: Tile) -> bool:
        keys = self.mask.visible_keys(tile)
        return bool(keys.start >= keys.stop)

    def allowed(self, tile: Tile) -> Tensor:
        allowed = self.mask.allowed(tile)
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=self.device) if allowed is None else ~allowed
