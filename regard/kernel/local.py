"""From kernel sums to estimates: the local average, or the local line's height, at each query.

About a query, Σ_j K (y_j − a − b·v_j)² is least, for a local average, at a = Σ K y / Σ K, and for a local line at
b = cov(v)⁺ cov(v, y), a = mean(y) − b · mean(v), all under the weights K. Where samples do not span a direction, the
line has no slope along it, and where they are one point it is their average.
"""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

Array = NDArray[numpy.float64]

FLAT = 1e-9  # a variance below this part of the mean square is a sum of rounding errors


def averages(sums: Array) -> Array:
    """(n, rows, 1 + outputs) → (n, outputs); NaN where no sample is within reach."""
    with numpy.errstate(invalid="ignore", divide="ignore"):
        found: Array = sums[:, 0, 1:] / sums[:, 0, :1]
    found[~(sums[:, 0, 0] > 0)] = numpy.nan
    return found


def lines(sums: Array, features: int) -> Array:
    """The local line's height, from the sums of a "line"."""
    found = averages(sums)
    seen = numpy.flatnonzero(sums[:, 0, 0] > 0)
    total = sums[seen, 0, 0]
    mean = sums[seen, 1 : 1 + features, 0] / total[:, None]  # (n, features)
    slopes = _slopes(sums[seen], mean, found[seen])  # (n, features, outputs)
    found[seen] -= numpy.einsum("nd,ndc->nc", mean, slopes)
    return found


def _slopes(sums: Array, mean: Array, average: Array) -> Array:
    n, features = mean.shape
    total = sums[:, 0, 0]
    square, row = numpy.empty((n, features, features)), 1 + features
    for a in range(features):
        for b in range(a, features):
            square[:, a, b] = square[:, b, a] = sums[:, row, 0] / total
            row += 1
    covariance = square - mean[:, :, None] * mean[:, None, :]
    with_values = sums[:, 1 : 1 + features, 1:] / total[:, None, None] - mean[:, :, None] * average[:, None, :]
    if features == 1:
        flat = covariance <= FLAT * square
        slopes: Array = numpy.where(flat, 0, with_values / numpy.where(flat, 1, covariance))
        return slopes
    values, vectors = numpy.linalg.eigh(covariance)
    largest = numpy.maximum(values[:, -1:], FLAT * numpy.trace(square, axis1=1, axis2=2)[:, None])
    inverse = numpy.where(values > FLAT * largest, 1 / numpy.maximum(values, 1e-300), 0)
    inverse *= values[:, -1:] > FLAT * numpy.trace(square, axis1=1, axis2=2)[:, None]
    along = numpy.einsum("nda,ndc->nac", vectors, with_values) * inverse[:, :, None]
    return numpy.asarray(numpy.einsum("nda,nac->ndc", vectors, along))


def average_slopes(sums: Array) -> Array:
    """The derivative of averages by the log of each width, (n, features, outputs), from the sums of a "slope"."""
    seen = sums[:, 0, 0] > 0
    total = numpy.where(seen, sums[:, 0, 0], 1)[:, None, None]
    found = (sums[:, 1:, 1:] - sums[:, 1:, :1] * (sums[:, :1, 1:] / total)) / total
    return numpy.where(seen[:, None, None], found, 0)
