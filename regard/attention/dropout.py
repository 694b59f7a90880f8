"""Dropout: each number becomes 0 with some probability, and the others grow by as much as is lost.

    output_i = x_i / (1 − probability)  or  0

PyTorch's own draws a float for each number, which on a CPU takes longer than the products around it; 16 bits of a
random word are enough to decide.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["dropout"]

VALUES = 1 << 16  # of 16 bits: the probability is a multiple of 1 / VALUES


def dropout(x: Tensor, probability: float, training: bool = True, generator: torch.Generator | None = None) -> Tensor:
    """x with each number set to 0 with this probability, in training alone."""
    if not (training and probability):
        return x
    if not x.is_cpu or torch.compiler.is_compiling():
        return functional.dropout(x, probability)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)  # from −VALUES / 2 on
    mask = (bits >= round(probability * VALUES) - VALUES // 2).to(x.dtype)
    return x * mask.mul_(1 / (1 - probability))
