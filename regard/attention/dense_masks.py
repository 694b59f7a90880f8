"""Masks made of a dense tensor (…, n or 1, m or 1): keep, drop, bias."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.arguments import check_not_nested, shape_text
from regard.attention.layout import Layout, Tile
from regard.attention.masks import BoundMask, Mask
from regard.attention.tracing import is_traced

__all__ = ["BoundDense", "bias", "drop", "keep"]


def keep(tensor: Tensor) -> Mask:
    """True where a key may be attended. Shape (…, n or 1, m or 1).

    >>> import regard, torch
    >>> mask = regard.keep(torch.tensor([[True, False, True, True]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(4, 2), mask=mask)
    tensor([[0.3333, 0.0000, 0.3333, 0.3333]])
    """
    return _Dense("keep", _check_boolean("keep", tensor))


def drop(tensor: Tensor) -> Mask:
    """True where a key must not be attended. Shape (…, n or 1, m or 1).

    >>> import regard, torch
    >>> mask = regard.drop(torch.tensor([[True, False, True, True]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(4, 2), mask=mask)
    tensor([[0., 1., 0., 0.]])
    """
    return _Dense("drop", _check_boolean("drop", tensor))


def bias(tensor: Tensor) -> Mask:
    """Added to the scores; −inf forbids. Shape (…, n or 1, m or 1). Gradients flow into it.

    >>> import regard, torch
    >>> mask = regard.bias(torch.tensor([[0.0, 1.0, float("-inf")]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(3, 2), mask=mask)
    tensor([[0.2689, 0.7311, 0.0000]])
    """
    tensor = _check_dense("bias", tensor)
    if not tensor.is_floating_point():
        raise TypeError(
            f"bias: expected a floating-point tensor, got dtype {tensor.dtype}; for booleans use keep or drop"
        )
    return _Dense("bias", tensor)


def _check_dense(name: str, tensor: object) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor (…, n or 1, m or 1), got {type(tensor).__name__}")
    check_not_nested(name, tensor, "(…, n or 1, m or 1)")
    if tensor.dim() < 2:
        raise ValueError(
            f"{name}: expected at least two dimensions (…, n or 1, m or 1), got shape {shape_text(tensor)}; "
            "a mask over keys alone is t[..., None, :]"
        )
    return tensor


def _check_boolean(name: str, tensor: object) -> Tensor:
    tensor = _check_dense(name, tensor)
    if tensor.dtype != torch.bool:
        raise TypeError(f"{name}: expected a boolean tensor, got dtype {tensor.dtype}")
    return tensor


class _Dense(Mask):
    """keep, drop or bias of a tensor (…, n or 1, m or 1)."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor = name, tensor
        self.sources = (tensor,)

    def __repr__(self) -> str:
        return f"{self.name}({shape_text(self.tensor)})"

    @property
    def has_bias(self) -> bool:
        return self.name == "bias"

    def __invert__(self) -> Mask:
        opposite = {"keep": "drop", "drop": "keep"}.get(self.name)
        return super().__invert__() if opposite is None else _Dense(opposite, self.tensor)

    def bind(self, layout: Layout) -> BoundMask:
        tensor, batch = self.tensor, layout.batch
        if tensor.device != layout.device:
            raise ValueError(f"{self.name}: expected device {layout.device} like query, got {tensor.device}")
        lead = (1,) * (len(batch) + 2 - tensor.dim()) + tuple(tensor.shape[:-2])
        # Compared by ==: `in` does not see that a size which the compiler leaves open is the same.
        sizes = zip(tensor.shape[-2:], (layout.n, layout.m), strict=True)
        if any(size != 1 and size != wanted for size, wanted in sizes):
            problem = f"for {layout.n} queries and {layout.m} keys"
        elif len(lead) > len(batch) or any(a != 1 and a != b for a, b in zip(lead, batch, strict=True)):
            problem = f"with leading dimensions that broadcast to {batch}"
        else:
            return BoundDense(self.name, layout.fold(layout.select(tensor, rows=True)))
        expected = f"shape (…, {layout.n} or 1, {layout.m} or 1) {problem}"
        raise ValueError(f"{self.name}: expected {expected}, got {shape_text(tensor)}")


class BoundDense(BoundMask):
    """The tensor folded, (B or 1, R or 1, n or 1, m or 1)."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        if not is_traced(tensor) and tensor.stride(0) == 0:
            tensor = tensor[:1]  # one for all of the batch, and so is its gradient
        self.name, self.tensor, self.tensors = name, tensor, (tensor,)
        self.by_row = tensor.shape[-2] > 1
        self.learned = tensor.requires_grad

    def block(self, tile: Tile) -> Tensor:
        """The tensor's part for a tile; dimensions of size 1 stay as they are."""
        return _block(self.tensor, tile)

    def allowed(self, tile: Tile) -> Tensor | None:
        if self.name == "bias":
            return self.block(tile).detach() != -torch.inf if self._may_forbid() else None
        block = self.block(tile)
        return ~block if self.name == "drop" else block

    def bias(self, tile: Tile) -> Tensor | None:
        if self.name != "bias":
            return None
        block = self.block(tile)
        return block.masked_fill(block.detach() == -torch.inf, 0.0) if self._may_forbid() else block

    def _may_forbid(self) -> bool:
        return is_traced(self.tensor) or self._forbids

    @cached_property
    def _forbids(self) -> bool:
        """Whether a bias holds −inf. If not, which is the rule, its tiles are used as they are."""
        numbers = self.tensor.detach()
        return bool(numbers.numel()) and not bool(numbers.amin() > -torch.inf)  # beside NaN there may be a −inf

    def reached(self, tile: Tile) -> Tensor | None:
        if self.name == "bias" and not self._may_forbid():
            return None
        block = self.block(tile).detach()
        if self.name == "bias":  # nothing as large as the block is made on the way
            return block.amax(-2, keepdim=True) != -torch.inf
        return ~block.all(-2, keepdim=True) if self.name == "drop" else block.any(-2, keepdim=True)

    def add_gradient(self, tile: Tile, grad: Tensor, sums: Sequence[Tensor | None]) -> None:
        (total,) = sums
        if total is not None:  # in place: the gradient of a slice would be as large as the whole, for every tile
            block = _block(total, tile)
            block += grad.sum_to_size(block.shape)


def _block(tensor: Tensor, tile: Tile) -> Tensor:
    parts = (tile.batch, slice(None), tile.rows, tile.keys)
    return tensor[tuple(part if size > 1 else slice(None) for part, size in zip(parts, tensor.shape, strict=True))]
