"""Samples of a kernel regression, ready to be asked: one feature is a line, several are a cloud."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from regard.attention.sums_1d import Line, What
from regard.attention.threads import load_kernels
from regard.kernel.sums_nd import cloud_sums

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]


class Samples:
    """Points (m, features), their values (m, outputs) and their weights (m,), in an order of their own.

    Values are kept about their mean, so that sums lose no digits to it. Weights that are all whole numbers are counts:
    a sample of weight 3 is three samples, and leaving one out leaves two. Other weights say how much a sample matters,
    and it is left out whole.
    """

    def __init__(self, points: Array, values: Array, weights: Array) -> None:
        if load_kernels("sums_nd") is None:
            raise ImportError("kernel regression needs numba: pip install numba")
        order = numpy.flatnonzero(weights > 0)  # a sample of weight 0 is no sample
        if points.shape[1] == 1:
            order = order[numpy.argsort(points[order, 0], kind="stable")]
        self.total, self.order = len(points), order  # how many were given, and which of them these are
        points, values, weights = self.points, self.values, self.weights = points[order], values[order], weights[order]
        self.mean = numpy.average(values, axis=0, weights=weights)
        self.centred = values - self.mean
        self.columns = numpy.column_stack([weights, weights[:, None] * self.centred])
        self.counted = bool((weights == numpy.floor(weights)).all())
        self.left_out = self.columns / weights[:, None] if self.counted else self.columns
        self.line = Line(points[:, 0], self.columns) if points.shape[1] == 1 else None

    @property
    def count(self) -> float:
        """How many samples there are: the sum of counts, or of as many equal weights as say as much as these."""
        total = float(self.weights.sum())
        return total if self.counted else total**2 / float((self.weights**2).sum())

    def sums(self, kernel: str, widths: Array, queries: Array, what: What = "average") -> Array:
        """Sums (n, rows, 1 + outputs) around queries (n, features): see line.py and cloud.py."""
        if self.line is not None:
            asked = numpy.argsort(queries[:, 0])
            sums = self.line.sums(kernel, float(widths[0]), queries[asked, 0], what)
            found = numpy.empty_like(sums)
            found[asked] = sums
            return found
        return cloud_sums(kernel, self.points / widths, self.columns, queries / widths, what=what)

    def sums_of_others(self, kernel: str, widths: Array, chosen: Indices, what: What = "average") -> Array:
        """The same around the chosen samples, each left out of its own sums."""
        if self.line is not None:
            return self.line.sums_of_others(kernel, float(widths[0]), what, self.left_out)[chosen]
        whole = self.columns[chosen, 0] <= self.left_out[chosen, 0]
        points = self.points / widths
        own = numpy.where(whole, chosen, -1)
        sums = cloud_sums(kernel, points, self.columns, points[chosen], own, what)
        sums[~whole, 0] -= self.left_out[chosen[~whole]]  # K(0) = 1
        return sums

    def chosen(self, pairs: float) -> Indices:
        """The samples that are asked about the others: all, unless several features make that too many pairs."""
        m, features = self.points.shape
        if features == 1 or m * m <= pairs:
            return numpy.arange(m)
        return numpy.sort(numpy.random.default_rng(0).permutation(m)[: max(1000, int(pairs / m))])
