"""Kernel sums over several features: every pair, but fast, and without those that are out of reach.

    sums[i, r, c] = Σ_j K(u) · factor_r · columns[j, c],        v = x_j − query_i in widths,  u = ‖v‖

The factors are 1 alone ("average"); 1, all v_a and all v_a v_b with a ≤ b ("linear"); or 1 and, for every feature,
−u K′(u) v_a² / u², which makes the slope by the log of its width ("slope"). As in sums_1d.py, sums are exact up to one
positive factor per query, which is 1 where a sample is at the query.

Samples are put into an order in which neighbours lie near each other, and so are queries; a tile of queries then skips
every block of samples whose box is out of its reach, or too far to add anything that counts. Memory is that of the
samples, the queries and the sums.

Shapes: points (m, features) and queries (n, features), in widths · columns (m, c), the first of them weights.
"""

from __future__ import annotations

import math

import numpy
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from regard.attention.sums_1d import POLYNOMIALS, Estimate, in_powers_of_margin, slope_coefficients
from regard.attention.threads import load_kernels, parallel_for

__all__ = ["nearest_others", "spatial_order", "sums_nd"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]

NEGLIGIBLE = 38.0  # exp(−38) = 3e-17 of the nearest sample's weight
TINY = 1e-100  # a total weight below this is summed again, relative to the nearest sample
KINDS = {"gaussian": 0, "laplace": 1}  # the others are polynomials
REACH = {"gaussian": math.sqrt(2 * NEGLIGIBLE), "laplace": NEGLIGIBLE}
ESTIMATES: dict[Estimate, int] = {"average": 0, "linear": 1, "slope": 2}


def sums_nd(
    kernel: str,
    points: Array,
    columns: Array,
    queries: Array,
    left_out: Indices | None = None,
    estimate: Estimate = "average",
) -> Array:
    """The sums above. Where left_out[i] ≥ 0, that sample takes no part in sums[i]."""
    features = points.shape[1]
    rows = {"average": 1, "linear": 1 + features + features * (features + 1) // 2, "slope": 1 + features}[estimate]
    left_out = numpy.full(len(queries), -1, dtype=numpy.int64) if left_out is None else left_out
    if kernel == "constant":
        return _constant_sums(points, columns, queries, left_out, estimate, rows)
    sums = numpy.empty((len(queries), rows, columns.shape[1]))
    order, query_order = spatial_order(points), spatial_order(queries)
    rank = numpy.empty(len(points) + 1, dtype=numpy.int64)  # of each sample in the order; the last is for -1
    rank[order] = numpy.arange(len(points))
    rank[-1] = -1
    blocks = _Blocks(kernel, points[order], columns[order])
    nearest = numpy.zeros(len(queries))
    sums[query_order] = blocks.sums(queries[query_order], rank[left_out[query_order]], nearest, estimate, rows)
    if kernel in KINDS:
        lost = numpy.flatnonzero(sums[:, 0, 0] < TINY)
        if len(lost):
            distances, _ = nearest_others(points, queries[lost], left_out[lost])
            sums[lost] = blocks.sums(queries[lost], rank[left_out[lost]], distances, estimate, rows)
    return sums


def _constant_sums(
    points: Array, columns: Array, queries: Array, left_out: Indices, estimate: Estimate, rows: int
) -> Array:
    """Every sample counts the same: moments of all samples, about their mean, moved to each query."""
    sums = numpy.zeros((len(queries), rows, columns.shape[1]))
    sums[:, 0] = columns.sum(0)
    if estimate == "linear":
        centre = points.mean(0)
        x, t = points - centre, queries - centre
        first = x.T @ columns  # (features, c)
        row = 1 + x.shape[1]
        sums[:, 1:row] = first - t[:, :, None] * sums[:, :1]
        for a in range(x.shape[1]):
            for b in range(a, x.shape[1]):
                second = (x[:, a] * x[:, b]) @ columns - numpy.outer(t[:, a], first[b]) - numpy.outer(t[:, b], first[a])
                sums[:, row] = second + (t[:, a] * t[:, b])[:, None] * sums[:, 0]
                row += 1
    # Its other rows are 0, for the sample is at the query.
    sums[left_out >= 0, 0] -= columns[left_out[left_out >= 0]]
    return sums


class _Blocks:
    """Samples in order, in blocks with their boxes."""

    def __init__(self, kernel: str, points: Array, columns: Array) -> None:
        loops = self.loops = load_kernels("sums_nd")
        starts = numpy.arange(0, len(points), loops.BLOCK)
        lows, highs = numpy.minimum.reduceat(points, starts), numpy.maximum.reduceat(points, starts)
        weights = numpy.add.reduceat(columns[:, 0], starts)
        points, columns = numpy.ascontiguousarray(points.T), numpy.ascontiguousarray(columns.T)
        self.blocks = loops.Blocks(points, columns, lows, highs, weights)
        # 2^x, interpolated at Chebyshev's points
        power = Chebyshev.interpolate(numpy.exp2, loops.TERMS - 1, domain=[-0.5, 0.5])
        exponential = power.convert(kind=Polynomial).coef[::-1].copy()
        exponential[-1] = 1.0  # K(0) is exactly 1
        coefficients = [1.0] if kernel in KINDS else POLYNOMIALS[kernel]
        polynomials = (in_powers_of_margin(coefficients), in_powers_of_margin(slope_coefficients(coefficients)))
        self.kernel = loops.Kernel(KINDS.get(kernel, 2), REACH.get(kernel, 1.0), exponential, *polynomials)

    def sums(self, queries: Array, left_out: Indices, nearest: Array, estimate: Estimate, rows: int) -> Array:
        """The sums for queries in order, relative to a sample at the distance `nearest`."""
        loops, (features, m) = self.loops, self.blocks.points.shape
        sums = numpy.empty((len(queries), rows, len(self.blocks.columns)))
        arguments = (self.kernel, ESTIMATES[estimate], numpy.ascontiguousarray(queries), left_out, nearest, self.blocks)

        def loop(start: int, stop: int) -> None:
            work, box = loops.Work(*(numpy.empty(loops.BLOCK) for _ in range(5))), numpy.empty((2, features))
            loops.sums_nd(*arguments, work, box, sums, start, stop)

        parallel_for(loop, -(-len(queries) // loops.TILE), len(queries) * m)
        return sums


def spatial_order(points: Array) -> Indices:
    """An order in which neighbours lie near each other: along Morton's curve through the most spread features."""
    spreads = points.max(0) - points.min(0) if len(points) else numpy.zeros(points.shape[1])
    features = numpy.argsort(-spreads, kind="stable")[:4]
    code = numpy.zeros(len(points), dtype=numpy.int64)
    bits = 62 // max(1, len(features))
    for offset, feature in enumerate(features):
        # Cells half a width wide, unless the data are too spread for as many.
        per_width = min(2.0, (2**bits - 1) / max(spreads[feature], 1))
        cells = ((points[:, feature] - points[:, feature].min(initial=0)) * per_width).astype(numpy.int64)
        for bit in range(bits):
            code |= ((cells >> bit) & 1) << (bit * len(features) + offset)
    return numpy.argsort(code, kind="stable")


def nearest_others(points: Array, queries: Array, left_out: Indices) -> tuple[Array, Indices]:
    """The distance and the index of each query's nearest sample, but for the one that is left out."""
    from scipy.spatial import cKDTree

    distances, indices = cKDTree(points).query(queries, k=[1, 2])  # infinitely far where there is no second
    second = indices[:, 0] == left_out
    return numpy.where(second, *distances.T[::-1]), numpy.where(second, *indices.T[::-1])
