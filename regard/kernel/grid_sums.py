"""Sums under the Gaussian kernel over one to three features by way of a regular grid, at a price per point.

    sums[i, r, c] = Σ_j exp(−‖v‖² / 2) v^exponents[r] columns[j, c],        v = points[j] − queries[i], in widths

Samples are spread onto a grid with windows of P cells; it is filtered along each axis and interpolated at the queries
with the same windows (grid_scheme.py): (n + m) P^features + cells · taps operations, however many pairs are in reach.

The error of Σ_j K columns[j, c] is at most error · Σ_j exp(−‖v‖² / 6) |columns[j, c]|, with the scheme's error. This
is bounded by counting |columns| in coarse cells and filtering these. A query is `exact` where, for each column, the
bound is within the tolerance (1e-9 at best) of |Σ_j K columns[j, c]|, or of Σ_j K weight_j · mean |column| where values
cancel. In tails and gaps, where most of the mass around is far away, it is not. Rows above the first are held to the
same share of Σ K, times what they are among evenly spread samples: errors are small beside moments in widths, and
smaller where samples hardly vary along some direction, by whose variance a fit would divide.

Shapes: points (m, features), queries (n, features), both in widths · columns (m, c), the first of them weights.
"""

import functools
import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy

from regard.attention.threads import load_kernels, parallel_for
from regard.kernel.grid_scheme import ENVELOPE, NOISE, Scheme, choose_schemes
from regard.kernel.kernels_nd import KernelND
from regard.kernel.local import Array, Indices, Mask, exponents

Chosen = Indices | slice

EDGE = 4.0  # widths from the box of the samples; farther queries are hardly ever exact
FAR = 9.0  # widths up to which errors are bounded cell by cell
SIDE = 24.0  # widths; a smaller box is not halved
MEMORY = 200e6  # bytes that grids may take
OUTWARDS = numpy.array([[-1.0], [1.0]])  # what a margin is added to a box by

# What things cost in nanoseconds of one thread, measured
SETUP = 2e6
HALVING = 3e8  # what pairs must cost to look for a part of the queries where a grid pays
POINT = 150.0  # to sort it and to place its windows
TAP = 0.3  # to spread a column onto a cell, or to interpolate a channel from it
FILTER = 0.14  # to add a cell, times a tap
PAIR, CHANNEL = 0.6, 0.25  # of the direct loops, for a pair and each of its products
BLOCK = 512  # samples that these take together


def gaussian_sums(
    kernel: KernelND,
    points: Array,
    columns: Array,
    queries: Array,
    left_out: Indices | None = None,
    *,
    order: int,
    value_order: int | None = None,
    squared: bool = False,
    tolerance: float,
) -> tuple[Array, Mask] | None:
    """The sums above (n, rows, c), with monomials in the kernel's units, and which of them are exact (n,).

    None where the kernel is not a plain Gaussian, or where a grid does not pay. value_order: rows of a higher order are
    summed for the first column only, and 0 for the others. left_out (n, 2): ranges of samples; a query is not exact if
    others than a sample at its place are left out.
    """
    narrows = numpy.isfinite(kernel.widths)
    periodic = kernel.periods is not None and numpy.isfinite(kernel.periods).any()
    fits = 1 <= narrows.sum() <= 3 and (order == 0 or narrows.all())
    if kernel.name != "gaussian" or kernel.tables or periodic or not (fits and len(points) and len(queries)):
        return None
    widths = kernel.widths[narrows] / (math.sqrt(2) if squared else 1)
    at_queries, others = _at_queries(points, columns, queries, left_out)
    if others.sum() > len(queries) / 2:
        return None
    x, t = points[:, narrows], queries[:, narrows]
    x, t = (x - x[:1]) / widths, (t - x[:1]) / widths
    totals, n = abs(columns).sum(0), len(queries)
    plans = Plans(x, t, columns.shape[1], order, value_order, tolerance)
    if plans.pairs_cost(len(points) * n) < SETUP or totals[0] == 0:
        return None
    parts = list(plans.parts(slice(None), slice(None)))
    if not parts:
        return None
    rows = exponents(len(widths), order)
    sums, exact = numpy.zeros((n, len(rows), columns.shape[1])), numpy.zeros(n, dtype=bool)
    for asked, reached, lattice, scheme, error in parts:
        grid = Grid(scheme, lattice, x[reached], columns[reached], t[asked])
        some = grid.sums(rows, plans.value_order)
        indices = numpy.arange(n)[asked][grid.queries.order]
        if at_queries is not None:
            some[:, 0] -= at_queries[indices]
        sums[indices], exact[indices] = some, grid.judge(some, order, totals, error)
    if order > 0:
        sums *= ((widths / kernel.units) ** rows).prod(1)[:, None]
    return sums, exact & ~others


def _at_queries(points: Array, columns: Array, queries: Array, left_out: Indices | None) -> tuple[Array | None, Mask]:
    """The columns (n, c) of the one sample that is left out at each query, and whether others are left out (n,)."""
    if left_out is None:
        return None, numpy.zeros(len(queries), dtype=bool)
    count = left_out[:, 1] - left_out[:, 0]
    one = numpy.flatnonzero(count == 1)
    one = one[(points[left_out[one, 0]] == queries[one]).all(1)]
    at_queries, others = numpy.zeros((len(queries), columns.shape[1])), count > 0
    at_queries[one], others[one] = columns[left_out[one, 0]], False
    return at_queries, others


class Lattice(NamedTuple):
    """Cells that hold samples, and those of the same lattice that hold queries; windows reach beyond."""

    low: Array  # (features,) where the first cell begins, in widths
    cells: Indices  # (features,)
    shift: Indices  # (features,) the queries' first cell
    query_cells: Indices  # (features,)


class Plans:
    """For which queries a grid pays, and which one."""

    def __init__(
        self, points: Array, queries: Array, c: int, order: int, value_order: int | None, tolerance: float
    ) -> None:
        self.points, self.queries, self.c, self.order, self.tolerance = points, queries, c, order, tolerance
        self.features = points.shape[1]
        self.value_order = order if value_order is None else min(value_order, order)
        first, others = (math.comb(self.features + highest, highest) for highest in (order, self.value_order))
        self.channels = first + (c - 1) * others

    def parts(self, asked: Chosen, reached: Chosen) -> Iterator[tuple[Chosen, Chosen, Lattice, Scheme, float]]:
        """All queries together, or if no grid pays for them, halves of their box.

        Each with the samples that count for them, their grid, its scheme, and the error as a part of what is allowed.
        """
        asked = _narrow(self.queries, asked, _box(self.points[reached]) + EDGE * OUTWARDS)
        schemes = choose_schemes(self.features, self.order, self.tolerance)
        queries, reach = self.queries[asked], max(scheme.middle * scheme.spacing for scheme, _ in schemes)
        box = _box(queries)
        reached = _narrow(self.points, reached, box + reach * OUTWARDS)
        points = self.points[reached]
        if not len(points):
            return
        costs = []
        for scheme, error in schemes:
            lattice = _lattice(_box(points), box, scheme.spacing)
            costs.append((self._cost(scheme, lattice, len(points), len(queries)), lattice, scheme, error))
        cost, lattice, scheme, error = min(costs, key=lambda plan: plan[0])
        most = self.pairs_cost(len(points) * len(queries))
        if most <= min(cost, HALVING):  # then it need not be known more closely, which takes as long as some sums
            return
        direct = self.pairs_cost(self._pairs(points, queries))
        widest = int(numpy.argmax(box[1] - box[0]))
        if cost < direct:
            yield asked, reached, lattice, scheme, error
        elif direct > HALVING and box[1, widest] - box[0, widest] > SIDE:
            below = queries[:, widest] < box[:, widest].mean()
            indices = numpy.arange(len(self.queries))[asked]
            yield from self.parts(indices[below], reached)
            yield from self.parts(indices[~below], reached)

    def pairs_cost(self, pairs: float) -> float:
        """Of the direct loops."""
        return pairs * (PAIR + CHANNEL * self.channels)

    def _cost(self, scheme: Scheme, lattice: Lattice, m: int, n: int) -> float:
        """Of a grid; infinite if it is too large."""
        width, taps = scheme.width, scheme.filters.shape[1]
        shape = [float(cells) for cells in lattice.cells + width]
        cost = SETUP + (m + n) * POINT + TAP * width**self.features * (m * self.c + n * self.channels)
        memory, padded = math.prod(shape), 0.0
        for a in range(self.features):
            others, shape[a] = math.prod(shape) / shape[a], float(lattice.query_cells[a] + width)
            cells, rows = math.prod(shape), math.comb(self.order + a + 1, a + 1)
            cost += FILTER * taps * cells * self.c * rows
            memory, padded = memory + cells, max(padded, others * (shape[a] + taps))
        return cost if 8 * self.c * (memory + padded) <= MEMORY else math.inf

    def _pairs(self, points: Array, queries: Array) -> float:
        """About how many the direct loops would visit, where blocks of samples count as a whole; by a few of both."""
        reach = math.sqrt(2 * math.log(1 / self.tolerance))
        some, others = points[:: -(-len(points) // 1024)], queries[:: -(-len(queries) // 128)]
        # Evenly spread numbers have a range of √12 standard deviations.
        sides = math.sqrt(12) * some.std(0) * min(1, BLOCK / len(points)) ** (1 / self.features)
        gaps = (abs(some - others[:, None]) - sides).clip(0)  # (queries, samples, features)
        return float(((gaps**2).sum(-1) < reach**2).mean()) * len(points) * len(queries)


def _lattice(box: Array, query_box: Array, spacing: float) -> Lattice:
    low = box[0]
    ends = [numpy.floor((place - low) / spacing).astype(numpy.int64) for place in (box[1], *query_box)]
    return Lattice(low, ends[0] + 1, ends[1], ends[2] - ends[1] + 1)


def _box(points: Array) -> Array:
    """(2, features): the least and the largest of each; the other way round without points."""
    lows = [column.min(initial=numpy.inf) for column in points.T]
    return numpy.array([lows, [column.max(initial=-numpy.inf) for column in points.T]])


def _narrow(points: Array, chosen: Chosen, limits: Array) -> Chosen:
    """Those of the chosen points that are within limits."""
    some = points[chosen]
    box = _box(some)
    if (box[0] >= limits[0]).all() and (box[1] <= limits[1]).all():
        return chosen
    within = ((some >= limits[0]) & (some <= limits[1])).all(1)
    return numpy.asarray(numpy.arange(len(points))[chosen][within])


class Placed(NamedTuple):
    """Points, tile by tile."""

    positions: Array  # (n, 3) in cells
    order: Indices  # (n,) which point each of them is
    starts: Indices  # (tiles + 1,) where each tile's begin
    counts: Indices  # (3,) tiles along each axis


class Grid:
    """Samples spread onto a grid, and the queries at which it is wanted."""

    def __init__(self, scheme: Scheme, lattice: Lattice, points: Array, columns: Array, queries: Array) -> None:
        self.scheme, self.lattice, self.features = scheme, lattice, points.shape[1]
        self.loops = load_kernels("grid_sums")
        self.first_axis = 1 + 3 - self.features  # of the features in a grid (c, cells, cells, cells)
        self.queries = self._place(queries, lattice.low + lattice.shift * scheme.spacing, lattice.query_cells)
        self._spread(self._place(points, lattice.low, lattice.cells), columns)

    def _place(self, points: Array, low: Array, cells: Indices) -> Placed:
        """Sort points by tiles at least as wide as a window; longer ones along the last axis, where memory is."""
        width, spacing, loops, n = self.scheme.width, self.scheme.spacing, self.loops, len(points)
        shape = numpy.array([width, width, 4 * width])[3 - self.features :]
        counts = -(-(cells + 1) // shape)  # one cell more, for what is rounded up
        tiles, order = numpy.empty((2, n), dtype=numpy.int64)
        starts = numpy.empty(math.prod(counts) + 1, dtype=numpy.int64)
        positions = numpy.empty((n, 3))
        parallel_for(functools.partial(loops.tiles_of, points, low, spacing, shape, counts, tiles), n, 8 * n)
        load_kernels("sorting").sort_by_group(tiles, starts, order)
        parallel_for(functools.partial(loops.place, points, low, spacing, order, positions), n, 8 * n)
        return Placed(positions, order, starts, numpy.pad(counts, (3 - self.features, 0), constant_values=1))

    def _spread(self, samples: Placed, columns: Array) -> None:
        """Spread samples onto the grid, and count |columns| in coarse cells."""
        scheme, loops, cells, c = self.scheme, self.loops, self.lattice.cells, columns.shape[1]
        self.grid = self._empty(c, cells + scheme.width)
        self.masses = self._empty(c, cells // loops.COARSE + 1)
        arguments = (scheme.taps, samples, columns[samples.order])
        tiles = numpy.arange(len(samples.starts) - 1).reshape(samples.counts)
        work = len(columns) * c * scheme.width**self.features // 4
        for x, y, z in product(range(2), repeat=3):
            chosen = tiles[x::2, y::2, z::2].ravel()
            chosen = chosen[samples.starts[chosen + 1] > samples.starts[chosen]]
            loop = functools.partial(loops.spread, *arguments, chosen, self.grid, self.masses)
            parallel_for(loop, len(chosen), work * len(chosen) // tiles.size)

    def _empty(self, channels: int, cells: Indices) -> Array:
        return numpy.zeros((channels, *(1,) * (3 - self.features), *cells))

    def sums(self, rows: Indices, value_order: int) -> Array:
        """(n, rows, c), at the queries in their order."""
        sums = numpy.zeros((len(self.queries.order), len(rows), len(self.grid)))
        numbers = {tuple(row): r for r, row in enumerate(rows.tolist())}
        for row, grid in self._filtered(self.grid, (), value_order):
            # Grid by grid, which stays in cache; placing windows again costs less.
            arguments = (self.scheme.taps, self.queries.positions, grid, numbers[row], sums)
            work = len(sums) * len(grid) * self.scheme.width**self.features // 4
            parallel_for(functools.partial(self.loops.interpolate, *arguments), len(sums), work)
        return sums

    def _filtered(self, grid: Array, row: tuple[int, ...], value_order: int) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Each row of powers, and the grid filtered for it; its first column alone above value_order."""
        a = len(row)
        if a == self.features:
            yield row, grid
            return
        first, cells = int(self.lattice.shift[a]) - self.scheme.middle, int(self.lattice.query_cells[a])
        for power in range(len(self.scheme.filters) - sum(row)):
            some = grid if sum(row) + power <= value_order else grid[:1]
            taps = self.scheme.filters[power]
            filtered = self._correlate(some, self.first_axis + a, taps, first, cells + self.scheme.width)
            yield from self._filtered(filtered, (*row, power), value_order)

    def _correlate(self, grid: Array, axis: int, taps: Array, first: int, cells: int) -> Array:
        """out[.., i, ..] = Σ_d grid[.., i + first + d, ..] taps[d], for that many i."""
        before, length, after = math.prod(grid.shape[:axis]), grid.shape[axis], math.prod(grid.shape[axis + 1 :])
        padded, out = numpy.zeros((before, cells + len(taps) - 1, after)), numpy.empty((before, cells * after))
        low, high = max(0, first), min(length, first + padded.shape[1])
        if low < high:
            padded[:, low - first : high - first] = grid.reshape(before, length, after)[:, low:high]
        loop = functools.partial(self.loops.correlate, padded.reshape(before, -1), taps, after, out)
        parallel_for(loop, self.loops.chunks_of(out.shape, after), out.size * len(taps) // 16)
        return out.reshape(*grid.shape[:axis], cells, *grid.shape[axis + 1 :])

    def judge(self, sums: Array, order: int, totals: Array, error: float) -> Mask:
        """Which sums are exact: `error` times what could be wrong is no more than they are."""
        loops, masses, (_, _, shift, query_cells) = self.loops, self.masses, self.lattice
        size = loops.COARSE * self.scheme.spacing
        reach = math.ceil(FAR / size)
        gaps = (abs(numpy.arange(-reach, reach + 1)) - 2).clip(0) * size  # between points of two cells, at least
        envelope = numpy.exp(-(gaps**2) / (2 * ENVELOPE))
        envelope = numpy.pad(envelope, (0, -len(envelope) % loops.TOGETHER))
        for a in range(self.features):
            first, cells = int(shift[a]) // loops.COARSE - reach, int(query_cells[a]) // loops.COARSE + 1
            masses = self._correlate(masses, self.first_axis + a, envelope, first, cells)
        # Σ_j |columns| envelope, by cell, and what is too far away to be in it
        beyond = (math.exp(-(FAR**2) / (2 * ENVELOPE)) + NOISE / self.scheme.errors[0]) * totals
        errors, exact = error * (masses + beyond[:, None, None, None]), numpy.empty(len(sums), dtype=bool)
        arguments = (self.queries.positions, self.features, order, sums, totals / totals[0], errors, exact)
        parallel_for(functools.partial(loops.judge, *arguments), len(sums), 8 * len(sums))
        return exact
