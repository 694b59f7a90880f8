"""Sorted numbers of one feature: how they are sorted, into which cells they fall, where queries lie among them.

Sorting by where numbers lie between the least and the greatest is several times faster than by comparing them.
"""

from functools import partial
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from regard.attention.threads import load_kernels, parallel_for

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]

MANY = 1 << 12  # numbers: fewer are sorted before the loops are called
PART = 1024  # numbers of a part, on average: they stay in the nearest cache
UNEVEN = 16  # times as many in one part: then parts of equal numbers are better than parts of equal width


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


def sort_numbers(x: Array) -> tuple[Array, Indices]:
    """(sorted numbers, their places in x); equal numbers stay in order."""
    if (x[:-1] <= x[1:]).all():
        return x, numpy.arange(len(x))
    loops = load_kernels("sorting")
    if len(x) < MANY or loops is None or not numpy.isfinite(x.max() - x.min()):
        order = numpy.argsort(x, kind="stable")
        return x[order], order
    parts, counts = _parts(x)
    ends = numpy.concatenate([[0], counts.cumsum()])
    values, order = numpy.empty(len(x)), numpy.empty(len(x), dtype=numpy.int64)
    loops.fill_parts(x, parts, ends[:-1].copy(), values, order)
    parallel_for(partial(loops.sort_parts, ends, int(counts.max()), values, order), len(counts), 16 * len(x))
    return values, order


def _parts(x: Array) -> tuple[NDArray[numpy.int32], Indices]:
    """The part of each number (n,), and how many numbers each has."""
    loops, count = load_kernels("sorting"), 1 << (len(x) // PART).bit_length()
    parts, counts = numpy.empty(len(x), dtype=numpy.int32), numpy.zeros(count, dtype=numpy.int64)
    least, extent = float(x.min()), float(x.max()) - float(x.min())
    scale = (count - 1) / extent if extent > 0 else numpy.inf
    if scale < 1e300:
        loops.parts_by_place(x, least, scale, parts, counts)
    if not scale < 1e300 or counts.max() > UNEVEN * PART:
        some = numpy.sort(x[:: max(1, len(x) // (8 * count))])
        knots = some[numpy.linspace(0, len(some) - 1, count + 1).astype(numpy.int64)[1:-1]]
        counts[:] = 0
        loops.parts_by_knots(x, knots, parts, counts)
    return parts, counts


def sorted_queries(x: Array, queries: Array) -> Queries:
    """Queries in any order, sorted, with their neighbours among the sorted samples x."""
    at, rows = sort_numbers(queries)
    rights = numpy.empty(len(at), dtype=numpy.int64)
    parallel_for(partial(load_kernels("sorting").find_neighbours, x, at, rights), len(at), 4 * (len(at) + len(x)))
    return Queries(at, rights - 1, rights, rows)


def cell_starts(x: Array, width: float, most: int | None = None) -> Indices:
    """The index of the first number of each cell, at most `width` wide and of at most so many numbers, and the end."""
    starts = numpy.empty(len(x) + 1, dtype=numpy.int64)
    count = load_kernels("sorting").group_cells(x, width, len(x) if most is None else most, starts)
    return starts[: count + 1].copy()
