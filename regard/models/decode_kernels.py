"""Layers that are fast for few rows as well, which decoding word by word is made of.

PyTorch's products are made for many rows: with a handful of them they use a half of what the memory can deliver, or
less. Compiled loops that read the matrix once, in all threads where it is large, take half of the time. They are used
where no gradient is wanted; the result is the same to rounding.
"""

from __future__ import annotations

import functools
from typing import Any, TypeGuard

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.threads import load_kernels, parallel_for

__all__ = ["Linear", "RMSNorm", "fed_forward", "product"]

FEW = 8  # rows; with more of them PyTorch's products are faster
LARGE = 1 << 21  # numbers of a matrix that is worth waking threads for
ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3, "swiglu": 4}  # as the loops number them
IGNORE_INDEX = numpy.empty(0, numpy.float32)


class Linear(nn.Linear):
    """rows · weightᵀ + bias."""

    def forward(self, rows: Tensor) -> Tensor:
        return product(rows, self.weight, self.bias)


def product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows (…, size) · weight (outputs, size)ᵀ + bias."""
    loops = _loops(rows, weight)
    if loops is None:
        return functional.linear(rows, weight, bias)
    outputs, size = weight.shape
    output = rows.new_empty(*rows.shape[:-1], outputs)
    arrays = rows.reshape(-1, size).numpy(), _array(weight), _array(bias), output.view(-1, outputs).numpy()
    if weight.numel() < LARGE:
        loops.products(*arrays, 0, outputs)
    else:
        parallel_for(functools.partial(loops.products, *arrays), outputs, work=weight.numel())
    return output


def fed_forward(rows: Tensor, in_proj: nn.Module, activation: str, out_proj: nn.Module) -> Tensor | None:
    """activation(rows · in_proj) · out_proj in one go; None where the loops do not pay, or layers are more than that."""
    if torch.is_grad_enabled() or activation not in ACTIVATIONS or not (_is_bare(in_proj) and _is_bare(out_proj)):
        return None
    first, second = in_proj.weight, out_proj.weight
    loops = _loops(rows, first)
    if loops is None or first.numel() >= LARGE or not (second.is_contiguous() and second.dtype is torch.float32):
        return None
    size = rows.shape[-1]
    output = rows.new_empty(rows.shape)
    middle = _array(first), _array(in_proj.bias), ACTIVATIONS[activation], _array(second), _array(out_proj.bias)
    loops.feed_forward(rows.reshape(-1, size).numpy(), *middle, output.view(-1, size).numpy())
    return output


def _is_bare(layer: nn.Module) -> TypeGuard[Linear]:
    """A linear layer that nobody has replaced, parametrised or hung a hook on."""
    return type(layer) is Linear and not layer._forward_hooks and not layer._forward_pre_hooks


class RMSNorm(nn.Module):
    """rows / √(mean of rows² + ε) · weight, each row alone."""

    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = eps

    def forward(self, rows: Tensor) -> Tensor:
        loops = _loops(rows, self.weight)
        if loops is None:
            return rows * (rows.square().mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.weight
        flat = rows.reshape(-1, rows.shape[-1])
        output = torch.empty_like(flat)
        loops.root_mean_square_norms(flat.numpy(), self.weight.detach().numpy(), self.epsilon, output.numpy())
        return output.view(rows.shape)


def _array(parameter: Tensor | None) -> Any:
    return IGNORE_INDEX if parameter is None else parameter.detach().numpy()


def _loops(rows: Tensor, weight: Tensor) -> Any:
    """The compiled loops, where they may be used and pay; else None."""
    size = rows.shape[-1]
    if torch.is_grad_enabled() or rows.numel() > FEW * size or rows.dtype is not torch.float32:
        return None
    if weight.dtype is not torch.float32 or weight.shape[-1] != size or not weight.is_contiguous():
        return None
    if (
        not (rows.numel() and rows.is_cpu and weight.is_cpu)
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
    ):
        return None
    return load_kernels("decode")
