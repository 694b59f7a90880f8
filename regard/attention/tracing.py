"""What a call is being run for: to compute numbers, or to be traced (compiled, exported, mapped, given shapes only).

While a call is traced, no tensor may be asked for its value: it has none yet, or waiting for it would stall a GPU.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map


def is_traced(*tensors: Tensor) -> bool:
    """Whether the values of these tensors must not be looked at: compiling, in a transform, fake, or not on the CPU."""
    if torch.compiler.is_compiling() or in_transform():
        return True
    for tensor in tensors:  # a decoder asks this at every step
        kind = type(tensor)
        if (kind is not Tensor and kind is not nn.Parameter) or not tensor.is_cpu:
            return True
    return False


def needs_grad(*tensors: Tensor) -> bool:
    """Whether what is computed from these tensors will be differentiated."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def in_transform() -> bool:
    """Whether torch.func (vmap, grad, jvp …) or forward-mode differentiation is at work."""
    return torch._C._are_functorch_transforms_active() or bool(torch.autograd.forward_ad._current_level >= 0)


def captured_tensors(function: Callable[..., Any], *arguments: Any) -> list[Tensor]:
    """The tensors that function(*arguments) reads beside its arguments: closures, globals, parameters."""
    with torch.random.fork_rng(devices=[]), recorded(arguments) as captured:
        function(*arguments)
    return list(captured.values())


@contextmanager
def recorded(*arguments: Any) -> Iterator[dict[int, Tensor]]:
    """The tensors, by id, that operations in this block read, and that are neither arguments nor made in it."""
    recorder = _Recorder(arguments)
    with recorder:
        yield recorder.captured
    recorder.known.clear()


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


def substituted(stand_ins: dict[Tensor, Tensor]) -> AbstractContextManager[Any]:
    """Within this block, operations on a tensor that is a key of the dictionary get its stand-in."""
    return _Substitution(stand_ins) if stand_ins else nullcontext()


class _Substitution(TorchFunctionMode):
    def __init__(self, stand_ins: dict[Tensor, Tensor]) -> None:
        super().__init__()
        self.stand_ins = {id(tensor): stand_in for tensor, stand_in in stand_ins.items()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(lambda leaf: self.stand_ins.get(id(leaf), leaf), (args, kwargs or {}))
        return func(*args, **kwargs)
