"""Kernel sums over one feature, in O((n + m) log n): with sorted samples, the cost of a query does not grow with them.

    sums[i, k, c] = Σ_j K(|v|) · v^k · columns[j, c],        v = (x_j − query_i) / width,  k = 0 … order

up to one positive factor per query, as K may underflow, and what is wanted of sums are their ratios: K is relative to
that of the nearest sample, for Laplace everywhere, for the Gaussian where that is more than NEAR widths away. (So the
factors of K, of its square and of its slope go together.) Instead of K there may stand its square, for variances, or
−|v| K′(|v|), its slope by the log of the width. What weighs less than 1e-16 of the nearest sample may be left out.
Three ways, each with its loops: the Gaussian by moments of cells, polynomials on |v| ≤ 1 by running moments, Laplace by
running products. The cosine kernel counts as a polynomial: of degree 22 it is exact to the last bit.

Shapes: x (m,), sorted · queries (n,) · columns (m, c), the first of them weights that are not negative.
In the loops queries are sorted, and each comes with its neighbours: samples up to index `left` are not to its right,
samples from index `right` on are not to its left, and those between the two are left out of its sums.
"""

import math
from functools import partial
from typing import Literal, NamedTuple

import numpy
import torch
from torch import Tensor

from regard.attention.sorting import Array, Indices, Points, Queries, cell_starts, sort_numbers, sorted_queries
from regard.attention.threads import load_kernels, parallel_for

Form = Literal["kernel", "squared", "slope"]

# K(|v|) = Σ_p coefficients[p] |v|^p on |v| ≤ 1
POLYNOMIALS: dict[str, list[float]] = {
    "boxcar": [1],
    "triangular": [1, -1],
    "epanechnikov": [1, 0, -1],
    "biweight": [1, 0, -2, 0, 1],
    "triweight": [1, 0, -3, 0, 3, 0, -1],
    "tricube": [1, 0, 0, -3, 0, 0, 3, 0, 0, -1],
    "cosine": [0 if p % 2 else (-1) ** (p // 2) * (math.pi / 2) ** p / math.factorial(p) for p in range(23)],
}
MANY_POWERS = 12  # from as many on, running moments keep their digits in blocks of a quarter of a width, not half


class Polynomial(NamedTuple):
    """A kernel that is a polynomial of |v| (loops/sums_1d_running.py)."""

    coefficients: Array  # in powers of |v|
    by_margin: Array  # in powers of 1 − |v|
    lowest: int  # power of |v|


class Cells(NamedTuple):
    """Neighbouring samples grouped for the Gaussian (loops/sums_1d_gaussian.py)."""

    starts: Indices
    centres: Array
    moments: Array


class Samples1D:
    """Sorted samples x (m,) with their columns (m, c), of which sums can be taken."""

    def __init__(self, x: Array, columns: Array) -> None:
        x, columns = _as_loops_want(x), _as_loops_want(columns)
        self._all = _Sums(x, columns)
        # Equal samples count as one. The first at each x; NaN differs from everything, so sample 0 is one.
        self._first = numpy.flatnonzero(numpy.diff(x, prepend=numpy.nan))
        self._places = self._all
        if len(self._first) < len(x):
            self._places = _Sums(x[self._first], numpy.add.reduceat(columns, self._first))
        # What `window` needs of the kernel and the width that were used last
        self._windows: tuple[tuple[str, float], WindowKernel, WindowCells] | None = None

    def sums(self, kernel: str, width: float, queries: Array, order: int = 0, form: Form = "kernel") -> Array:
        """The sums above (n, order + 1, c), for queries (n,) in any order."""
        return self._places.sums(kernel, width, _as_loops_want(queries), order, form)

    def sums_of_others(
        self,
        kernel: str,
        width: float,
        order: int = 0,
        form: Form = "kernel",
        left_out: Array | None = None,
        block: int = 0,
    ) -> Array:
        """The sums above (m, order + 1, c), at every sample over the others.

        left_out (m, c): a sample's own columns as they are taken out, if not all of them. block: how many neighbours on
        each side, in the sorted order, are left out as well.
        """
        left_out = self._all.columns if left_out is None else left_out
        if block:
            return self._sums_beyond(kernel, width, order, form, left_out, block)
        columns, first = self._all.columns, self._first
        counts, index = numpy.diff(first, append=len(columns)), numpy.arange(len(first))
        # A sample alone at its x is skipped whole. Where something else is there, its columns are subtracted.
        # (Of pseudo-samples, whose columns may be negative, nothing is left out: regard/kernel/pyramid.py.)
        alone = (counts == 1) & (columns[first] == left_out[first]).all(1)
        queries = Queries(self._places.x, index - 1, numpy.where(alone, index + 1, index), index)
        sums = self._places.sums(kernel, width, queries, order, form)
        if alone.all():
            return sums
        sums = numpy.repeat(sums, counts, axis=0)
        if form != "slope":  # K(0) = 1, but its slope is 0
            shared = numpy.repeat(~alone, counts)
            sums[shared, 0] -= left_out[shared]
        return sums

    def window(self, kernel: str, width: float, queries: Array, share: float = 0.9) -> tuple[Array, Array, Array]:
        """(effective, low, high), (n,) each, for queries in any order; NaN where no sample is within reach."""
        if self._windows is None or self._windows[0] != (kernel, width):
            polynomial = _kernel_polynomial(kernel if kernel in POLYNOMIALS else "boxcar", "kernel")
            width_or_none = math.inf if kernel == "constant" else width  # within an infinite width all count the same
            described = WindowKernel(KINDS.get(kernel, 2), width_or_none, *polynomial[:2])
            cells = _window_cells(self._all.x, self._all.columns[:, 0], described)
            self._windows = (kernel, width), described, cells
        effective, low, high = result = numpy.empty((3, len(queries)))
        loop = partial(load_kernels("windows_1d").windows, _as_loops_want(queries), *self._windows[1:], share, result)
        parallel_for(loop, len(queries), len(queries) << 14)
        return effective, low, high

    def _sums_beyond(self, kernel: str, width: float, order: int, form: Form, left_out: Array, block: int) -> Array:
        """At every sample, without the `block` neighbours on each side. Equal samples are left out one by one."""
        x, columns, index = self._all.x, self._all.columns, numpy.arange(len(self._all.x))
        queries = Queries(x, numpy.maximum(index - block - 1, -1), numpy.minimum(index + block + 1, len(x)), index)
        sums = self._all.sums(kernel, width, queries, order, form)
        kept = numpy.flatnonzero((columns != left_out).any(1))  # something of these remains, at v = 0
        if len(kept):
            beyond = numpy.pad(x, 1, constant_values=(-numpy.inf, numpy.inf))
            nearest = numpy.minimum(x - beyond[queries.lefts + 1], beyond[queries.rights + 1] - x)[kept] / width
            sums[kept] *= relative_to(kernel, nearest, form)[:, None, None]
            if form != "slope":
                sums[kept, 0] += columns[kept] - left_out[kept]
        return sums


def _as_loops_want(array: Array) -> Array:
    """Contiguous and writeable: loops are compiled anew for every other layout."""
    return numpy.require(array, requirements=["C", "W"])


class _Sums:
    """Sums over sorted samples x (m,) with columns (m, c)."""

    def __init__(self, x: Array, columns: Array) -> None:
        self.x, self.columns = x, columns
        self._cells: tuple[float, int, Cells] | None = None  # of the width and the number of terms that were used last

    def sums(self, kernel: str, width: float, queries: Array | Queries, order: int, form: Form) -> Array:
        """For queries in any order, or for sorted ones that come with their neighbours."""
        if kernel == "gaussian":
            return self._gaussian_sums(width, queries, order, form)
        queries = queries if isinstance(queries, Queries) else sorted_queries(self.x, queries)
        points = Points(self.x, self.columns, width, NEAR)
        if kernel == "laplace":
            return _laplace(points, queries, order, form)
        if kernel != "constant":
            return _polynomial(kernel, form, points, queries, order)
        # A boxcar that reaches from every query to every sample
        wide = 2 * max(width, float(numpy.ptp(numpy.concatenate([self.x, queries.at]))))
        sums = _polynomial("boxcar", "kernel", points._replace(width=wide), queries, order)
        return sums * in_given_width(width / wide, order) * (form != "slope")

    def _gaussian_sums(self, width: float, queries: Array | Queries, order: int, form: Form) -> Array:
        """Sums of the square or of the slope are made of those of the Gaussian of another width or order."""
        narrower = math.sqrt(2) if form == "squared" else 1.0
        first, last = (2, order + 2) if form == "slope" else (0, order)  # −|v| K′ = v² K
        rows = last + last % 2 + 1  # to the next even order: those tell whether digits were lost
        points, terms = Points(self.x, self.columns, width / narrower, NEAR * narrower), TERMS + 2 * (rows - 1)
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


def relative_to(kernel: str, nearest: Array, form: Form = "kernel") -> Array:
    """The number that sums are relative to where the nearest sample that takes part is so many widths away: times it,
    they are what the formula says."""
    power = 2 if form == "squared" else 1
    if kernel == "gaussian":
        return numpy.where(nearest > NEAR, numpy.exp(-power * nearest * nearest / 2), 1.0)
    return numpy.exp(-power * nearest) if kernel == "laplace" else numpy.ones_like(nearest)


def _polynomial(kernel: str, form: Form, points: Points, queries: Queries, order: int) -> Array:
    loops, c, rows = load_kernels("sums_1d_running"), points.columns.shape[1], order + order % 2 + 1
    polynomial = _kernel_polynomial(kernel, form)
    terms = len(polynomial.coefficients) + rows - 1
    starts = cell_starts(points.x, points.width / (4 if terms > MANY_POWERS else 2))
    running = numpy.empty((len(points.x), c, terms))
    parallel_for(partial(loops.running_moments, points, starts, running), len(starts) - 1, running.size)
    sums = numpy.empty((len(queries.at), rows, c))
    loop = partial(loops.polynomial_sums, queries, points, starts, running, polynomial, sums)
    parallel_for(loop, len(queries.at), sums.size * 64)
    return sums[:, : order + 1]


def _kernel_polynomial(kernel: str, form: Form) -> Polynomial:
    """A polynomial kernel, its square or its slope."""
    coefficients = POLYNOMIALS[kernel]
    if form == "squared" and kernel == "cosine":  # cos²(π/2 |v|) = ½ + ½ cos(π |v|), to the last bit
        halves = [0 if p % 2 else (-1) ** (p // 2) * math.pi**p / math.factorial(p) / 2 for p in range(33)]
        coefficients = [1.0, *halves[1:]]
    elif form == "squared":
        coefficients = list(numpy.convolve(coefficients, coefficients))
    elif form == "slope":  # −|v| K′(|v|)
        coefficients = [-p * coefficient for p, coefficient in enumerate(coefficients)]
    # Near the edge, where K is tiny, its powers of |v| would cancel.
    powers = range(len(coefficients))
    by_margin = numpy.array([(-1) ** k * sum(coefficients[p] * math.comb(p, k) for p in powers) for k in powers], float)
    if kernel == "cosine" and form != "slope":
        by_margin[0] = 0.0  # up to a rounding error; and beside it so is what is near the edge
        by_margin[1] = 0.0 if form == "squared" else by_margin[1]
    lowest = next((p for p, coefficient in enumerate(coefficients) if coefficient), 0)
    return Polynomial(numpy.array(coefficients, dtype=numpy.float64), by_margin, lowest)


def _laplace(points: Points, queries: Queries, order: int, form: Form) -> Array:
    if form == "squared":
        return _laplace(points._replace(width=points.width / 2), queries, order, "kernel") * in_given_width(2, order)
    lift = int(form == "slope")  # |v| K
    loops, c = load_kernels("sums_1d_running"), points.columns.shape[1]
    from_left, from_right = (numpy.empty((len(points.x), order + lift + 1, c)) for _ in range(2))
    loops.run(points, 1, from_left)
    loops.run(points, -1, from_right)
    sums = numpy.empty((len(queries.at), order + 1, c))
    loop = partial(loops.laplace_sums, queries, points, from_left, from_right, sums)
    parallel_for(loop, len(queries.at), sums.size * 16)
    return sums


# --------------------------------------------------------------------------------------------------------- the Gaussian
# By moments of cells, for groups of queries. Many queries in any order are grouped by a grid; what remains of them, or
# few, or those that come with their neighbours, are sorted, so that groups lie where queries are.

TERMS = 20  # of a cell's moments, and two more for each order: far samples, of little weight, count for high powers
NEAR = 4.0  # widths: a Gaussian of samples so near is taken as it is
CHUNK = 1 << 14  # queries that are put in order of their groups together
PER_GROUP = 128  # queries, from which on groups are made of all that there could be


def in_given_width(narrower: float, order: int) -> Array:
    """What takes v^k from v in a narrower width to v in the one that was given, (order + 1, 1)."""
    powers: Array = narrower ** -numpy.arange(order + 1.0)[:, None]
    return powers


def _sums_at(queries: Array, points: Points, cells: Cells, rows: int) -> Array:
    """From moments about the groups of a grid; queries far from samples, and others that remain, are sorted.

    All of them are where queries are too few for a grid.
    """
    least, greatest = (float(queries.min()), float(queries.max())) if len(queries) else (0.0, numpy.inf)
    if not (greatest - least) / points.width < len(queries) // PER_GROUP:
        return _sums_of_sorted(sorted_queries(points.x, queries), points, cells, rows)
    loops, groups, (_, c, terms) = load_kernels("sums_1d_grid"), 1, cells.moments.shape
    groups += int((greatest - least) / points.width)
    sums = numpy.empty((len(queries), rows, c))
    totals, sizes = numpy.empty((groups, c, terms)), numpy.empty((groups, 1 + rows // 2))
    near, remain = numpy.empty(groups, dtype=numpy.bool_), numpy.empty(len(queries), dtype=numpy.bool_)
    of_groups = partial(loops.grid_moments, least, points, cells, totals, sizes, near)
    parallel_for(of_groups, groups, 20 * terms * terms * c * groups)
    of_queries = partial(loops.grid_sums, queries, least, points, totals, sizes, near, remain, sums, CHUNK)
    parallel_for(of_queries, -(-len(queries) // CHUNK), terms * sums.size)
    if remain.any():
        sums[remain] = _sums_of_sorted(sorted_queries(points.x, queries[remain]), points, cells, rows)
    return sums


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


# -------------------------------------------------------------------------------------------------------------- windows
# How many samples count for a query, and between which most of the weight lies. With the weights
# p_j = w_j K(|v_j|) / Σ w K of sorted samples x (m,), the effective number of samples is exp(−Σ p_j log p_j), and the
# window's ends are the first samples up to which p adds up to (1 − share) / 2 and to the rest. The cost of a query
# grows with the cells in reach, of which there are as many as widths need, or √m.

KINDS = {"gaussian": 0, "laplace": 1}  # all others, 2, are polynomials
CELLS = (8, 4, 32)  # of each kind, cells to a width: an edge or a kink needs narrow ones


class WindowKernel(NamedTuple):
    """A kernel as the loops want it; a polynomial in powers of |v| and of 1 − |v|."""

    kind: int
    width: float
    coefficients: Array
    by_margin: Array


class WindowCells(NamedTuple):
    """Samples, and neighbouring ones as weights of Chebyshev's points (loops/windows_1d.py)."""

    x: Array
    columns: Array  # (m, 2) weights, and weights times their logs
    most: int  # samples of a cell
    starts: Indices
    shares: Array  # (cells, 2, nodes)
    nodes: Array  # in [−1, 1]


class Place(NamedTuple):
    """Where a query is: the index of the first sample not to its left, and in widths the distances of that and the one
    before it, and by how much the log of their K falls short of that of the nearer."""

    right: int
    to_left: float
    to_right: float
    lead_left: float
    lead_right: float


def _window_cells(x: Array, weights: Array, kernel: WindowKernel) -> WindowCells:
    loops, logs = load_kernels("windows_1d"), numpy.log(weights, out=numpy.zeros_like(weights), where=weights > 0)
    most = max(256, math.isqrt(2 * len(x)))  # of a cell: then cells and samples cost a query as much
    starts = cell_starts(x, kernel.width / CELLS[kernel.kind], most)
    nodes = numpy.cos(numpy.pi * (numpy.arange(loops.NODES) + 0.5) / loops.NODES)
    shares = numpy.empty((len(starts) - 1, 2, len(nodes)))
    cells = WindowCells(x, numpy.stack([weights, weights * logs], 1), most, starts, shares, nodes)
    parallel_for(partial(loops.share_out, cells), len(shares), 24 * len(x))
    return cells


# ------------------------------------------------------------------------------------------------------ as attention

WORTH_SORTING = 1 << 26  # pairs: the fused kernel takes some 0.1 s for as many, and loading these loops as long
NARROW = 8  # columns of values
# What is left out weighs less than 1e-11 of the nearest sample. Values so much larger than most would still show.
WILD = 1e6


def average_1d(kernel: str, query: Tensor, key: Tensor, value: Tensor, width: float) -> Tensor | None:
    """Σ_j K(|q − k_j| / width) v_j / Σ_j K(…) for float32 rows (B, R, rows, 1), without gradients.

    None where sorting does not pay, or where the numbers do not allow it.
    """
    n, m = query.shape[-2], key.shape[-2]
    fits = query.device.type == "cpu" and query.dtype == torch.float32 and query.shape[-1] == 1
    pays = value.shape[-1] <= NARROW and n * m >= 64 * (n + m) and query.numel() * m >= WORTH_SORTING
    if not fits or not pays or load_kernels("sums_1d_gaussian") is None:
        return None
    if not all(bool(tensor.isfinite().all()) for tensor in (query, key, value)):
        return None
    sizes = value.abs()
    sizes = sizes[sizes > 0]
    if sizes.numel() and float(sizes.max()) > WILD * float(sizes.median()):
        return None
    output = value.new_empty(*query.shape[:-1], value.shape[-1])
    for head in numpy.ndindex(*query.shape[:2]):
        rows, keys, values = (tensor[head].double().numpy() for tensor in (query, key, value))
        x, order = sort_numbers(keys[:, 0])
        columns = numpy.hstack([numpy.ones_like(keys), values])[order]
        sums = Samples1D(x, columns).sums(kernel, width, rows[:, 0])[:, 0]
        output[head] = torch.from_numpy(sums[:, 1:] / sums[:, :1])
    return output
