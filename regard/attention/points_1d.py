"""Samples and queries of one feature as the loops of kernel sums want them (sums_1d.py)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from regard.attention.sorting import sort_numbers
from regard.attention.threads import load_kernels, parallel_for

__all__ = ["Points", "Queries", "cell_starts", "in_given_width", "sorted_queries"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]


class Queries(NamedTuple):
    """Sorted queries, their neighbours among the samples (sums_1d.py), and the rows that their sums are written to."""

    at: Array
    lefts: Indices
    rights: Indices
    rows: Indices


class Points(NamedTuple):
    """Sorted samples x (m,), their columns (m, c), the kernel's width, and up to where a sample is near, in widths."""

    x: Array
    columns: Array
    width: float
    near: float


def sorted_queries(x: Array, queries: Array) -> Queries:
    """Queries in any order, sorted, with their neighbours among the sorted samples x."""
    at, rows = sort_numbers(queries)
    rights = numpy.empty(len(at), dtype=numpy.int64)
    loop = partial(load_kernels("points_1d").find_neighbours, x, at, rights)
    parallel_for(loop, len(at), 4 * (len(at) + len(x)))
    return Queries(at, rights - 1, rights, rows)


def cell_starts(x: Array, width: float) -> Indices:
    """The index of each cell's first number, and one more entry for the end."""
    starts = numpy.empty(len(x) + 1, dtype=numpy.int64)
    count = load_kernels("points_1d").group_cells(x, width, starts)
    return starts[: count + 1].copy()


def in_given_width(narrower: float, order: int) -> Array:
    """What takes v^k from v in a narrower width to v in the one that was given, (order + 1, 1)."""
    powers: Array = narrower ** -numpy.arange(order + 1.0)[:, None]
    return powers
