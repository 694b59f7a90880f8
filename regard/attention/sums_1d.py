"""Kernel sums over one feature, in O((n + m) log n): with sorted samples, the cost of a query does not grow with them.

    sums[i, k, c] = Σ_j K(|v|) · v^k · columns[j, c],        v = (x_j − query_i) / width

up to one positive factor per query, which is 1 where a sample is at v = 0: what is wanted of them is their ratios.
Three ways, each with its loops: the Gaussian by moments of cells, polynomials on |v| ≤ 1 by running moments, Laplace by
running products. The cosine kernel counts as a polynomial: of degree 22 it is exact to the last bit.

Shapes: x (m,) and queries (n,), both sorted · columns (m, c), the first of them weights that are not negative.
Each query comes with its neighbours: samples up to index `left` are not to its right, samples from index `right` on are
not to its left. Where right − left = 2, the sample between is the query itself, and is left out of the sums.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.threads import load_kernels, parallel_for

__all__ = ["POLYNOMIALS", "Estimate", "Samples1D", "average_1d", "in_powers_of_margin", "slope_coefficients"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
# What the sums are for: local averages need K; local lines K, K v and K v²; the slope of averages by the log of the
# width needs K and −|v| K′(|v|).
Estimate = Literal["average", "linear", "slope"]
ROWS: dict[Estimate, int] = {"average": 1, "linear": 3, "slope": 2}

TERMS = 20  # of a cell's moments
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


class Queries(NamedTuple):
    """Sorted queries and their neighbours among the samples, as described above."""

    at: Array
    lefts: Indices
    rights: Indices


class Points(NamedTuple):
    """Sorted, distinct samples x (m,), their columns (m, c) and the kernel's width."""

    x: Array
    columns: Array
    width: float


class Cells(NamedTuple):
    """Neighbouring samples grouped for the Gaussian (loops/sums_1d_gaussian.py)."""

    starts: Indices
    centres: Array
    moments: Array


class Samples1D:
    """Sorted samples x (m,) with their columns (m, c), of which sums can be taken. Equal samples count as one."""

    def __init__(self, x: Array, columns: Array) -> None:
        # The first sample at each x; NaN differs from everything, so sample 0 is one.
        self._first = numpy.flatnonzero(numpy.diff(x, prepend=numpy.nan))
        self._columns = columns
        self._x, self._columns_at_x = x[self._first], numpy.add.reduceat(columns, self._first)
        self._cells: tuple[float, Cells] | None = None  # of the width that was used last

    def sums(self, kernel: str, width: float, queries: Array, estimate: Estimate = "average") -> Array:
        """The sums above, for sorted queries (n,)."""
        rights = numpy.searchsorted(self._x, queries)
        return self._sums(kernel, width, Queries(queries, rights - 1, rights), estimate)

    def sums_of_others(
        self, kernel: str, width: float, estimate: Estimate = "average", left_out: Array | None = None
    ) -> Array:
        """The sums above, at every sample over the others; left_out (m, c): its own columns, if not all of them."""
        columns, first = self._columns, self._first
        left_out = columns if left_out is None else left_out
        counts, index = numpy.diff(first, append=len(columns)), numpy.arange(len(first))
        # A sample alone at its x is skipped whole. Where something else is there, its columns are subtracted.
        alone = (counts == 1) & (columns[first] == left_out[first]).all(1)
        queries = Queries(self._x, index - 1, numpy.where(alone, index + 1, index))
        sums = numpy.repeat(self._sums(kernel, width, queries, estimate), counts, axis=0)
        shared = numpy.repeat(~alone, counts)
        sums[shared, 0] -= left_out[shared]  # K(0) = 1
        return sums

    def _sums(self, kernel: str, width: float, queries: Queries, estimate: Estimate) -> Array:
        points = Points(self._x, self._columns_at_x, width)
        if kernel == "gaussian":
            if self._cells is None or self._cells[0] != width:
                self._cells = width, _gaussian_cells(points)
            return _gaussian(points, self._cells[1], queries, estimate)
        if kernel in POLYNOMIALS:
            return _polynomial(POLYNOMIALS[kernel], points, queries, estimate)
        return {"laplace": _laplace, "constant": _constant}[kernel](points, queries, estimate)


def _gaussian_cells(points: Points) -> Cells:
    starts, c = _cell_starts(points.x, points.width), points.columns.shape[1]
    cells = Cells(starts, numpy.empty(len(starts) - 1), numpy.empty((len(starts) - 1, c, TERMS)))
    loop = partial(load_kernels("sums_1d_gaussian").cell_moments, points, cells)
    parallel_for(loop, len(cells.centres), points.columns.size * TERMS)
    return cells


def _gaussian(points: Points, cells: Cells, queries: Queries, estimate: Estimate) -> Array:
    loops, n, c = load_kernels("sums_1d_gaussian"), len(queries.at), points.columns.shape[1]
    groups = _cell_starts(queries.at, points.width)
    sums = numpy.empty((n, 1 if estimate == "average" else 3, c))
    counts = numpy.zeros(n, dtype=numpy.int64)

    def loop_sums(start: int, stop: int) -> None:
        work, total = numpy.empty((2, TERMS)), numpy.empty((c, TERMS))
        loops.gaussian_sums(queries, groups, points, cells, counts, sums, work, total, start, stop)

    # A query's series, and for each group some twenty cells to translate
    parallel_for(loop_sums, len(groups) - 1, TERMS * (sums.size + 20 * TERMS * c * len(groups)))
    remaining = numpy.flatnonzero(counts)

    def loop_remaining(start: int, stop: int) -> None:
        sides, at_nodes = numpy.empty((2, *sums.shape[1:])), numpy.empty((loops.NODES, 2, *sums.shape[1:]))
        loops.remaining_sums(queries, remaining, counts, points, sums, sides, at_nodes, start, stop)

    if len(remaining):
        parallel_for(loop_remaining, len(remaining), 1000 * len(remaining))  # each visits a hundred samples or so
    return sums[:, [0, 2]] if estimate == "slope" else sums  # −|v| K′ = v² K


def _polynomial(coefficients: list[float], points: Points, queries: Queries, estimate: Estimate) -> Array:
    if estimate == "slope":
        kernel_and_slope = (coefficients, slope_coefficients(coefficients))
        return numpy.concatenate([_polynomial(powers, points, queries, "average") for powers in kernel_and_slope], 1)
    loops, c = load_kernels("sums_1d_polynomial"), points.columns.shape[1]
    kernel, by_margin = numpy.array(coefficients, dtype=numpy.float64), in_powers_of_margin(coefficients)
    starts = _cell_starts(points.x, points.width / 2)
    running = numpy.empty((len(points.x), c, len(kernel) + ROWS[estimate] - 1))
    parallel_for(partial(loops.running_moments, points, starts, running), len(starts) - 1, running.size)
    sums = numpy.empty((len(queries.at), ROWS[estimate], c))

    def loop(start: int, stop: int) -> None:
        work = numpy.empty(running.shape[2] + 1)
        loops.polynomial_sums(queries, points, starts, running, kernel, by_margin, sums, work, start, stop)

    parallel_for(loop, len(queries.at), sums.size * 64)
    return sums


def slope_coefficients(coefficients: list[float]) -> list[float]:
    """−|v| K′(|v|) of a polynomial K."""
    return [-p * coefficient for p, coefficient in enumerate(coefficients)]


def in_powers_of_margin(coefficients: list[float]) -> Array:
    """The same polynomial in powers of 1 − |v|: near the edge, where K is tiny, its powers of |v| would cancel."""
    powers = range(len(coefficients))
    return numpy.array(
        [(-1) ** k * sum(coefficients[p] * math.comb(p, k) for p in powers) for k in powers], dtype=float
    )


def _laplace(points: Points, queries: Queries, estimate: Estimate) -> Array:
    loops, c = load_kernels("sums_1d_laplace"), points.columns.shape[1]
    from_left, from_right = (numpy.empty((len(points.x), ROWS[estimate], c)) for _ in range(2))
    loops.run(points, 1, from_left)
    loops.run(points, -1, from_right)
    sums = numpy.empty((len(queries.at), ROWS[estimate], c))
    signed = estimate == "linear"  # v K, where the slope −|v| K′ is |v| K
    loop = partial(loops.laplace_sums, queries, points, from_left, from_right, signed, sums)
    parallel_for(loop, len(queries.at), sums.size * 16)
    return sums


def _constant(points: Points, queries: Queries, estimate: Estimate) -> Array:
    """Every sample counts the same: moments of all samples, about their mean first, so that nothing cancels."""
    x, columns, width = points
    centre = x.mean()
    centred, at = (x - centre) / width, (queries.at - centre) / width
    sums = numpy.zeros((len(at), ROWS[estimate], columns.shape[1]))
    moments = [(centred**k) @ columns for k in range(3 if estimate == "linear" else 1)]
    for k in range(len(moments)):
        sums[:, k] = sum(math.comb(k, a) * numpy.outer((-at) ** (k - a), moments[a]) for a in range(k + 1))
    left_out = queries.rights - queries.lefts == 2
    sums[left_out, 0] -= columns[queries.lefts[left_out] + 1]
    return sums


def _cell_starts(x: Array, width: float) -> Indices:
    """The index of each cell's first number, and one more entry for the end."""
    starts = numpy.empty(len(x) + 1, dtype=numpy.int64)
    count = load_kernels("sums_1d_gaussian").group_cells(x, width, starts)
    return starts[: count + 1].copy()


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
    if not all(bool(tensor.isfinite().all()) for tensor in (query, key, value)) or _is_wild(value):
        return None
    output = value.new_empty(*query.shape[:-1], value.shape[-1])
    for head in numpy.ndindex(*query.shape[:2]):
        rows, keys, values = (tensor[head].double().numpy() for tensor in (query, key, value))
        key_order, row_order = (numpy.argsort(points[:, 0], kind="stable") for points in (keys, rows))
        columns = numpy.hstack([numpy.ones_like(keys), values])[key_order]
        sums = Samples1D(keys[key_order, 0], columns).sums(kernel, width, rows[row_order, 0])[:, 0]
        output[head][torch.from_numpy(row_order)] = torch.from_numpy(sums[:, 1:] / sums[:, :1]).to(value.dtype)
    return output


def _is_wild(value: Tensor) -> bool:
    """Whether some values are so much larger than most that what is left out would show."""
    sizes = value.abs()
    sizes = sizes[sizes > 0]
    return bool(sizes.numel()) and float(sizes.max()) > WILD * float(sizes.median())
