"""The leave-one-out error of a Gaussian kernel regression on one feature, at a price that falls with the bandwidth.

A pyramid holds the same samples in cells of many widths (compressed.py), and answers for a bandwidth from cells of
about half of it, a layer. So a scan of bandwidths, from four times the range of the samples to half the gap between
them, costs little more than its narrowest passes, and those are first looked at in some stretches of the samples.

A sample's leverage l is what its estimate changes with its own value; with the sums S of the samples' v^(a+b) about it,
l = (S⁻¹)₀₀, and without the sample its residual would be (y − m(x)) / (1 − l(x)). Both m and l are smooth functions of
x, so that the sum over the samples of a compressed cell is one over its nodes,

    Σ_j (y_j − m)² / (1 − l)²  =  Σ_a (Σ y² − 2 m Σ y + m² n)_a / (1 − l)²      at node a

Where compressed cells lie side by side, the distances between nodes are the same everywhere, and the sums of many cells
are one product of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike
from scipy import optimize

from regard.attention.sums_1d import Samples1D, relative_to
from regard.kernel.compressed import AT_NODES, FAR, NODES, PER_WIDTH, Compressed, PseudoSamples, nearest_distances
from regard.kernel.local import Array, Indices, Mask, fit_locally

STRETCHES, STRETCH = 16, 1024  # of neighbouring samples, for a first look at an error
WIDEST = 1e8  # ranges of the samples: beyond, a wider kernel changes no digit
MANY = 16 * STRETCHES * STRETCH  # samples, from which on the stretches are a small part of them
LEVERAGE = 0.1  # from which on 1 / (1 − l)² is not left to an interpolation
NEGLIGIBLE = 80.0  # in squared bandwidths: exp(−40) is 4e-18


class LeaveOneOutError(NamedTuple):
    """Mean squared errors (outputs,) of the samples left out and of the samples within, and the sum of leverages.

    Or the terms of n targets: loo (n, outputs), trace (n,), in_sample (n, outputs).
    """

    loo: Array
    trace: Array
    in_sample: Array


class Layer:
    """The samples and pseudo-samples of a state.

    centroids: with each compressed cell as one sample at the mean of its x, which serves, roughly, at any distance.
    """

    def __init__(self, state: Compressed, *, centroids: bool = False) -> None:
        self.state, self.points = state, state.centroids() if centroids else state.points
        self.outputs, self.cell = state.outputs, math.ldexp(1.0, state.level)
        self.keys = state.keys - self.points.origin
        self.single = (self.points.cells < 0) & (self.points.columns[:, 0] == 1)
        self.has_nodes = len(self.keys) > 0 and not centroids
        self._columns = numpy.ascontiguousarray(self.points.columns[:, : 1 + self.outputs])

    def terms(self, targets: Indices, width: float, degree: int) -> tuple[LeaveOneOutError, Array]:
        """The terms of the targets, and their leverages (n,).

        A sample alone at its x is left out of the sums: where others are far away, nothing would remain of them in a
        difference. Of the rest, which are many at their x or nodes of many samples, one is left out by its leverage.
        """
        columns, single = self.points.columns[targets], self.single[targets]
        sums = self._sums(targets, width, 2 * degree)
        fit = fit_locally(sums, 1, degree)
        loo, leverage = _squares(columns, fit.heights), fit.duals[:, 0].copy()
        in_sample = loo.copy()
        # Sums may be relative to the nearest sample that takes part; a sample's own weight is 1.
        weights = relative_to("gaussian", self._to_others(targets[single]) / width)
        sums = sums[single] * weights[:, None, None]
        sums[:, 0] += columns[single, : 1 + self.outputs]
        fit = fit_locally(sums, 1, degree)
        in_sample[single], leverage[single] = _squares(columns[single], fit.heights), fit.duals[:, 0]
        loo[~single] /= numpy.square(1 - leverage[~single])[:, None]
        return LeaveOneOutError(loo, columns[:, 0] * leverage, in_sample), leverage

    def terms_of(self, points: PseudoSamples, chosen: Indices, width: float, degree: int) -> LeaveOneOutError:
        """Those of samples that this layer holds compressed: from all sums, in which each has its share."""
        x = points.x[chosen]
        fit = fit_locally(self._all.sums("gaussian", width, x, 2 * degree), 1, degree)
        squares = _squares(points.columns[chosen], fit.heights)
        leverage = fit.duals[:, 0] / relative_to("gaussian", nearest_distances(self.points.x, x) / width)
        loo = squares / numpy.square(1 - leverage)[:, None]
        return LeaveOneOutError(loo, points.columns[chosen, 0] * leverage, squares)

    def doubtful(self, targets: Indices, leverage: Array, width: float) -> Mask:
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
        farther = beyond / (nearest + numpy.sqrt(nearest**2 + beyond))
        reach = nearest + farther + numpy.spacing(abs(x[targets]) + nearest)
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
        return numpy.asarray(numpy.minimum(left, right))


def _squares(columns: Array, heights: Array) -> Array:
    """Σ (y − height)² (n, outputs) from columns (n, 1 + 2 outputs): count, Σ y, Σ y²."""
    outputs = heights.shape[1]
    count, first, second = columns[:, :1], columns[:, 1 : 1 + outputs], columns[:, 1 + outputs :]
    return numpy.asarray(second - heights * (2 * first - heights * count))


class Pyramid:
    """The samples of a state in cells of its width and of all that are wider."""

    def __init__(self, finest: Compressed) -> None:
        self.finest = finest
        self._layers: dict[int, Layer] = {}

    @classmethod
    def from_samples(cls, x: ArrayLike, values: ArrayLike, counts: ArrayLike | None = None) -> Pyramid:
        """Of all samples, none of them compressed for bandwidths of a few gaps between them."""
        return cls(Compressed.from_samples(x, values, counts, limit=math.inf))

    def layer(self, width: float, degree: int) -> Layer:
        """The samples in cells of half a width or less; as they are, where compressing them would not pay.

        Local averages are smooth enough for cells of a whole width.
        """
        widest = width if degree == 0 else width / PER_WIDTH
        return self._layer(math.frexp(widest)[1] - 1)

    @cached_property
    def _base(self) -> int:
        """The first level above the finest: with cells twice as wide, or wide enough to leave half of the samples."""
        if len(self.finest.keys):
            return self.finest.level + 1
        return self.finest.level_of(self.finest.size / 2)

    def _layer(self, level: int) -> Layer:
        level = max(level, self._base - 1)
        if level not in self._layers:
            state = self.finest if level < self._base else self._layer(level - 1).state.coarsened(level)
            self._layers[level] = Layer(state)
        return self._layers[level]

    def rough_errors(self, width: float, degree: int = 0) -> list[LeaveOneOutError]:
        """The error over each of some stretches of neighbouring samples; its trace is scaled to all samples.

        The stretches are the same for every bandwidth, so differences are less noisy than the errors themselves.
        """
        layer, samples = self.layer(width, degree), self._layer(self._base - 1)
        starts = numpy.linspace(0, len(samples.points.x) - STRETCH, STRETCHES).astype(numpy.int64)
        chosen = (starts[:, None] + numpy.arange(STRETCH)).ravel()
        if layer is samples:
            terms, _ = samples.terms(chosen, width, degree)
        else:
            terms = layer.terms_of(samples.points, chosen, width, degree)
        counts = samples.points.columns[chosen, 0].reshape(STRETCHES, STRETCH).sum(1)
        loo, trace, in_sample = (term.reshape(STRETCHES, STRETCH, -1).sum(1) / counts[:, None] for term in terms)
        traces = trace[:, 0] * self.finest.count
        return [LeaveOneOutError(*error) for error in zip(loo, traces, in_sample, strict=True)]

    def error(self, width: float, degree: int = 0) -> LeaveOneOutError:
        """The leave-one-out error with this bandwidth; what its layer cannot answer for is asked of the finest."""
        width = min(width, WIDEST * ((self.finest.high - self.finest.low) or 1.0))
        layer, outputs = self.layer(width, degree), self.finest.outputs
        targets = numpy.arange(len(layer.points.x))
        loo, in_sample, trace = numpy.zeros(outputs), numpy.zeros(outputs), numpy.zeros(())
        for following in (lambda: self._layer(self._base - 1), lambda: self._centroids, None):
            terms, leverage = layer.terms(targets, width, degree)
            doubtful = layer.doubtful(targets, leverage, width)
            loo += terms.loo[~doubtful].sum(0)
            in_sample += terms.in_sample[~doubtful].sum(0)
            trace += terms.trace[~doubtful].sum()
            if following is None or not doubtful.any():
                break
            finer = following()
            targets, layer = finer.within(*layer.places(targets[doubtful])), finer
        return LeaveOneOutError(loo / self.finest.count, trace, in_sample / self.finest.count)

    @cached_property
    def _centroids(self) -> Layer:
        return Layer(self.finest, centroids=True)


# ------------------------------------------------------------------------------------------------------------ the scan

Criterion = Callable[[LeaveOneOutError], float]


def mean_error(error: LeaveOneOutError) -> float:
    """The mean squared leave-one-out error over the outputs."""
    return float(error.loo.mean())


def aicc_of(mean_square: float, share: float, count: float) -> float:
    """AICc of a fit with this mean squared error and so many degrees of freedom per sample."""
    remains = 1 - share - 2 / count
    if remains <= 0:  # as many degrees of freedom as samples: worse the more, and finite for whoever takes differences
        return 1e6 * (1 - remains)
    return math.log(max(mean_square, 1e-300)) + (1 + share) / remains


def scan(pyramid: Pyramid, degree: int = 0, criterion: Criterion = mean_error) -> float:
    """The width for which the criterion is least, from half the usual gap between samples to four times their range.

    By factors of 2 from the widest, then of √2, then by Brent's method. Bandwidths of a few gaps, where nothing can be
    compressed, are first looked at in stretches; only where these could be as good as the best is all of them summed.
    Infinite where all samples are at one x.
    """
    if pyramid.finest.low == pyramid.finest.high:
        return math.inf

    def value(width: float) -> float:
        return criterion(pyramid.error(width, degree))

    widths = _widths(pyramid.finest)
    many = pyramid.finest.size >= MANY
    rough = [width for width in widths if many and not pyramid.layer(width, degree).has_nodes]
    values = {width: value(width) for width in widths if width not in rough}
    best = min(values, key=values.__getitem__)
    values |= {width: value(width) for width in _rivals(pyramid, degree, criterion, best, rough)}
    best = min(values, key=values.__getitem__)
    return refine(lambda log: value(math.exp(log)), math.log(best), values[best], math.log(2))


def scan_by(rule: str, pyramid: Pyramid, degree: int) -> float:
    """The same by the leave-one-out error, or by "aicc"."""
    count = pyramid.finest.count

    def aicc(error: LeaveOneOutError) -> float:
        return aicc_of(float(error.in_sample.mean()), float(error.trace) / count, count)

    return scan(pyramid, degree, aicc if rule == "aicc" else mean_error)


def refine(error: Callable[[float], float], log: float, least: float, step: float) -> float:
    """The number whose log has the least error, from one that has it so far: by half a step, then by Brent's method."""
    errors = {log: least} | {near: error(near) for near in (log - step / 2, log + step / 2)}
    best = min(errors, key=errors.__getitem__)
    bounds = (best - step / 2, best + step / 2)
    refined = optimize.minimize_scalar(error, bounds=bounds, method="bounded", options={"xatol": 2e-3, "maxiter": 6})
    return math.exp(refined.x if refined.fun < errors[best] else best)


def _widths(samples: Compressed) -> list[float]:
    """Four times the range of x, and what is left of it by halving, down to half the usual gap or the narrowest."""
    widest = 4 * (samples.high - samples.low)
    low = samples.narrowest or float(numpy.median(numpy.diff(samples.x))) / 2
    return [math.ldexp(widest, -halvings) for halvings in range(1 + max(0, math.ceil(math.log2(widest / low))))]


def _rivals(pyramid: Pyramid, degree: int, criterion: Criterion, best: float, widths: list[float]) -> Iterator[float]:
    """Those widths whose criterion over stretches is not clearly, by three standard errors, above that of the best."""

    def values(width: float) -> Array:
        return numpy.array([criterion(error) for error in pyramid.rough_errors(width, degree)])

    at_best = values(best) if widths else numpy.empty(0)
    for width in widths:
        above = values(width) - at_best
        if above.mean() < 3 * above.std(ddof=1) / math.sqrt(STRETCHES):
            yield width
