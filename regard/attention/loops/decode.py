"""What decoding does word by word: a few rows times a large matrix, which is read once for all of them; and norms."""

from __future__ import annotations

import math

import numpy

from regard.attention.loops import Array, compiled

FAST = ("reassoc", "contract", "nsz")
RELU, GELU, GELU_TANH, SILU, SWIGLU = range(5)


@compiled(*FAST)
def products(rows: Array, weight: Array, bias: Array, output: Array, start: int, stop: int) -> None:
    """output[r, n] = Σ_k rows[r, k] · weight[n, k] + bias[n], for n from start to stop; an empty bias is none."""
    count, size = rows.shape
    for n in range(start, stop):
        own = weight[n]
        for r in range(count):
            row = rows[r]
            total = numpy.float32(0)
            for k in range(size):
                total += row[k] * own[k]
            output[r, n] = total + bias[n] if len(bias) else total


@compiled(*FAST)
def root_mean_square_norms(rows: Array, weight: Array, epsilon: float, output: Array) -> None:
    """output[r] = rows[r] / √(mean of rows[r]² + ε) · weight."""
    count, size = rows.shape
    for r in range(count):
        row, place = rows[r], output[r]
        total = numpy.float32(0)
        for k in range(size):
            total += row[k] * row[k]
        scale = numpy.float32(1 / numpy.sqrt(total / size + epsilon))
        for k in range(size):
            place[k] = row[k] * scale * weight[k]


@compiled(*FAST)
def activate(inner: Array, output: Array, activation: int) -> None:
    """output = the activation of inner (rows, inner size), or of its two halves where it is gated."""
    count, size = output.shape
    for r in range(count):
        for k in range(size):
            x = inner[r, k]
            if activation == RELU:
                y = max(x, numpy.float32(0))
            elif activation == GELU:
                y = numpy.float32(0.5 * x * (1 + math.erf(x * 0.7071067811865476)))
            elif activation == GELU_TANH:
                y = numpy.float32(0.5 * x * (1 + math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))))
            else:
                y = numpy.float32(x / (1 + math.exp(-x)))
            output[r, k] = y * inner[r, size + k] if activation == SWIGLU else y


@compiled(*FAST)
def feed_forward(
    rows: Array,
    in_proj: Array,
    inward_bias: Array,
    activation: int,
    out_proj: Array,
    outward_bias: Array,
    output: Array,
) -> None:
    """output = activation(rows · inwardᵀ + its bias) · outwardᵀ + its bias."""
    inner = numpy.empty((len(rows), len(in_proj)), rows.dtype)
    products(rows, in_proj, inward_bias, inner, 0, len(in_proj))
    middle = numpy.empty((len(rows), out_proj.shape[1]), rows.dtype)
    activate(inner, middle, activation)
    products(middle, out_proj, outward_bias, output, 0, len(out_proj))
