"""Choosing the bandwidth: by the leave-one-out error, by AICc, or by a rule of thumb; and which widths mean anything.

A criterion is one pass of kernel sums, so a search costs some tens of passes; several features are searched on few
samples first, then on more. Widths are searched by their logarithm and given in four significant digits: more would be
noise. A new criterion is a row of CRITERIA.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy
from scipy import optimize, stats

from regard.kernel.kernels_nd import DEVIATION
from regard.kernel.local import Array, Indices, LocalFit, fit_locally
from regard.kernel.pyramid import Pyramid, aicc_of, refine, scan_by
from regard.kernel.samples import Samples, Weighing, spread

LEVELS = (1_500, 12_000)  # samples on which several widths are searched before all of them are used
PAIRS = 5e7  # of samples that a step of the search may look at, where sums cost pairs
PAIRS_AT_LAST = 1e9  # the same for the few steps on all samples
MANY = 20_000  # samples of one feature, from which on they are compressed for a search
MOSTLY = 0.9  # of the samples are no copies: then a search may count the others
MULTIPLES, STARTS, VALLEYS = 7, 17, 3  # from which several widths are searched, and from how many of them downwards
ALIKE = 0.2  # of logs: descents that are as near to each other end at the same widths
CLOSE = 1e-6  # what a step of a search may neglect, relative to the sums
SMALLEST_SHARE = 1e-3  # λ of a category whose others hardly count
WITHOUT_SLOPE = ("boxcar", "constant")  # their sums do not change with the width, or only in jumps


@dataclass(frozen=True, eq=False)
class Loss:
    """A criterion of the widths of one kernel and degree on some samples."""

    samples: Samples
    degree: int
    empty: str
    criterion: str = "loo"
    pairs: float = numpy.inf
    tolerance: float = 1e-12

    @cached_property
    def chosen(self) -> Indices:
        """The samples that are predicted from the others: all, or as many as make `pairs`."""
        m = len(self.samples)
        fast = self.samples.on_a_line or self.samples.on_a_grid
        return self.samples.choose(m if fast or m * m <= self.pairs else max(1000, int(self.pairs / m)))

    def on(self, count: int) -> Loss:
        """The same on so many of the samples."""
        return replace(self, samples=self.samples.take(self.samples.choose(count)), tolerance=CLOSE)

    def __call__(self, widths: Array) -> float:
        """The criterion: the less the better."""
        return CRITERIA[self.criterion](self, widths)

    def errors(self, widths: Array) -> Array:
        """The leave-one-out errors of the chosen samples, (n, outputs)."""
        fit = self.samples.fit_to_others(widths, self.chosen, self.degree, self.tolerance)
        return self._errors(widths, fit.heights)

    def fitted(self, widths: Array) -> tuple[Array, Array]:
        """Of the chosen samples: the errors (n, outputs) of the fit to all of them, and each one's leverage (n,)."""
        fit = self.samples.fit(widths, self.samples.rows.take(self.chosen), self.degree)
        weights = self.samples.left_out[self.chosen, 0]  # K(0) = 1
        return self.samples.centred[self.chosen] - fit.heights, weights * fit.duals[:, 0]

    def error_and_gradient(self, widths: Array) -> tuple[float, Array]:
        """The mean squared leave-one-out error and its derivative by the log of each width.

        Of local polynomials as they are, also where one varies more than a sample does: that is for a search to avoid.
        """
        order = 2 * self.degree + (2 if self.samples.on_a_grid else 0)
        sums = self.samples.sums_of_others(widths, self.chosen, order, self.tolerance)
        fit = fit_locally(sums, self.samples.dimensions, self.degree)
        errors, changes = self._errors(widths, fit.heights.copy()), self._changes(widths, fit, sums)
        gradient = [self.mean(-2 * errors * numpy.nan_to_num(changes[:, d])) for d in range(len(widths))]
        return self.mean(errors**2), numpy.array(gradient)

    @property
    def unit(self) -> float:
        """What the criterion is measured in, so that a search does not depend on the unit of y. AICc is a log."""
        return self.samples.variance or 1.0 if self.criterion == "loo" else 1.0

    @property
    def has_gradient(self) -> bool:
        """Whether the criterion's derivative is known."""
        samples, weighing = self.samples, self.samples.weighing
        known = self.criterion == "loo" and not weighing.adaptive and weighing.kernel not in WITHOUT_SLOPE
        return known and (samples.on_a_line or samples.on_a_grid or self.degree <= 1)

    def mean(self, numbers: Array) -> float:
        """Over samples by their weights, and over outputs."""
        return float(numpy.average(numbers.mean(1), weights=self.samples.weights[self.chosen]))

    def _changes(self, widths: Array, fit: LocalFit, sums: Array) -> Array:
        """How the estimates change with each log width, (n, features, outputs)."""
        samples = self.samples
        if samples.on_a_grid:
            scale = numpy.square(samples.units(widths) / widths)[:, None]
            return numpy.stack([fit.changes(sums, (d, d)) for d in range(len(widths))], 1) * scale
        if samples.on_a_line:
            slopes = samples.line_sums_of_others(widths, 2 * self.degree, "slope")[self.chosen]
            return fit.changes(slopes)[:, None]
        return samples.width_slopes(widths, self.chosen, fit, self.tolerance)

    def _errors(self, widths: Array, estimates: Array) -> Array:
        """Values minus estimates (n, outputs). A sample with no other in reach is estimated by the nearest other or,
        where `empty` is anything else, by the mean, which is 0."""
        missing = numpy.flatnonzero(numpy.isnan(estimates[:, 0]))
        if len(missing):
            nearest = self.empty == "nearest"
            estimates[missing] = self.samples.nearest_others(widths, self.chosen[missing]) if nearest else 0.0
        return numpy.asarray(self.samples.centred[self.chosen] - estimates)


def leave_one_out(loss: Loss, widths: Array) -> float:
    """The mean squared error when every sample is predicted from the others."""
    return loss.mean(numpy.square(loss.errors(widths)))


def corrected_aic(loss: Loss, widths: Array) -> float:
    """Hurvich, Simonoff and Tsai's AICc: log of the fit's mean squared error, and a price of its degrees of freedom."""
    errors, leverage = loss.fitted(widths)
    share = float(numpy.average(leverage, weights=loss.samples.weights[loss.chosen]))  # trace / n
    return aicc_of(loss.mean(errors**2), share, loss.samples.count)


CRITERIA: dict[str, Callable[[Loss, Array], float]] = {"loo": leave_one_out, "aicc": corrected_aic}


# ---------------------------------------------------------------------------------------------------------- the rules


def choose_widths(loss: Loss, rule: str) -> Array:
    """The widths that a rule chooses: "loo", "aicc", "gradient", "one_se" or "silverman"."""
    if rule == "silverman" or len(loss.samples) < 2:
        return rule_of_thumb(loss.samples)
    if rule == "aicc":
        return minimize(replace(loss, criterion="aicc"))
    widths = minimize(loss)
    if rule == "gradient":
        # Also from the rule of thumb, as learning does; what leave-one-out has found is the best that it may not miss.
        starts = (widths, rule_of_thumb(loss.samples))
        widths = min([widths, *(descend(loss, start) for start in starts)], key=loss)
    return smoothest(loss, widths) if rule == "one_se" else widths


def smoothest(loss: Loss, widths: Array) -> Array:
    """The widest, all widths by one factor, whose error is within a standard error of the least."""
    errors = loss.errors(widths)
    scale = float(numpy.abs(errors).max()) or 1.0  # squares of squares would be too large for large values
    squares = numpy.square(errors / scale).mean(1)
    weights = loss.samples.weights[loss.chosen]
    least = float(numpy.average(squares, weights=weights))
    variance = float(numpy.average((squares - least) ** 2, weights=weights))
    bound = scale**2 * (least + math.sqrt(variance * float((weights**2).sum())) / float(weights.sum()))
    low, high = 0.0, math.log(64)
    bounds = Space.of(loss.samples)
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(bounds.clip(widths * math.exp(middle))) <= bound else (low, middle)
    return round_widths(bounds.clip(widths * math.exp(low)))


# ------------------------------------------------------------------------------------------ widths that mean anything


def rule_of_thumb(samples: Samples) -> Array:
    """Silverman's rule for a normal density, scaled by the kernel's deviation; infinite for a constant feature."""
    features = samples.features
    if samples.weighing.adaptive:
        return numpy.array([max(2.0, round(math.sqrt(samples.copies.sum())))])
    widths, dimensions = numpy.empty(len(features.kinds)), samples.dimensions
    shrink = (4 / ((dimensions + 2) * samples.count)) ** (1 / (dimensions + 4))
    constant = samples.rows.points.max(0) == samples.rows.points.min(0)  # they say nothing
    usual = spread(samples) * shrink / DEVIATION[samples.weighing.kernel]
    widths[features.continuous] = numpy.where(constant, numpy.inf, usual)
    widths[features.categorical] = [0.3 * largest for largest in largest_shares(samples)]
    return round_widths(widths)


def largest_shares(samples: Samples) -> list[float]:
    """Of each categorical feature the largest λ, at which all categories count the same or, ordered, almost."""
    kinds = [samples.features.kinds[index] for index in samples.features.categorical]
    counts = [max(len(labels), 2) for labels in samples.labels]  # beside a single one there may be another in a query
    return [1.0 if kind == "ordered" else (count - 1) / count for kind, count in zip(kinds, counts, strict=True)]


def round_widths(widths: Array) -> Array:
    """Four significant digits."""
    finite = numpy.isfinite(widths) & (widths > 0)
    digits = 10.0 ** (3 - numpy.floor(numpy.log10(numpy.where(finite, widths, 1.0))))
    return numpy.where(finite, numpy.round(widths * numpy.where(finite, digits, 1.0)) / digits, widths)


@dataclass(frozen=True)
class Space:
    """The widths that mean anything, (features,) each: from low to high, where free."""

    low: Array
    high: Array
    free: Indices

    @classmethod
    def of(cls, samples: Samples) -> Space:
        """A thousandth of the rule of thumb to a thousand times; λ from almost 0 to where all count the same."""
        start = rule_of_thumb(samples)
        low, high = start / 1e3, start * 1e3
        if samples.weighing.adaptive:
            low, high = numpy.array([2.0]), numpy.array([max(2.0, samples.copies.sum() - 1.0)])
        else:
            categorical = samples.features.categorical
            low[categorical], high[categorical] = SMALLEST_SHARE, largest_shares(samples)
        return cls(low, high, numpy.flatnonzero(numpy.isfinite(start)))

    def clip(self, widths: Array) -> Array:
        """Widths within the bounds."""
        return numpy.asarray(numpy.clip(widths, self.low, self.high))


# ------------------------------------------------------------------------------------------------------------ searches


def minimize(loss: Loss) -> Array:
    """The widths at which a criterion is least."""
    samples, weighing = loss.samples, loss.samples.weighing
    start = rule_of_thumb(samples)
    if weighing.kernel == "constant" or not numpy.isfinite(start).any():
        return start
    if weighing.adaptive:
        return _count_neighbours(loss)
    if samples.on_a_line:
        widths = _minimize_compressed(loss)
        if widths is not None:
            return widths
        # From half the usual gap between neighbours to four times the whole range
        gaps = numpy.diff(numpy.unique(samples.rows.points[:, 0]))
        low, high = math.log(float(numpy.median(gaps)) / 2), math.log(4 * float(gaps.sum()))
        return round_widths(numpy.array([_scan(lambda log: loss(numpy.exp([log])), low, high)]))
    few, more = LEVELS
    if len(samples) < 2 * few:
        return _from_scratch(replace(loss, pairs=PAIRS, tolerance=CLOSE))
    if len(samples) < 2 * more:
        more = len(samples)
    # From few samples the widths are known roughly, also relative to each other: down once more with more of them.
    widths = _from_scratch(loss.on(few)) * _shrink(few, more, len(start))
    widths = descend(replace(loss.on(more), pairs=PAIRS), widths, steps=8)
    if more == len(samples):
        return widths
    whole = replace(loss, pairs=PAIRS_AT_LAST, tolerance=CLOSE)
    return _by_one_factor(whole, widths * _shrink(more, len(samples), len(start)))


def _shrink(before: int, after: int, features: int) -> float:
    """By what factor the widths shrink that are best, by the rule of thumb, as the number of samples grows."""
    return float((before / after) ** (1 / (features + 4)))


def _by_one_factor(loss: Loss, widths: Array) -> Array:
    """These widths times the factor that is best, of three and where a parabola through them has its least."""
    space, step = Space.of(loss.samples), 0.15
    errors = {log: loss(space.clip(widths * math.exp(log))) for log in (-step, 0.0, step)}
    bend = errors[-step] - 2 * errors[0.0] + errors[step]
    best = min(errors, key=errors.__getitem__)
    if bend > 0:
        log = step * (errors[-step] - errors[step]) / (2 * bend)
        log = min(max(log, -2 * step), 2 * step)
        # Between the three it needs no proof, which takes as long as each of them.
        best = log if best == 0.0 or loss(space.clip(widths * math.exp(log))) < errors[best] else best
    return space.clip(round_widths(widths * math.exp(best)))


def _minimize_compressed(loss: Loss) -> Array | None:
    """The same from samples in cells, if they are so many, almost all of weight 1 or counts, that it pays."""
    samples, weights = loss.samples, loss.samples.weights
    if samples.weighing != Weighing() or len(samples) < MANY:
        return None
    whole, alike = bool((weights == numpy.floor(weights)).all()), bool((weights == weights[0]).all())
    alike = alike and not samples.counts
    if not alike and not (whole and (samples.counts or (weights == 1).mean() > MOSTLY)):
        return None
    pyramid = Pyramid.from_samples(samples.rows.points[:, 0], samples.centred, None if alike else weights)
    widths = round_widths(numpy.array([scan_by(loss.criterion, pyramid, loss.degree)]))
    if samples.counts or alike:
        return widths
    # A few passes over the samples themselves: compressed ones count copies, which are left out together here.
    log, step = math.log(widths[0]), math.log(2) / 2
    best = optimize.minimize_scalar(
        lambda log: loss(numpy.exp([log])), bounds=(log - step, log + step), method="bounded", options={"maxiter": 6}
    )
    return round_widths(numpy.exp([best.x]))


def _from_scratch(loss: Loss) -> Array:
    """Down from the best of many starts, then without each feature that says nothing.

    Starts are multiples of the rule of thumb, and widths about it that differ by feature: errors have several valleys.
    """
    space = Space.of(loss.samples)
    start = rule_of_thumb(loss.samples)
    features = len(space.free)
    factors = numpy.ones((MULTIPLES + STARTS, len(start)))
    factors[:MULTIPLES] *= 2.0 ** (numpy.arange(MULTIPLES) - MULTIPLES // 2)[:, None]
    factors[MULTIPLES:, space.free] = 8.0 ** (2 * stats.qmc.Halton(features, scramble=False).random(STARTS) - 1)
    starts = sorted(map(space.clip, start * factors), key=loss)
    ends: list[Array] = []
    for at in starts[:VALLEYS]:
        ends.append(descend(loss, at, known=ends))
    widths = min(ends, key=loss)
    least = loss(widths)
    for d in space.free:
        # A search can end in a valley where a feature that says nothing still narrows the window.
        wider = widths.copy()
        wider[d] = min(32 * wider[d], space.high[d])
        if loss(wider) < least:
            widths = min(widths, descend(loss, wider), key=loss)
            least = loss(widths)
    return widths


def descend(loss: Loss, widths: Array, steps: int = 60, known: Sequence[Array] = ()) -> Array:
    """Down the gradient from these widths; where the criterion has none that is known, each width in turn.

    known: where other descents have ended; what comes close to one of them would end there, too, and goes no further.
    """
    space = Space.of(loss.samples)
    free, unit = space.free, loss.unit
    if not len(free):
        return widths
    if loss.samples.weighing.kernel in WITHOUT_SLOPE:
        return _coordinate_descent(loss, widths, space)

    def at(logs: Array) -> Array:
        changed = widths.copy()
        changed[free] = numpy.exp(logs)
        return changed

    def function(logs: Array) -> float | tuple[float, Array]:
        if not loss.has_gradient:
            return loss(at(logs)) / unit
        error, gradient = loss.error_and_gradient(at(logs))
        return error / unit, gradient[free] / unit

    wide = 32 * rule_of_thumb(loss.samples)  # wider ones hardly differ

    def stop(logs: Array) -> None:
        here = numpy.minimum(at(logs), wide)[free]
        if any((abs(numpy.log(here / numpy.minimum(end, wide)[free])) < ALIKE).all() for end in known):
            raise StopIteration

    minimum = optimize.minimize(
        function,
        numpy.log(space.clip(widths)[free]),
        jac=loss.has_gradient,
        bounds=numpy.log(numpy.column_stack([space.low[free], space.high[free]])),
        method="L-BFGS-B",
        callback=stop,
        options={"maxiter": steps, "ftol": 1e-7},
    )
    return space.clip(round_widths(at(minimum.x)))


def _coordinate_descent(loss: Loss, widths: Array, space: Space) -> Array:
    """Each width in turn, twice."""
    for _ in range(2):
        for d in space.free:

            def error(log: float, d: int = d, widths: Array = widths) -> float:
                changed = widths.copy()
                changed[d] *= math.exp(log)
                return loss(space.clip(changed))

            widths = widths.copy()
            widths[d] *= _scan(error, math.log(1 / 4), math.log(4))
    return space.clip(round_widths(widths))


def _count_neighbours(loss: Loss) -> Array:
    """How many neighbours: by factors of 1.5, then all whole numbers between that differ by a fiftieth."""
    most = int(loss.samples.copies.sum()) - 1
    counts = numpy.unique(numpy.geomspace(2, max(2, most), 2 + int(math.log(max(most, 2)) / math.log(1.5))).astype(int))
    errors = [loss(numpy.array([float(count)])) for count in counts]
    best = int(numpy.argmin(errors))
    low, high = counts[max(best - 1, 0)], counts[min(best + 1, len(counts) - 1)]
    between = numpy.unique(numpy.linspace(low, high, min(high - low + 1, 25)).astype(int))
    return numpy.array([float(min(between, key=lambda count: loss(numpy.array([float(count)]))))])


def _scan(error: Callable[[float], float], low: float, high: float) -> float:
    """The number whose log has the least error: by factors of about 2, then of √2, then by Brent's method."""
    logs = numpy.linspace(low, high, math.ceil((high - low) / math.log(2)) + 1)
    errors = numpy.array([error(log) for log in logs])
    # Of equals the widest: a compact kernel that reaches no neighbour is on a plateau, whose edge is at that end.
    best = int(numpy.flatnonzero(errors <= errors.min() + 1e-12 * abs(errors.min()))[-1])
    return refine(error, float(logs[best]), float(errors[best]), float(logs[1] - logs[0]))
