"""What decoding does token by token: a few rows times a large matrix, which is read once for all of them."""

from __future__ import annotations

import numpy

from regard.attention.loops import Array, compiled


@compiled("reassoc", "contract", "nsz")
def products(rows: Array, weight: Array, bias: Array, output: Array, start: int, stop: int) -> None:
    """output[r, n] = Σ_k rows[r, k] · weight[n, k] + bias[n], for n from start to stop; an empty bias is none."""
    count, size = rows.shape
    for n in range(start, stop):
        column = weight[n]
        for r in range(count):
            row = rows[r]
            total = numpy.float32(0)
            for k in range(size):
                total += row[k] * column[k]
            output[r, n] = total + bias[n] if len(bias) else total


@compiled("reassoc", "contract", "nsz")
def normalize(rows: Array, weight: Array, epsilon: float, output: Array) -> None:
    """Each row divided by the root of the mean of its squares, times the weight."""
    count, size = rows.shape
    for r in range(count):
        row, total = rows[r], numpy.float32(0)
        for k in range(size):
            total += row[k] * row[k]
        scale = numpy.float32(1 / numpy.sqrt(total / size + epsilon))
        for k in range(size):
            output[r, k] = row[k] * scale * weight[k]
