"""Kernel sums over several features: every pair, but fast, and without those that are out of reach.

    sums[i, r, c] = Σ_j K_ij · monomial_r(v_ij) · columns[j, c],        v_ij = (x_j − query_i) in units

up to one positive factor per query, which is 1 where a sample is at the query: what is wanted of them is their ratios.
K is a kernel of the distance in widths, or a product of kernels, one per feature, times a table's entry for each
categorical feature. The monomials are 1; all v_a; all v_a v_b with a ≤ b; and so on (`monomials`).

A periodic feature is a circle in two coordinates, in which its distance is Euclidean. Samples are put into an order in
which neighbours lie near each other, and so are queries; a tile of queries then skips every block of samples whose box
is out of its reach, or too far to add anything that counts. Memory is that of the samples, the queries and the sums.
A plain Gaussian of few features goes through a grid where that is quicker (grid_sums.py).

Shapes: points (m, features) and queries (n, features) · columns (m, c), the first of them weights that are not
negative · codes (m, categorical) and (n, categorical).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy
from numpy.typing import NDArray

from regard.kernel.grid_sums import gaussian_sums
from regard.kernel.kernels_nd import Embedding, KernelND, exponents, monomials
from regard.kernel.passes_nd import Blocks, Call, Form, Queries, spatial_order

__all__ = ["KernelND", "SamplesND", "exponents", "monomials", "nearest_others", "spatial_order"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
Precision = Literal["double", "single"]

TOLERANCE = 1e-12
LARGE, SMALL = 512, 256  # samples of a block: what is computed of it for one or for many rows stays in cache


class Wanted(NamedTuple):
    """What is asked of the samples: see SamplesND.sums."""

    order: int
    value_order: int | None
    form: Form
    tolerance: float
    precision: Precision


class SamplesND:
    """Samples of which kernel sums can be taken: points, their columns and the codes of categorical features."""

    def __init__(self, points: Array, columns: Array, codes: Indices | None = None) -> None:
        self.points, self.columns = (numpy.asarray(a, dtype=numpy.float64) for a in (points, columns))
        self.codes = _as_codes(codes, len(points))
        if (self.columns[:, 0] < 0).any() or self.columns[self.columns[:, 0] == 0].any():
            raise ValueError(
                "columns: expected weights ≥ 0 in column 0, and weighted values in others, so 0 at weight 0"
            )
        self._centre = (self.points.max(0) + self.points.min(0)) / 2 if len(points) else numpy.zeros(points.shape[1])
        self._last: dict[int, Blocks] = {}  # by the size of blocks, for the widths that were used last

    def sums(
        self,
        kernel: KernelND,
        queries: Array,
        codes: Indices | None = None,
        *,
        order: int = 0,
        value_order: int | None = None,
        form: Form = "kernel",
        left_out: Indices | None = None,
        scales: Array | None = None,
        tolerance: float = TOLERANCE,
        precision: Precision = "double",
    ) -> Array:
        """The sums above, (n, rows, c), of K, or of K² ("squared").

        order: the highest total degree of the monomials. value_order: from which on only weights are summed, and the
        other columns are 0. left_out (n, 2): samples from one index up to another take no part in a query's sums.
        scales (n,): what all widths are multiplied by for a query. tolerance: what may be left out of the sums,
        relative to them. precision "single": float32 for a Gaussian's weights and one value.
        """
        queries = numpy.asarray(queries, dtype=numpy.float64)
        self._check(kernel, queries, _as_codes(codes, len(queries)))
        wanted = Wanted(order, value_order, form, tolerance, precision)
        grid = None
        if scales is None:
            grid = gaussian_sums(
                kernel, self.points, self.columns, queries, left_out,
                order=order, value_order=value_order, squared=form == "squared", tolerance=tolerance,
            )  # fmt: skip
        if grid is None:
            return self._direct_sums(kernel, wanted, queries, codes, left_out, scales)
        sums, exact = grid
        rest = numpy.flatnonzero(~exact)
        if len(rest):
            left = None if left_out is None else left_out[rest]
            sums[rest] = self._direct_sums(kernel, wanted, queries[rest], None, left, None)
        return sums

    def _direct_sums(
        self,
        kernel: KernelND,
        wanted: Wanted,
        queries: Array,
        codes: Indices | None,
        left_out: Indices | None,
        scales: Array | None,
    ) -> Array:
        """Every pair in reach."""
        order, value_order, form, tolerance, precision = wanted
        rows, c = math.comb(kernel.features + order, order), self.columns.shape[1]
        blocks, prepared = self._prepare(kernel, queries, codes, left_out, scales, LARGE if order == 0 else SMALL)
        single = precision == "single" and kernel.name == "gaussian" and order == 0 and c == 2 and not kernel.tables
        value_order = order if value_order is None else value_order
        call = Call(kernel, blocks, form, tolerance, order=order, value_order=value_order, single=single)
        return prepared.restore(call.run(prepared, numpy.zeros((len(queries), rows, c))))

    def width_slopes(
        self,
        kernel: KernelND,
        queries: Array,
        codes: Indices | None,
        left_out: Indices | None,
        duals: Array,
        fits: Array,
        scales: Array | None = None,
        *,
        tolerance: float = TOLERANCE,
    ) -> Array:
        """The derivative of local averages or lines by each feature's log width, (n, features + categorical, outputs).

            Σ_j ∂K_ij/∂θ_a · (duals_i · x_ij) · (columns[j, 1:] − columns[j, :1] (fits_i · x_ij))

        x_ij = (1,) or (1, v_ij), as duals (n, basis) and fits (n, basis, outputs) say. For a categorical feature, ∂K is
        that of its table, by `table_slopes`. The factor per query is that of `sums`.
        """
        if len(kernel.table_slopes) != len(kernel.tables):
            raise ValueError("table_slopes: expected one for each table, got none")
        blocks, prepared = self._prepare(kernel, queries, codes, left_out, scales, SMALL)
        prepared.duals, prepared.fits = duals[prepared.order], fits[prepared.order]
        # K · log width's slope is of second order in v, and a line's residual times its dual of second order again
        call = Call(kernel, blocks, "kernel", tolerance, order=2 * min(duals.shape[1], 2), slopes=True)
        shape = (len(queries), kernel.features + len(kernel.tables), fits.shape[2])
        return prepared.restore(call.run(prepared, numpy.zeros(shape)))

    def _prepare(
        self,
        kernel: KernelND,
        queries: Array,
        codes: Indices | None,
        left_out: Indices | None,
        scales: Array | None,
        size: int,
    ) -> tuple[Blocks, Queries]:
        queries, codes = numpy.asarray(queries, dtype=numpy.float64), _as_codes(codes, len(queries))
        self._check(kernel, queries, codes)
        embedding = Embedding(kernel, self._centre)
        if size not in self._last or self._last[size].embedding.key != embedding.key:
            self._last[size] = Blocks(embedding, self.points, self.columns, self.codes, size)
        left_out = numpy.zeros((len(queries), 2), dtype=numpy.int64) if left_out is None else left_out
        scales = numpy.ones(len(queries)) if scales is None else scales
        return self._last[size], Queries(embedding, kernel, queries, codes, left_out, scales)

    def _check(self, kernel: KernelND, queries: Array, codes: Indices) -> None:
        if not queries.ndim == 2 == self.points.ndim or not queries.shape[1] == kernel.features == self.points.shape[1]:
            raise ValueError(
                f"queries: expected as many features as the kernel and the samples have ({kernel.features} and "
                f"{self.points.shape[1]}), got shape {queries.shape}"
            )
        for name, these, axis in (("codes", codes, 0), ("codes of the samples", self.codes, 1)):
            if these.shape[1] != len(kernel.tables):
                raise ValueError(f"{name}: expected {len(kernel.tables)} columns, one per table, got {these.shape[1]}")
            for k, table in enumerate(kernel.tables):
                if len(these) and not 0 <= these[:, k].min() <= these[:, k].max() < table.shape[axis]:
                    raise ValueError(f"{name}: expected 0 … {table.shape[axis] - 1} in column {k}, got others")


def _as_codes(codes: Indices | None, rows: int) -> Indices:
    return numpy.zeros((rows, 0), dtype=numpy.int64) if codes is None else numpy.asarray(codes, dtype=numpy.int64)


def nearest_others(points: Array, queries: Array, left_out: Indices) -> tuple[Array, Indices]:
    """The distance and the index of each query's nearest sample, but for the one that is left out."""
    from scipy.spatial import cKDTree

    distances, indices = cKDTree(points).query(queries, k=[1, 2])  # infinitely far where there is no second
    second = indices[:, 0] == left_out
    return numpy.where(second, *distances.T[::-1]), numpy.where(second, *indices.T[::-1])
