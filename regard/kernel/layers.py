"""The samples of a compressed state as sources of kernel sums and as targets of estimates that leave one out.

A sample's leverage l is what its estimate changes with its own value; with the sums S of the samples' v^(a+b) about it,
l = (S⁻¹)₀₀, and without the sample its residual would be (y − m(x)) / (1 − l(x)). Both m and l are smooth functions of
x, so that the sum over the samples of a compressed cell (compressed.py) is one over its nodes,

    Σ_j (y_j − m)² / (1 − l)²  =  Σ_a (Σ y² − 2 m Σ y + m² n)_a / (1 − l)²      at node a

Where compressed cells lie side by side, the distances between nodes are the same everywhere, and the sums of many cells
are one product of matrices.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from regard.attention.sums_1d import Samples1D, relative_to
from regard.kernel.compressed import AT_NODES, FAR, NODES, Compressed, PseudoSamples, nearest_distances
from regard.kernel.local import fit_locally

__all__ = ["Layer", "Terms", "local_fit"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
Chosen = NDArray[numpy.bool_]

LEVERAGE = 0.1  # from which on 1 / (1 − l)² is not left to an interpolation
NEGLIGIBLE = 80.0  # in squared bandwidths: exp(−40) is 4e-18


class Terms(NamedTuple):
    """What each of n targets adds to them: loo (n, outputs), trace (n,), in_sample (n, outputs)."""

    loo: Array
    trace: Array
    in_sample: Array


def local_fit(sums: Array, degree: int) -> tuple[Array, Array]:
    """The heights (n, outputs) of local polynomials, and (S⁻¹)₀₀ (n,), from sums of order 2 degree."""
    fit = fit_locally(sums, 1, degree)
    return fit.heights, fit.duals[:, 0].copy()


class Layer:
    """The samples and pseudo-samples of a state.

    centroids: with each compressed cell as one sample at the mean of its x, which serves, roughly, at any distance.
    """

    def __init__(self, state: Compressed, *, centroids: bool = False) -> None:
        self.points = state.centroids() if centroids else state.samples()
        self.outputs, self.cell = state.outputs, math.ldexp(1.0, state.level)
        self.keys = state.keys - self.points.origin
        self.single = (self.points.cells < 0) & (self.points.columns[:, 0] == 1)
        self.has_nodes = len(self.keys) > 0 and not centroids
        self._columns = numpy.ascontiguousarray(self.points.columns[:, : 1 + self.outputs])

    def terms(self, targets: Indices, width: float, degree: int) -> tuple[Terms, Array]:
        """The terms of the targets, and their leverages (n,).

        A sample alone at its x is left out of the sums: where others are far away, nothing would remain of them in a
        difference. Of the rest, which are many at their x or nodes of many samples, one is left out by its leverage.
        """
        columns, single = self.points.columns[targets], self.single[targets]
        sums = self._sums(targets, width, 2 * degree)
        heights, leverage = local_fit(sums, degree)
        loo = _squares(columns, heights)
        in_sample = loo.copy()
        # Sums may be relative to the nearest sample that takes part; a sample's own weight is 1.
        weights = relative_to("gaussian", self._to_others(targets[single]) / width)
        sums = sums[single] * weights[:, None, None]
        sums[:, 0] += columns[single, : 1 + self.outputs]
        heights, leverage[single] = local_fit(sums, degree)
        in_sample[single] = _squares(columns[single], heights)
        loo[~single] /= numpy.square(1 - leverage[~single])[:, None]
        return Terms(loo, columns[:, 0] * leverage, in_sample), leverage

    def terms_of(self, points: PseudoSamples, chosen: Indices, width: float, degree: int) -> Terms:
        """Those of samples that this layer holds compressed: from all sums, in which each has its share."""
        x = points.x[chosen]
        heights, inverse = local_fit(self._all.sums("gaussian", width, x, 2 * degree), degree)
        squares = _squares(points.columns[chosen], heights)
        leverage = inverse / relative_to("gaussian", nearest_distances(self.points.x, x) / width)
        loo = squares / numpy.square(1 - leverage)[:, None]
        return Terms(loo, points.columns[chosen, 0] * leverage, squares)

    def doubtful(self, targets: Indices, leverage: Array, width: float) -> Chosen:
        """Of the targets: samples so far from others, and cells of such leverage, that nodes do not serve them."""
        if not self.has_nodes:
            return numpy.zeros(len(targets), dtype=bool)
        cells = self.points.cells[targets]
        steep = (cells >= 0) & ~((leverage >= 0) & (leverage <= LEVERAGE))
        far = self.single[targets] & (self._to_others(targets) * self.cell / 2 > FAR * width**2)
        return numpy.asarray(far | numpy.isin(cells, cells[steep]))

    def places(self, targets: Indices) -> tuple[Array, Array]:
        """Where the targets are, from (n,) to (n,): the place of a sample, or the cell of a pseudo-sample."""
        cells, x = self.points.cells[targets], self.points.x[targets]
        starts = numpy.append(self.keys, numpy.nan)[cells]
        ends = numpy.nextafter(starts + self.cell, -numpy.inf)
        return numpy.where(cells < 0, x, starts), numpy.where(cells < 0, x, ends)

    def within(self, starts: Array, ends: Array) -> Indices:
        """The samples and pseudo-samples in any of these intervals, ends included."""
        x = self.points.x
        order = numpy.argsort(starts, kind="stable")
        low = numpy.searchsorted(x, starts[order])
        high = numpy.maximum.accumulate(numpy.searchsorted(x, ends[order], side="right"))
        low[1:] = numpy.maximum(low[1:], high[:-1])  # the intervals without what is in one before
        lengths = numpy.maximum(high - low, 0)
        shifts = numpy.repeat(low - numpy.cumsum(lengths) + lengths, lengths)
        return numpy.asarray(numpy.arange(len(shifts)) + shifts)

    # ------------------------------------------------------------------------------------------------------------ sums

    @cached_property
    def _all(self) -> Samples1D:
        return Samples1D(self.points.x, self._columns)

    def _sums(self, targets: Indices, width: float, order: int) -> Array:
        """Sums of v^0 … v^order at the targets, each sample that is alone left out of its own."""
        if len(targets) < len(self.points.x):
            return self._sums_at(targets, width, order)
        reach = math.ceil(math.sqrt(NEGLIGIBLE) * width / self.cell) + 1 if self.has_nodes else 0  # in cells
        if len(self.keys) < 10 * reach or not self.has_nodes:
            return self._sums_of_others(self._all, slice(None), width, order)
        side_by_side, sums_of_cells = self._sums_of_cells(reach, width, order)
        rest = numpy.ones(len(targets), dtype=bool)
        rest[side_by_side] = False
        sums = numpy.empty((len(targets), order + 1, 1 + self.outputs))
        sums[side_by_side] = sums_of_cells
        sums[rest] = self._sums_at(numpy.flatnonzero(rest), width, order)
        return sums

    def _sums_at(self, targets: Indices, width: float, order: int) -> Array:
        """Those at some of the targets, over all that counts beside the nearest."""
        x = self.points.x
        nearest, beyond = self._to_others(targets), NEGLIGIBLE * width**2
        # √(nearest² + beyond), so that what is beyond the nearest is not lost to rounding
        reach = (
            nearest + beyond / (nearest + numpy.sqrt(nearest**2 + beyond)) + numpy.spacing(abs(x[targets]) + nearest)
        )
        near = self.within(x[targets] - reach, x[targets] + reach)
        sums = self._sums_of_others(Samples1D(x[near], self._columns[near]), near, width, order)
        return sums[numpy.searchsorted(near, targets)]

    def _sums_of_others(self, samples: Samples1D, near: Indices | slice, width: float, order: int) -> Array:
        left_out = numpy.where(self.single[near, None], self._columns[near], 0.0)
        return samples.sums_of_others("gaussian", width, order, left_out=left_out)

    def _sums_of_cells(self, reach: int, width: float, order: int) -> tuple[Indices, Array]:
        """Nodes with nothing but compressed cells in reach, so many on each side, and the sums about them.

        One matrix takes the nodes of `block + 2 reach` cells in a row to those of the `block` in their middle.
        """
        block, cells = reach, len(self.keys)
        count = (cells - 2 * reach) // block  # of blocks
        nodes = (numpy.arange(block + 2 * reach)[:, None] + AT_NODES / 2).ravel() * (self.cell / width)
        v = nodes - nodes[reach * NODES : (reach + block) * NODES, None]  # (block · q, (block + 2 reach) · q)
        columns = self._columns[self.points.cells >= 0].reshape(cells, -1)
        rows = sliding_window_view(columns, block + 2 * reach, axis=0)[::block][:count]  # (count, q · c, in a row)
        sources = rows.swapaxes(1, 2).reshape(count, len(nodes), -1).swapaxes(0, 1).reshape(len(nodes), -1)
        powers, sums = numpy.exp(-(v**2) / 2), numpy.empty((order + 1, count * block * NODES, 1 + self.outputs))
        for k in range(order + 1):
            in_blocks = (powers @ sources).reshape(block * NODES, count, -1)
            sums[k] = in_blocks.swapaxes(0, 1).reshape(sums.shape[1:])
            powers = powers * v
        inside = numpy.arange(reach, reach + count * block)
        known = self.keys[inside + reach] - self.keys[inside - reach] == 2 * reach * self.cell
        index = numpy.flatnonzero(self.points.cells >= 0).reshape(cells, NODES)[inside[known]]
        return index.ravel(), sums.swapaxes(0, 1)[numpy.repeat(known, NODES)]

    def _to_others(self, targets: Indices) -> Array:
        """The distance to the nearest other sample or pseudo-sample."""
        x = self.points.x
        left = numpy.where(targets > 0, x[targets] - x[targets - 1], numpy.inf)
        right = numpy.where(targets + 1 < len(x), x[(targets + 1) % len(x)] - x[targets], numpy.inf)
        nearest: Array = numpy.minimum(left, right)
        return nearest


def _squares(columns: Array, heights: Array) -> Array:
    """Σ (y − height)² (n, outputs) from columns (n, 1 + 2 outputs): count, Σ y, Σ y²."""
    outputs = heights.shape[1]
    count, first, second = columns[:, :1], columns[:, 1 : 1 + outputs], columns[:, 1 + outputs :]
    squares: Array = second - heights * (2 * first - heights * count)
    return squares
