"""Computing again instead of keeping: what a function saves for the backward pass is thrown away and made anew.

PyTorch has torch.utils.checkpoint for this; its first call imports the compiler stack, which takes more than a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def recompute(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), called once more when the backward pass asks for what it saved.

    Gradients flow to the arguments and to whatever else the function uses; both calls draw the same random numbers.
    """
    device = next(each.device for each in arguments if isinstance(each, Tensor))
    states = _random_states(device)
    found: dict[int, Tensor] = {}
    count = 0

    def forget(_: Tensor) -> int:
        nonlocal count
        count += 1
        return count - 1

    def remember(index: int) -> Tensor:
        if index not in found:
            with _as_before(device, states):
                found.update(enumerate(_saved_by(function, arguments)))
        return found.pop(index)

    with saved_tensors_hooks(forget, remember):
        return function(*arguments)


def _saved_by(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Tensor]:
    """What the function saves for the backward pass, in the order in which it saves it."""
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor.detach())
        return saved[-1]

    alone = (
        each.detach().requires_grad_(each.requires_grad) if isinstance(each, Tensor) else each for each in arguments
    )
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        function(*alone)
    return saved


def _random_states(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


@contextmanager
def _as_before(device: torch.device, states: list[Tensor]) -> Iterator[None]:
    """With gradients, in full precision, and with the random numbers of the first call."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad(), full_precision(device):
        torch.set_rng_state(states[0])
        for each, state in zip(devices, states[1:], strict=True):
            torch.cuda.set_rng_state(state, each)
        yield


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast would take matrix products to half precision, and forget that it did when they are computed again."""
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()
