"""The bare work: what no implementation gets by without. The matrix products alone, or the reading of so many bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.measure import Work

ops = torch.ops.aten
PRODUCTS = (
    *(ops.mm, ops.addmm, ops.bmm, ops.baddbmm, ops.convolution, ops.convolution_backward),
    torch.ops.mkldnn._linear_pointwise,  # where regard takes oneDNN's
)
ATTENTION, ATTENTION_BACKWARD = (
    ops._scaled_dot_product_flash_attention_for_cpu,
    ops._scaled_dot_product_flash_attention_for_cpu_backward,
)
IN_CACHE = 1 << 19  # scores
Product = tuple[Callable[..., Any], tuple[Any, ...]]


class Recorder(TorchDispatchMode):
    """Records every matrix product within it: the operation, and tensors like its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in PRODUCTS:
            named = {name: _like(argument) for name, argument in (kwargs or {}).items()}  # such as `out`
            self.products.append((functools.partial(func, **named), tuple(map(_like, args))))
        elif func.overloadpacket == ATTENTION:
            self.products += _of_attention(*args[:3], causal=_is_causal(func, args, kwargs))
        elif func.overloadpacket == ATTENTION_BACKWARD:  # of the values, the weights, the queries and the keys
            self.products += 2 * _of_attention(*args[1:4], causal=_is_causal(func, args, kwargs))
        return func(*args, **(kwargs or {}))


def _like(argument: Any) -> Any:
    """A tensor of the same shape and strides."""
    if not isinstance(argument, Tensor):
        return argument
    if 0 in argument.stride():  # expanded: elements share their memory, and cannot be written
        argument = argument.contiguous()
    copy = torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype)
    return copy.fill_(0.01) if copy.is_floating_point() else copy.zero_()


def _is_causal(func: Any, args: Any, kwargs: Any) -> bool:
    names = [argument.name for argument in func._schema.arguments]
    return bool(dict(zip(names, args, strict=False), **(kwargs or {})).get("is_causal", False))


def _of_attention(query: Tensor, key: Tensor, value: Tensor, *, causal: bool) -> list[Product]:
    """Scores and averages, of every head; of causal attention half of them. In parts that stay in cache, as fused."""
    m = key.shape[-2] // 2 if causal else key.shape[-2]
    query, key, value = (_like(tensor).flatten(0, -3) for tensor in (query, key[..., :m, :], value[..., :m, :]))
    count, n, _ = query.shape
    heads, rows = max(1, IN_CACHE // max(1, n * m)), max(1, IN_CACHE // max(1, m))
    parts: list[Product] = []
    for head in range(0, count, heads):
        some = slice(head, head + heads)
        for part in query[some].split(rows, 1):
            parts += [(torch.bmm, (part, key[some].mT)), (torch.bmm, (_scores(*part.shape[:2], m), value[some]))]
    return parts


@functools.lru_cache(maxsize=4)
def _scores(*shape: int) -> Tensor:
    """The same tensor for all parts of a shape, which therefore stays in cache."""
    return torch.full(shape, 0.01)


@dataclass(frozen=True)
class Bare:
    """Work to measure, and how many times of it are needed."""

    work: Work
    times: float = 1.0


def products(work: Work) -> Bare:
    """The matrix products of one call of the work."""
    with Recorder() as recorder:
        work()
    assert recorder.products, "there is no matrix product in it"

    def run() -> None:
        with torch.no_grad():
            for product, arguments in recorder.products:
                product(*arguments)

    return Bare(run)


def reading(size: int, *, tiny: bool) -> Bare:
    """So many bytes, at the rate at which the sum of a tensor too large for caches reads it."""
    tensor = torch.ones((1 if tiny else 256) << 18)  # megabytes of float32
    return Bare(tensor.sum, size / tensor.nbytes)
