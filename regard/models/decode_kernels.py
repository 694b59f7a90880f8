"""Linear layers and norms that are as fast as the processor allows, for few rows as for many.

PyTorch's products are made for many rows: with a handful of them, which decoding token by token is made of, they use
half of what the memory can deliver, or less. A compiled loop that reads the matrix once, in all threads where it is
large, is faster (benchmarks/ablation.py). With some dozens of rows, as beams have, and a large matrix, such as an
embedding of words, oneDNN is faster than the BLAS which PyTorch prefers. Both run where no gradient is wanted.

That BLAS is MKL. On a processor of AMD with AVX-512 oneDNN took half of its time, for products of 64 to 4,160 rows,
forward and backward: MKL was no faster there than AVX2 allows. Results are the same to rounding, whoever computes them.
"""

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import has_values
from regard.attention.threads import load_kernels, run_task
from regard.attention.tracing import in_transform

FEW = 8  # rows; with more of them PyTorch's products are faster
SHARE = 1 << 18  # numbers of a matrix that are worth waking a thread for
MANY, LARGE = 256, 1 << 20  # rows, and numbers of a matrix, up to and from which oneDNN's products are faster
WORTH = 1 << 22  # multiplications; for fewer a call of autograd's in Python costs what oneDNN gains
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
    if torch.compiler.is_compiling():
        return functional.linear(rows, weight, bias)
    outputs, size = weight.shape
    worth = rows.numel() > FEW * size and rows.numel() * outputs >= WORTH
    if worth and is_mkl_slow() and _has_float32(rows, weight, bias) and not in_transform():
        if torch.is_grad_enabled():
            result: Tensor = _Product.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
            return result
        return _by_onednn(rows, weight, bias)
    some = FEW * size < rows.numel() <= MANY * size
    if ONEDNN and some and weight.numel() >= LARGE and _is_decoding(rows, weight, bias):
        return _by_onednn(rows, weight, bias)
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
    if torch.is_grad_enabled() or not weight.is_contiguous() or not (bias is None or bias.is_contiguous()):
        return False
    return _has_float32(rows, weight, bias)


def _has_float32(rows: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether this is a product of float32 on a CPU, whose numbers are there."""
    if not (_is_plain(rows) and _is_plain(weight) and (bias is None or _is_plain(bias))):
        return False
    return weight.shape[-1] == rows.shape[-1] and not (rows.is_neg() or torch.is_autocast_enabled("cpu"))


def _is_plain(tensor: Tensor) -> bool:
    """Whether it holds float32 on a CPU."""
    return tensor.dtype is torch.float32 and tensor.is_cpu and has_values(tensor)


# ------------------------------------------------------------------------------------------------------------- oneDNN


@functools.cache
def is_mkl_slow() -> bool:
    """Whether PyTorch's products are MKL's, on a processor of AMD with AVX-512."""
    vectors = torch.backends.cpu.get_cpu_capability()
    return ONEDNN and torch.backends.mkl.is_available() and vectors.startswith("AVX512") and _vendor() == "AuthenticAMD"


def _vendor() -> str:
    """Who made the processor, in its own words; "" if the system does not say."""
    if sys.platform == "win32":
        return os.environ.get("PROCESSOR_IDENTIFIER", "").rpartition(", ")[2]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.split()[-1] for line in lines if line.startswith("vendor_id")), "")
    except OSError:
        return ""


def _by_onednn(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not (weight.is_contiguous() or weight.T.is_contiguous()):  # its reference loops, thousands of times slower
        weight = weight.contiguous()
    result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return result


class _Product(torch.autograd.Function):
    """The product by oneDNN; so are its gradients, unless they are to be differentiated in turn."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return _by_onednn(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        multiply = functional.linear if torch.is_grad_enabled() else _by_onednn
        flat_gradient, flat_rows = gradient.reshape(-1, len(weight)), rows.reshape(-1, rows.shape[-1])
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            multiply(flat_gradient, weight.T).view_as(rows) if of_rows else None,
            multiply(flat_gradient.T, flat_rows.T) if of_weight else None,
            flat_gradient.sum(0) if of_bias else None,
        )
