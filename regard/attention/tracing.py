"""What a call is being run for: to compute numbers, or to be traced (compiled, exported, mapped, given shapes only).

While a call is traced, no tensor may be asked for its value: it has none yet, or waiting for it would stall a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

__all__ = ["captured_tensors", "in_transform", "is_traced"]

PLAIN = (Tensor, nn.Parameter)


def is_traced(*tensors: Tensor) -> bool:
    """Whether the values of these tensors must not be looked at: compiling, in a transform, fake, or not on the CPU."""
    if torch.compiler.is_compiling() or in_transform():
        return True
    return any(type(tensor) not in PLAIN or not tensor.is_cpu for tensor in tensors)


def in_transform() -> bool:
    """Whether torch.func (vmap, grad, jvp …) or forward-mode differentiation is at work."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return bool(torch.autograd.forward_ad._current_level >= 0)


def captured_tensors(function: Callable[..., Any], *arguments: Any) -> list[Tensor]:
    """The tensors that function(*arguments) reads beside its arguments: parameters, closures, globals.

    It is called once to see them, so give it arguments of one row and one key.
    """
    recorder = _Recorder(arguments)
    with torch.random.fork_rng(devices=[]), recorder:
        function(*arguments)
    return list(recorder.captured.values())


class _Recorder(TorchFunctionMode):
    """Notes each tensor that goes into an operation and came out of none."""

    def __init__(self, arguments: Any) -> None:
        super().__init__()
        self.captured: dict[int, Tensor] = {}
        # All tensors are kept until the end: the id of a freed one could be given to another.
        self.known: dict[int, Any] = {id(leaf): leaf for leaf in tree_iter(arguments)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_iter((args, kwargs)):
            wrapped = isinstance(leaf, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(leaf)
            if isinstance(leaf, Tensor) and not wrapped and id(leaf) not in self.known:
                self.captured[id(leaf)] = leaf
        result = func(*args, **(kwargs or {}))
        self.known.update((id(leaf), leaf) for leaf in tree_iter(result))
        return result
