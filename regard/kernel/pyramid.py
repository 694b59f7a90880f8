"""The leave-one-out error of a Gaussian kernel regression on one feature, at a price that falls with the bandwidth.

A sample's leverage l is what its estimate changes with its own value; with the sums S of the samples' v^(a+b) about it,
l = (S⁻¹)₀₀, and without the sample its residual would be (y − m(x)) / (1 − l(x)). Both m and l are smooth functions of
x, so that the sum over the samples of a compressed cell (compressed.py) is one over its nodes,

    Σ_j (y_j − m)² / (1 − l)²  =  Σ_a (Σ y² − 2 m Σ y + m² n)_a / (1 − l)²      at node a

A pyramid holds the same samples in cells of many widths, and answers for a bandwidth from cells of half of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from regard.attention.sums_1d import Samples1D
from regard.kernel.compressed import COARSEST, FAR, FINEST, PER_WIDTH, Compressed, PseudoSamples, nearest_distances
from regard.kernel.local import fit_locally

__all__ = ["LeaveOneOutError", "Pyramid", "local_fit", "loo_error", "mean_error", "scan"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
Chosen = NDArray[numpy.bool_]

LEVERAGE = 0.1  # from which on 1 / (1 − l)² is not left to an interpolation
NEGLIGIBLE = 80.0  # in squared bandwidths: exp(−40) is 4e-18
STRETCHES, STRETCH, GROUPS = 32, 1024, 16  # of neighbouring samples, for a first look at an error
MANY = 8 * STRETCHES * STRETCH  # samples, from which on the stretches are a small part of them


class LeaveOneOutError(NamedTuple):
    """Mean squared errors (outputs,) of the samples left out and of the samples within, and the sum of leverages."""

    loo: Array
    trace: float
    in_sample: Array


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
    """The samples and pseudo-samples of a state, as sources of kernel sums and as targets of estimates.

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
        sums = self._sums(targets, width, degree)
        heights, leverage = local_fit(sums, degree)
        loo = _squares(columns, heights)
        in_sample = loo.copy()
        # Sums are relative to the nearest sample that takes part; a sample's own weight is 1.
        weights = numpy.exp(-numpy.square(self._to_others(targets[single]) / width) / 2)
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
        leverage = inverse * numpy.exp(numpy.square(nearest_distances(self.points.x, x) / width) / 2)
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
        change = numpy.zeros(len(x) + 1, dtype=numpy.int64)
        numpy.add.at(change, numpy.searchsorted(x, starts), 1)
        numpy.add.at(change, numpy.searchsorted(x, ends, side="right"), -1)
        return numpy.flatnonzero(numpy.cumsum(change[:-1]))

    @cached_property
    def _all(self) -> Samples1D:
        return Samples1D(self.points.x, self._columns)

    def _sums(self, targets: Indices, width: float, degree: int) -> Array:
        """Sums of v^0 … v^(2 degree) at the targets, over all that counts beside the nearest."""
        x = self.points.x
        if len(targets) == len(x):
            return self._sums_of_others(self._all, slice(None), width, degree)
        nearest, beyond = self._to_others(targets), NEGLIGIBLE * width**2
        # √(nearest² + beyond), so that what is beyond the nearest is not lost to rounding
        reach = (
            nearest + beyond / (nearest + numpy.sqrt(nearest**2 + beyond)) + numpy.spacing(abs(x[targets]) + nearest)
        )
        near = self.within(x[targets] - reach, x[targets] + reach)
        sums = self._sums_of_others(Samples1D(x[near], self._columns[near]), near, width, degree)
        return sums[numpy.searchsorted(near, targets)]

    def _sums_of_others(self, samples: Samples1D, near: Indices | slice, width: float, degree: int) -> Array:
        left_out = numpy.where(self.single[near, None], self._columns[near], 0.0)
        return samples.sums_of_others("gaussian", width, 2 * degree, left_out=left_out)

    def _to_others(self, targets: Indices) -> Array:
        """The distance to the nearest other sample or pseudo-sample."""
        gaps = numpy.diff(self.points.x, prepend=-numpy.inf, append=numpy.inf)
        nearest: Array = numpy.minimum(gaps[targets], gaps[targets + 1])
        return nearest


def _squares(columns: Array, heights: Array) -> Array:
    """Σ (y − height)² (n, outputs) from columns (n, 1 + 2 outputs): count, Σ y, Σ y²."""
    outputs = heights.shape[1]
    count, first, second = columns[:, :1], columns[:, 1 : 1 + outputs], columns[:, 1 + outputs :]
    squares: Array = second - heights * (2 * first - heights * count)
    return squares


class Pyramid:
    """The samples of a state in cells of its width and of all that are wider."""

    def __init__(self, finest: Compressed) -> None:
        self.finest = finest
        self._states: dict[int, Compressed] = {}
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
        return self._layer(max(math.frexp(widest)[1] - 1, self._base - 1))

    @cached_property
    def _base(self) -> int:
        """The first level above the finest: with cells twice as wide, or wide enough to leave half of the samples."""
        if len(self.finest.keys):
            return self.finest.level + 1
        fine, coarse = FINEST, COARSEST
        while coarse - fine > 1:
            middle = (fine + coarse) // 2
            fine, coarse = (middle, coarse) if 2 * self.finest.size_at(middle) > self.finest.size else (fine, middle)
        return coarse

    def _layer(self, level: int) -> Layer:
        if level not in self._layers:
            self._layers[level] = Layer(self._state(level))
        return self._layers[level]

    def _state(self, level: int) -> Compressed:
        if level < self._base:
            return self.finest
        if level not in self._states:
            self._states[level] = self._state(level - 1).coarsened(level)
        return self._states[level]

    def rough_errors(self, width: float, degree: int = 0) -> list[LeaveOneOutError]:
        """The error over stretches of neighbouring samples, in GROUPS; each trace is scaled to all samples.

        The stretches are the same for every bandwidth, so differences are less noisy than the errors themselves.
        """
        layer, samples = self.layer(width, degree), self._layer(self._base - 1)
        starts = numpy.linspace(0, len(samples.points.x) - STRETCH, STRETCHES).astype(numpy.int64)
        chosen = (starts[:, None] + numpy.arange(STRETCH)).ravel()
        counts = samples.points.columns[chosen, 0].reshape(STRETCHES, STRETCH).sum(1)
        if layer is samples:
            terms, _ = samples.terms(chosen, width, degree)
        else:
            terms = layer.terms_of(samples.points, chosen, width, degree)
        loo, trace, in_sample = (term.reshape(STRETCHES, STRETCH, -1).sum(1) for term in terms)
        groups = [slice(group, None, GROUPS) for group in range(GROUPS)]
        return [
            LeaveOneOutError(
                loo[group].sum(0) / counts[group].sum(),
                float(trace[group].sum() * self.finest.count / counts[group].sum()),
                in_sample[group].sum(0) / counts[group].sum(),
            )
            for group in groups
        ]

    def error(self, width: float, degree: int = 0) -> LeaveOneOutError:
        """The leave-one-out error with this bandwidth; what its layer cannot answer for is asked of the finest."""
        layer, outputs = self.layer(width, degree), self.finest.outputs
        targets = numpy.arange(len(layer.points.x))
        loo, in_sample, trace = numpy.zeros(outputs), numpy.zeros(outputs), 0.0
        for following in (self._layer(self._base - 1), self._centroids, None):
            terms, leverage = layer.terms(targets, width, degree)
            doubtful = layer.doubtful(targets, leverage, width)
            loo += terms.loo[~doubtful].sum(0)
            in_sample += terms.in_sample[~doubtful].sum(0)
            trace += terms.trace[~doubtful].sum()
            if following is None or not doubtful.any():
                break
            targets = following.within(*layer.places(targets[doubtful]))
            layer = following
        return LeaveOneOutError(loo / self.finest.count, float(trace), in_sample / self.finest.count)

    @cached_property
    def _centroids(self) -> Layer:
        return Layer(self.finest, centroids=True)


def loo_error(samples: Compressed | Pyramid, width: float, degree: int = 0) -> LeaveOneOutError:
    """The leave-one-out error of local polynomials of this degree under a Gaussian kernel of this width."""
    return (Pyramid(samples) if isinstance(samples, Compressed) else samples).error(width, degree)


# ------------------------------------------------------------------------------------------------------------ the scan

Criterion = Callable[[LeaveOneOutError], float]


def mean_error(error: LeaveOneOutError) -> float:
    """The mean squared leave-one-out error over the outputs."""
    return float(error.loo.mean())


def scan(pyramid: Pyramid, degree: int = 0, criterion: Criterion = mean_error) -> float:
    """The width for which the criterion is least, from half the usual gap between samples to four times their range.

    By factors of 2 from the widest, then of √2, then by Brent's method. Bandwidths of a few gaps, where nothing can be
    compressed, are first looked at in stretches; only where these could be as good as the best is all of them summed.
    """

    def value(width: float) -> float:
        return criterion(pyramid.error(width, degree))

    widths = _widths(pyramid.finest)
    many = pyramid.finest.size >= MANY
    rough = [width for width in widths if many and not pyramid.layer(width, degree).has_nodes]
    values = {width: value(width) for width in widths if width not in rough}
    best = min(values, key=values.__getitem__)
    values |= {width: value(width) for width in _rivals(pyramid, degree, criterion, best, rough)}
    best = min(values, key=values.__getitem__)
    values = {best: values[best]} | {width: value(width) for width in (best / math.sqrt(2), best * math.sqrt(2))}
    best = min(values, key=values.__getitem__)
    log, step = math.log(best), math.log(2) / 2
    refined = optimize.minimize_scalar(
        lambda log: value(math.exp(log)),
        bounds=(log - step, log + step),
        method="bounded",
        options={"xatol": 2e-3, "maxiter": 6},
    )
    return math.exp(refined.x) if refined.fun < values[best] else best


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
        if above.mean() < 3 * above.std(ddof=1) / math.sqrt(GROUPS):
            yield width
