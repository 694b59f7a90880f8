"""Samples of a kernel regression: their kernel sums, and the local estimates that these make.

About a query, Σ_j K (y_j − a − b·v_j)² is least, for a local average, at a = Σ K y / Σ K, and for a local line at
b = cov(v)⁺ cov(v, y), a = mean(y) − b · mean(v), all under the weights K. Where samples do not span a direction, the
line has no slope along it, and where they are one point it is their average.
"""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from regard.attention.sums_1d import Estimate, Form, Samples1D
from regard.attention.threads import load_kernels
from regard.kernel.sums_nd import sums_nd

__all__ = ["Samples", "local_averages", "local_lines", "slopes_of_averages"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]

ORDERS: dict[Estimate, int] = {"average": 0, "linear": 2, "slope": 0}
FORMS: dict[Estimate, tuple[Form, ...]] = {"average": ("kernel",), "linear": ("kernel",), "slope": ("kernel", "slope")}
FLAT = 1e-9  # a variance below this part of the mean square is a sum of rounding errors


class Samples:
    """Points (m, features), their values (m, outputs) and their weights (m,), without those of weight 0.

    Values are kept about their mean, so that sums lose no digits to it. Weights that are all whole numbers are counts:
    a sample of weight 3 is three samples, and leaving one out leaves two. Other weights say how much a sample matters,
    and it is left out whole.
    """

    def __init__(self, points: Array, values: Array, weights: Array) -> None:
        if load_kernels("sums_nd") is None:
            raise ImportError("kernel regression needs numba: pip install numba")
        order = numpy.flatnonzero(weights > 0)
        if points.shape[1] == 1:
            order = order[numpy.argsort(points[order, 0], kind="stable")]
        self.total, self.order = len(points), order  # how many were given, and which of them these are
        points, values, weights = self.points, self.values, self.weights = points[order], values[order], weights[order]
        self.mean = numpy.average(values, axis=0, weights=weights)
        self.centred = values - self.mean
        self.columns = numpy.column_stack([weights, weights[:, None] * self.centred])
        self.counted = bool((weights == numpy.floor(weights)).all())
        self.left_out = self.columns / weights[:, None] if self.counted else self.columns
        self.sorted = Samples1D(points[:, 0], self.columns) if points.shape[1] == 1 else None

    @property
    def count(self) -> float:
        """How many samples there are: the sum of counts, or of as many equal weights as say as much as these."""
        total = float(self.weights.sum())
        return total if self.counted else total**2 / float((self.weights**2).sum())

    def sums(self, kernel: str, widths: Array, queries: Array, estimate: Estimate) -> Array:
        """Sums (n, rows, 1 + outputs) around queries (n, features): see sums_1d.py and sums_nd.py."""
        if self.sorted is None:
            return sums_nd(kernel, self.points / widths, self.columns, queries / widths, estimate=estimate)
        order = numpy.argsort(queries[:, 0])
        forms, at = FORMS[estimate], queries[order, 0]
        parts = [self.sorted.sums(kernel, float(widths[0]), at, ORDERS[estimate], form) for form in forms]
        in_order = numpy.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        sums = numpy.empty_like(in_order)
        sums[order] = in_order
        return sums

    def sums_of_others(self, kernel: str, widths: Array, chosen: Indices, estimate: Estimate) -> Array:
        """The same around the chosen samples, each left out of its own sums."""
        if self.sorted is not None:
            order, width, left_out = ORDERS[estimate], float(widths[0]), self.left_out
            forms = [self.sorted.sums_of_others(kernel, width, order, form, left_out) for form in FORMS[estimate]]
            return numpy.concatenate(forms, axis=1)[chosen]
        whole = self.columns[chosen, 0] <= self.left_out[chosen, 0]
        points = self.points / widths
        sums = sums_nd(kernel, points, self.columns, points[chosen], numpy.where(whole, chosen, -1), estimate)
        sums[~whole, 0] -= self.left_out[chosen[~whole]]  # K(0) = 1
        return sums

    def choose(self, pairs: float) -> Indices:
        """The samples that are predicted from the others: all, unless several features make that too many pairs."""
        m, features = self.points.shape
        if features == 1 or m * m <= pairs:
            return numpy.arange(m)
        return numpy.sort(numpy.random.default_rng(0).permutation(m)[: max(1000, int(pairs / m))])


def local_averages(sums: Array) -> Array:
    """(n, rows, 1 + outputs) → (n, outputs); NaN where no sample is within reach."""
    with numpy.errstate(invalid="ignore", divide="ignore"):
        averages: Array = sums[:, 0, 1:] / sums[:, 0, :1]
    averages[~(sums[:, 0, 0] > 0)] = numpy.nan
    return averages


def local_lines(sums: Array, features: int) -> Array:
    """The local line's height (n, outputs), from the sums of "linear"."""
    heights = local_averages(sums)
    reached = numpy.flatnonzero(sums[:, 0, 0] > 0)
    sums, averages = sums[reached], heights[reached]
    total = sums[:, 0, 0]
    mean = sums[:, 1 : 1 + features, 0] / total[:, None]  # (n, features)
    square, row = numpy.empty((len(reached), features, features)), 1 + features
    for a in range(features):
        for b in range(a, features):
            square[:, a, b] = square[:, b, a] = sums[:, row, 0] / total
            row += 1
    covariance = square - mean[:, :, None] * mean[:, None, :]
    with_values = sums[:, 1 : 1 + features, 1:] / total[:, None, None] - mean[:, :, None] * averages[:, None, :]
    slopes = _solve(covariance, with_values, square)  # (n, features, outputs)
    heights[reached] -= numpy.einsum("nd,ndc->nc", mean, slopes)
    return heights


def _solve(covariance: Array, with_values: Array, square: Array) -> Array:
    """covariance⁺ · with_values; 0 along directions whose variance is rounding error beside the mean square."""
    if covariance.shape[1] == 1:
        flat = covariance <= FLAT * square
        slopes: Array = numpy.where(flat, 0, with_values / numpy.where(flat, 1, covariance))
        return slopes
    values, vectors = numpy.linalg.eigh(covariance)
    floor = FLAT * numpy.trace(square, axis1=1, axis2=2)[:, None]
    largest = numpy.maximum(values[:, -1:], floor)
    inverse = numpy.where(values > FLAT * largest, 1 / numpy.maximum(values, 1e-300), 0)
    inverse *= values[:, -1:] > floor
    along = numpy.einsum("nda,ndc->nac", vectors, with_values) * inverse[:, :, None]
    return numpy.asarray(numpy.einsum("nda,nac->ndc", vectors, along))


def slopes_of_averages(sums: Array) -> Array:
    """The derivative of averages by the log of each width, (n, features, outputs), from the sums of "slope"."""
    reached = sums[:, 0, 0] > 0
    total = numpy.where(reached, sums[:, 0, 0], 1)[:, None, None]
    slopes = (sums[:, 1:, 1:] - sums[:, 1:, :1] * (sums[:, :1, 1:] / total)) / total
    return numpy.where(reached[:, None, None], slopes, 0)
