"""Sums under the Gaussian kernel over one to three features by way of a regular grid, at a price per point.

    sums[i, r, c] = Σ_j exp(−‖v‖² / 2) v^exponents[r] columns[j, c],        v = points[j] − queries[i], in widths

Samples are spread onto a grid with windows of P cells, which is filtered along each axis and interpolated at the queries
with the same windows (grid_scheme.py): (n + m) P^features + cells · taps operations, however many pairs are in reach.

The error of Σ_j K columns[j, c] is no more than error · Σ_j exp(−‖v‖² / 6) |columns[j, c]|, with the scheme's error. That
sum is bounded by counting |columns| in coarse cells and filtering these. A query is `exact` where the bound is within the
tolerance (1e-9 at best) of |Σ_j K columns[j, c]|, or of Σ_j K weight_j · mean |column| where values cancel, for every
column c. In tails and gaps, where most of the mass around is far away, it is not. Rows above the first are held to the
same share of Σ K as the first, times what they are among evenly spread samples: the error is small beside moments in
widths, not beside those of samples that all sit at the query.

Shapes: points (m, features), queries (n, features), both in widths · columns (m, c), the first of them weights.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy
import torch
from numpy.typing import NDArray

from regard.attention.threads import load_kernels, parallel_for
from regard.kernel.grid_scheme import ENVELOPE, NOISE, SPACING, Scheme, choose_scheme, exponents

__all__ = ["grid_sums"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
Mask = NDArray[numpy.bool_]

EDGE = 4.0  # widths from the box of the samples; farther queries are hardly ever exact
FAR = 9.0  # widths up to which errors are bounded cell by cell
BATCH = 1 << 22  # cells of filtered grids that are interpolated together
MEMORY = 300e6  # bytes


def grid_sums(
    points: Array,
    columns: Array,
    queries: Array,
    order: int,
    *,
    tolerance: float,
    value_order: int | None = None,
    left_out: Array | None = None,
) -> tuple[Array, Mask] | None:
    """The sums above (n, rows, c), and which of them are exact (n,); None where a grid does not pay.

    value_order: rows of a higher order are summed for the first column only, and 0 for the others.
    left_out (n, c): columns of a sample at each query, which are taken out of its sums.
    """
    scheme, error = choose_scheme(points.shape[1], order, tolerance)
    near = _within(queries, points, EDGE)
    asked = queries[near]
    reached = _within(points, asked, scheme.reach)
    samples, counted = points[reached], columns[reached]
    if not len(samples):
        return None
    grid = Grid(scheme, samples, asked)
    grid.spread(samples, counted)
    some = grid.sums(exponents(points.shape[1], order), order if value_order is None else value_order)
    if left_out is not None:
        some[:, 0] -= left_out[near]
    exact = grid.judge(some[:, 0], abs(columns).sum(0), error)
    if isinstance(near, slice):
        return some, exact
    sums, all_exact = numpy.zeros((len(queries), *some.shape[1:])), numpy.zeros(len(queries), dtype=bool)
    sums[near], all_exact[near] = some, exact
    return sums, all_exact


def _within(points: Array, others: Array, margin: float) -> Mask | slice:
    """Which points are in the box of the others, or within a margin of it."""
    if not len(points) or not len(others):
        return slice(0, 0)
    low, high = others.min(0) - margin, others.max(0) + margin
    if (points.min(0) >= low).all() and (points.max(0) <= high).all():
        return slice(None)
    return numpy.asarray(((points >= low) & (points <= high)).all(1))


class Placed(NamedTuple):
    """Points, tile by tile."""

    positions: Array  # (n, 3) in cells
    order: Indices  # (n,) which point each of them is
    starts: Indices  # (tiles + 1,) where each tile's begin
    counts: Indices  # (3,) tiles along each axis


class Grid:
    """A grid over the samples that matter, and one over the queries."""

    def __init__(self, scheme: Scheme, samples: Array, queries: Array) -> None:
        self.scheme, self.features, self.loops = scheme, samples.shape[1], load_kernels("grid_sums")
        low, high, first, last = samples.min(0), samples.max(0), queries.min(0), queries.max(0)
        self.low = low
        self.shift = numpy.floor((first - low) / SPACING).astype(numpy.int64)  # of the queries' grid, in cells
        # of each grid, where points are; windows reach beyond
        self.cells = numpy.floor((high - low) / SPACING).astype(numpy.int64) + 1
        self.query_cells = numpy.floor((last - low) / SPACING).astype(numpy.int64) - self.shift + 1
        self.queries = self._place(queries, low + self.shift * SPACING, self.query_cells)

    def _place(self, points: Array, low: Array, cells: Indices) -> Placed:
        """Sort points by tiles at least as wide as a window; longer ones along the last axis, where memory is."""
        width, loops, n = self.scheme.width, self.loops, len(points)
        shape = numpy.array([width, width, 4 * width])[3 - self.features :]
        counts = -(-(cells + 1) // shape)  # one cell more, for what is rounded up
        tiles, order = numpy.empty((2, n), dtype=numpy.int64)
        starts = numpy.empty(math.prod(counts) + 1, dtype=numpy.int64)
        positions = numpy.empty((n, 3))
        parallel_for(functools.partial(loops.tiles_of, points, low, shape, counts, tiles), n, 8 * n)
        loops.sort_by_tile(tiles, starts, order)
        parallel_for(functools.partial(loops.place, points, low, order, positions), n, 8 * n)
        return Placed(positions, order, starts, numpy.pad(counts, (3 - self.features, 0), constant_values=1))

    def spread(self, points: Array, columns: Array) -> None:
        """Spread samples onto the grid, and count |columns| in coarse cells."""
        scheme, loops, c = self.scheme, self.loops, columns.shape[1]
        samples = self._place(points, self.low, self.cells)
        self.grid = self._empty(c, self.cells + scheme.width)
        self.masses = self._empty(c, self.cells // loops.COARSE + 1)
        shape, flat = numpy.array(self.grid.shape[1:]), self.grid.reshape(c, -1)
        arguments = (scheme.taps, samples.positions, columns[samples.order], samples.starts)
        tiles = numpy.arange(len(samples.starts) - 1).reshape(samples.counts)
        for x, y, z in product(range(2), repeat=3):
            chosen = tiles[x::2, y::2, z::2].ravel()
            chosen = chosen[samples.starts[chosen + 1] > samples.starts[chosen]]
            loop = functools.partial(loops.spread, *arguments, chosen, shape, flat, self.masses)
            work = len(points) * c * scheme.width**self.features // loops.LANES
            parallel_for(loop, len(chosen), work * len(chosen) // tiles.size)

    def _empty(self, channels: int, cells: Indices) -> Array:
        return numpy.zeros((channels, *(1,) * (3 - self.features), *cells))

    def sums(self, rows: Indices, value_order: int) -> Array:
        """(n, rows, c), at the queries."""
        n, c = len(self.queries.order), len(self.grid)
        sums = numpy.zeros((n, len(rows) * c))
        numbers = {tuple(row): r for r, row in enumerate(rows.tolist())}
        grids: list[Array] = []
        channels: list[int] = []
        for row, grid in self._filtered(self.grid, (), value_order):
            if sum(map(numpy.size, grids)) + grid.size > BATCH and grids:
                self._interpolate(grids, channels, sums)
                grids, channels = [], []
            grids.append(grid)
            channels += range(numbers[row] * c, numbers[row] * c + len(grid))
        self._interpolate(grids, channels, sums)
        return sums.reshape(n, len(rows), c)

    def _filtered(self, grid: Array, row: tuple[int, ...], value_order: int) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Each row of powers, and the grid filtered for it; its first column alone above value_order."""
        if len(row) == self.features:
            yield row, grid
            return
        cells, shift = int(self.query_cells[len(row)]) + self.scheme.width, int(self.shift[len(row)])
        axis = 1 + 3 - self.features + len(row)
        for power in range(len(self.scheme.filters) - sum(row)):
            some = grid if sum(row) + power <= value_order else grid[:1]
            filtered = self._correlate(some, axis, self.scheme.filters[power], shift - self.scheme.middle, cells)
            yield from self._filtered(filtered, (*row, power), value_order)

    def _correlate(self, grid: Array, axis: int, taps: Array, first: int, cells: int) -> Array:
        """out[.., i, ..] = Σ_d grid[.., i + first + d, ..] taps[d], for that many i."""
        before, length, after = math.prod(grid.shape[:axis]), grid.shape[axis], math.prod(grid.shape[axis + 1 :])
        padded, out = numpy.zeros((before, cells + len(taps) - 1, after)), numpy.empty((before, cells * after))
        low, high = max(0, first), min(length, first + padded.shape[1])
        if low < high:
            padded[:, low - first : high - first] = grid.reshape(before, length, after)[:, low:high]
        chunks = before * -(-out.shape[1] // self.loops.CHUNK)
        loop = functools.partial(self.loops.correlate, padded.reshape(before, -1), taps, after, out)
        parallel_for(loop, chunks, out.size * len(taps) // 4)
        return out.reshape(*grid.shape[:axis], cells, *grid.shape[axis + 1 :])

    def _interpolate(self, grids: list[Array], channels: list[int], sums: Array) -> None:
        """sums[:, channels] = the grids at the queries."""
        together = grids[0] if len(grids) == 1 else numpy.concatenate(grids)
        shape, flat = numpy.array(together.shape[1:]), together.reshape(len(together), -1)
        positions, order, _, _ = self.queries
        loop = functools.partial(
            self.loops.interpolate, self.scheme.taps, positions, order, shape, flat, numpy.array(channels), sums
        )
        parallel_for(loop, len(order), len(order) * len(channels) * self.scheme.width**self.features // 4)

    def judge(self, sums: Array, totals: Array, error: float) -> Mask:
        """Which sums (n, c) are exact: `error` times what could be wrong is no more than they are."""
        loops, masses = self.loops, self.masses
        size = loops.COARSE * SPACING
        reach = math.ceil(FAR / size)
        gaps = (abs(numpy.arange(-reach, reach + 1)) - 2).clip(0) * size  # between points of two cells, at least
        envelope = numpy.exp(-(gaps**2) / (2 * ENVELOPE))
        envelope = numpy.pad(envelope, (0, -len(envelope) % loops.TOGETHER))
        for a in range(self.features):
            first, cells = int(self.shift[a]) // loops.COARSE - reach, int(self.query_cells[a]) // loops.COARSE + 1
            masses = self._correlate(masses, 1 + 3 - self.features + a, envelope, first, cells)
        beyond = (math.exp(-(FAR**2) / (2 * ENVELOPE)) + NOISE / self.scheme.errors[0]) * totals
        positions, order, _, _ = self.queries
        exact = numpy.empty(len(order), dtype=bool)
        arguments = (positions, order, sums, totals / totals[0], error, masses, beyond, exact)
        parallel_for(functools.partial(loops.judge, *arguments), len(order), 8 * len(order))
        return exact
