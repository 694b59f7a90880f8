"""A moving average of the weights: smoother than the weights of any one step, and usually better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from regard.models.model import Model

__all__ = ["Average"]


class Average:
    """average ← decay · average + (1 − decay) · weights, after each step; a decay of 0 keeps nothing.

    The first steps count less: until step n there are about n / 10 steps in it.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.decay = decay
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.parameters = trained if decay else {}
        self.tensors = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def update(self, step: int) -> None:
        """Take the weights after a step into the average."""
        if self.tensors:
            decay = min(self.decay, step / (step + 10))
            with torch.no_grad():
                torch._foreach_lerp_(_local(self.tensors), _local(self.parameters), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this block the model has the averaged weights."""
        weights = [tensor.clone() for tensor in _local(self.parameters)]
        _copy(_local(self.parameters), _local(self.tensors))
        try:
            yield
        finally:
            _copy(_local(self.parameters), weights)


def _local(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """The tensors, or this process's shards of them."""
    values = [tensor.detach() for tensor in tensors.values()]
    return [value.to_local() if isinstance(value, DTensor) else value for value in values]


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)
