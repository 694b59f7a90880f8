"""The noisy curve of the notes, y = 2 sin x + x^0.8 + noise on 0 ≤ x ≤ 5, which several sections use.

All of it in float64, and in columns (count, 1), as queries, keys and values have one feature here.
"""

import torch
from torch import Tensor

SEEDS = range(5)
GRID = torch.linspace(0, 5, 101, dtype=torch.float64)[:, None]  # where a curve is compared with the truth


def truth(x: Tensor) -> Tensor:
    """The curve without its noise."""
    return 2 * x.sin() + x**0.8


def samples(count: int = 50, seed: int = 0, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    """Sorted x and noisy y, (count, 1) each."""
    generator = torch.Generator().manual_seed(seed)
    x = 5 * torch.rand(count, 1, generator=generator, dtype=torch.float64).sort(0).values
    return x, truth(x) + noise * torch.randn(count, 1, generator=generator, dtype=torch.float64)
