"""The leave-one-out error of a Gaussian kernel regression on one feature, at a price that falls with the bandwidth.

A pyramid holds the same samples in cells of many widths (compressed.py), and answers for a bandwidth from cells of
about half of it (layers.py). So a scan of bandwidths, from four times the range of the samples to half the gap between
them, costs little more than its narrowest passes, and those are first looked at in some stretches of the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from regard.kernel.compressed import COARSEST, FINEST, PER_WIDTH, Compressed
from regard.kernel.layers import Layer

__all__ = ["LeaveOneOutError", "Pyramid", "loo_error", "mean_error", "scan"]

Array = NDArray[numpy.float64]

STRETCHES, STRETCH = 16, 1024  # of neighbouring samples, for a first look at an error
WIDEST = 1e8  # ranges of the samples: beyond, a wider kernel changes no digit
MANY = 16 * STRETCHES * STRETCH  # samples, from which on the stretches are a small part of them


class LeaveOneOutError(NamedTuple):
    """Mean squared errors (outputs,) of the samples left out and of the samples within, and the sum of leverages."""

    loo: Array
    trace: float
    in_sample: Array


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
        return [
            LeaveOneOutError(loo[stretch], float(trace[stretch, 0]) * self.finest.count, in_sample[stretch])
            for stretch in range(STRETCHES)
        ]

    def error(self, width: float, degree: int = 0) -> LeaveOneOutError:
        """The leave-one-out error with this bandwidth; what its layer cannot answer for is asked of the finest."""
        width = min(width, WIDEST * ((self.finest.high - self.finest.low) or 1.0))
        layer, outputs = self.layer(width, degree), self.finest.outputs
        targets = numpy.arange(len(layer.points.x))
        loo, in_sample, trace = numpy.zeros(outputs), numpy.zeros(outputs), 0.0
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
        if above.mean() < 3 * above.std(ddof=1) / math.sqrt(STRETCHES):
            yield width
