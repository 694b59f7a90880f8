"""The samples nearest to queries: features in given units, a periodic one on its circle, of the same categories first.

Shapes: left_out (n, 2), the samples from one index up to another that do not count for a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy
from scipy import sparse
from scipy.spatial import cKDTree

from regard.kernel.features import Rows
from regard.kernel.kernels_nd import Embedding, KernelND
from regard.kernel.local import Array, Indices

if TYPE_CHECKING:
    from regard.kernel.samples import Samples

CANDIDATES = 4_000_000  # distances that are looked at at once
EQUAL = 1 + 1e-10  # distances whose ratio is less are the same but for rounding


def reaches(samples: Samples, queries: Rows, units: Array, count: int, left_out: Indices | None) -> Array:
    """How far the last of so many nearest samples is from each query, whatever its categories, (n,); 0 without any."""
    at, places = (_places(samples, rows, units) for rows in (queries, samples.rows))
    farthest = numpy.empty(len(at))
    for part, distances, _ in _nearest(places, at, left_out, count):
        farthest[part] = numpy.max(distances, axis=1, where=numpy.isfinite(distances), initial=0.0)
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


def _is_within(indices: Indices, ranges: Indices) -> numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.bool_]]:
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
