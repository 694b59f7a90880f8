"""Norms: each row is brought to one scale, alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """rows / √(mean of rows² + ε) · weight, each row alone."""

    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = eps

    def forward(self, rows: Tensor) -> Tensor:
        return rows * (rows.square().mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.weight


NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": RMSNorm}
