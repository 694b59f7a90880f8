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
negative, the others 0 where that is · codes (m, categorical) and (n, categorical).
"""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy
from numpy.polynomial import Polynomial

from regard.attention import tasks_nd
from regard.attention.threads import load_kernels, parallel_for
from regard.kernel.grid_sums import gaussian_sums
from regard.kernel.kernels_nd import ROOTS, Embedding, KernelND
from regard.kernel.local import Array, Indices, monomials

Form = Literal["kernel", "squared"]

TOLERANCE = 1e-12
LARGE, SMALL = 512, 256  # samples of a block: what is computed of it for one or for many rows stays in cache
# −log of the weight of a query's nearest sample: if it is more, the sums are taken relative to that sample.
LOST, LOST_SINGLE = 230.0, 40.0
NEGLIGIBLE = 80.0  # exp(−80) of the largest weight does not count, whatever it is multiplied by


class Targets(NamedTuple):
    """Queries about which sums are taken."""

    points: Array  # (n, features)
    codes: Indices | None = None  # (n, categorical)
    left_out: Indices | None = None  # (n, 2): samples from one index up to another take no part in a query's sums
    scales: Array | None = None  # (n,) what all widths are multiplied by for a query

    def take(self, chosen: Indices) -> Targets:
        """Some of the queries."""
        some: list[Any] = [None if of_queries is None else of_queries[chosen] for of_queries in self]
        return Targets(*some)


class SamplesND:
    """Samples of which kernel sums can be taken: points, their columns and the codes of categorical features."""

    def __init__(self, points: Array, columns: Array, codes: Indices | None = None) -> None:
        self.points, self.columns = (numpy.asarray(a, dtype=numpy.float64) for a in (points, columns))
        self.codes = _as_codes(codes, len(points))
        self._centre = (self.points.max(0) + self.points.min(0)) / 2 if len(points) else numpy.zeros(points.shape[1])
        self._last: dict[int, Blocks] = {}  # by the size of blocks, for the widths that were used last

    def sums(
        self,
        kernel: KernelND,
        targets: Targets,
        *,
        order: int = 0,
        value_order: int | None = None,
        form: Form = "kernel",
        tolerance: float = TOLERANCE,
        single: bool = False,
    ) -> Array:
        """The sums above, (n, rows, c), of K, or of K² ("squared").

        order: the highest total degree of the monomials. value_order: from which on only weights are summed, and the
        other columns are 0. tolerance: what may be left out of the sums, relative to them. single: in float32, for a
        Gaussian's weights and one value.
        """
        value_order = order if value_order is None else value_order
        rows, c = math.comb(kernel.features + order, order), self.columns.shape[1]
        single = single and kernel.name == "gaussian" and order == 0 and c == 2 and not kernel.tables

        def direct(targets: Targets) -> Array:
            """Every pair in reach."""
            blocks, queries = self._prepare(kernel, targets, LARGE if order == 0 else SMALL)
            call = Call(kernel, blocks, form, tolerance, order=order, value_order=value_order, single=single)
            return queries.restore(call.run(queries, numpy.zeros((len(targets.points), rows, c))))

        grid = None
        if targets.scales is None:
            grid = gaussian_sums(
                kernel, self.points, self.columns, targets.points, targets.left_out,
                order=order, value_order=value_order, squared=form == "squared", tolerance=tolerance,
            )  # fmt: skip
        if grid is None:
            return direct(targets)
        sums, exact = grid
        rest = numpy.flatnonzero(~exact)
        if len(rest):
            sums[rest] = direct(targets.take(rest))
        return sums

    def width_slopes(
        self, kernel: KernelND, targets: Targets, duals: Array, fits: Array, tolerance: float = TOLERANCE
    ) -> Array:
        """The derivative of local averages or lines by each feature's log width, (n, features + categorical, outputs).

            Σ_j ∂K_ij/∂θ_a · (duals_i · x_ij) · (columns[j, 1:] − columns[j, :1] (fits_i · x_ij))

        x_ij = (1,) or (1, v_ij), as duals (n, basis) and fits (n, basis, outputs) say. For a categorical feature, ∂K is
        that of its table, by `table_slopes`. The factor per query is that of `sums`.
        """
        blocks, queries = self._prepare(kernel, targets, SMALL)
        queries.duals, queries.fits = duals[queries.order], fits[queries.order]
        # K · log width's slope is of second order in v, and a line's residual times its dual of second order again
        call = Call(kernel, blocks, "kernel", tolerance, order=2 * min(duals.shape[1], 2), slopes=True)
        shape = (len(targets.points), kernel.features + len(kernel.tables), fits.shape[2])
        return queries.restore(call.run(queries, numpy.zeros(shape)))

    def _prepare(self, kernel: KernelND, targets: Targets, size: int) -> tuple[Blocks, Queries]:
        """Samples in blocks of this size, and the queries, both in the coordinates of the kernel."""
        embedding = Embedding(kernel, self._centre)
        if size not in self._last or self._last[size].embedding.key != embedding.key:
            self._last[size] = Blocks(embedding, self, size)
        return self._last[size], Queries(embedding, kernel, targets)


def _as_codes(codes: Indices | None, rows: int) -> Indices:
    return numpy.zeros((rows, 0), dtype=numpy.int64) if codes is None else numpy.asarray(codes, dtype=numpy.int64)


class Blocks:
    """Samples in order, in blocks with their boxes; `arrays` are what the loops want."""

    def __init__(self, embedding: Embedding, samples: SamplesND, size: int) -> None:
        self.loops, self.embedding, self.size = load_kernels("sums_nd"), embedding, size
        points, columns = embedding.embed(samples.points), samples.columns
        self.m, self.columns = columns.shape
        self.total = float(columns[:, 0].sum())
        order, m = spatial_order(points[:, : embedding.starts[-1]]), self.m
        ranks = numpy.empty(m, dtype=numpy.int64)
        ranks[order] = numpy.arange(m)
        starts, lanes = numpy.arange(0, m, size), tasks_nd.LANES
        ordered = points[order]
        lows, highs = (f.reduceat(ordered, starts) if m else ordered for f in (numpy.minimum, numpy.maximum))
        # How much a sample can add to a column at most, as a weight: relative to the column's mean size
        totals = numpy.abs(columns).sum(0)
        most = (numpy.abs(columns) * (totals[0] / numpy.where(totals > 0, totals, 1))).max(1, initial=0)
        sizes = numpy.add.reduceat(most[order], starts) if m else numpy.zeros(0)
        counts = -(-numpy.minimum(size, m - starts) // lanes) * lanes
        # Filled up with the last sample, but without its weight
        padded = order[numpy.minimum(numpy.arange(len(starts) * size), m - 1)]
        real = numpy.arange(len(padded)) < m
        weights = columns[:, :1]
        values = numpy.divide(columns[:, 1:], weights, out=numpy.zeros_like(columns[:, 1:]), where=weights > 0)
        weighted = numpy.hstack([weights, values])[padded]
        weighted[m:, 0] = 0
        arrays = points[padded], weighted, samples.codes[padded]
        in_blocks = (a.reshape(len(starts), size, a.shape[1]).transpose(0, 2, 1) for a in arrays)
        indices = numpy.where(real, padded, -1).reshape(len(starts), size)
        none = numpy.empty((1, 0, 0), numpy.float32)
        self.arrays = tasks_nd.Blocks._make(
            (*map(numpy.ascontiguousarray, in_blocks), indices, ranks, counts, lows, highs, sizes, none, none)
        )

    @functools.cached_property
    def single(self) -> tasks_nd.Blocks:
        """The same with float32 beside it."""
        points, columns = (a.astype(numpy.float32) for a in (self.arrays.points, self.arrays.columns))
        return self.arrays._replace(single_points=points, single_columns=columns)


class Queries:
    """Queries in an order in which neighbours lie near each other, and equal codes stand together."""

    def __init__(self, embedding: Embedding, kernel: KernelND, targets: Targets) -> None:
        x, n = targets.points, len(targets.points)
        points, codes = embedding.embed(x), _as_codes(targets.codes, n)
        left_out = numpy.zeros((n, 2), dtype=numpy.int64) if targets.left_out is None else targets.left_out
        scales = numpy.ones(n) if targets.scales is None else targets.scales
        order = spatial_order(points[:, : embedding.starts[-1]])
        if codes.shape[1]:
            order = order[numpy.lexsort(codes[order].T)]  # stable
        self.order, self.points, self.codes = order, points[order], codes[order]
        self.basis, self.left_out = embedding.basis(x[order]), numpy.ascontiguousarray(left_out[order])
        self.inverses = 1 / scales[order]
        self.nearest, self.duals, self.fits = numpy.zeros(n), numpy.zeros((n, 1)), numpy.zeros((n, 1, 1))
        self.ceilings = numpy.zeros(n)
        for k, table in enumerate(kernel.tables):
            with numpy.errstate(divide="ignore"):
                self.ceilings += numpy.log(table.max(1))[self.codes[:, k]]

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
        self.blocks, self.tolerance, self.slopes, self.single = blocks, tolerance, slopes, single
        self.loops = blocks.loops
        self.times = 2 if form == "squared" else 1
        self.lost = LOST_SINGLE if single else LOST
        self.kernel = _kernel(kernel, blocks.embedding, self.times)
        self.wanted = tasks_nd.SLOPES if slopes else tasks_nd.SUMS
        if self.kernel.kind != tasks_nd.COMPACT and order == 0 and blocks.columns == 2 and not slopes:
            self.wanted = tasks_nd.SINGLE if single else tasks_nd.AVERAGES
        parents, factors = monomial_parents(kernel.features, 0 if slopes else order)
        below, valued = (math.comb(kernel.features + k, k) for k in (max(order - 1, 0), value_order))
        # Rows of the highest degree are nobody's parents.
        coordinates = blocks.embedding.coordinates
        self.monomials = tasks_nd.Monomials(parents, factors, valued, max(below, valued), order, coordinates)
        self.tables = tasks_nd.Tables(_stack(kernel.tables), _stack(kernel.table_slopes), form == "squared")

    def run(self, queries: Queries, out: Array) -> Array:
        """Add to out, a query at each place of its first axis."""
        totals = self._pass(queries, out)
        if self.kernel.kind == tasks_nd.COMPACT:
            return out
        faint = numpy.flatnonzero(totals <= self.blocks.total * math.exp(-self.times * self.lost) * 1.001)
        if len(faint):
            nearest = self._nearest(queries.choose(faint))
            out[faint[nearest > self.lost]] = 0
            far = (nearest > self.lost) & (nearest < numpy.inf)
            some, sums = queries.choose(faint[far]), numpy.zeros((far.sum(), *out.shape[1:]))
            some.nearest = self.times * nearest[far]
            self._pass(some, sums)
            out[faint[far]] = sums
        return out

    def _pass(self, queries: Queries, out: Array) -> Array:
        """Add to out and return the sums of weights (n,)."""
        totals, arrays = numpy.zeros(len(out)), self.blocks.single if self.single else self.blocks.arrays
        slopes = out if self.slopes else numpy.zeros((0, 0, 0))
        fits = tasks_nd.Fits(queries.duals, queries.fits, slopes, self.blocks.embedding.features)
        task = tasks_nd.Task(self.wanted, self.kernel, self.monomials, self.tables, fits, self.tolerance)
        inputs = self._inputs(queries)

        def loop(start: int, stop: int) -> None:
            self.loops.sums_nd(task, inputs, arrays, self._work(), totals, out, start, stop)

        parallel_for(loop, len(inputs.tiles) - 1, len(out) * self.blocks.m)
        return totals

    def _nearest(self, queries: Queries) -> Array:
        """−log of each query's largest weight under K; infinite where no sample counts."""
        nearest, inputs = numpy.empty(len(queries.order)), self._inputs(queries)
        kernel = self.kernel._replace(rate=self.kernel.rate / self.times)
        tables = self.tables._replace(squared=False)

        def loop(start: int, stop: int) -> None:
            self.loops.nearest_weights(kernel, tables, inputs, self.blocks.arrays, self._work(), nearest, start, stop)

        parallel_for(loop, len(nearest), len(nearest) * self.blocks.m)
        return nearest

    def _inputs(self, queries: Queries) -> tasks_nd.Queries:
        """The queries as the loops want them."""
        ceilings = self.times * queries.ceilings
        ends = numpy.maximum(queries.nearest, self.times * self.lost) + numpy.maximum(ceilings, 0) + NEGLIGIBLE
        if self.kernel.kind == tasks_nd.COMPACT:
            ends = numpy.full(len(ends), tasks_nd.EDGE)
        return tasks_nd.Queries(
            queries.points, queries.points.astype(numpy.float32), queries.basis, queries.codes, queries.left_out,
            queries.inverses, queries.nearest, ceilings, ends, queries.tiles(tasks_nd.TILE),
        )  # fmt: skip

    def _work(self) -> tasks_nd.Work:
        """Room for the loops of one thread."""
        block, arrays = self.blocks.size, self.blocks.arrays
        features, categorical = len(self.monomials.coordinates), arrays.codes.shape[1]
        shapes = (), (1 + categorical,), (features,), (len(self.monomials.parents),), (4,), (3,)
        return tasks_nd.Work._make((*(numpy.ones((*s, block)) for s in shapes), numpy.empty(block, numpy.float32)))


def _kernel(kernel: KernelND, embedding: Embedding, times: int) -> tasks_nd.Kernel:
    """K or K² as the loops want it; where no feature narrows the window it is 1, as is a Gaussian of no coordinates."""
    kind = tasks_nd.GAUSSIAN
    if len(embedding.features) and (kernel.name == "laplace" or kernel.name in ROOTS):
        kind = tasks_nd.COMPACT if kernel.name in ROOTS else tasks_nd.LAPLACE
    name = kernel.name if kernel.name in ROOTS else "boxcar"
    root = ROOTS[name]
    rate = times * (0.5 if kind == tasks_nd.GAUSSIAN else 1.0)
    product = kernel.product and kind != tasks_nd.GAUSSIAN
    return tasks_nd.Kernel(kind, product, rate, root.even, *_coefficients(name), times * root.power, embedding.starts)


@functools.cache
def _coefficients(name: str) -> tuple[Array, Array]:
    """Of a kernel's root, and of its slope: −u d/du = (1 − margin) d/d margin, or twice that."""
    root = ROOTS[name]
    slope = Polynomial([1, -1]) * Polynomial(root.coefficients).deriv() * (2 if root.even else 1)
    return numpy.array(root.coefficients), numpy.resize(slope.coef, max(2, len(slope.coef)))


def _stack(tables: tuple[Array, ...]) -> Array:
    """Tables of different sizes as one array."""
    sizes = numpy.array([table.shape for table in tables], dtype=int).reshape(-1, 2).max(0, initial=0)
    stacked = numpy.zeros((len(tables), *sizes))
    for k, table in enumerate(tables):
        stacked[k, : table.shape[0], : table.shape[1]] = table
    return stacked


@functools.cache
def monomial_parents(features: int, order: int) -> tuple[Indices, Indices]:
    """Monomials as products: row r is row parents[r] times feature factors[r]; row 0 is 1."""
    rows = monomials(features, order)
    index = {monomial: row for row, monomial in enumerate(rows)}
    parents = numpy.array([0, *(index[monomial[:-1]] for monomial in rows[1:])], dtype=numpy.int64)
    return parents, numpy.array([-1, *(monomial[-1] for monomial in rows[1:])], dtype=numpy.int64)


def spatial_order(points: Array) -> Indices:
    """An order in which neighbours lie near each other: along Morton's curve through the most spread features."""
    if not len(points):
        return numpy.zeros(0, dtype=numpy.int64)
    low = points.min(0)
    spreads = points.max(0) - low
    features = numpy.argsort(-spreads, kind="stable")[:4]
    code = numpy.zeros(len(points), dtype=numpy.int64)
    bits = 62 // max(1, len(features))
    for offset, feature in enumerate(features):
        # Cells half a width wide, unless the data are too spread for as many.
        per_width = min(2.0, (2**bits - 1) / max(spreads[feature], 1))
        cells = ((points[:, feature] - low[feature]) * per_width).astype(numpy.int64)
        for bit in range(int(cells.max()).bit_length()):
            code |= ((cells >> bit) & 1) << (bit * len(features) + offset)
    return numpy.argsort(code, kind="stable")
