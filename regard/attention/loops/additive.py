"""The loops of the additive score, compiled by numba.

With a = e^{2 query} and b = e^{2 key}, tanh(query + key) = 1 − 2r where r = 1 / (1 + a b), and its slope is 4r (1 − r),
so no loop computes a tanh.

Shapes: a (batch, n, hidden) · b (batch, hidden, m), so that the innermost loop, over keys, reads and writes neighbours.
"""

from typing import Any

import numpy

from regard.attention.loops import Array, compiled

ROWS = 16  # rows that go through all hidden units together: a hidden unit's keys are read once for all of them


@compiled("contract")
def scores(a: Array, b: Array, w: Array, limit: Any, out: Array, start: int, stop: int) -> None:
    """out[s, i, j] = Σ_d w_d (1 − 2 / (1 + a_id b_jd)) for the rows s · n + i in [start, stop); hidden divisible by 4.

    Two hidden units share a division, u/x + v/y = (u y + v x) / (x y). `limit` is None where no x y can overflow; else
    products a b are cut off there, far beyond where tanh is 1 to the last bit. (numba compiles one version of each.)
    """
    n, hidden = a.shape[1:]
    one, zero = a.dtype.type(1), a.dtype.type(0)
    for s in range(start // n, (stop + n - 1) // n):
        for top in range(max(start - s * n, 0), min(stop - s * n, n), ROWS):
            bottom = min(top + ROWS, stop - s * n, n)
            out[s, top:bottom] = zero
            for d in range(0, hidden, 4):
                b0, b1, b2, b3 = b[s, d], b[s, d + 1], b[s, d + 2], b[s, d + 3]
                sum_w = w[d] + w[d + 1] + w[d + 2] + w[d + 3]
                w0, w1, w2, w3 = w[d] + w[d], w[d + 1] + w[d + 1], w[d + 2] + w[d + 2], w[d + 3] + w[d + 3]
                for i in range(top, bottom):
                    row = out[s, i]
                    a0, a1, a2, a3 = a[s, i, d], a[s, i, d + 1], a[s, i, d + 2], a[s, i, d + 3]
                    for j in range(row.size):
                        x0, x1, x2, x3 = a0 * b0[j], a1 * b1[j], a2 * b2[j], a3 * b3[j]
                        if limit is not None:
                            x0, x1, x2, x3 = min(x0, limit), min(x1, limit), min(x2, limit), min(x3, limit)
                        x0, x1, x2, x3 = x0 + one, x1 + one, x2 + one, x3 + one
                        twice_r = (w0 * x1 + w1 * x0) / (x0 * x1) + (w2 * x3 + w3 * x2) / (x2 * x3)
                        row[j] += sum_w - twice_r


@compiled("contract", "reassoc")
def slopes(a: Array, b: Array, grad: Array, by_query: Array, by_key: Array, by_w: Array, start: int, stop: int) -> None:
    """The sums that make the gradients, for the hidden units d in [start, stop), from grad (batch, n, m):

    by_query[s, i, d] = Σ_j grad r (1 − r) · by_key[s, d, j] += Σ_i grad r (1 − r) · by_w[s, i, d] = Σ_j grad r

    `part` (m,) holds the sum over ROWS rows, because adding them one by one to the whole sum would lose digits.
    """
    batch, n, m = grad.shape
    part = numpy.empty(m, a.dtype)
    one, zero = a.dtype.type(1), a.dtype.type(0)
    for s in range(batch):
        for top in range(0, n, ROWS):
            for d in range(start, stop):
                keys, total = b[s, d], by_key[s, d]
                part[:] = zero
                for i in range(top, min(top + ROWS, n)):
                    row, query = grad[s, i], a[s, i, d]
                    sum_r, sum_slope = zero, zero
                    for j in range(m):
                        r = one / (one + query * keys[j])
                        weighted = row[j] * r
                        slope = weighted - weighted * r
                        sum_r += weighted
                        sum_slope += slope
                        part[j] += slope
                    by_query[s, i, d] = sum_slope
                    by_w[s, i, d] = sum_r
                for j in range(m):
                    total[j] += part[j]
