"""The samples of a kernel regression, how they are weighed at a query, their kernel sums and local polynomials.

`Weighing` says how, but for the widths: one per feature, in the order of X's columns; of a category its λ, from 0
(only the same category counts) on; of an adaptive regression one number alone, how many neighbours reach.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy

from regard.attention.sorting import sort_numbers
from regard.attention.sums_1d import Form, Samples1D
from regard.attention.threads import load_kernels
from regard.kernel.features import Features, Rows
from regard.kernel.kernels_nd import KernelND, category_weights, nearest_weights, reaches
from regard.kernel.local import Array, Indices, LocalFit, Mask, fit_locally
from regard.kernel.sums_nd import SamplesND, Targets, spatial_order

WIDEST = 1e8  # ranges of the samples: a wider width changes no digit of a weight
FARTHEST = 1e8  # ranges from the samples: farther away nothing changes, but that distances lose their digits
CACHED = ("bounds", "spans", "on_a_line", "on_a_grid", "codes", "labels", "_line", "_cloud")  # by samples


@dataclass(frozen=True)
class Weighing:
    """How much a sample counts at a query, but for the widths."""

    kernel: str = "gaussian"
    product: bool = False  # one kernel per feature instead of one of the distance
    adaptive: bool = False  # the width reaches so many neighbours
    block: int = 0  # how many neighbours on each side are left out with a sample


class Samples:
    """Samples with their values (m, outputs) and weights (m,), without those of weight 0.

    Values are kept about their mean, so that sums lose no digits to it. Weights say how much a sample matters, and
    leaving a sample out leaves it out whole. Rows that are copies, of X and of y, with nothing else at their place, are
    one sample of their common weight: a copy tells leave-one-out nothing. If `counts`, a weight of 3 is three samples,
    of which leaving one out leaves two, and so are copies.

    Samples are in the order of their features, so that nothing depends on that of the rows; with several features and
    blocks in that of the rows.
    """

    _origin = 0.0

    def __init__(
        self, rows: Rows, values: Array, weights: Array, features: Features, weighing: Weighing, counts: bool = False
    ) -> None:
        if load_kernels("sums_nd") is None:
            raise ImportError("kernel regression needs numba: pip install numba")
        self.features, self.weighing, self.counts, self.total = features, weighing, counts, len(weights)
        given = numpy.flatnonzero(weights > 0)
        rows, values, weights = rows.take(given), values[given], weights[given]
        # Of each row that was given: which sample it is part of, and how much of that it is
        self.given, self.part_of, first = given, *_samples_of(rows, values, weights, counts, weighing.block > 0)
        together = numpy.bincount(self.part_of, weights).astype(numpy.float64)
        self._set(rows.take(first), values[first], together, numpy.ones(len(together)))
        self.share = weights / self.weights[self.part_of]

    def _set(self, rows: Rows, values: Array, weights: Array, factors: Array) -> None:
        self.rows, self.values, self.weights, self.factors = rows, values, weights, factors
        self.mean = numpy.average(values, axis=0, weights=weights)
        self.centred = values - self.mean
        self.columns = numpy.column_stack([weights, weights[:, None] * self.centred])

    def __len__(self) -> int:
        return len(self.weights)

    def with_output(self, output: int) -> Samples:
        """The same samples with one of their values."""
        return self._changed(self.rows, self.values[:, output : output + 1], self.weights, self.factors)

    def reweighed(self, factors: Array) -> Samples:
        """The same samples, each of so many times its weight, for its robustness; a count stays as many samples."""
        return self._changed(self.rows, self.values, self.weights * factors, factors)

    def take(self, chosen: Indices) -> Samples:
        """Some of the samples."""
        return self._changed(self.rows.take(chosen), self.values[chosen], self.weights[chosen], self.factors[chosen])

    def weighed(self, weighing: Weighing) -> Samples:
        """The same samples, weighed in another way."""
        changed = copy.copy(self)
        changed.weighing = weighing
        return changed

    def _changed(self, *arrays: Any) -> Samples:
        changed = copy.copy(self)  # without what is cached
        changed._set(*arrays)
        return changed

    def followed_by(self, rows: Rows, values: Array, weights: Array) -> tuple[Rows, Array, Array]:
        """The rows of these samples, and after them others."""
        before = self.rows.take(self.part_of)
        joined = Rows(*(numpy.concatenate(pair) for pair in zip(before, rows, strict=True)))
        weighted = numpy.concatenate([self.weights[self.part_of] * self.share, weights])
        return joined, numpy.concatenate([self.values[self.part_of], values]), weighted

    @property
    def count(self) -> float:
        """How many samples there are: the sum of counts, or of as many equal weights as say as much as these."""
        return float(self.weights.sum() if self.counts else self.weights.sum() ** 2 / (self.weights**2).sum())

    @property
    def copies(self) -> Array:
        """How many samples each one stands for, (n,): its count, or 1."""
        return numpy.round(self.weights / self.factors) if self.counts else numpy.ones(len(self))

    @property
    def variance(self) -> float:
        """Of the values, the mean over outputs."""
        return float(numpy.average(numpy.square(self.centred).mean(1), weights=self.weights))

    @property
    def squared_weights(self) -> Array:
        """What a sample adds to Σ l², in squared kernels: its squared weight, or as many squares as it counts."""
        return self.weights * (self.factors if self.counts else self.weights)

    @property
    def left_out(self) -> Array:
        """A sample's columns as they are left out: whole, or one of a count."""
        return numpy.asarray(self.columns / self.copies[:, None])

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """The least and the largest of each continuous feature, (continuous,)."""
        return self.rows.points.min(0), self.rows.points.max(0)

    @cached_property
    def spans(self) -> Array:
        """The range of each continuous feature, (continuous,); 1 where it is 0."""
        low, high = self.bounds
        return numpy.where(high > low, high - low, 1.0)

    def nearer(self, points: Array) -> Array:
        """Points that are too far outside for distances, as far as these can still be told apart."""
        low, high = self.bounds
        return numpy.clip(points, low - FARTHEST * self.spans, high + FARTHEST * self.spans)

    @property
    def dimensions(self) -> int:
        """How many features are continuous: local polynomials are of them."""
        return len(self.features.continuous)

    @cached_property
    def on_a_line(self) -> bool:
        """Whether there is one feature alone, a number that is not periodic: then sums need no pairs."""
        return len(self.features.kinds) == 1 and self._plain and not self.weighing.adaptive

    @cached_property
    def on_a_grid(self) -> bool:
        """Whether sums, also those of slopes, cost no pairs but a grid: for the plain Gaussian of two features."""
        gaussian = self.weighing.kernel == "gaussian" and not self.weighing.adaptive and not self.weighing.block
        return len(self.features.kinds) == 2 and self._plain and gaussian

    @property
    def _plain(self) -> bool:
        """Whether all features are numbers that are not periodic."""
        return not self.features.categorical and bool(numpy.isinf(self.features.periods).all())

    # ------------------------------------------------------------------------------------------------------------ sums

    def fit(
        self, widths: Array, queries: Rows, degree: int = 0, columns: Array | None = None, single: bool = False
    ) -> LocalFit:
        """The local polynomials of this degree at the queries; see `sums`."""
        sums = self.sums(widths, queries, 2 * degree, columns=columns, single=single)
        fit = fit_locally(sums, self.dimensions, degree)
        return self._steadied(fit, sums, lambda few: self.sums_of_squares(widths, queries.take(few), degree))

    def fit_to_others(self, widths: Array, chosen: Indices, degree: int, tolerance: float) -> LocalFit:
        """The same at the chosen samples, each left out of its own sums."""
        sums = self.sums_of_others(widths, chosen, 2 * degree, tolerance)
        fit = fit_locally(sums, self.dimensions, degree)
        return self._steadied(fit, sums, lambda few: self.squares_of_others(widths, chosen[few], degree))

    def _steadied(self, fit: LocalFit, sums: Array, squares: Callable[[Indices], Array]) -> LocalFit:
        """Of several features, the fit without estimates that vary more than a sample does."""
        if fit.degree == 0 or self.on_a_line:
            return fit
        # As K² ≤ K, sums of K are a bound: few queries need those of K².
        few = numpy.flatnonzero(fit.variance_factors(sums) * (self.squared_weights / self.weights).max() > 1)
        if len(few):
            steadied = fit.take(few).steadied(sums[few], squares(few))
            fit.coefficients[few], fit.duals[few] = steadied.coefficients, steadied.duals
        return fit

    def units(self, widths: Array) -> Array:
        """What monomials are measured in, (continuous,): the widths, or the ranges where those are less."""
        if self.weighing.adaptive:
            return spread(self)
        if self.on_a_line:
            return numpy.minimum(widths, WIDEST * self.spans)
        return numpy.minimum(widths[self.features.continuous], self.spans)

    def sums(
        self,
        widths: Array,
        queries: Rows,
        order: int = 0,
        form: Literal["kernel", "squared"] = "kernel",
        columns: Array | None = None,
        single: bool = False,
    ) -> Array:
        """Sums (n, rows, c) around queries, of these columns or of weights and values (sums_1d.py, sums_nd.py).

        single: float32 will do, where that is faster.
        """
        if self.on_a_line:
            return self._line_sums(widths, queries, order, form, columns)
        cloud = self._cloud if columns is None else SamplesND(self.rows.points, columns, self.codes)
        return cloud.sums(*self.around(widths, queries), order=order, value_order=order // 2, form=form, single=single)

    def sums_of_squares(self, widths: Array, queries: Rows, degree: int) -> Array:
        """What Σ l² of local polynomials of this degree is made of: sums of squared weights and kernels."""
        return self.sums(widths, queries, 2 * degree, "squared", columns=self.squared_weights[:, None])

    def squares_of_others(self, widths: Array, chosen: Indices, degree: int) -> Array:
        """The same around the chosen samples, each left out of its own sums; of several features."""
        cloud = SamplesND(self.rows.points, self.squared_weights[:, None], self.codes)
        sums = cloud.sums(*self.around(widths, self.rows.take(chosen), chosen), order=2 * degree, form="squared")
        counted = self._counted(chosen)
        sums[counted, 0] -= numpy.square(self.factors)[chosen[counted], None]
        return sums

    def sums_of_others(self, widths: Array, chosen: Indices, order: int = 0, tolerance: float = 1e-12) -> Array:
        """The same around the chosen samples, each left out of its own sums."""
        if self.on_a_line:
            return self.line_sums_of_others(widths, order)[chosen]
        kernel, targets = self.around(widths, self.rows.take(chosen), chosen)
        value_order = min(order, order // 2 + 1)  # one more for slopes by the width
        sums = self._cloud.sums(kernel, targets, order=order, value_order=value_order, tolerance=tolerance)
        counted = self._counted(chosen)
        sums[counted, 0] -= self.left_out[chosen[counted]]  # K(0) = 1
        return sums

    def line_sums_of_others(self, widths: Array, order: int, form: Form = "kernel") -> Array:
        """Of one feature, around every sample; as "slope" those of dK / d log(width): itself a sample has none."""
        left_out = self.columns if self.weighing.block else self.left_out  # of a block counts are left out whole
        width = self._width(widths)
        return self._line.sums_of_others(self.weighing.kernel, width, order, form, left_out, self.weighing.block)

    def width_slopes(self, widths: Array, chosen: Indices, fit: LocalFit, tolerance: float) -> Array:
        """How the chosen samples' estimates from the others change with each log width, (n, features, outputs)."""
        around = self.around(widths, self.rows.take(chosen), chosen)
        slopes = self._cloud.width_slopes(*around, fit.duals, fit.coefficients, tolerance)
        in_order = numpy.argsort(self.features.continuous + self.features.categorical)
        return numpy.asarray(slopes[:, in_order])

    def line_windows(self, widths: Array, queries: Rows) -> tuple[Array, Array, Array]:
        """Of one feature: the effective samples and the ends of the middle 90 % of their weight, (n,) each."""
        return self._line.window(self.weighing.kernel, self._width(widths), queries.points[:, 0])

    def around(self, widths: Array, queries: Rows, chosen: Indices | None = None) -> tuple[KernelND, Targets]:
        """The kernel of several features at these widths, and the queries as it wants them.

        chosen: the samples that the queries are; then they are left out of their sums.
        """
        features = self.features
        periods = features.periods[features.continuous]
        tables, slopes = [], []
        codes = numpy.empty((len(queries.points), len(features.categorical)), dtype=numpy.int64)
        for index, feature in enumerate(features.categorical):
            width = 0.0 if self.weighing.adaptive else float(widths[feature])
            known, codes[:, index] = numpy.unique(queries.labels[:, index], return_inverse=True)
            table, slope = category_weights(features.kinds[feature], known, self.labels[index], width)
            tables.append(table)
            slopes.append(slope)
        kernel = KernelND(
            self.weighing.kernel,
            spread(self) if self.weighing.adaptive else widths[features.continuous],
            self.units(widths),
            product=self.weighing.product,
            periods=periods if numpy.isfinite(periods).any() else None,
            tables=tuple(tables),
            table_slopes=tuple(slopes),
        )
        left_out = None if chosen is None else self._ranges(chosen)
        scales = self._reaches(widths, queries, left_out) if self.weighing.adaptive else None
        return kernel, Targets(queries.points, codes, left_out, scales)

    def _reaches(self, widths: Array, queries: Rows, left_out: Indices | None) -> Array:
        """How far, in spreads, the k-th nearest sample is from each query, of those that are not left out."""
        far = reaches(self, queries, spread(self), int(widths[0]), left_out)
        return numpy.maximum(far, 1e-9 * float((self.spans / spread(self)).max()))  # as many may be at the query itself

    def _line_sums(self, widths: Array, queries: Rows, order: int, form: Form, columns: Array | None) -> Array:
        line = self._line if columns is None else Samples1D(self._x, columns)
        at = queries.points[:, 0] - self._origin if self._origin else queries.points[:, 0]
        return line.sums(self.weighing.kernel, self._width(widths), at, order, form)

    @property
    def _x(self) -> Array:
        """The samples of one feature, counted from `_origin`."""
        return numpy.asarray(self.rows.points[:, 0])

    def _counted(self, chosen: Indices) -> Mask:
        """Which of the chosen samples are counts above 1: leaving one of them out leaves the others at its place."""
        return numpy.asarray((self.copies[chosen] > 1) & (not self.weighing.block))

    def _ranges(self, chosen: Indices) -> Indices:
        """(n, 2): the samples that are left out with each of the chosen: itself and its block, half-open."""
        low, high = chosen - self.weighing.block, chosen + self.weighing.block + 1
        high = numpy.where(self._counted(chosen), low, high)
        return numpy.column_stack([numpy.maximum(low, 0), numpy.minimum(high, len(self))])

    def choose(self, count: int) -> Indices:
        """So many of the samples, evenly along a curve through them: a choice that does not depend on their order."""
        if count >= len(self):
            return numpy.arange(len(self))
        scaled = numpy.column_stack([self.rows.points / self.spans * 2.0**14, self.rows.labels])
        along = numpy.arange(len(self)) if self.on_a_line else spatial_order(scaled)
        return numpy.sort(along[((numpy.arange(count) + 0.5) * (len(self) / count)).astype(numpy.int64)])

    def nearest_others(self, widths: Array, chosen: Indices) -> Array:
        """The values of the nearest other sample, in widths, of each of the chosen, (n, outputs), about their mean."""
        weights = nearest_weights(self, self.rows.take(chosen), self.units(widths), self._ranges(chosen))
        return numpy.asarray(weights @ self.centred)

    def _width(self, widths: Array) -> float:
        return float(min(widths[0], WIDEST * self.spans[0]))

    @cached_property
    def _line(self) -> Samples1D:
        return Samples1D(self._x, self.columns)

    @cached_property
    def _cloud(self) -> SamplesND:
        return SamplesND(self.rows.points, self.columns, self.codes)

    @cached_property
    def labels(self) -> list[Array]:
        """The distinct labels of each categorical feature."""
        return [numpy.unique(column) for column in self.rows.labels.T]

    @cached_property
    def codes(self) -> Indices:
        """Which of its feature's labels each label is, (m, categorical)."""
        codes = numpy.empty(self.rows.labels.shape, dtype=numpy.int64)
        for index, known in enumerate(self.labels):
            codes[:, index] = numpy.searchsorted(known, self.rows.labels[:, index])
        return codes

    def __getstate__(self) -> dict[str, object]:
        """What copies and pickles hold: not what can be computed again."""
        return {name: value for name, value in self.__dict__.items() if name not in CACHED}


def spread(samples: Samples) -> Array:
    """Of each continuous feature the standard deviation, or the interquartile range / 1.349 if that is less, not 0."""
    points, weights = samples.rows.points.copy(), samples.weights
    periods = samples.features.periods[samples.features.continuous]
    for d in numpy.flatnonzero(numpy.isfinite(periods)):  # in turns about their middle, wherever a turn begins
        turns = points[:, d] / periods[d]
        middle = numpy.angle(numpy.average(numpy.exp(2j * numpy.pi * turns), weights=weights)) / (2 * numpy.pi)
        points[:, d] = periods[d] * ((turns - middle + 0.5) % 1)
    mean = numpy.average(points, axis=0, weights=weights)
    deviation: Array = numpy.sqrt(numpy.average((points - mean) ** 2, axis=0, weights=weights))
    order = numpy.argsort(points, axis=0)
    total = numpy.cumsum(weights[order], axis=0)
    # With a tolerance, as sums of weights in another unit are rounded otherwise and must not choose another sample.
    ends = numpy.array([(total < share * total[-1] * (1 - 1e-9)).sum(0) for share in (0.25, 0.75)])
    robust = numpy.diff(numpy.take_along_axis(points, numpy.take_along_axis(order, ends, 0), 0), axis=0)[0] / 1.349
    return numpy.where((robust > 0) & (robust < deviation), robust, numpy.where(deviation > 0, deviation, 1.0))


# --------------------------------------------------------------------------------------------------------------- order


def _samples_of(rows: Rows, values: Array, weights: Array, counts: bool, in_order: bool) -> tuple[Indices, Indices]:
    """Of each row the sample that it is part of, and of each sample its first row.

    Rows of one place are one sample if their values are all the same, unless they are counts.
    """
    place = numpy.column_stack([rows.points, rows.labels])
    order = sort_numbers(place[:, 0])[1] if place.shape[1] == 1 else None
    if order is None or (numpy.diff(place[order, 0]) == 0).any():  # among equals by value
        order = numpy.lexsort([weights, *values.T[::-1], *place.T[::-1]])
    begins = numpy.ones(len(place), dtype=bool)  # where another sample begins
    if not counts:
        begins[1:] = (place[order[1:]] != place[order[:-1]]).any(1)
        places = numpy.flatnonzero(begins)
        ordered = values[order]
        alike = (numpy.maximum.reduceat(ordered, places) == numpy.minimum.reduceat(ordered, places)).all(1)
        begins |= ~numpy.repeat(alike, numpy.diff(places, append=len(place)))
    part_of = numpy.empty(len(place), dtype=numpy.int64)
    part_of[order] = numpy.cumsum(begins) - 1
    first = order[begins]
    if place.shape[1] == 1 or not in_order:
        return part_of, first
    rank = numpy.argsort(first)
    return numpy.argsort(rank)[part_of], first[rank]
