"""Kernels over several features, the coordinates in which their distances are Euclidean, and the samples nearest there.

Shapes: points (m, features) · left_out (n, 2), the samples from one index up to another that do not count for a query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy
from numpy.polynomial import Polynomial
from scipy import sparse
from scipy.spatial import cKDTree

from regard.kernel.features import Rows
from regard.kernel.local import Array, Indices, Mask

if TYPE_CHECKING:
    from regard.kernel.samples import Samples

CANDIDATES = 4_000_000  # distances that are looked at at once
EQUAL = 1 + 1e-10  # distances whose ratio is less are the same but for rounding


class Root(NamedTuple):
    """A compact kernel is root^power; the root is a polynomial in the margin, so that nothing cancels at the edge."""

    coefficients: list[float]
    power: int
    even: bool = True  # the margin is 1 − u², else 1 − u


def _cosine_root() -> list[float]:
    """cos(π/2 · u) in powers of 1 − u², to the last bit: without its zero interpolated at Chebyshev's points."""
    nodes = (1 + numpy.cos(math.pi * (numpy.arange(12) + 0.5) / 12)) / 2  # 1 − u²
    quotient = Polynomial.fit(nodes, numpy.cos(math.pi / 2 * numpy.sqrt(1 - nodes)) / nodes, 11, domain=[0, 1])
    return [0.0, *quotient.convert(kind=Polynomial).coef.tolist()]


ROOTS = {
    "boxcar": Root([0.0, 1.0], 0),
    "triangular": Root([0.0, 1.0], 1, even=False),
    "epanechnikov": Root([0.0, 1.0], 1),
    "biweight": Root([0.0, 1.0], 2),
    "triweight": Root([0.0, 1.0], 3),
    "tricube": Root([0.0, 3.0, -3.0, 1.0], 3, even=False),
    "cosine": Root(_cosine_root(), 1),
}


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


@dataclass(frozen=True, eq=False)
class KernelND:
    """How much a sample counts for a query: a kernel of continuous features times a table for each categorical one.

    A periodic feature of period P has the distance (P/π) sin(π d / P), the chord of its circle, and the basis function
    (P/2π) sin(2π d / P).
    """

    name: str  # a row of KERNELS
    widths: Array  # (features,) positive; infinite: this feature does not narrow the window
    units: Array  # (features,) positive, finite: what the monomials are measured in
    product: bool = False  # K(|v_1|) … K(|v_d|), else K(‖v‖)
    periods: Array | None = None  # (features,) infinite where a feature is not periodic
    tables: tuple[Array, ...] = ()  # a categorical feature's (categories of the query, categories of the sample) factor
    table_slopes: tuple[Array, ...] = ()  # the tables' derivatives, for width_slopes

    @property
    def features(self) -> int:
        """How many are continuous."""
        return len(self.widths)


class Embedding:
    """Coordinates in which distances are Euclidean: a feature in widths, or both coordinates of its circle.

    Features that do not narrow the window come last, in units: they are for the basis alone.
    """

    def __init__(self, kernel: KernelND, centre: Array) -> None:
        narrows = numpy.isfinite(kernel.widths) & (kernel.name != "constant")
        self.periods = numpy.full(kernel.features, numpy.inf) if kernel.periods is None else kernel.periods
        self.periodic = numpy.isfinite(self.periods)
        self.order = numpy.argsort(~narrows, kind="stable")
        self.features = self.order[: narrows.sum()]
        sizes = 1 + self.periodic[self.order].astype(numpy.int64)
        starts = numpy.concatenate([[0], numpy.cumsum(sizes)])
        self.starts = starts[: len(self.features) + 1]  # of the features that narrow the window
        self.coordinates = numpy.full((kernel.features, 2), -1, dtype=numpy.int64)
        self.coordinates[self.order, 0] = starts[:-1]
        self.coordinates[self.periodic, 1] = self.coordinates[self.periodic, 0] + 1
        self.measures = numpy.where(narrows, kernel.widths, kernel.units)
        self.ratios = self.measures / kernel.units
        self.centre = centre
        self.key = (*(a.tobytes() for a in (self.measures, self.periods, self.coordinates)), len(self.features))

    def embed(self, x: Array) -> Array:
        """(m, features) → (m, coordinates)"""
        out = numpy.empty((len(x), self.coordinates.max(initial=-1) + 1))
        for a, (first, second) in enumerate(self.coordinates):
            if second < 0:
                out[:, first] = (x[:, a] - self.centre[a]) / self.measures[a]
            else:
                radius, angles = self.periods[a] / (2 * math.pi), self._angles(x, a)
                out[:, first] = radius / self.measures[a] * numpy.cos(angles)
                out[:, second] = radius / self.measures[a] * numpy.sin(angles)
        return out

    def basis(self, x: Array) -> Array:
        """What differences of coordinates are multiplied by, (n, features, 2): sin(a − b) from cos a and sin a."""
        out = numpy.zeros((len(x), len(self.ratios), 2))
        out[:, :, 0] = self.ratios
        for a in numpy.flatnonzero(self.periodic).tolist():
            angles = self._angles(x, a)
            out[:, a] = self.ratios[a] * numpy.stack([-numpy.sin(angles), numpy.cos(angles)], 1)
        return out

    def _angles(self, x: Array, a: int) -> Array:
        return numpy.asarray((x[:, a] - self.centre[a]) * (2 * math.pi / self.periods[a]))


def category_weights(kind: str, of_queries: Array, of_samples: Array, width: float) -> tuple[Array, Array]:
    """The factor of a kernel for each pair of categories, and its derivative by the log of λ.

    Aitchison and Aitken's kernel for unordered categories: 1 − λ for the same, λ / (c − 1) for another of c. Wang and
    van Ryzin's for ordered ones: 1 − λ for the same, ½ (1 − λ) λ^distance for another. Up to a factor, so that the
    largest is 1.
    """
    apart = numpy.abs(of_queries[:, None] - of_samples[None, :])
    if kind == "ordered":
        other = 0.5 * width**apart
        return numpy.where(apart == 0, 1.0, other), numpy.where(apart == 0, 0.0, apart * other)
    for_others = width / max(len(of_samples) - 1, 1)
    largest = max(1 - width, for_others)
    weights = numpy.where(apart == 0, 1 - width, for_others) / largest
    # Of for_others / (1 − width): the larger λ, where even that counts more, is refused.
    slope = for_others / max(1 - width, 1e-12) ** 2
    return weights, numpy.where(apart == 0, 0.0, slope)


# -------------------------------------------------------------------------------------------------- the nearest samples
# Features in given units, a periodic one on its circle, of the same categories first.


def reaches(samples: Samples, queries: Rows, units: Array, count: int, left_out: Indices | None) -> Array:
    """How far the last of so many nearest samples is from each query, whatever its categories, (n,); 0 without any.

    Where samples are counts, each is as many neighbours.
    """
    at, places = (_places(samples, rows, units) for rows in (queries, samples.rows))
    farthest, copies = numpy.empty(len(at)), samples.copies
    for part, distances, indices in _nearest(places, at, left_out, min(count, len(samples))):
        neighbours = copies[indices]
        if left_out is not None:  # a count that is not left out whole begins its empty range, and is one less
            neighbours -= indices == left_out[part, :1]
        nearer = numpy.cumsum(neighbours, axis=1) - neighbours
        reached = numpy.isfinite(distances) & (nearer < count) & (neighbours > 0)
        farthest[part] = numpy.max(distances, axis=1, where=reached, initial=0.0)
    return farthest * EQUAL  # a kernel that counts its edge counts the last of them


def nearest_weights(samples: Samples, queries: Rows, units: Array, left_out: Indices | None = None) -> sparse.csr_array:
    """Sparse weights (n, samples): the nearest sample, or those that are equally near, by their weights.

    A sample of the same unordered categories is nearer than all others; a row is empty where all are left out.
    """
    at, places = (_places(samples, rows, units, ordered=True) for rows in (queries, samples.rows))
    pairs: list[tuple[Indices, Indices]] = []
    alone = numpy.ones(len(at), dtype=bool)  # queries that have none yet
    for of_queries, among in _same_categories(samples, queries):
        of_queries = of_queries[alone[of_queries]]
        ranges = None if left_out is None else left_out[of_queries]
        for part, distances, indices in _nearest(places[among], at[of_queries], ranges, 2, among):
            rows = of_queries[part]
            known = numpy.isfinite(distances[:, 0])
            tied = known & (distances[:, 1] <= distances[:, 0] * EQUAL)
            pairs.append((rows[known & ~tied], indices[known & ~tied, 0]))
            if tied.any():
                near = cKDTree(places[among]).query_ball_point(at[rows[tied]], distances[tied, 0] * EQUAL)
                pairs.append((numpy.repeat(rows[tied], [len(few) for few in near]), among[numpy.concatenate(near)]))
            alone[rows[known]] = False
    of_queries, of_samples = (numpy.concatenate(side).astype(numpy.int64) for side in zip(*pairs, strict=True))
    if left_out is not None:
        outside = ~_is_within(of_samples, left_out[of_queries])
        of_queries, of_samples = of_queries[outside], of_samples[outside]
    given = (samples.weights[of_samples], (of_queries, of_samples))
    weights = sparse.csr_array(given, shape=(len(at), len(samples)))
    totals = weights.sum(1)
    return sparse.diags_array(numpy.divide(1, totals, out=numpy.zeros(len(at)), where=totals > 0)) @ weights


def _nearest(
    places: Array, at: Array, left_out: Indices | None, count: int, among: Indices | None = None
) -> Iterator[tuple[slice, Array, Indices]]:
    """Some queries at a time: how far so many nearest samples are, ascending and infinite beyond them, and which.

    among: the numbers of the samples, which `left_out` is of
    """
    tree = cKDTree(places)
    excess = 0 if left_out is None or not len(at) else int((left_out[:, 1] - left_out[:, 0]).max())
    candidates = numpy.arange(1, count + excess + 1)
    step = max(1, CANDIDATES // len(candidates))
    for part in (slice(start, start + step) for start in range(0, len(at), step)):
        distances, indices = tree.query(at[part], k=candidates, workers=-1)
        samples = numpy.minimum(indices, len(places) - 1)  # beyond the last it is their number
        samples = samples if among is None else among[samples]
        if left_out is not None:
            distances[_is_within(samples, left_out[part])] = numpy.inf
            order = numpy.argsort(distances, axis=1, kind="stable")
            distances, samples = (numpy.take_along_axis(array, order, axis=1) for array in (distances, samples))
        yield part, distances[:, :count], samples[:, :count]


def _is_within(indices: Indices, ranges: Indices) -> Mask:
    low, high = (ranges[:, end].reshape(-1, *[1] * (indices.ndim - 1)) for end in (0, 1))
    return numpy.asarray((indices >= low) & (indices < high))


def _same_categories(samples: Samples, queries: Rows) -> Iterator[tuple[Indices, Indices]]:
    """Queries and the samples of the same unordered categories; at last, all queries and all samples."""
    features = samples.features
    unordered = [index for index, d in enumerate(features.categorical) if features.kinds[d] == "category"]
    if unordered:
        labels = samples.rows.labels[:, unordered]
        known, which = numpy.unique(queries.labels[:, unordered], axis=0, return_inverse=True)
        for number, combination in enumerate(known):
            same = numpy.flatnonzero((labels == combination).all(1))
            if len(same):
                yield numpy.flatnonzero(which.reshape(-1) == number), same
    yield numpy.arange(len(queries.points)), numpy.arange(len(samples))


def _places(samples: Samples, rows: Rows, units: Array, ordered: bool = False) -> Array:
    """Coordinates (n, k) in which distances are Euclidean; of ordered categories, where asked for, their ranks."""
    features, (low, high) = samples.features, samples.bounds
    kernel = KernelND("gaussian", units, units, periods=features.periods[features.continuous])
    ranks = [index for index, d in enumerate(features.categorical) if features.kinds[d] == "ordered" and ordered]
    return numpy.column_stack([Embedding(kernel, (low + high) / 2).embed(rows.points), rows.labels[:, ranks]])
