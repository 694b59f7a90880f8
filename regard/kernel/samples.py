"""The samples of a kernel regression, how they are weighed at a query, and their kernel sums.

`Weighing` says how, but for the widths: one per feature, in the order of X's columns; of a category its λ, from 0
(only the same category counts) on; of an adaptive regression one number alone, how many neighbours reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy
from numpy.typing import NDArray

from regard.attention.sorting import sort_numbers
from regard.attention.sums_1d import Form, Samples1D
from regard.attention.threads import load_kernels
from regard.kernel.features import Features, Rows
from regard.kernel.kernels_nd import category_weights
from regard.kernel.sums_nd import KernelND, SamplesND, nearest_others, spatial_order

__all__ = ["Samples", "Weighing", "spread"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]

WIDEST = 1e8  # ranges of the samples: a wider width changes no digit of a weight


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
    `in_order` in that of the rows.
    """

    def __init__(
        self,
        rows: Rows,
        values: Array,
        weights: Array,
        features: Features,
        *,
        counts: bool = False,
        in_order: bool = False,
    ) -> None:
        if load_kernels("sums_nd") is None:
            raise ImportError("kernel regression needs numba: pip install numba")
        self.features, self.counts, self.total = features, counts, len(weights)
        given = numpy.flatnonzero(weights > 0)
        rows, values, weights = rows.take(given), values[given], weights[given]
        # Of each row that was given: which sample it is part of, and how much of that it is
        self.given, self.part_of, first = given, *_samples_of(rows, values, counts, in_order)
        self.weights: Array = numpy.bincount(self.part_of, weights).astype(numpy.float64)
        self.share = weights / self.weights[self.part_of]
        self.rows, self.values = rows.take(first), values[first]
        self.mean = numpy.average(self.values, axis=0, weights=self.weights)
        self.centred = self.values - self.mean
        self.columns = numpy.column_stack([self.weights, self.weights[:, None] * self.centred])

    def __len__(self) -> int:
        return len(self.weights)

    def with_output(self, output: int) -> Samples:
        """The same samples with one of their values."""
        return self._changed(self.values[:, output : output + 1], self.weights)

    def reweighed(self, factors: Array) -> Samples:
        """The same samples, each of so many times its weight."""
        return self._changed(self.values, self.weights * factors)

    def followed_by(self, rows: Rows, values: Array, weights: Array) -> tuple[Rows, Array, Array]:
        """The rows of these samples, and after them others."""
        own = self.rows.take(self.part_of)
        joined = Rows(*(numpy.concatenate(pair) for pair in zip(own, rows, strict=True)))
        weighted = numpy.concatenate([self.weights[self.part_of] * self.share, weights])
        return joined, numpy.concatenate([self.values[self.part_of], values]), weighted

    def take(self, chosen: Indices) -> Samples:
        """Some of the samples."""
        return Samples(
            self.rows.take(chosen),
            self.values[chosen],
            self.weights[chosen],
            self.features,
            counts=self.counts,
            in_order=True,
        )

    def _changed(self, values: Array, weights: Array) -> Samples:
        changed = Samples(self.rows, values, weights, self.features, counts=True, in_order=True)
        changed.counts = self.counts
        changed.given, changed.part_of, changed.share = self.given, self.part_of, self.share
        changed.total = self.total
        return changed

    @property
    def count(self) -> float:
        """How many samples there are: the sum of counts, or of as many equal weights as say as much as these."""
        total = float(self.weights.sum())
        return total if self.counts else total**2 / float((self.weights**2).sum())

    @property
    def squared_weights(self) -> Array:
        """What a sample adds to Σ l², in squared kernels: its squared weight, or as many ones as it counts."""
        return self.weights if self.counts else numpy.square(self.weights)

    @property
    def left_out(self) -> Array:
        """A sample's columns as they are left out: whole, or one of a count."""
        return self.columns / self.weights[:, None] if self.counts else self.columns

    @cached_property
    def spans(self) -> Array:
        """The range of each continuous feature, (continuous,); 1 where it is 0."""
        points = self.rows.points
        spans = points.max(0) - points.min(0) if len(points) else numpy.ones(points.shape[1])
        return numpy.where(spans > 0, spans, 1.0)

    @cached_property
    def on_a_line(self) -> bool:
        """Whether there is one feature alone, a number that is not periodic: then sums need no pairs."""
        one = len(self.features.kinds) == 1 and not self.features.categorical
        return one and bool(self.features.periods[0] == numpy.inf)

    # ------------------------------------------------------------------------------------------------------------ sums

    def units(self, weighing: Weighing, widths: Array) -> Array:
        """What monomials are measured in, (continuous,): the widths, or the ranges where those are less."""
        if weighing.adaptive:
            return spread(self)
        if self._fast(weighing):
            return numpy.minimum(widths, WIDEST * self.spans)
        return numpy.minimum(widths[self.features.continuous], self.spans)

    def sums(
        self,
        weighing: Weighing,
        widths: Array,
        queries: Rows,
        order: int = 0,
        form: Form = "kernel",
        columns: Array | None = None,
        single: bool = False,
    ) -> Array:
        """Sums (n, rows, c) around queries, of these columns or of weights and values (sums_1d.py, sums_nd.py).

        single: float32 will do, where that is faster.
        """
        if self._fast(weighing):
            return self._line_sums(weighing, widths, queries, order, form, columns)
        cloud = self._cloud if columns is None else SamplesND(self.rows.points, columns, self.codes)
        kernel, codes = self.kernel(weighing, widths, queries)
        scales = self.reaches(widths, queries, None) if weighing.adaptive else None
        if form == "slope":
            raise ValueError("form: expected kernel or squared for several features; width_slopes has the slopes")
        return cloud.sums(
            kernel,
            queries.points,
            codes,
            order=order,
            value_order=order // 2,
            form=form,
            scales=scales,
            precision="single" if single else "double",
        )

    def sums_of_others(
        self, weighing: Weighing, widths: Array, chosen: Indices, order: int = 0, tolerance: float = 1e-12
    ) -> Array:
        """The same around the chosen samples, each left out of its own sums."""
        if self._fast(weighing):
            return self._line_sums_of_others(weighing, widths, order, "kernel")[chosen]
        queries = self.rows.take(chosen)
        kernel, codes = self.kernel(weighing, widths, queries)
        scales = self.reaches(widths, queries, chosen) if weighing.adaptive else None
        sums = self._cloud.sums(
            kernel,
            queries.points,
            codes,
            order=order,
            value_order=min(order, order // 2 + 1),  # one more for slopes by the width
            left_out=self.ranges(weighing, chosen),
            scales=scales,
            tolerance=tolerance,
        )
        counted = self._counted(weighing, chosen)
        sums[counted, 0] -= self.left_out[chosen[counted]]  # K(0) = 1
        return sums

    def line_windows(self, weighing: Weighing, widths: Array, queries: Rows) -> tuple[Array, Array, Array]:
        """Of one feature: the effective samples and the ends of the middle 90 % of their weight, (n,) each."""
        return self._line.window(weighing.kernel, self._width(widths), queries.points[:, 0])

    def slopes_of_others(self, weighing: Weighing, widths: Array, order: int) -> Array:
        """Of one feature, the sums of dK / d log(width) around every sample; itself it has no slope."""
        return self._line_sums_of_others(weighing, widths, order, "slope")

    def _line_sums_of_others(self, weighing: Weighing, widths: Array, order: int, form: Form) -> Array:
        left_out = self.columns if weighing.block else self.left_out  # of a block counts are left out whole
        width = self._width(widths)
        return self._line.sums_of_others(weighing.kernel, width, order, form, left_out, weighing.block)

    def _line_sums(
        self, weighing: Weighing, widths: Array, queries: Rows, order: int, form: Form, columns: Array | None
    ) -> Array:
        line = self._line if columns is None else Samples1D(self._x, columns)
        at = queries.points[:, 0] - self._origin if self._origin else queries.points[:, 0]
        return line.sums(weighing.kernel, self._width(widths), at, order, form)

    @property
    def _x(self) -> Array:
        """The samples of one feature, counted from `_origin`."""
        x: Array = self.rows.points[:, 0]
        return x

    @property
    def _origin(self) -> float:
        return 0.0

    def _counted(self, weighing: Weighing, chosen: Indices) -> NDArray[numpy.bool_]:
        """Which of the chosen samples are counts above 1: leaving one of them out leaves the others at its place."""
        counted: NDArray[numpy.bool_] = (self.weights[chosen] > 1) & (self.counts and not weighing.block)
        return counted

    def ranges(self, weighing: Weighing, chosen: Indices) -> Indices:
        """(n, 2): the samples that are left out with each of the chosen: itself and its block, half-open."""
        low, high = chosen - weighing.block, chosen + weighing.block + 1
        high = numpy.where(self._counted(weighing, chosen), low, high)
        return numpy.column_stack([numpy.maximum(low, 0), numpy.minimum(high, len(self))])

    def kernel(self, weighing: Weighing, widths: Array, queries: Rows) -> tuple[KernelND, Indices]:
        """The kernel of several features at these widths, and the codes of the queries' categories."""
        features = self.features
        continuous = spread(self) if weighing.adaptive else widths[features.continuous]
        periods = features.periods[features.continuous]
        tables, slopes, codes = [], [], []
        for index, feature in enumerate(features.categorical):
            width = 0.0 if weighing.adaptive else float(widths[feature])
            known, code = numpy.unique(queries.labels[:, index], return_inverse=True)
            table, slope = category_weights(features.kinds[feature], known, self._labels[index], width)
            tables.append(table)
            slopes.append(slope)
            codes.append(code)
        kernel = KernelND(
            weighing.kernel,
            continuous,
            self.units(weighing, widths),
            product=weighing.product,
            periods=periods if numpy.isfinite(periods).any() else None,
            tables=tuple(tables),
            table_slopes=tuple(slopes),
        )
        empty = numpy.empty((len(queries.points), 0), dtype=numpy.int64)
        return kernel, numpy.column_stack(codes).astype(numpy.int64) if codes else empty

    def width_slopes(
        self, weighing: Weighing, widths: Array, chosen: Indices, duals: Array, fits: Array, tolerance: float
    ) -> Array:
        """How the chosen samples' estimates from the others change with each log width, (n, features, outputs)."""
        queries = self.rows.take(chosen)
        kernel, codes = self.kernel(weighing, widths, queries)
        slopes = self._cloud.width_slopes(
            kernel, queries.points, codes, self.ranges(weighing, chosen), duals, fits, tolerance=tolerance
        )
        in_order = numpy.argsort(self.features.continuous + self.features.categorical)
        ordered: Array = slopes[:, in_order]
        return ordered

    def choose(self, count: int) -> Indices:
        """So many of the samples, evenly along a curve through them: a choice that does not depend on their order."""
        if count >= len(self):
            return numpy.arange(len(self))
        if self.on_a_line:
            along = numpy.arange(len(self))
        else:
            along = spatial_order(numpy.column_stack([self.rows.points / self.spans * 2.0**14, self.rows.labels]))
        return numpy.sort(along[((numpy.arange(count) + 0.5) * (len(self) / count)).astype(numpy.int64)])

    def nearest_others(self, chosen: Indices) -> Indices:
        """Of each chosen sample the nearest other, in spreads."""
        scaled = numpy.column_stack([self.rows.points / self.spans, self.rows.labels])
        return nearest_others(scaled, scaled[chosen], chosen)[1]

    def _fast(self, weighing: Weighing) -> bool:
        return self.on_a_line and not weighing.adaptive

    def _width(self, widths: Array) -> float:
        return float(min(widths[0], WIDEST * self.spans[0]))

    def reaches(self, widths: Array, queries: Rows, chosen: Indices | None) -> Array:
        """How far, in spreads, the k-th nearest sample is from each query; a chosen sample itself does not count."""
        from scipy.spatial import cKDTree

        scale = spread(self)
        neighbours = int(min(widths[0], len(self) - (chosen is not None)))
        nth = neighbours + (chosen is not None)
        distances = cKDTree(self.rows.points / scale).query(queries.points / scale, k=[nth], workers=-1)[0][:, 0]
        least = 1e-9 * float((self.spans / scale).max())  # as many may be at the query itself
        return numpy.asarray(numpy.maximum(distances, least))

    @cached_property
    def _line(self) -> Samples1D:
        return Samples1D(self._x, self.columns)

    @cached_property
    def _cloud(self) -> SamplesND:
        return SamplesND(self.rows.points, self.columns, self.codes)

    @cached_property
    def _labels(self) -> list[Array]:
        """The distinct labels of each categorical feature."""
        return [numpy.unique(column) for column in self.rows.labels.T]

    @cached_property
    def codes(self) -> Indices:
        """Which of its feature's labels each label is, (m, categorical)."""
        columns = [
            numpy.searchsorted(known, column) for known, column in zip(self._labels, self.rows.labels.T, strict=True)
        ]
        return numpy.column_stack(columns) if columns else numpy.empty((len(self), 0), dtype=numpy.int64)

    @property
    def levels(self) -> list[int]:
        """How many categories each categorical feature has."""
        return [len(known) for known in self._labels]

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_line", "_cloud")}


def spread(samples: Samples) -> Array:
    """Of each continuous feature the standard deviation, or the interquartile range / 1.349 if that is less, not 0."""
    points, weights = samples.rows.points, samples.weights
    mean = numpy.average(points, axis=0, weights=weights)
    deviation: Array = numpy.sqrt(numpy.average((points - mean) ** 2, axis=0, weights=weights))
    low, high = (_quantiles(points, weights, share) for share in (0.25, 0.75))
    robust = (high - low) / 1.349
    scale = numpy.where((robust > 0) & (robust < deviation), robust, deviation)
    return numpy.where(scale > 0, scale, 1.0)


def _quantiles(points: Array, weights: Array, share: float) -> Array:
    """The weighted quantile of each feature: the first point up to which this share of the weight lies."""
    quantiles = numpy.empty(points.shape[1])
    for d in range(points.shape[1]):
        order = numpy.argsort(points[:, d], kind="stable")
        total = numpy.cumsum(weights[order])
        index = numpy.searchsorted(total, share * total[-1])
        quantiles[d] = points[order[min(index, len(order) - 1)], d]
    return quantiles


# --------------------------------------------------------------------------------------------------------------- order


def _samples_of(rows: Rows, values: Array, counts: bool, in_order: bool) -> tuple[Indices, Indices]:
    """Of each row the sample that it is part of, and of each sample its first row.

    Rows of one place are one sample if their values are all the same, unless they are counts.
    """
    place = numpy.column_stack([rows.points, rows.labels])
    order = sort_numbers(place[:, 0])[1] if place.shape[1] == 1 else None
    if order is None or (numpy.diff(place[order, 0]) == 0).any():  # among equals by value
        order = numpy.lexsort([*values.T[::-1], *place.T[::-1]])
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
    renamed = numpy.empty_like(rank)
    renamed[rank] = numpy.arange(len(rank))
    return renamed[part_of], first[rank]
