"""Choosing the bandwidth: a rule of thumb, the least leave-one-out error, or that error's gradient.

The leave-one-out error is one pass of kernel sums, so a search costs some tens of passes. Bandwidths are looked for by
their logarithm and given in four significant digits: more would be noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy import optimize

from regard.kernel.local import average_slopes, averages, lines
from regard.kernel.samples import Samples
from regard.kernel.sums_nd import nearest_others

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]

# The standard deviation of each kernel of width 1: kernels of equal deviation smooth alike.
DEVIATION = {
    "gaussian": 1.0,
    "laplace": math.sqrt(2),
    "constant": 1.0,
    "boxcar": math.sqrt(1 / 3),
    "triangular": math.sqrt(1 / 6),
    "epanechnikov": math.sqrt(1 / 5),
    "biweight": math.sqrt(1 / 7),
    "triweight": 1 / 3,
    "tricube": math.sqrt(35 / 243),
    "cosine": math.sqrt(1 - 8 / math.pi**2),
}
WITHOUT_SLOPE = ("boxcar", "constant")  # their sums do not change with the width, or only in jumps
PAIRS = 2e8  # for several features, the error is taken over as many samples as make this many pairs


@dataclass(frozen=True)
class LeaveOneOut:
    """The leave-one-out error of one kernel on some samples, as a function of the widths."""

    samples: Samples
    kernel: str
    degree: int
    empty: str

    def predictions(self, widths: Array) -> tuple[Array, Indices]:
        """What the others say at each chosen sample (n, outputs), and which samples were chosen."""
        chosen = self.samples.chosen(PAIRS)
        sums = self.samples.sums_of_others(self.kernel, widths, chosen, "line" if self.degree else "average")
        found = lines(sums, len(widths)) if self.degree else averages(sums)
        return self._filled(found, chosen), chosen

    def error(self, widths: Array) -> float:
        """The mean squared error, over samples by their weights and over outputs."""
        found, chosen = self.predictions(widths)
        return self._mean(numpy.square(self.samples.centred[chosen] - found), chosen)

    def error_and_gradient(self, widths: Array) -> tuple[float, Array]:
        """The error of local averages, and its derivative by the log of each width."""
        chosen = self.samples.chosen(PAIRS)
        sums = self.samples.sums_of_others(self.kernel, widths, chosen, "slope")
        residuals = self.samples.centred[chosen] - self._filled(averages(sums), chosen)  # (n, outputs)
        slopes = average_slopes(sums)  # (n, features, outputs)
        gradient = [self._mean(-2 * residuals * slopes[:, d], chosen) for d in range(len(widths))]
        return self._mean(residuals**2, chosen), numpy.array(gradient)

    def _mean(self, numbers: Array, chosen: Indices) -> float:
        return float(numpy.average(numbers.mean(1), weights=self.samples.weights[chosen]))

    def _filled(self, found: Array, chosen: Indices) -> Array:
        """A sample with no other in reach is predicted as `empty` says: by the nearest other, else by the mean (0)."""
        missing = numpy.flatnonzero(numpy.isnan(found[:, 0]))
        if len(missing):
            found[missing] = 0.0
            if self.empty == "nearest" and len(self.samples.points) > 1:
                found[missing] = self.samples.centred[self._nearest_others(chosen[missing])]
        return found

    def _nearest_others(self, chosen: Indices) -> Indices:
        points = self.samples.points
        if points.shape[1] == 1:
            x = points[:, 0]
            left, right = numpy.maximum(chosen - 1, 0), numpy.minimum(chosen + 1, len(x) - 1)
            to_left = numpy.where(chosen > 0, x[chosen] - x[left], numpy.inf)
            to_right = numpy.where(chosen < len(x) - 1, x[right] - x[chosen], numpy.inf)
            return numpy.where(to_left <= to_right, left, right)
        scaled = points / spread(self.samples)
        return nearest_others(scaled, scaled[chosen], chosen)[1]


def spread(samples: Samples) -> Array:
    """Of each feature: the standard deviation, or the interquartile range over 1.349 where that is less and not 0."""
    points, weights = samples.points, samples.weights
    mean = numpy.average(points, axis=0, weights=weights)
    deviation: Array = numpy.sqrt(numpy.average((points - mean) ** 2, axis=0, weights=weights))
    low, high = (_quantile(points, weights, share) for share in (0.25, 0.75))
    robust = (high - low) / 1.349
    return numpy.where((robust > 0) & (robust < deviation), robust, deviation)


def _quantile(points: Array, weights: Array, share: float) -> Array:
    """The weighted quantile of each feature: the first point up to which this share of the weight lies."""
    found = numpy.empty(points.shape[1])
    for d in range(points.shape[1]):
        order = numpy.argsort(points[:, d], kind="stable")
        total = numpy.cumsum(weights[order])
        index = numpy.searchsorted(total, share * total[-1])
        found[d] = points[order[min(index, len(order) - 1)], d]
    return found


def silverman(samples: Samples, kernel: str) -> Array:
    """The rule of thumb for a normal density, made for the kernel's own deviation."""
    features = samples.points.shape[1]
    shrink = (4 / ((features + 2) * samples.count)) ** (1 / (features + 4))
    return rounded(spread(samples) * shrink / DEVIATION[kernel])


def least_error(loss: LeaveOneOut) -> Array:
    """The widths of least leave-one-out error: a scan from the smallest to the largest that mean anything, refined."""
    start = silverman(loss.samples, loss.kernel)
    if loss.kernel == "constant":
        return start
    if len(start) == 1:
        return rounded(numpy.array([_scan(lambda log: loss.error(numpy.exp([log])), *_log_range(loss.samples))]))
    factor = _scan(lambda log: loss.error(start * math.exp(log)), math.log(1 / 16), math.log(16))
    if loss.degree or loss.kernel in WITHOUT_SLOPE:
        return _without_silent_features(loss, _one_by_one, _one_by_one(loss, start * factor))
    ends = [descend(loss, widths) for widths in (start, start * factor)]
    return _without_silent_features(loss, descend, min(ends, key=loss.error))


def _without_silent_features(loss: LeaveOneOut, refine: Callable[[LeaveOneOut, Array], Array], widths: Array) -> Array:
    """A search can end in a valley where a feature that says nothing still narrows the window: try without each."""
    least = loss.error(widths)
    for d in range(len(widths)):
        wider = widths.copy()
        wider[d] *= 32
        if loss.error(wider) < least:
            widths = refine(loss, wider)
            least = loss.error(widths)
    return widths


def descend(loss: LeaveOneOut, widths: Array) -> Array:
    """Down the gradient of the leave-one-out error from these widths: the notes' learnable w = 1 / width."""

    def by_log(logs: Array) -> tuple[float, Array]:
        return loss.error_and_gradient(numpy.exp(logs))

    logs = numpy.log(widths)
    room = [(log - math.log(1e3), log + math.log(1e3)) for log in logs]
    jac = loss.degree == 0
    function = by_log if jac else lambda logs: loss.error(numpy.exp(logs))
    found = optimize.minimize(function, logs, jac=jac, bounds=room, method="L-BFGS-B", options={"maxiter": 60})
    return rounded(numpy.exp(found.x))


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


def _log_range(samples: Samples) -> tuple[float, float]:
    """From half the usual gap between neighbours to four times the whole range."""
    gaps = numpy.diff(numpy.unique(samples.points[:, 0]))
    return math.log(float(numpy.median(gaps)) / 2), math.log(4 * float(gaps.sum()))


def _one_by_one(loss: LeaveOneOut, widths: Array) -> Array:
    """Where there is no slope to follow: each width in turn, twice."""
    for _ in range(2):
        for d in range(len(widths)):

            def error(log: float, d: int = d, widths: Array = widths) -> float:
                changed = widths.copy()
                changed[d] *= math.exp(log)
                return loss.error(changed)

            widths = widths.copy()
            widths[d] *= _scan(error, math.log(1 / 4), math.log(4))
    return rounded(widths)


def rounded(widths: Array) -> Array:
    """Four significant digits."""
    digits = 10.0 ** (3 - numpy.floor(numpy.log10(widths)))
    found: Array = numpy.round(widths * digits) / digits
    return found
