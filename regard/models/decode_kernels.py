"""Linear layers and norms that are fast for few rows as well, which decoding token by token is made of.

PyTorch's products are made for many rows: with a handful of them they use half of what the memory can deliver, or
less. A compiled loop that reads the matrix once, in all threads where it is large, is faster (benchmarks/ablation.py).
It runs where no gradient is wanted; the result is the same to rounding.
"""

import functools
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import has_values
from regard.attention.threads import load_kernels, parallel_for

FEW = 8  # rows; with more of them PyTorch's products are faster
LARGE = 1 << 21  # numbers of a matrix that is worth waking threads for
NO_BIAS = numpy.empty(0, numpy.float32)


class Linear(nn.Linear):
    """rows · weightᵀ + bias."""

    if TYPE_CHECKING:  # else the result could be anything

        def __call__(self, rows: Tensor) -> Tensor: ...

    def forward(self, rows: Tensor) -> Tensor:
        return product(rows, self.weight, self.bias)


class RMSNorm(nn.RMSNorm):
    """rows / √(mean of their squares + eps) · weight, over the last axis."""

    def forward(self, rows: Tensor) -> Tensor:
        loops = _load_loops(rows, self.weight)
        if loops is None:
            return super().forward(rows)
        inputs = rows.detach().numpy().reshape(-1, rows.shape[-1])
        output = numpy.empty_like(inputs)
        loops.normalize(inputs, self.weight.detach().numpy(), self.eps or torch.finfo(torch.float32).eps, output)
        return torch.from_numpy(output).view(rows.shape)


def product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows (…, size) · weight (outputs, size)ᵀ + bias."""
    loops = _load_loops(rows, weight)
    if loops is None:
        return functional.linear(rows, weight, bias)
    outputs, size = weight.shape
    inputs = rows.detach().numpy().reshape(-1, size)
    output = numpy.empty((len(inputs), outputs), numpy.float32)  # NumPy is faster here: this runs for every product
    arrays = inputs, weight.detach().numpy(), NO_BIAS if bias is None else bias.detach().numpy(), output
    if weight.numel() < LARGE:
        loops.products(*arrays, 0, outputs)
    else:
        parallel_for(functools.partial(loops.products, *arrays), outputs, work=weight.numel())
    return torch.from_numpy(output).view(*rows.shape[:-1], outputs)


def _load_loops(rows: Tensor, weight: Tensor) -> Any:
    """The compiled loops, where they may be used and pay; else None."""
    size = rows.shape[-1]
    if torch.is_grad_enabled() or not 0 < rows.numel() <= FEW * size or rows.dtype is not torch.float32:
        return None
    if weight.dtype is not torch.float32 or weight.shape[-1] != size or not weight.is_contiguous():
        return None
    if not (rows.is_cpu and weight.is_cpu and has_values(rows)) or torch.is_autocast_enabled("cpu"):
        return None
    return load_kernels("steps", "models")
