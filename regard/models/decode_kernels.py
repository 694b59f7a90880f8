"""Linear layers and norms that are fast for few rows as well, which decoding token by token is made of.

PyTorch's products are made for many rows: with a handful of them they use half of what the memory can deliver, or
less. A compiled loop that reads the matrix once, in all threads where it is large, is faster (benchmarks/ablation.py).
With some dozens of rows, as beams have, and a large matrix, such as an embedding of words, oneDNN is faster than the
BLAS which PyTorch prefers. Both run where no gradient is wanted; the result is the same to rounding.
"""

from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import has_values
from regard.attention.threads import load_kernels, run_task

FEW = 8  # rows; with more of them PyTorch's products are faster
SHARE = 1 << 18  # numbers of a matrix that are worth waking a thread for
MANY, LARGE = 256, 1 << 20  # rows, and numbers of a matrix, up to and from which oneDNN's products are faster
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


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
    outputs, size = weight.shape
    some = FEW * size < rows.numel() <= MANY * size
    if ONEDNN and some and weight.numel() >= LARGE and _is_decoding(rows, weight, bias):
        result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
        return result
    loops = _load_loops(rows, weight, bias)
    if loops is None:
        return functional.linear(rows, weight, bias)
    inputs = rows.contiguous()
    output = inputs.new_empty(*inputs.shape[:-1], outputs)
    workers = max(1, min(torch.get_num_threads(), weight.numel() // SHARE))
    step = outputs if workers == 1 else -(-outputs // (4 * workers))
    places = inputs.data_ptr(), weight.data_ptr(), 0 if bias is None else bias.data_ptr(), output.data_ptr()
    run_task(loops.products, (0, step, inputs.numel() // size, size, outputs, *places), workers)
    return output


def _load_loops(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """The compiled loops, where they may be used and pay; else None."""
    few = 0 < rows.numel() <= FEW * weight.shape[-1]
    return load_kernels("steps", "models") if few and _is_decoding(rows, weight, bias) else None


def _is_decoding(rows: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether no gradients are wanted, and the numbers can be read where they lie."""
    if torch.is_grad_enabled() or weight.shape[-1] != rows.shape[-1] or rows.is_neg():
        return False
    if not (_is_plain(rows) and _is_plain(weight) and weight.is_contiguous()) or torch.is_autocast_enabled("cpu"):
        return False
    return bias is None or (_is_plain(bias) and bias.is_contiguous())


def _is_plain(tensor: Tensor) -> bool:
    """Whether it holds float32 on a CPU."""
    return tensor.dtype is torch.float32 and tensor.is_cpu and has_values(tensor)
