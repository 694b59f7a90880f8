"""Passes of the compiled loops over several features: samples in blocks, queries in tiles, both in spatial order.

Names and shapes are those of sums_nd.py.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from regard.attention.threads import load_kernels, parallel_for
from regard.kernel.kernels_nd import ROOTS, Embedding, KernelND, monomials

__all__ = ["Blocks", "Call", "Form", "Queries", "spatial_order"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
Form = Literal["kernel", "squared"]

# −log of the weight of a query's nearest sample: if it is more, the sums are taken relative to that sample.
LOST = {"double": 230.0, "single": 40.0}
NEGLIGIBLE = 80.0  # exp(−80) of the largest weight does not count, whatever it is multiplied by


class Blocks:
    """Samples in order, in blocks with their boxes."""

    def __init__(self, embedding: Embedding, points: Array, columns: Array, codes: Indices, size: int) -> None:
        self.loops, self.embedding = load_kernels("sums_nd"), embedding
        self.size, self.m, self.columns = size, *columns.shape
        self.total = float(columns[:, 0].sum())
        self._points, self._columns, self._codes = embedding.embed(points), columns, codes

    @cached_property
    def arrays(self) -> Any:
        """The samples as the loops want them."""
        points, columns, near = self._points, self._columns, self.embedding.starts[-1]
        order = spatial_order(points[:, :near])
        ranks = numpy.empty(self.m, dtype=numpy.int64)
        ranks[order] = numpy.arange(self.m)
        block, lanes = self.size, self.loops.LANES
        starts = numpy.arange(0, self.m, block)
        ordered = points[order]
        lows, highs = (f.reduceat(ordered, starts) if self.m else ordered for f in (numpy.minimum, numpy.maximum))
        sizes = numpy.add.reduceat(self._sizes()[order], starts) if self.m else numpy.zeros(0)
        counts = -(-numpy.minimum(block, self.m - starts) // lanes) * lanes
        # Filled up with the last sample, but without its weight
        padded = order[numpy.minimum(numpy.arange(len(starts) * block), self.m - 1)]
        real = numpy.arange(len(padded)) < self.m
        weights = columns[:, :1]
        values = numpy.divide(columns[:, 1:], weights, out=numpy.zeros_like(columns[:, 1:]), where=weights > 0)
        weighted = numpy.hstack([weights, values])[padded]
        weighted[self.m :, 0] = 0
        arrays = points[padded], weighted, self._codes[padded]
        in_blocks = (a.reshape(len(starts), block, a.shape[1]).transpose(0, 2, 1) for a in arrays)
        indices = numpy.where(real, padded, -1).reshape(len(starts), block)
        return self.loops.Blocks(
            *(numpy.ascontiguousarray(a) for a in in_blocks), indices, ranks, counts, lows, highs, sizes,
            numpy.empty((1, 0, 0), numpy.float32), numpy.empty((1, 0, 0), numpy.float32),
        )  # fmt: skip

    @cached_property
    def single(self) -> Any:
        """The same with float32 beside it."""
        points, columns = (a.astype(numpy.float32) for a in (self.arrays.points, self.arrays.columns))
        return self.arrays._replace(single_points=points, single_columns=columns)

    def _sizes(self) -> Array:
        """How much each sample can add to a column at most, as a weight: relative to the column's mean size."""
        sizes = numpy.abs(self._columns)
        totals = sizes.sum(0)
        relative: Array = (sizes * (totals[0] / numpy.where(totals > 0, totals, 1))).max(1, initial=0)
        return relative


class Queries:
    """Queries in an order in which neighbours lie near each other, and equal codes stand together."""

    def __init__(
        self, embedding: Embedding, kernel: KernelND, x: Array, codes: Indices, left_out: Indices, scales: Array
    ) -> None:
        points = embedding.embed(x)
        order = spatial_order(points[:, : embedding.starts[-1]])
        if codes.shape[1]:
            order = order[numpy.lexsort(codes[order].T)]  # stable
        self.order, self.points, self.codes = order, points[order], codes[order]
        self.basis, self.left_out = embedding.basis(x[order]), numpy.ascontiguousarray(left_out[order])
        self.inverses = 1 / scales[order]
        self.ceilings = numpy.zeros(len(x))
        for k, table in enumerate(kernel.tables):
            with numpy.errstate(divide="ignore"):
                self.ceilings += numpy.log(table.max(1))[self.codes[:, k]]
        self.nearest, self.duals, self.fits = numpy.zeros(len(x)), numpy.zeros((len(x), 1)), numpy.zeros((len(x), 1, 1))

    def choose(self, chosen: Indices) -> Queries:
        """Some of them, in order."""
        some = object.__new__(Queries)
        some.__dict__.update({name: values[chosen] for name, values in self.__dict__.items()})
        return some

    def restore(self, sums: Array) -> Array:
        """Sums of queries in this order → in the order in which they were given."""
        restored = numpy.empty_like(sums)
        restored[self.order] = sums
        return restored

    def tiles(self, size: int) -> Indices:
        """Where tiles start: at most `size` queries, of equal codes; and one more entry for the end."""
        n = len(self.order)
        changes = numpy.flatnonzero((self.codes[1:] != self.codes[:-1]).any(1)) + 1
        runs = [0, *changes.tolist(), n] if n else [0]
        starts = [numpy.arange(low, high, size) for low, high in pairwise(runs)]
        return numpy.concatenate([*starts, [n]]).astype(numpy.int64)


class Call:
    """One pass of the loops over queries, and another for those whose nearest sample is too far away for it."""

    def __init__(
        self,
        kernel: KernelND,
        blocks: Blocks,
        form: Form,
        tolerance: float,
        *,
        order: int,
        value_order: int = 0,
        slopes: bool = False,
        single: bool = False,
    ) -> None:
        self.blocks, self.form, self.tolerance, self.slopes, self.single = blocks, form, tolerance, slopes, single
        self.loops = loops = blocks.loops
        self.lost = LOST["single" if single else "double"]
        self.kernel = _kernel(kernel, blocks.embedding, form)
        self.wanted = loops.SLOPES if slopes else loops.SUMS
        if self.kernel.kind != loops.COMPACT and order == 0 and blocks.columns == 2 and not slopes:
            self.wanted = loops.SINGLE if single else loops.AVERAGES
        parents, features = monomials(kernel.features, 0 if slopes else order)
        below, valued = (math.comb(kernel.features + k, k) for k in (max(order - 1, 0), value_order))
        # Rows of the highest degree are nobody's parents.
        self.monomials = loops.Monomials(
            parents, features, valued, max(below, valued), order, blocks.embedding.coordinates
        )
        self.tables = loops.Tables(_stack(kernel.tables), _stack(kernel.table_slopes), form == "squared")

    def run(self, queries: Queries, out: Array) -> Array:
        """Add to out, a query at each place of its first axis."""
        totals = self._pass(queries, out)
        if self.kernel.kind == self.loops.COMPACT:
            return out
        times = 2 if self.form == "squared" else 1
        faint = numpy.flatnonzero(totals <= self.blocks.total * math.exp(-times * self.lost) * 1.001)
        if len(faint):
            nearest = self._nearest(queries.choose(faint))
            out[faint[nearest > self.lost]] = 0
            far = (nearest > self.lost) & (nearest < numpy.inf)
            some, sums = queries.choose(faint[far]), numpy.zeros((far.sum(), *out.shape[1:]))
            some.nearest = times * nearest[far]
            self._pass(some, sums)
            out[faint[far]] = sums
        return out

    def _pass(self, queries: Queries, out: Array) -> Array:
        """Add to out and return the sums of weights (n,)."""
        totals, arrays, sums = numpy.zeros(len(out)), self.blocks.single if self.single else self.blocks.arrays, out
        slopes = out if self.slopes else numpy.zeros((0, 0, 0))
        fits = self.loops.Fits(queries.duals, queries.fits, slopes, self.blocks.embedding.features)
        inputs = self._inputs(queries)

        def loop(start: int, stop: int) -> None:
            self.loops.sums_nd(
                self.wanted, self.kernel, self.monomials, self.tables, fits, inputs, arrays, self.tolerance,
                self._work(), totals, sums, start, stop,
            )  # fmt: skip

        parallel_for(loop, len(inputs.tiles) - 1, len(out) * self.blocks.m)
        return totals

    def _nearest(self, queries: Queries) -> Array:
        """−log of each query's largest weight under K; infinite where no sample counts."""
        nearest, inputs = numpy.empty(len(queries.order)), self._inputs(queries)
        kernel = self.kernel._replace(rate=self.kernel.rate / (2 if self.form == "squared" else 1))
        tables = self.tables._replace(squared=False)

        def loop(start: int, stop: int) -> None:
            self.loops.nearest_weights(kernel, tables, inputs, self.blocks.arrays, self._work(), nearest, start, stop)

        parallel_for(loop, len(nearest), len(nearest) * self.blocks.m)
        return nearest

    def _inputs(self, queries: Queries) -> Any:
        """The queries as the loops want them."""
        times = 2 if self.form == "squared" else 1
        ceilings = times * queries.ceilings
        ends = numpy.maximum(queries.nearest, times * self.lost) + numpy.maximum(ceilings, 0) + NEGLIGIBLE
        if self.kernel.kind == self.loops.COMPACT:
            ends = numpy.full(len(ends), self.loops.EDGE)
        return self.loops.Queries(
            queries.points,
            queries.points.astype(numpy.float32),
            queries.basis,
            queries.codes,
            queries.left_out,
            queries.inverses,
            queries.nearest,
            ceilings,
            ends,
            queries.tiles(self.loops.TILE),
        )

    def _work(self) -> Any:
        """Room for the loops of one thread."""
        block, arrays = self.blocks.size, self.blocks.arrays
        features, categorical = len(self.monomials.coordinates), arrays.codes.shape[1]
        shapes = (), (1 + categorical,), (features,), (len(self.monomials.parents),), (4,), (3,)
        return self.loops.Work(*(numpy.ones((*s, block)) for s in shapes), numpy.empty(block, numpy.float32))


def _kernel(kernel: KernelND, embedding: Embedding, form: Form) -> Any:
    """K or K² as the loops want it; where no feature narrows the window it is 1, as is a Gaussian of no coordinates."""
    loops, times = load_kernels("sums_nd"), 2 if form == "squared" else 1
    kind = {"laplace": loops.LAPLACE}.get(kernel.name, loops.COMPACT if kernel.name in ROOTS else loops.GAUSSIAN)
    kind = kind if len(embedding.features) else loops.GAUSSIAN
    root = ROOTS.get(kernel.name, ROOTS["boxcar"])
    # −u d/du = (1 − margin) d/d margin, or twice that
    slope = Polynomial([1, -1]) * Polynomial(root.coefficients).deriv() * (2 if root.even else 1)
    rate = times * (0.5 if kind == loops.GAUSSIAN else 1.0)
    product = kernel.product and kind != loops.GAUSSIAN
    coefficients = numpy.array(root.coefficients), numpy.resize(slope.coef, max(2, len(slope.coef)))
    return loops.Kernel(kind, product, rate, root.even, *coefficients, times * root.power, embedding.starts)


def _stack(tables: tuple[Array, ...]) -> Array:
    """Tables of different sizes as one array."""
    sizes = numpy.array([table.shape for table in tables], dtype=int).reshape(-1, 2).max(0, initial=0)
    stacked = numpy.zeros((len(tables), *sizes))
    for k, table in enumerate(tables):
        stacked[k, : table.shape[0], : table.shape[1]] = table
    return stacked


def spatial_order(points: Array) -> Indices:
    """An order in which neighbours lie near each other: along Morton's curve through the most spread features."""
    spreads = points.max(0) - points.min(0) if len(points) else numpy.zeros(points.shape[1])
    features = numpy.argsort(-spreads, kind="stable")[:4]
    code = numpy.zeros(len(points), dtype=numpy.int64)
    bits = 62 // max(1, len(features))
    for offset, feature in enumerate(features):
        # Cells half a width wide, unless the data are too spread for as many.
        per_width = min(2.0, (2**bits - 1) / max(spreads[feature], 1))
        cells = ((points[:, feature] - points[:, feature].min(initial=0)) * per_width).astype(numpy.int64)
        for bit in range(bits):
            code |= ((cells >> bit) & 1) << (bit * len(features) + offset)
    return numpy.argsort(code, kind="stable")
