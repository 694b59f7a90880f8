"""A kernel regression whose bandwidth is known: its curve, and all that can be said of it.

The variance of the noise at a query is the local average of the squared leave-one-out errors; that of the curve is this
variance times Σ_j l_j², where l_j is how much sample j counts. Both are kernel sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy
import torch
from scipy import sparse, stats
from torch import Tensor

from regard.attention import Kernel, bias
from regard.attention import weights as attention_weights
from regard.attention.kernels import KERNELS
from regard.kernel.bandwidth import Loss
from regard.kernel.features import Rows
from regard.kernel.kernels_nd import nearest_weights
from regard.kernel.local import Array, Indices, monomials
from regard.kernel.parts import MergedSamples
from regard.kernel.samples import Samples

WEIGHTS = 1 << 22  # weights that are looked at together
NOISE_SAMPLES = 20_000  # whose leave-one-out errors tell the variance of the noise, where errors cost pairs
INTERPOLATED = 1e-9  # what remains of a sample's error if the curve goes through it, beside rounding
STEP = 1e-4  # of a central difference, in widths


@dataclass(frozen=True, eq=False)
class Smoother:
    """Samples and the widths (features,)."""

    samples: Samples
    widths: Array
    degree: int
    empty: str

    def loss(self, pairs: float) -> Loss:
        """The leave-one-out error of the same regression, over as many samples as make so many pairs."""
        return Loss(self.samples, self.degree, self.empty, pairs=pairs)

    def predict(self, queries: Rows, degree: int | None = None, single: bool = False) -> Array:
        """The curve's heights (n, outputs); `empty` says what those with nothing in reach get.

        single: float32 will do.
        """
        degree = self.degree if degree is None else degree
        heights = self.samples.fit(self.widths, queries, degree, single=single).heights + self.samples.mean
        missing = numpy.flatnonzero(numpy.isnan(heights[:, 0]))
        if len(missing):
            self._refuse_empty(missing[0])
            if self.empty == "nearest":
                heights[missing] = self._nearest_weights(queries.take(missing)) @ self.samples.values
            elif self.empty == "mean":
                heights[missing] = self.samples.mean
        return heights

    # ------------------------------------------------------------------------------------------------- how sure it is

    @cached_property
    def noise(self) -> Noise:
        """The leave-one-out errors, and what they tell of the noise."""
        return Noise(self)

    def deviations(self, queries: Rows, degree: int | None = None) -> Array:
        """The standard error of the curve at the queries, (n, outputs); infinite with nothing in reach."""
        degree = self.degree if degree is None else degree
        fit = self.samples.fit(self.widths, queries, degree)
        squares = self.samples.sums_of_squares(self.widths, queries, degree)
        deviations = numpy.sqrt(fit.variance_factors(squares))[:, None] * self.noise.deviation(queries)
        deviations[numpy.isnan(fit.duals[:, 0])] = numpy.inf
        return deviations

    def interval(self, queries: Rows, level: float, prediction: bool) -> tuple[Array, Array]:
        """The ends (n, outputs) of a band for the curve, or of intervals for new values.

        The band is robust to the bias of the curve: centre and deviation are those of a local polynomial of the next
        even degree, whose bias is of a higher order: Calonico, Cattaneo and Farrell's correction, with one bandwidth.
        """
        tail = (1 - level) / 2
        if prediction:  # about the curve itself, whose errors, bias included, are what the quantiles are of
            centre = self.predict(queries)
            total = numpy.hypot(self.deviations(queries), self.noise.deviation(queries))
            return centre + self.noise.quantiles(tail) * total, centre + self.noise.quantiles(1 - tail) * total
        degree = self.degree + 2 - self.degree % 2 if self.samples.dimensions <= 2 else self.degree + 1
        centre = self.predict(queries, degree)
        reach = stats.t.ppf(1 - tail, max(self.noise.freedom, 1.0)) * self.deviations(queries, degree)
        return centre - reach, centre + reach

    # ----------------------------------------------------------------------------------------------------- derivatives

    def derivative(self, queries: Rows) -> Array:
        """By each continuous feature, (n, continuous, outputs): of the local polynomial, or of the local average."""
        features, points = self.samples.dimensions, self.samples.rows.points
        if not features:
            return numpy.empty((len(queries.points), 0, len(self.samples.mean)))
        if self.degree:
            fit = self.samples.fit(self.widths, queries, self.degree)
            slopes = fit.coefficients[:, 1 : 1 + features] / self.samples.units(self.widths)[:, None]
        else:
            slopes = numpy.stack([self._difference(queries, d) for d in range(features)], axis=1)
        slopes[:, points.max(0) == points.min(0)] = 0.0
        return slopes

    def _difference(self, queries: Rows, feature: int) -> Array:
        # Where points are far from 0, for their width, not less than they can be told apart by
        digits = 64 * numpy.spacing(numpy.abs(queries.points[:, feature]))
        step = numpy.maximum(STEP * self.samples.units(self.widths)[feature], digits)
        ends = []
        for sign in (1, -1):
            points = queries.points.copy()
            points[:, feature] += sign * step
            ends.append((points[:, feature], self._about_mean(Rows(points, queries.labels))))
        (after, high), (before, low) = ends
        return numpy.asarray((high - low) / (after - before)[:, None])

    def _about_mean(self, queries: Rows) -> Array:
        """The local averages less the mean of all values, beside which small differences would lose their digits."""
        heights = self.samples.fit(self.widths, queries).heights
        missing = numpy.isnan(heights[:, 0])
        if missing.any():
            heights[missing] = (self.predict(queries) - self.samples.mean)[missing]
        return heights

    # --------------------------------------------------------------------------------------------------------- weights

    def weights(self, queries: Rows, degree: int) -> Array:
        """How much each sample counts, (n, samples)."""
        scores = torch.from_numpy(self.samples.weights).log() + self._log_kernel(queries)
        query, key = (torch.zeros(len(rows), 1, dtype=torch.float64) for rows in (queries.points, self.samples.weights))
        weights: Array = attention_weights(query, key, score=Kernel("constant"), mask=bias(scores)).numpy()
        missing = numpy.flatnonzero(weights.sum(1) == 0)
        if len(missing):
            self._refuse_empty(missing[0])
            if self.empty == "nearest":
                weights[missing] = self._nearest_weights(queries.take(missing)).toarray()
            else:
                equal = self.samples.weights / self.samples.weights.sum()
                weights[missing] = equal if self.empty == "mean" else numpy.nan
        if degree:
            known = numpy.setdiff1d(numpy.arange(len(weights)), missing)
            weights[known] = self._polynomial_weights(queries.take(known), weights[known], degree)
        return weights

    def parts_of_weights(self, queries: Rows) -> Iterator[tuple[slice, Array]]:
        """The weights of local averages, some queries at a time: (queries, samples) that fit into memory."""
        for part in parts(len(queries.points), max(1, WEIGHTS // max(1, len(self.samples)))):
            yield part, self.weights(queries.take(part), degree=0)

    def windows(self, queries: Rows) -> tuple[Array, Array]:
        """The effective number of samples (n,), and the ends (2, n, continuous) of the middle 90 % of their weight."""
        if not self.samples.on_a_line:
            return self._windows_of_weights(queries)
        effective, *line_ends = self.samples.line_windows(self.widths, queries)
        ends = numpy.stack(line_ends)[:, :, None]
        missing = numpy.flatnonzero(numpy.isnan(effective))
        if len(missing):
            self._refuse_empty(missing[0])
            effective[missing], ends[:, missing] = self._windows_of_weights(queries.take(missing))
        return effective, ends

    def _windows_of_weights(self, queries: Rows) -> tuple[Array, Array]:
        points, periods = self.samples.rows.points, self.samples.features.periods[self.samples.features.continuous]
        effective = numpy.empty(len(queries.points))
        ends = numpy.empty((2, *queries.points.shape))
        orders = [numpy.argsort(points[:, d], kind="stable") for d in range(points.shape[1])]
        for part, weights in self.parts_of_weights(queries):
            logs = numpy.log(weights, out=numpy.zeros_like(weights), where=weights > 0)
            effective[part] = numpy.exp(-(weights * logs).sum(1))
            for d, period in enumerate(periods):
                at, order = points[:, d], orders[d]
                if numpy.isfinite(period):  # half a period on each side of the query
                    away = at - queries.points[part, d, None]
                    at = queries.points[part, d, None] + away - period * numpy.round(away / period)
                    order = numpy.argsort(at, axis=1, kind="stable")
                at, order = numpy.broadcast_arrays(at, order, weights)[:2]
                total = numpy.cumsum(numpy.take_along_axis(weights, order, axis=1), axis=1)
                for end, share in enumerate((0.05, 0.95)):
                    index = numpy.minimum((total < share).sum(1), len(points) - 1)[:, None]
                    last = numpy.take_along_axis(order, index, axis=1)
                    ends[end, part, d] = numpy.take_along_axis(at, last, axis=1)[:, 0]
            ends[:, part][:, numpy.isnan(weights[:, 0])] = numpy.nan
        return effective, ends

    def _log_kernel(self, queries: Rows) -> Tensor:
        """log K, (n, samples)."""
        samples = self.samples
        kernel, (_, codes, _, scales) = samples.around(self.widths, queries)
        row, logs = KERNELS[kernel.name], torch.zeros(len(queries.points), len(samples), dtype=torch.float64)

        def add(distances: Array) -> None:
            apart = torch.from_numpy(distances)
            outside = (apart > 1 if row.edge else apart >= 1) & row.compact
            logs.add_(row.log(apart.masked_fill(outside, 0)).masked_fill(outside, -torch.inf))

        squares = numpy.zeros(logs.shape)
        for d in range(samples.dimensions):
            away = _differences(samples.rows.points, queries.points, kernel.periods, d, chord=True)  # (n, m)
            away /= kernel.widths[d] * (1 if scales is None else scales[:, None])
            if kernel.product:
                add(numpy.abs(away))
            else:
                squares += away**2
        if not kernel.product:
            add(numpy.sqrt(squares))
        for index, table in enumerate(kernel.tables):
            by_code = torch.from_numpy(table).log()[torch.from_numpy(codes)[:, index]]
            logs = logs + by_code[:, torch.from_numpy(samples.codes[:, index])]
        return logs

    def _polynomial_weights(self, queries: Rows, weights: Array, degree: int) -> Array:
        """Weights of the local polynomial: w_j (duals · x_j), which sum to 1.

        The duals are those of the fit that predicts: where the samples hardly tell a slope, sums of another order of
        rounding would make others.
        """
        duals = self.samples.fit(self.widths, queries, degree).duals
        kernel, _ = self.samples.around(self.widths, queries)
        points, features = self.samples.rows.points, self.samples.dimensions
        for part in parts(len(weights), max(1, WEIGHTS // max(1, 10 * len(points)))):
            at = queries.points[part]
            v = [_differences(points, at, kernel.periods, d, chord=False) / kernel.units[d] for d in range(features)]
            along = numpy.zeros(weights[part].shape)
            for dual, factors in zip(duals[part].T, monomials(features, degree), strict=True):
                along += math.prod((v[d] for d in factors), start=dual[:, None])
            weights[part] *= along
            weights[part] /= weights[part].sum(1, keepdims=True)
        return weights

    def _refuse_empty(self, row: int) -> None:
        if self.empty == "raise":
            raise ValueError(
                f"X: row {row} has no sample within the {self.samples.weighing.kernel} kernel's bandwidth "
                f"{self.widths.tolist()}; fit with a larger one, or with empty='nearest'"
            )

    def _nearest_weights(self, queries: Rows) -> sparse.csr_array:
        return nearest_weights(self.samples, queries, self.samples.units(self.widths))


class Noise:
    """The noise of a regression, from the leave-one-out errors of all samples, or of as many as make it cheap.

    columns (m, 1 + outputs): the weight of each sample that tells of the noise, and times it the squared error, less
    what comes from the curve's own variance. A sample through which the curve goes whatever its value tells nothing;
    where none tells anything, the noise is infinite · freedom: samples less the curve's degrees of freedom · errors:
    the samples and their errors (n, outputs), where they are known one by one.
    """

    def __init__(self, smoother: Smoother) -> None:
        self.smoother, samples, widths = smoother, smoother.samples, smoother.widths
        self.errors: tuple[Indices, Array] | None = None
        if isinstance(samples, MergedSamples):
            self.columns, self.freedom = samples.noise_columns(widths, smoother.degree)
            return
        loss = smoother.loss(NOISE_SAMPLES * len(samples))
        errors, (_, leverage) = loss.errors(widths), loss.fitted(widths)
        weights, remains = samples.weights[loss.chosen], 1 - numpy.clip(leverage, 0, 1)
        self.freedom = samples.count * float(numpy.average(remains, weights=weights))
        telling = remains > INTERPOLATED
        self.columns = numpy.zeros((len(samples), 1 + errors.shape[1]))
        self.columns[loss.chosen, 0] = weights * telling
        self.columns[loss.chosen, 1:] = (weights * telling * remains)[:, None] * errors**2
        if telling.any():
            self.errors = loss.chosen[telling], errors[telling]

    def deviation(self, queries: Rows) -> Array:
        """The standard deviation of a value about the curve at the queries, (n, outputs)."""
        # Twice as wide as the curve: a variance is harder to tell than a mean, and changes less.
        widths, samples = self.smoother.widths.copy(), self.smoother.samples
        widths[[0] if samples.weighing.adaptive else samples.features.continuous] *= 2
        variances = samples.fit(widths, queries, columns=self.columns).heights
        weight = self.columns[:, 0].sum()
        overall = self.columns[:, 1:].sum(0) / weight if weight else numpy.inf
        return numpy.sqrt(numpy.maximum(numpy.where(numpy.isnan(variances), overall, variances), 0))

    def quantiles(self, share: float) -> Array:
        """Of the errors in deviations, (outputs,): as they are, or where they are not known one by one of a normal."""
        if self._relative is None:
            return numpy.full(self.columns.shape[1] - 1, stats.norm.ppf(share))
        assert self.errors is not None
        return quantile(self._relative, self.smoother.samples.copies[self.errors[0]], share)

    @cached_property
    def _relative(self) -> Array | None:
        if self.errors is None:
            return None
        chosen, errors = self.errors
        deviation = self.deviation(self.smoother.samples.rows.take(chosen))
        return numpy.asarray(errors / numpy.where(deviation > 0, deviation, 1.0))


def quantile(values: Array, counts: Array, share: float) -> Array:
    """Of rows (n, outputs) that stand so many times each: (outputs,), interpolated at share · (n + 1) (Weibull)."""
    order, total = numpy.argsort(values, axis=0), counts.sum()
    place = min(max(share * (total + 1), 1.0), total)
    ends = numpy.cumsum(counts[order], axis=0)  # where the copies of each value end, (n, outputs)
    rank = numpy.floor(place)
    low, high = ((ends < min(at, total) - 0.5).sum(0) for at in (rank, rank + 1))
    ordered, outputs = numpy.take_along_axis(values, order, 0), numpy.arange(values.shape[1])
    below, above = ordered[low, outputs], ordered[high, outputs]
    return numpy.asarray(below + (place - rank) * (above - below))


def parts(count: int, step: int) -> Iterator[slice]:
    """Slices of so many at a time."""
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _differences(points: Array, queries: Array, periods: Array | None, d: int, chord: bool) -> Array:
    """Samples minus queries in a feature, (n, m); of a periodic one the chord, or the sine that a slope is of."""
    differences: Array = points[None, :, d] - queries[:, None, d]
    if periods is None or periods[d] == numpy.inf:
        return differences
    turns = numpy.pi * differences / periods[d]
    if chord:
        return numpy.asarray(periods[d] / numpy.pi * numpy.sin(turns))
    return numpy.asarray(periods[d] / (2 * numpy.pi) * numpy.sin(2 * turns))
