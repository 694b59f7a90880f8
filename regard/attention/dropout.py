"""Dropout: each number becomes 0 with some probability, and the others grow by as much as is lost.

    output_i = x_i / (1 − probability)  or  0

PyTorch's own draws a float for each number, which on a CPU takes longer than the products around it; 16 bits of a
random word are enough to decide, but for probabilities near 0 and 1, which take 32.
"""

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.tracing import is_traced

ROUNDING = 1e-3  # how far off a probability may be by rounding, as a share of it and of what it leaves


def dropout(x: Tensor, probability: float, training: bool = True, generator: torch.Generator | None = None) -> Tensor:
    """x with each number set to 0 with this probability, in training alone; drawn from the generator, if given."""
    if not (training and probability):
        return x
    if is_traced(x):
        if generator is None:
            return functional.dropout(x, probability)
        kept = torch.rand(x.shape, device=x.device, generator=generator) >= probability
        return x * kept.to(x.dtype).mul_(1 / (1 - probability))
    values, dtype = 1 << 16, torch.int16  # the probability is rounded to a multiple of 1 / values
    if abs(round(probability * values) / values - probability) > ROUNDING * min(probability, 1 - probability):
        values, dtype = 1 << 32, torch.int32
    per_word = 8 // dtype.itemsize
    words = torch.empty(-(-x.numel() // per_word), dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    draws = words.view(dtype)[: x.numel()].view(x.shape)  # from −values / 2 on
    dropped = min(round(probability * values), values - 1)  # so many of the values
    mask = (draws >= dropped - values // 2).to(x.dtype)
    return x * mask.mul_(values / (values - dropped))
