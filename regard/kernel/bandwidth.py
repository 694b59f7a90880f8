"""Choosing the bandwidth: a rule of thumb, the least leave-one-out error, or that error's gradient.

The leave-one-out error is one pass of kernel sums, so a search costs some tens of passes. Bandwidths are searched by
their logarithm and given in four significant digits: more would be noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy import optimize

from regard.kernel.samples import Samples, local_averages, local_lines, slopes_of_averages
from regard.kernel.sums_nd import nearest_others

__all__ = ["DEVIATION", "WITHOUT_SLOPE", "LeaveOneOut", "descend", "minimize_error", "round_widths", "silverman"]

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

    def error(self, widths: Array) -> float:
        """The mean squared error, over samples by their weights and over outputs."""
        chosen = self.samples.choose(PAIRS)
        sums = self.samples.sums_of_others(self.kernel, widths, chosen, "linear" if self.degree else "average")
        estimates = local_lines(sums, len(widths)) if self.degree else local_averages(sums)
        return self._mean(numpy.square(self._residuals(estimates, chosen)), chosen)

    def error_and_gradient(self, widths: Array) -> tuple[float, Array]:
        """The error of local averages, and its derivative by the log of each width."""
        chosen = self.samples.choose(PAIRS)
        sums = self.samples.sums_of_others(self.kernel, widths, chosen, "slope")
        residuals = self._residuals(local_averages(sums), chosen)
        slopes = slopes_of_averages(sums)  # (n, features, outputs)
        gradient = [self._mean(-2 * residuals * slopes[:, d], chosen) for d in range(len(widths))]
        return self._mean(residuals**2, chosen), numpy.array(gradient)

    def _mean(self, numbers: Array, chosen: Indices) -> float:
        return float(numpy.average(numbers.mean(1), weights=self.samples.weights[chosen]))

    def _residuals(self, estimates: Array, chosen: Indices) -> Array:
        """Values minus estimates (n, outputs). A sample with no other in reach is estimated by the nearest other or,
        where `empty` is anything else, by the mean, which is 0."""
        missing = numpy.flatnonzero(numpy.isnan(estimates[:, 0]))
        if len(missing):
            estimates[missing] = 0.0
            if self.empty == "nearest" and len(self.samples.points) > 1:
                estimates[missing] = self.samples.centred[self._nearest_others(chosen[missing])]
        residuals: Array = self.samples.centred[chosen] - estimates
        return residuals

    def _nearest_others(self, chosen: Indices) -> Indices:
        points = self.samples.points
        if points.shape[1] == 1:
            x = points[:, 0]
            left, right = numpy.maximum(chosen - 1, 0), numpy.minimum(chosen + 1, len(x) - 1)
            to_left = numpy.where(chosen > 0, x[chosen] - x[left], numpy.inf)
            to_right = numpy.where(chosen < len(x) - 1, x[right] - x[chosen], numpy.inf)
            return numpy.where(to_left <= to_right, left, right)
        scaled = points / _spread(self.samples)
        return nearest_others(scaled, scaled[chosen], chosen)[1]


# -------------------------------------------------------------------------------------------------- the rule of thumb


def silverman(samples: Samples, kernel: str) -> Array:
    """The rule of thumb for a normal density, scaled by the kernel's deviation."""
    features = samples.points.shape[1]
    shrink = (4 / ((features + 2) * samples.count)) ** (1 / (features + 4))
    return round_widths(_spread(samples) * shrink / DEVIATION[kernel])


def _spread(samples: Samples) -> Array:
    """Of each feature: the standard deviation, or the interquartile range over 1.349 where that is less and not 0."""
    points, weights = samples.points, samples.weights
    mean = numpy.average(points, axis=0, weights=weights)
    deviation: Array = numpy.sqrt(numpy.average((points - mean) ** 2, axis=0, weights=weights))
    low, high = (_quantiles(points, weights, share) for share in (0.25, 0.75))
    robust = (high - low) / 1.349
    return numpy.where((robust > 0) & (robust < deviation), robust, deviation)


def _quantiles(points: Array, weights: Array, share: float) -> Array:
    """The weighted quantile of each feature: the first point up to which this share of the weight lies."""
    quantiles = numpy.empty(points.shape[1])
    for d in range(points.shape[1]):
        order = numpy.argsort(points[:, d], kind="stable")
        total = numpy.cumsum(weights[order])
        index = numpy.searchsorted(total, share * total[-1])
        quantiles[d] = points[order[min(index, len(order) - 1)], d]
    return quantiles


def round_widths(widths: Array) -> Array:
    """Four significant digits."""
    digits = 10.0 ** (3 - numpy.floor(numpy.log10(widths)))
    rounded: Array = numpy.round(widths * digits) / digits
    return rounded


# ------------------------------------------------------------------------------------------------------------ searches


def minimize_error(loss: LeaveOneOut) -> Array:
    """The widths of least leave-one-out error: a scan from the smallest to the largest that mean anything, refined."""
    start = silverman(loss.samples, loss.kernel)
    if loss.kernel == "constant":
        return start
    if len(start) == 1:
        # From half the usual gap between neighbours to four times the whole range
        gaps = numpy.diff(numpy.unique(loss.samples.points[:, 0]))
        low, high = math.log(float(numpy.median(gaps)) / 2), math.log(4 * float(gaps.sum()))
        return round_widths(numpy.array([_scan(lambda log: loss.error(numpy.exp([log])), low, high)]))
    factor = _scan(lambda log: loss.error(start * math.exp(log)), math.log(1 / 16), math.log(16))
    if loss.degree or loss.kernel in WITHOUT_SLOPE:
        return _widen_silent_features(loss, _coordinate_descent, _coordinate_descent(loss, start * factor))
    ends = [descend(loss, widths) for widths in (start, start * factor)]
    return _widen_silent_features(loss, descend, min(ends, key=loss.error))


def descend(loss: LeaveOneOut, widths: Array) -> Array:
    """Down the gradient of the leave-one-out error from these widths: the notes' learnable w = 1 / width."""
    logs = numpy.log(widths)
    bounds = [(log - math.log(1e3), log + math.log(1e3)) for log in logs]
    has_gradient = loss.degree == 0
    function = loss.error_and_gradient if has_gradient else loss.error
    minimum = optimize.minimize(
        lambda logs: function(numpy.exp(logs)),
        logs,
        jac=has_gradient,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": 60},
    )
    return round_widths(numpy.exp(minimum.x))


def _coordinate_descent(loss: LeaveOneOut, widths: Array) -> Array:
    """Where there is no slope to follow: each width in turn, twice."""
    for _ in range(2):
        for d in range(len(widths)):

            def error(log: float, d: int = d, widths: Array = widths) -> float:
                changed = widths.copy()
                changed[d] *= math.exp(log)
                return loss.error(changed)

            widths = widths.copy()
            widths[d] *= _scan(error, math.log(1 / 4), math.log(4))
    return round_widths(widths)


def _widen_silent_features(loss: LeaveOneOut, refine: Callable[[LeaveOneOut, Array], Array], widths: Array) -> Array:
    """A search can end in a valley where a feature that says nothing still narrows the window: try without each."""
    least = loss.error(widths)
    for d in range(len(widths)):
        wider = widths.copy()
        wider[d] *= 32
        if loss.error(wider) < least:
            widths = refine(loss, wider)
            least = loss.error(widths)
    return widths


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
