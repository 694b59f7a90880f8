"""Kernel sums of the Gaussian over one feature (sums_1d.py): by moments of cells, for groups of queries.

Many queries in any order are grouped by a grid; what remains of them, or few, or those that come with their neighbours,
are sorted, so that groups lie where queries are.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy

from regard.attention.sorting import Array, Indices, Points, Queries, cell_starts, sorted_queries
from regard.attention.threads import load_kernels, parallel_for

TERMS = 20  # of a cell's moments, and two more for each order: far samples, of little weight, count for high powers
NEAR = 4.0  # widths: a Gaussian of samples so near is taken as it is
CHUNK = 1 << 14  # queries that are put in order of their groups together
PER_GROUP = 128  # queries, from which on groups are made of all that there could be


class Cells(NamedTuple):
    """Neighbouring samples grouped for the Gaussian (loops/sums_1d_gaussian.py)."""

    starts: Indices
    centres: Array
    moments: Array


class GaussianSums:
    """Sums over sorted samples x (m,) with columns (m, c), of the Gaussian, its square or its slope."""

    def __init__(self, x: Array, columns: Array) -> None:
        self._x, self._columns = x, columns
        self._cells: tuple[float, int, Cells] | None = None  # of the width and the number of terms that were used last

    def sums(self, width: float, queries: Array | Queries, order: int, form: str) -> Array:
        """For queries in any order, or for sorted ones that come with their neighbours.

        Sums of the square or of the slope are made of those of the Gaussian of another width or order.
        """
        narrower = math.sqrt(2) if form == "squared" else 1.0
        first, last = (2, order + 2) if form == "slope" else (0, order)  # −|v| K′ = v² K
        rows = last + last % 2 + 1  # to the next even order: those tell whether digits were lost
        points, terms = Points(self._x, self._columns, width / narrower, NEAR * narrower), TERMS + 2 * (rows - 1)
        if self._cells is None or self._cells[:2] != (points.width, terms):
            starts, c = cell_starts(points.x, points.width), points.columns.shape[1]
            cells = Cells(starts, numpy.empty(len(starts) - 1), numpy.empty((len(starts) - 1, c, terms)))
            loop = partial(load_kernels("sums_1d_gaussian").cell_moments, points, cells)
            parallel_for(loop, len(cells.centres), points.columns.size * terms)
            self._cells = points.width, terms, cells
        if isinstance(queries, Queries):
            sums = _sums_of_sorted(queries, points, self._cells[2], rows)
        else:
            sums = _sums_at(queries, points, self._cells[2], rows)
        sums = sums[:, first : last + 1]
        return sums * in_given_width(narrower, order) if form == "squared" else sums


def in_given_width(narrower: float, order: int) -> Array:
    """What takes v^k from v in a narrower width to v in the one that was given, (order + 1, 1)."""
    powers: Array = narrower ** -numpy.arange(order + 1.0)[:, None]
    return powers


def _sums_at(queries: Array, points: Points, cells: Cells, rows: int) -> Array:
    """From moments about the groups of a grid; queries far from samples, and others that remain, are sorted."""
    sums = numpy.empty((len(queries), rows, points.columns.shape[1]))
    remaining = _gaussian_grid(queries, points, cells, sums)
    if remaining is None:
        return _sums_of_sorted(sorted_queries(points.x, queries), points, cells, rows)
    if len(remaining):
        sums[remaining] = _sums_of_sorted(sorted_queries(points.x, queries[remaining]), points, cells, rows)
    return sums


def _gaussian_grid(queries: Array, points: Points, cells: Cells, sums: Array) -> Indices | None:
    """Fill in the sums for queries in any order; which of them remain, or None where they are too few for a grid."""
    least, greatest = (float(queries.min()), float(queries.max())) if len(queries) else (0.0, numpy.inf)
    if not (greatest - least) / points.width < len(queries) // PER_GROUP:
        return None
    loops, groups, (_, c, terms) = load_kernels("sums_1d_grid"), 1, cells.moments.shape
    groups += int((greatest - least) / points.width)
    totals, sizes = numpy.empty((groups, c, terms)), numpy.empty((groups, 1 + sums.shape[1] // 2))
    near, remain = numpy.empty(groups, dtype=numpy.bool_), numpy.empty(len(queries), dtype=numpy.bool_)
    of_groups = partial(loops.grid_moments, least, points, cells, totals, sizes, near)
    parallel_for(of_groups, groups, 20 * terms * terms * c * groups)
    of_queries = partial(loops.grid_sums, queries, least, points, totals, sizes, near, remain, sums, CHUNK)
    parallel_for(of_queries, -(-len(queries) // CHUNK), terms * sums.size)
    return numpy.flatnonzero(remain)


def _sums_of_sorted(queries: Queries, points: Points, cells: Cells, rows: int) -> Array:
    loops, n, c, terms = load_kernels("sums_1d_gaussian"), len(queries.at), *cells.moments.shape[1:]
    groups = cell_starts(queries.at, points.width)
    sums, counts = numpy.empty((n, rows, c)), numpy.empty(n, dtype=numpy.int64)
    of_groups = partial(loops.gaussian_sums, queries, groups, points, cells, counts, sums)
    # A query's series, and for each group some twenty cells to translate
    parallel_for(of_groups, len(groups) - 1, terms * (sums.size + 20 * terms * c * len(groups)))
    remaining = numpy.flatnonzero(counts)
    if len(remaining):
        of_others = partial(loops.remaining_sums, queries, remaining, counts, points, sums)
        parallel_for(of_others, len(remaining), 1000 * len(remaining))  # each visits a hundred samples or so
    return sums
