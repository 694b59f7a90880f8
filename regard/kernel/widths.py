"""Bandwidths that mean anything: a rule of thumb for them, how far they reach, and how many digits they have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy

from regard.kernel.kernels_nd import DEVIATION
from regard.kernel.local import Array, Indices
from regard.kernel.samples import Samples, spread

SMALLEST_SHARE = 1e-3  # λ of a category whose others hardly count


def rule_of_thumb(samples: Samples) -> Array:
    """Silverman's rule for a normal density, scaled by the kernel's deviation; infinite for a constant feature."""
    features = samples.features
    if samples.weighing.adaptive:
        return numpy.array([max(2.0, round(math.sqrt(len(samples))))])
    widths = numpy.empty(len(features.kinds))
    dimensions = samples.dimensions
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
            low, high = numpy.array([2.0]), numpy.array([max(2.0, len(samples) - 1.0)])
        else:
            categorical = samples.features.categorical
            low[categorical], high[categorical] = SMALLEST_SHARE, largest_shares(samples)
        return cls(low, high, numpy.flatnonzero(numpy.isfinite(start)))

    def clip(self, widths: Array) -> Array:
        """Widths within the bounds."""
        return numpy.asarray(numpy.clip(widths, self.low, self.high))
