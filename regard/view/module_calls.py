"""The modules of a model as it calls them: what they are given, what they return, and which one reads the heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.capture import AttentionMap

__all__ = ["Call", "after_calls", "find_projection", "first", "has_matrix", "project"]


class Call(NamedTuple):
    """A module that was called: its path, what it was given first, and what it returned."""

    path: str
    module: nn.Module
    input: Any
    output: Any


def first(value: Any) -> Any:
    """The first of a tuple or list; else the value."""
    return value[0] if isinstance(value, tuple | list) and value else value


@contextmanager
def after_calls(model: nn.Module, hook: Callable[[Call], Any]) -> Iterator[None]:
    """Within this block the hook is called after every module; what it returns replaces the output, unless None."""

    def after(path: str) -> Callable[..., Any]:
        def call(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any], output: Any) -> Any:
            return hook(Call(path, module, first(args) if args else next(iter(options.values()), None), output))

        return call

    with ExitStack() as stack:
        for path, module in model.named_modules():
            stack.callback(module.register_forward_hook(after(path), with_kwargs=True).remove)
        yield


def has_matrix(module: nn.Module) -> bool:
    """Whether the module itself, not one in it, has a parameter of two dimensions or more."""
    return any(parameter.dim() > 1 for parameter in module.parameters(recurse=False))


def find_projection(calls: Sequence[Call], layer: AttentionMap) -> int | None:
    """The call of the linear layer that reads the heads' outputs side by side; None: there is none.

    nn.MultiheadAttention, which uses the matrix without calling its module, stands for it.
    """
    assert layer.output is not None
    heads = layer.output.transpose(1, 2).flatten(0, 1).flatten(1)  # (batch · n, heads · value size)
    for number, (path, module, rows, _) in enumerate(calls):
        if isinstance(module, nn.MultiheadAttention) and path == layer.name:
            return number
        same = isinstance(rows, Tensor) and rows.numel() == heads.numel() and rows.shape[-1] == heads.shape[-1]
        if same and has_matrix(module) and torch.allclose(rows.reshape(heads.shape), heads, rtol=1e-3, atol=1e-5):
            return number
    return None


def project(call: Call, heads: Tensor) -> Tensor:
    """The output projection without its bias: (batch, heads, n, value size) → (batch, n, size)."""
    module = call.module.out_proj if isinstance(call.module, nn.MultiheadAttention) else call.module
    rows = heads.transpose(1, 2).flatten(2)
    with torch.no_grad():
        projected: Tensor = module(rows) - module(torch.zeros_like(rows[:1, :1]))
    return projected
