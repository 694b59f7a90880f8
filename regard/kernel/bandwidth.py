"""Choosing the bandwidth: by the leave-one-out error, by AICc, or by a rule of thumb.

A criterion is one pass of kernel sums, so a search costs some tens of passes; several features are searched on few
samples first, then on more. Widths are searched by their logarithm and given in four significant digits: more would be
noise. A new criterion is a row of CRITERIA.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy
from numpy.typing import NDArray
from scipy import optimize

from regard.kernel.local import LocalFit, fit_locally
from regard.kernel.pyramid import LeaveOneOutError, Pyramid, mean_error, scan
from regard.kernel.samples import Samples, Weighing
from regard.kernel.widths import WITHOUT_SLOPE, Space, round_widths, rule_of_thumb

__all__ = ["Loss", "choose_widths", "descend", "minimize", "scan_pyramid"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]

LEVELS = (1_500, 12_000)  # samples on which several widths are searched before all of them are used
PAIRS = 5e7  # of samples that a step of the search may look at, where sums cost pairs
PAIRS_AT_LAST = 1e9  # the same for the few steps on all samples
MANY = 20_000  # samples of one feature, from which on they are compressed for a search
MOSTLY = 0.9  # of the samples are no copies: then a search may count the others
CLOSE = 1e-6  # what a step of a search may neglect, relative to the sums


@dataclass(frozen=True, eq=False)
class Loss:
    """A criterion of the widths of one kernel and degree on some samples."""

    samples: Samples
    weighing: Weighing
    degree: int
    empty: str
    criterion: str = "loo"
    pairs: float = numpy.inf
    tolerance: float = 1e-12

    @cached_property
    def chosen(self) -> Indices:
        """The samples that are predicted from the others: all, or as many as make `pairs`."""
        m = len(self.samples)
        fast = (self.samples.on_a_line and not self.weighing.adaptive) or self._on_a_grid
        return self.samples.choose(m if fast or m * m <= self.pairs else max(1000, int(self.pairs / m)))

    def on(self, count: int) -> Loss:
        """The same on so many of the samples."""
        return replace(self, samples=self.samples.take(self.samples.choose(count)), tolerance=CLOSE)

    @property
    def features(self) -> int:
        """How many features the local polynomials are of."""
        return len(self.samples.features.continuous)

    def __call__(self, widths: Array) -> float:
        """The criterion: the less the better."""
        return CRITERIA[self.criterion](self, widths)

    def errors(self, widths: Array) -> Array:
        """The leave-one-out errors of the chosen samples, (n, outputs)."""
        sums = self.samples.sums_of_others(self.weighing, widths, self.chosen, 2 * self.degree, self.tolerance)
        return self._errors(fit_locally(sums, self.features, self.degree).heights)

    def fitted(self, widths: Array) -> tuple[Array, Array]:
        """Of the chosen samples: the errors (n, outputs) of the fit to all of them, and each one's leverage (n,)."""
        rows = self.samples.rows.take(self.chosen)
        sums = self.samples.sums(self.weighing, widths, rows, 2 * self.degree)
        fit = fit_locally(sums, self.features, self.degree)
        own = self.samples.left_out[self.chosen, 0]  # of weight K(0) = 1
        return self.samples.centred[self.chosen] - fit.heights, own * fit.duals[:, 0]

    def error_and_gradient(self, widths: Array) -> tuple[float, Array]:
        """The mean squared leave-one-out error and its derivative by the log of each width."""
        order = 2 * self.degree + (2 if self._on_a_grid else 0)
        sums = self.samples.sums_of_others(self.weighing, widths, self.chosen, order, self.tolerance)
        fit = fit_locally(sums, self.features, self.degree)
        errors = self._errors(fit.heights.copy())
        if self._on_a_grid:
            scale = numpy.square(self.samples.units(self.weighing, widths) / widths)[:, None]
            changes = fit.gaussian_changes(sums, self.features, self.degree) * scale  # (n, features, outputs)
        else:
            changes = self._changes(widths, fit)
        gradient = [self.mean(-2 * errors * numpy.nan_to_num(changes[:, d])) for d in range(len(widths))]
        return self.mean(errors**2), numpy.array(gradient)

    @property
    def _on_a_grid(self) -> bool:
        """Whether sums, also those of slopes, cost no pairs but a grid: for the plain Gaussian of two features."""
        features = self.samples.features
        plain = not features.categorical and bool(numpy.isinf(features.periods).all())
        gaussian = self.weighing.kernel == "gaussian" and not self.weighing.adaptive and not self.weighing.block
        return plain and gaussian and self.features == 2

    @property
    def has_gradient(self) -> bool:
        """Whether the criterion's derivative is known."""
        known = self.criterion == "loo" and not self.weighing.adaptive and self.weighing.kernel not in WITHOUT_SLOPE
        return known and (self.samples.on_a_line or self.degree <= 1 or self._on_a_grid)

    def mean(self, numbers: Array) -> float:
        """Over samples by their weights, and over outputs."""
        return float(numpy.average(numbers.mean(1), weights=self.samples.weights[self.chosen]))

    def _changes(self, widths: Array, fit: LocalFit) -> Array:
        if self.samples.on_a_line:
            slopes = self.samples.slopes_of_others(self.weighing, widths, 2 * self.degree)[self.chosen]
            return fit.changes(slopes, 1, self.degree)[:, None]
        return self.samples.width_slopes(
            self.weighing, widths, self.chosen, fit.duals, fit.coefficients, self.tolerance
        )

    def _errors(self, estimates: Array) -> Array:
        """Values minus estimates (n, outputs). A sample with no other in reach is estimated by the nearest other or,
        where `empty` is anything else, by the mean, which is 0."""
        missing = numpy.flatnonzero(numpy.isnan(estimates[:, 0]))
        if len(missing):
            estimates[missing] = 0.0
            if self.empty == "nearest" and len(self.samples) > 1:
                estimates[missing] = self.samples.centred[self.samples.nearest_others(self.chosen[missing])]
        errors: Array = self.samples.centred[self.chosen] - estimates
        return errors


def leave_one_out(loss: Loss, widths: Array) -> float:
    """The mean squared error when every sample is predicted from the others."""
    return loss.mean(numpy.square(loss.errors(widths)))


def corrected_aic(loss: Loss, widths: Array) -> float:
    """Hurvich, Simonoff and Tsai's AICc: log of the fit's mean squared error, and a price of its degrees of freedom."""
    errors, leverage = loss.fitted(widths)
    share = float(numpy.average(leverage, weights=loss.samples.weights[loss.chosen]))  # trace / n
    return _corrected_aic(loss.mean(errors**2), share, loss.samples.count)


def _corrected_aic(mean_square: float, share: float, count: float) -> float:
    remains = 1 - share - 2 / count
    if remains <= 0:  # as many degrees of freedom as samples: worse the more, and finite for whoever takes differences
        return 1e6 * (1 - remains)
    return math.log(max(mean_square, 1e-300)) + (1 + share) / remains


CRITERIA: dict[str, Callable[[Loss, Array], float]] = {"loo": leave_one_out, "aicc": corrected_aic}


# ---------------------------------------------------------------------------------------------------------- the rules


def choose_widths(loss: Loss, rule: str) -> Array:
    """The widths that a rule chooses: "loo", "aicc", "gradient", "one_se" or "silverman"."""
    if rule == "silverman":
        return rule_of_thumb(loss.samples, loss.weighing)
    if rule == "aicc":
        return minimize(replace(loss, criterion="aicc"))
    widths = minimize(loss)
    if rule == "gradient":
        # Also from the rule of thumb, as learning does; what leave-one-out has found is the best that it may not miss.
        starts = (widths, rule_of_thumb(loss.samples, loss.weighing))
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
    bounds = Space.of(loss.samples, loss.weighing)
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(bounds.clip(widths * math.exp(middle))) <= bound else (low, middle)
    return round_widths(bounds.clip(widths * math.exp(low)))


# ------------------------------------------------------------------------------------------------------------ searches


def minimize(loss: Loss) -> Array:
    """The widths at which a criterion is least."""
    samples, weighing = loss.samples, loss.weighing
    start = rule_of_thumb(samples, weighing)
    if weighing.kernel == "constant" or not numpy.isfinite(start).any():
        return start
    if weighing.adaptive:
        return _count_neighbours(loss)
    if samples.on_a_line and _can_be_compressed(loss):
        pyramid = Pyramid.from_samples(samples.rows.points[:, 0], samples.centred, _counts(samples))
        widths = scan_pyramid(pyramid, loss.criterion, loss.degree)
        return widths if samples.counts or _alike(samples) else _refined(loss, widths)
    if samples.on_a_line:
        # From half the usual gap between neighbours to four times the whole range
        gaps = numpy.diff(numpy.unique(samples.rows.points[:, 0]))
        low, high = math.log(float(numpy.median(gaps)) / 2), math.log(4 * float(gaps.sum()))
        return round_widths(numpy.array([_scan(lambda log: loss(numpy.exp([log])), low, high)]))
    sizes = [size for size in LEVELS if 2 * size <= len(samples)]
    widths = _from_scratch(loss.on(sizes[0]) if sizes else replace(loss, pairs=PAIRS, tolerance=CLOSE))
    for size, before in zip(sizes[1:], sizes, strict=False):
        widths = descend(replace(loss.on(size), pairs=PAIRS), widths * _shrink(before, size, len(start)), steps=8)
    if sizes:
        whole = replace(loss, pairs=PAIRS_AT_LAST, tolerance=CLOSE)
        widths = _by_one_factor(whole, widths * _shrink(sizes[-1], len(samples), len(start)))
    return widths


def _shrink(before: int, after: int, features: int) -> float:
    """By what factor the widths shrink that are best, by the rule of thumb, as the number of samples grows."""
    return float((before / after) ** (1 / (features + 4)))


def _by_one_factor(loss: Loss, widths: Array) -> Array:
    """These widths times the factor that is best, of three and where a parabola through them has its least."""
    space, step = Space.of(loss.samples, loss.weighing), 0.15
    errors = {log: loss(space.clip(widths * math.exp(log))) for log in (-step, 0.0, step)}
    bend = errors[-step] - 2 * errors[0.0] + errors[step]
    if bend > 0:
        log = step * (errors[-step] - errors[step]) / (2 * bend)
        log = min(max(log, -2 * step), 2 * step)
        errors[log] = loss(space.clip(widths * math.exp(log)))
    best = min(errors, key=errors.__getitem__)
    return space.clip(round_widths(widths * math.exp(best)))


def scan_pyramid(pyramid: Pyramid, criterion: str, degree: int) -> Array:
    """The width of one feature at which a criterion of compressed samples is least."""
    count = pyramid.finest.count

    def aicc(error: LeaveOneOutError) -> float:
        return _corrected_aic(float(error.in_sample.mean()), error.trace / count, count)

    return round_widths(numpy.array([scan(pyramid, degree, aicc if criterion == "aicc" else mean_error)]))


def _can_be_compressed(loss: Loss) -> bool:
    """Whether there are so many samples, almost all of weight 1 or counts, under the Gaussian, that it pays."""
    weights = loss.samples.weights
    few_copies = bool((weights == numpy.floor(weights)).all() and (weights == 1).mean() > MOSTLY)
    can = loss.samples.counts or _alike(loss.samples) or few_copies
    return can and loss.weighing == Weighing() and len(loss.samples) >= MANY


def _alike(samples: Samples) -> bool:
    return bool((samples.weights == samples.weights[0]).all())


def _counts(samples: Samples) -> Array | None:
    return None if _alike(samples) and not samples.counts else samples.weights


def _refined(loss: Loss, widths: Array) -> Array:
    """By a few passes over the samples themselves: compressed ones count copies, which are left out together here."""
    log, step = math.log(widths[0]), math.log(2) / 2
    best = optimize.minimize_scalar(
        lambda log: loss(numpy.exp([log])), bounds=(log - step, log + step), method="bounded", options={"maxiter": 6}
    )
    return round_widths(numpy.exp([best.x]))


def _from_scratch(loss: Loss) -> Array:
    """Down from the rule of thumb and from the best of its multiples, then without each feature that says nothing."""
    space = Space.of(loss.samples, loss.weighing)
    start = rule_of_thumb(loss.samples, loss.weighing)
    multiples = [space.clip(start * 2.0**power) for power in range(-3, 4)]
    widths = min((descend(loss, at) for at in (start, min(multiples, key=loss))), key=loss)
    least = loss(widths)
    for d in space.free:
        # A search can end in a valley where a feature that says nothing still narrows the window.
        wider = widths.copy()
        wider[d] = min(32 * wider[d], space.high[d])
        if loss(wider) < least:
            widths = min(widths, descend(loss, wider), key=loss)
            least = loss(widths)
    return widths


def descend(loss: Loss, widths: Array, steps: int = 60) -> Array:
    """Down the gradient from these widths; where the criterion has none that is known, each width in turn."""
    space = Space.of(loss.samples, loss.weighing)
    free = space.free
    if not len(free):
        return widths
    if loss.weighing.kernel in WITHOUT_SLOPE:
        return _coordinate_descent(loss, widths, space)

    def at(logs: Array) -> Array:
        changed = widths.copy()
        changed[free] = numpy.exp(logs)
        return changed

    def function(logs: Array) -> float | tuple[float, Array]:
        if not loss.has_gradient:
            return loss(at(logs))
        error, gradient = loss.error_and_gradient(at(logs))
        return error, gradient[free]

    minimum = optimize.minimize(
        function,
        numpy.log(space.clip(widths)[free]),
        jac=loss.has_gradient,
        bounds=numpy.log(numpy.column_stack([space.low[free], space.high[free]])),
        method="L-BFGS-B",
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
    most = len(loss.samples) - 1
    counts = numpy.unique(numpy.geomspace(2, max(2, most), 2 + int(math.log(max(most, 2)) / math.log(1.5))).astype(int))
    errors = [loss(numpy.array([float(count)])) for count in counts]
    best = int(numpy.argmin(errors))
    low, high = counts[max(best - 1, 0)], counts[min(best + 1, len(counts) - 1)]
    between = numpy.unique(numpy.linspace(low, high, min(high - low + 1, 25)).astype(int))
    return numpy.array([float(min(between, key=lambda count: loss(numpy.array([float(count)]))))])


def _scan(error: Callable[[float], float], low: float, high: float) -> float:
    """The number whose log has the least error: by factors of about 2, then of √2, then by Brent's method."""
    logs = numpy.linspace(low, high, math.ceil((high - low) / math.log(2)) + 1)
    errors = [error(log) for log in logs]
    best, step = int(numpy.argmin(errors)), logs[1] - logs[0]
    points = {float(logs[best]): errors[best]}
    points |= {log: error(log) for log in (logs[best] - step / 2, logs[best] + step / 2)}
    middle = min(points, key=points.__getitem__)
    bounds = (middle - step / 2, middle + step / 2)
    refined = optimize.minimize_scalar(error, bounds=bounds, method="bounded", options={"xatol": 2e-3, "maxiter": 6})
    return math.exp(refined.x if refined.fun < points[middle] else middle)
