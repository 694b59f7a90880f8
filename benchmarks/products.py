"""The matrix products of a piece of work, alone: the time below which no implementation of it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.measure import Row, duration
from regard.measure import Work, median_seconds

ops = torch.ops.aten
PRODUCTS = (ops.mm, ops.addmm, ops.bmm, ops.baddbmm, ops.convolution, ops.convolution_backward)
ATTENTION, ATTENTION_BACKWARD = (
    ops._scaled_dot_product_flash_attention_for_cpu,
    ops._scaled_dot_product_flash_attention_for_cpu_backward,
)
Product = tuple[Callable[..., Any], tuple[Any, ...]]


class Recorder(TorchDispatchMode):
    """Records every matrix product within it: the operation, and tensors like its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in PRODUCTS:
            self.products.append((func, tuple(map(_like, args))))
        elif func.overloadpacket == ATTENTION:
            self.products += _of_attention(*args[:3], causal=_is_causal(func, args, kwargs))
        elif func.overloadpacket == ATTENTION_BACKWARD:  # of the values, the weights, the queries and the keys
            self.products += 2 * _of_attention(*args[1:4], causal=_is_causal(func, args, kwargs))
        return func(*args, **(kwargs or {}))


def _like(argument: Any) -> Any:
    """A tensor of the same shape and strides."""
    if not isinstance(argument, Tensor):
        return argument
    copy = torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype)
    return copy.fill_(0.01) if copy.is_floating_point() else copy.zero_()


def _is_causal(func: Any, args: Any, kwargs: Any) -> bool:
    names = [argument.name for argument in func._schema.arguments]
    return bool(dict(zip(names, args, strict=False), **(kwargs or {})).get("is_causal", False))


def _of_attention(query: Tensor, key: Tensor, value: Tensor, *, causal: bool) -> list[Product]:
    """Scores and averages, of every head; of causal attention half of them."""
    m = key.shape[-2] // 2 if causal else key.shape[-2]
    key, value = _like(key)[..., :m, :], _like(value)[..., :m, :]
    scores = torch.full((*query.shape[:-1], m), 0.01)
    return [(torch.matmul, (_like(query), key.mT)), (torch.matmul, (scores, value))]


def products(work: Work) -> Work:
    """The matrix products of one call of the work, as work of its own."""
    with Recorder() as recorder:
        work()
    assert recorder.products, "there is no matrix product in it"

    def run() -> None:
        with torch.no_grad():
            for product, arguments in recorder.products:
                product(*arguments)

    return run


def compare_products(work: str, ours: Work, at_least: float, repeats: int) -> Row:
    """The time of the matrix products of ours as a share of its time."""
    alone, whole = median_seconds(products(ours), ours, rounds=repeats)
    share = alone / whole
    shown = (duration(alone), duration(whole), f"{share:.2f} of the time", f"≥ {at_least} of the time")
    return Row(work, "its matrix products alone", *shown, share >= at_least)
