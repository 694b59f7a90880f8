"""Kernel sums on a line, in O((n + m) log n): samples are sorted, then a query costs the same however many there are.

    sums[i, k, c] = Σ_j K(|v|) · v^k · columns[j, c],        v = (x_j − query_i) / width

up to one positive factor per query, which is 1 where a sample is at v = 0: what is wanted of them is their ratios.
Three ways, each with its loops: the Gaussian by moments of cells, polynomials on |v| ≤ 1 by running moments, Laplace by
running products. The cosine kernel counts as a polynomial: of degree 22 it is exact to the last bit.

Shapes: x (m,) and queries (n,), both sorted · columns (m, c), the first of them weights that are not negative.
Each query comes with its place: samples up to `left` are not to its right, samples from `right` on are not to its left,
and where a sample asks about the others, it is the one between (right − left = 2) and takes no part.
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

__all__ = ["POLYNOMIALS", "Line", "line_average"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
# Which sums: K alone; K, K v and K v², for a local line; or K and −|v| K′(|v|), its slope by the log of the width.
What = Literal["average", "line", "slope"]
ROWS: dict[What, int] = {"average": 1, "line": 3, "slope": 2}

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


class Line:
    """Sorted samples x (m,) with their columns (m, c), ready to be asked. Samples at the same place count as one."""

    def __init__(self, x: Array, columns: Array) -> None:
        # The first sample of each place; NaN differs from everything, so sample 0 is one.
        self._first = numpy.flatnonzero(numpy.diff(x, prepend=numpy.nan))
        self._columns = columns
        self.x, self.columns = x[self._first], numpy.add.reduceat(columns, self._first)
        self._cells: tuple[float, _Cells] | None = None  # the last width's

    def sums(self, kernel: str, width: float, queries: Array, what: What = "average") -> Array:
        """The sums above, for sorted queries (n,)."""
        rights = numpy.searchsorted(self.x, queries)
        return self._sums(kernel, width, _Places(queries, rights - 1, rights), what)

    def sums_of_others(self, kernel: str, width: float, what: What = "average", left_out: Array | None = None) -> Array:
        """The sums above, for every sample about all the others: `left_out` (m, c) is its own part, else all of it."""
        columns, first = self._columns, self._first
        left_out = columns if left_out is None else left_out
        counts, index = numpy.diff(first, append=len(columns)), numpy.arange(len(first))
        # A sample that is alone leaves its place empty. Others see what stays there: all of it but their own part.
        alone = (counts == 1) & (columns[first, 0] <= left_out[first, 0])
        places = _Places(self.x, index - 1, numpy.where(alone, index + 1, index))
        sums = numpy.repeat(self._sums(kernel, width, places, what), counts, axis=0)
        shared = numpy.repeat(~alone, counts)
        sums[shared, 0] -= left_out[shared]  # K(0) = 1
        return sums

    def _sums(self, kernel: str, width: float, places: _Places, what: What) -> Array:
        if kernel == "gaussian":
            if self._cells is None or self._cells[0] != width:
                self._cells = width, _gaussian_cells(self.x, self.columns, width)
            return _gaussian(self.x, self.columns, width, self._cells[1], places, what)
        if kernel in POLYNOMIALS:
            return _polynomial(POLYNOMIALS[kernel], self.x, self.columns, width, places, what)
        return {"laplace": _laplace, "constant": _constant}[kernel](self.x, self.columns, width, places, what)


class _Places(NamedTuple):
    queries: Array
    lefts: Indices
    rights: Indices


class _Cells(NamedTuple):
    starts: Indices
    centres: Array
    moments: Array


def _gaussian_cells(x: Array, columns: Array, width: float) -> _Cells:
    starts = _starts_of_cells(x, width)
    centres, moments = numpy.empty(len(starts) - 1), numpy.empty((len(starts) - 1, columns.shape[1], TERMS))
    loop = partial(load_kernels("sums_1d_gaussian").cell_moments, x, columns, width, starts, centres, moments)
    parallel_for(loop, len(centres), columns.size * TERMS)
    return _Cells(starts, centres, moments)


def _gaussian(x: Array, columns: Array, width: float, cells: _Cells, places: _Places, what: What) -> Array:
    loops = load_kernels("sums_1d_gaussian")
    groups = _starts_of_cells(places.queries, width)
    sums = numpy.empty((len(places.queries), 1 if what == "average" else 3, columns.shape[1]))
    counts = numpy.zeros(len(places.queries), dtype=numpy.int64)

    def loop_sums(start: int, stop: int) -> None:
        work, total = numpy.empty((2, TERMS)), numpy.empty((columns.shape[1], TERMS))
        loops.gaussian_sums(*places, groups, x, columns, width, *cells, counts, sums, work, total, start, stop)

    # A query's series, and for each group some twenty cells to translate
    parallel_for(loop_sums, len(groups) - 1, TERMS * (sums.size + 20 * TERMS * columns.shape[1] * len(groups)))
    left_over = numpy.flatnonzero(counts)

    def loop_left(start: int, stop: int) -> None:
        sides, known = numpy.empty((2, *sums.shape[1:])), numpy.empty((loops.NODES, 2, *sums.shape[1:]))
        loops.sums_left(*places, left_over, counts, x, columns, width, sums, sides, known, start, stop)

    if len(left_over):
        parallel_for(loop_left, len(left_over), 1000 * len(left_over))  # each looks at a hundred samples or so
    return sums[:, [0, 2]] if what == "slope" else sums  # −|v| K′ = v² K


def _polynomial(
    coefficients: list[float], x: Array, columns: Array, width: float, places: _Places, what: What
) -> Array:
    if what == "slope":
        both = (
            _polynomial(each, x, columns, width, places, "average") for each in (coefficients, slope_of(coefficients))
        )
        return numpy.concatenate(list(both), axis=1)
    loops = load_kernels("sums_1d_polynomial")
    kernel, at_edge = numpy.array(coefficients, dtype=numpy.float64), about_edge(coefficients)
    starts = _starts_of_cells(x, width / 2)
    running = numpy.empty((len(x), columns.shape[1], len(kernel) + ROWS[what] - 1))
    parallel_for(partial(loops.running_moments, x, columns, width, starts, running), len(starts) - 1, running.size)
    sums = numpy.empty((len(places.queries), ROWS[what], columns.shape[1]))

    def loop_sums(start: int, stop: int) -> None:
        work = numpy.empty(running.shape[2] + 1)
        loops.polynomial_sums(*places, x, columns, width, starts, running, kernel, at_edge, sums, work, start, stop)

    parallel_for(loop_sums, len(places.queries), sums.size * 64)
    return sums


def slope_of(coefficients: list[float]) -> list[float]:
    """−|v| K′(|v|) of a polynomial K."""
    return [-p * coefficient for p, coefficient in enumerate(coefficients)]


def about_edge(coefficients: list[float]) -> Array:
    """The same polynomial in powers of 1 − |v|: near the edge, where K is tiny, its powers of |v| would cancel."""
    powers = range(len(coefficients))
    return numpy.array(
        [(-1) ** k * sum(coefficients[p] * math.comb(p, k) for p in powers) for k in powers], dtype=float
    )


def _laplace(x: Array, columns: Array, width: float, places: _Places, what: What) -> Array:
    loops = load_kernels("sums_1d_laplace")
    from_left, from_right = (numpy.empty((len(x), ROWS[what], columns.shape[1])) for _ in range(2))
    loops.run(x, columns, width, 1, from_left)
    loops.run(x, columns, width, -1, from_right)
    sums = numpy.empty((len(places.queries), ROWS[what], columns.shape[1]))
    signed = what == "line"  # −|v| K′ = |v| K, where a line wants v K
    loop = partial(loops.laplace_sums, *places, x, width, from_left, from_right, signed, sums)
    parallel_for(loop, len(places.queries), sums.size * 16)
    return sums


def _constant(x: Array, columns: Array, width: float, places: _Places, what: What) -> Array:
    """Every sample counts the same: moments of all samples, about their mean first, so that nothing cancels."""
    centre = x.mean()
    centred, at = (x - centre) / width, (places.queries - centre) / width
    sums = numpy.zeros((len(at), ROWS[what], columns.shape[1]))
    moments = [(centred**k) @ columns for k in range(3 if what == "line" else 1)]
    for k in range(len(moments)):
        sums[:, k] = sum(math.comb(k, a) * numpy.outer((-at) ** (k - a), moments[a]) for a in range(k + 1))
    left_out = places.rights - places.lefts == 2
    sums[left_out, 0] -= columns[places.lefts[left_out] + 1]
    return sums


def _starts_of_cells(x: Array, width: float) -> Indices:
    """Where each cell's numbers start, and one more entry for the end."""
    starts = numpy.empty(len(x) + 1, dtype=numpy.int64)
    count = load_kernels("sums_1d_gaussian").cells(x, width, starts)
    return starts[: count + 1].copy()


# ------------------------------------------------------------------------------------------------------ as attention

WORTH_SORTING = 1 << 26  # pairs: the fused kernel takes some 0.1 s for as many, and loading these loops as long
NARROW = 8  # columns of values
# What is left out weighs less than 1e-11 of the nearest sample. Values so much larger than most would still tell.
WILD = 1e6


def line_average(kernel: str, query: Tensor, key: Tensor, value: Tensor, width: float) -> Tensor | None:
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
    for place in numpy.ndindex(*query.shape[:2]):
        rows, keys, values = (each[place].double().numpy() for each in (query, key, value))
        order, asked = numpy.argsort(keys[:, 0], kind="stable"), numpy.argsort(rows[:, 0], kind="stable")
        columns = numpy.hstack([numpy.ones_like(keys), values])[order]
        sums = Line(keys[order, 0], columns).sums(kernel, width, rows[asked, 0])[:, 0]
        output[place][torch.from_numpy(asked)] = torch.from_numpy(sums[:, 1:] / sums[:, :1]).to(value.dtype)
    return output


def _is_wild(value: Tensor) -> bool:
    sizes = value.abs()
    sizes = sizes[sizes > 0]
    return bool(sizes.numel()) and float(sizes.max()) > WILD * float(sizes.median())
