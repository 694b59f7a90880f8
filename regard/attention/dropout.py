"""Dropout: a share of the numbers becomes 0, and the others grow by as much as is lost.

    output_i = x_i / (1 − share)  or  0

PyTorch's own draws a float for each number, which on a CPU takes longer than the products around it; 16 bits of a
random word are enough to decide.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["dropout"]

VALUES = 1 << 16  # of 16 bits: the share is a multiple of 1 / VALUES


def dropout(x: Tensor, share: float) -> Tensor:
    """x with a random share of its numbers set to 0."""
    if not x.is_cpu or torch.compiler.is_compiling():
        return functional.dropout(x, share)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)  # from −VALUES / 2 on
    mask = (bits >= round(share * VALUES) - VALUES // 2).to(x.dtype)
    return x * mask.mul_(1 / (1 - share))
