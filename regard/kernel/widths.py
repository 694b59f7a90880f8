"""Widths that mean anything: rules of thumb, bounds, and four significant digits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from regard.kernel.samples import Samples, Weighing, spread

__all__ = [
    "DEVIATION",
    "WITHOUT_SLOPE",
    "Space",
    "constant_features",
    "largest_shares",
    "round_widths",
    "rule_of_thumb",
]

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
SMALLEST_SHARE = 1e-3  # λ of a category whose others hardly count


def rule_of_thumb(samples: Samples, weighing: Weighing) -> Array:
    """Silverman's rule for a normal density, scaled by the kernel's deviation; infinite for a constant feature."""
    features = samples.features
    if weighing.adaptive:
        return numpy.array([max(2.0, round(math.sqrt(len(samples))))])
    widths = numpy.empty(len(features.kinds))
    dimensions = len(features.continuous)
    shrink = (4 / ((dimensions + 2) * samples.count)) ** (1 / (dimensions + 4))
    widths[features.continuous] = spread(samples) * shrink / DEVIATION[weighing.kernel]
    widths[features.categorical] = [0.3 * largest for largest in largest_shares(samples)]
    widths[constant_features(samples)] = numpy.inf
    return round_widths(widths)


def constant_features(samples: Samples) -> list[int]:
    """The continuous features with one value only: they say nothing."""
    points = samples.rows.points
    constant = numpy.flatnonzero(points.max(0) == points.min(0))
    return [samples.features.continuous[index] for index in constant]


def largest_shares(samples: Samples) -> list[float]:
    """Of each categorical feature the largest λ, at which all categories count the same or, ordered, almost."""
    features = samples.features
    kinds = [features.kinds[index] for index in features.categorical]
    return [
        1.0 if kind == "ordered" else (levels - 1) / levels for kind, levels in zip(kinds, samples.levels, strict=True)
    ]


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
    def of(cls, samples: Samples, weighing: Weighing) -> Space:
        """A thousandth of the rule of thumb to a thousand times; λ from almost 0 to where all count the same."""
        start = rule_of_thumb(samples, weighing)
        low, high = start / 1e3, start * 1e3
        if weighing.adaptive:
            low, high = numpy.array([2.0]), numpy.array([max(2.0, len(samples) - 1.0)])
        else:
            categorical = samples.features.categorical
            low[categorical], high[categorical] = SMALLEST_SHARE, largest_shares(samples)
        return cls(low, high, numpy.flatnonzero(numpy.isfinite(start)))

    def clip(self, widths: Array) -> Array:
        """Widths within the bounds."""
        clipped: Array = numpy.clip(widths, self.low, self.high)
        return clipped
