"""Samples of one feature in bounded memory: states that are merged by addition, and still make the same kernel sums.

Over a cell that is narrow beside the kernel's width, a smooth function f of x is its polynomial through q of
Chebyshev's points, f(x) ≈ Σ_a f(node_a) L_a(x), so that

    Σ_j columns_j f(x_j)  ≈  Σ_a f(node_a) · Σ_j columns_j L_a(x_j)

and the samples of a cell may be replaced by q pseudo-samples at its nodes. What is kept of a cell are the moments
Σ_j columns_j T_p(z_j), p < q, by Chebyshev's polynomials of z ∈ [−1, 1]: pseudo-samples are a linear function of them,
the moments of two parts of the samples add up, and those of two halves make those of the whole cell, all without
further error. Cells lie on one grid, between multiples of 2^level, so that the parts of a data set agree on them.

A cell with few distinct samples keeps these as they are: tails, outliers and data with few distinct values stay exact
for every bandwidth. Columns are counts, Σ y and Σ y², of samples of weight 1; a count of 3 is three samples.

The error. exp(−u² / 2) differs from its polynomial over a cell of half-width r, in bandwidths, by at most
r^q max|He_q(u) exp(−u² / 2)| / (2^(q−1) q!) < r^q / (2^(q−1) √q!). Relative to the kernel's value at a distance of d
bandwidths it is about (d r)^q / (2^(q−1) q!). With q = 16 and cells of half a bandwidth, r = 1/4: 2e-21 beside the
sample, and 1e-13 of what little a sample weighs at 8 bandwidths. Far from all samples, where (d r) is large, pseudo-
samples do not serve; a cell's mean does, roughly.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy
from numpy.typing import ArrayLike

from regard.attention.threads import load_kernels, parallel_for
from regard.kernel.local import Array, Indices, Mask

NODES = 16  # q above: as many pseudo-samples make a cell, and a cell with as many distinct samples keeps them
PER_WIDTH = 2  # cells: a bandwidth that is narrower than as many is not served to 1e-9
LIMIT = 1 << 18  # samples and pseudo-samples of a state: 8 MB with one output. Beyond, cells become wider
FAR = 3.0  # (distance of the nearest sample) · (half a cell) in squared bandwidths, up to which nodes serve to 1e-10
FINEST, COARSEST = -1074, 1024  # levels: widths from the smallest float64 to beyond the largest

ANGLES = numpy.pi * (numpy.arange(NODES)[::-1] + 0.5) / NODES
AT_NODES = numpy.cos(ANGLES)  # ascending
# Pseudo-samples from moments: L_a(z) = Σ_p (2 − [p = 0]) / q · T_p(node_a) T_p(z)
TO_NODES = numpy.cos(numpy.outer(ANGLES, numpy.arange(NODES))) * numpy.where(numpy.arange(NODES), 2, 1) / NODES


def _half_moments(side: int) -> Array:
    """(q, q): T_p((z + side) / 2) = Σ_a matrix[p, a] T_a(z), for the left (−1) or the right (+1) half of a cell."""
    in_whole = numpy.cos(numpy.outer(numpy.arange(NODES), numpy.arccos((AT_NODES + side) / 2)))  # (p, node)
    return numpy.asarray(in_whole @ TO_NODES)


HALVES = numpy.stack([_half_moments(-1), _half_moments(1)])


class PseudoSamples(NamedTuple):
    """Sorted samples and pseudo-samples, as they enter kernel sums.

    x (m,), relative to `origin` · columns (m, 1 + 2 outputs): count, Σ y, Σ y² · cells (m,): the index of its
    compressed cell, or −1 where it is a sample.
    """

    origin: float
    x: Array
    columns: Array
    cells: Indices


@dataclass(frozen=True)
class Compressed:
    """What is kept of samples (x, y), about the values `shift` (outputs,).

    x (m,) sorted and distinct, columns (m, 1 + 2 outputs): the samples of cells with few of them ·
    keys (cells,), the left ends of the others, and their moments (cells, 1 + 2 outputs, NODES) ·
    low, high: the least and the largest x.
    """

    level: int
    shift: Array
    x: Array
    columns: Array
    keys: Array
    moments: Array
    low: float
    high: float

    @classmethod
    def from_samples(
        cls, x: ArrayLike, values: ArrayLike, counts: ArrayLike | None = None, *, limit: float | None = None
    ) -> Compressed:
        """The state of samples x (m,) with values (m,) or (m, outputs); counts (m,): how many samples each stands for.

        At most `limit` numbers x (LIMIT) are kept, samples and pseudo-samples together.
        """
        x, values = numpy.asarray(x, dtype=numpy.float64), numpy.asarray(values, dtype=numpy.float64)
        values = values[:, None] if values.ndim == 1 else values
        counts = numpy.ones(len(x)) if counts is None else numpy.asarray(counts, dtype=numpy.float64)
        _check(x, values, counts)
        order = numpy.argsort(x, kind="stable")
        order = order[counts[order] > 0]
        x, values, counts = x[order], values[order], counts[order, None]
        shift = (counts * values).sum(0) / counts.sum() if len(x) else numpy.zeros(values.shape[1])
        centred = values - shift
        columns = numpy.hstack([counts, counts * centred, counts * centred**2])
        low, high = (float(x[0]), float(x[-1])) if len(x) else (math.inf, -math.inf)
        x, columns = _add_up_equal(x, columns)
        nothing = numpy.empty(0), numpy.empty((0, columns.shape[1], NODES))
        return cls(FINEST, shift, x, columns, *nothing, low, high)._within(limit)

    # --------------------------------------------------------------------------------------------- what is known of it

    @property
    def outputs(self) -> int:
        """How many values a sample has."""
        return len(self.shift)

    @cached_property
    def totals(self) -> Array:
        """The sums (1 + 2 outputs,) of all columns."""
        return numpy.asarray(self.columns.sum(0) + self.moments[:, :, 0].sum(0))  # T_0 = 1

    @property
    def count(self) -> float:
        """How many samples there are."""
        return float(self.totals[0])

    @property
    def mean(self) -> Array:
        """The mean (outputs,) of the values."""
        return numpy.asarray(self.shift + self.totals[1 : 1 + self.outputs] / self.count)

    @property
    def variance(self) -> Array:
        """The variance (outputs,) of the values, over their count."""
        totals, outputs = self.totals / self.count, self.outputs
        return numpy.asarray(totals[1 + outputs :] - totals[1 : 1 + outputs] ** 2)

    @property
    def size(self) -> int:
        """How many samples and pseudo-samples are kept."""
        return len(self.x) + NODES * len(self.keys)

    @property
    def narrowest(self) -> float:
        """The least bandwidth that is served like the samples themselves; 0 where all of them are kept."""
        return PER_WIDTH * math.ldexp(1.0, self.level) if len(self.keys) else 0.0

    # ------------------------------------------------------------------------------------------------ merged, coarsened

    def merge(self, other: Compressed, *, limit: float | None = None) -> Compressed:
        """The state of the samples of both."""
        if self.outputs != other.outputs:
            raise ValueError(f"other: expected a state of {self.outputs} outputs, got {other.outputs}")
        if not len(other.x) + len(other.keys):
            return self
        if not len(self.x) + len(self.keys):
            return other
        level = max(self.level, other.level)
        a, b = self.coarsened(level), other.coarsened(level).about(self.shift)
        x, columns = _joined([a.x, b.x], [a.columns, b.columns])
        keys, moments = _joined([a.keys, b.keys], [a.moments, b.moments])
        low, high = min(a.low, b.low), max(a.high, b.high)
        both = Compressed(level, self.shift, x, columns, keys, moments, low, high)
        return both._compressed_to(level)._within(limit)

    def coarsened(self, level: int) -> Compressed:
        """The same samples in cells 2^level wide; itself, where its cells are as wide or wider."""
        return self if level <= self.level else self._compressed_to(level)

    def level_of(self, size: float) -> int:
        """The finest level at which `coarsened` is no larger than this, as long as no cell is compressed yet."""

        def is_small(level: int) -> bool:
            _, starts = _cells(self.x, math.ldexp(1.0, level))
            return bool(numpy.minimum(numpy.diff(starts), NODES).sum() <= size)

        levels = range(FINEST + 1, COARSEST)  # the size falls with the level
        return levels.start + bisect_left(levels, True, key=is_small)

    def _within(self, limit: float | None) -> Compressed:
        """At the finest level with at most so many samples and pseudo-samples."""
        state, limit = self, LIMIT if limit is None else limit
        if state.size > limit and not len(state.keys):
            state = state.coarsened(state.level_of(limit))
        while state.size > limit and state.level < COARSEST:
            state = state.coarsened(state.level + 1)
        return state

    def _compressed_to(self, level: int) -> Compressed:
        """Cells of this level, of which those with many samples, or with any that are compressed, are compressed."""
        keys, moments = self.keys, self.moments
        for step in range(self.level, level if len(keys) else self.level):
            keys, moments = _double_cells(keys, moments, math.ldexp(2.0, step))
        width = math.ldexp(1.0, level)
        cells, starts = _cells(self.x, width)
        dense = (numpy.diff(starts) > NODES) | numpy.isin(cells, keys, assume_unique=True)
        chosen = numpy.flatnonzero(dense)
        added = numpy.empty((len(chosen), self.columns.shape[1], NODES))
        ends = numpy.stack([starts[chosen], starts[chosen + 1]])
        loop = load_kernels("sorting").chebyshev_moments
        of_cells = partial(loop, self.x, self.columns, width, cells[chosen], ends, added)
        parallel_for(of_cells, len(chosen), self.columns.size * NODES)
        keys, moments = _joined([keys, cells[chosen]], [moments, added])
        sparse = numpy.repeat(~dense, numpy.diff(starts))
        return Compressed(level, self.shift, self.x[sparse], self.columns[sparse], keys, moments, self.low, self.high)

    def about(self, shift: Array) -> Compressed:
        """The same state with values about `shift`: y + δ has the sums Σ y + δ n and Σ y² + 2 δ Σ y + δ² n."""
        moved, outputs = self.shift - shift, self.outputs
        change = numpy.eye(1 + 2 * outputs)
        for output in range(outputs):
            change[1 + output, 0] = moved[output]
            change[1 + outputs + output, [0, 1 + output]] = moved[output] ** 2, 2 * moved[output]
        columns, moments = self.columns @ change.T, change @ self.moments
        return Compressed(self.level, shift, self.x, columns, self.keys, moments, self.low, self.high)

    # -------------------------------------------------------------------------------------------- as (pseudo-)samples

    @property
    def origin(self) -> float:
        """What x is counted from: 0, or the least x where all are so far from 0 that nodes would lose digits."""
        nearest = min(abs(self.low), abs(self.high))
        return 0.0 if self.low <= 0 <= self.high or nearest <= self.high - self.low else self.low

    @cached_property
    def points(self) -> PseudoSamples:
        """Samples and pseudo-samples, sorted."""
        nodes = (self.keys - self.origin)[:, None] + math.ldexp(0.5, self.level) * (1 + AT_NODES)  # (cells, q)
        at_nodes = self.moments @ TO_NODES.T  # (cells, 1 + 2 outputs, q)
        columns = at_nodes.swapaxes(1, 2).reshape(-1, self.columns.shape[1])
        return self._beside_samples(nodes.ravel(), columns, numpy.repeat(numpy.arange(len(self.keys)), NODES))

    def centroids(self) -> PseudoSamples:
        """Samples, and each compressed cell as one sample at the mean of its x."""
        totals = self.moments[:, :, 0]  # (cells, 1 + 2 outputs)
        means = self.keys - self.origin + math.ldexp(0.5, self.level) * (1 + self.moments[:, 0, 1] / totals[:, 0])
        return self._beside_samples(means, totals, numpy.arange(len(self.keys)))

    def _beside_samples(self, x: Array, columns: Array, cells: Indices) -> PseudoSamples:
        x = numpy.concatenate([self.x - self.origin, x])
        columns = numpy.concatenate([self.columns, columns])
        cells = numpy.concatenate([numpy.full(len(self.x), -1), cells])
        order = numpy.argsort(x, kind="stable") if len(self.x) and len(self.keys) else slice(None)  # sorted already
        return PseudoSamples(self.origin, x[order], columns[order], cells[order])

    def add_up_nodes(self, columns: Array) -> Array:
        """Columns (m, c) of `points`, those of a cell's nodes added up: the columns of `centroids()`."""
        cells = self.points.cells
        return numpy.add.reduceat(columns, numpy.flatnonzero((cells < 0) | (numpy.diff(cells, prepend=-1) != 0)))

    def is_far(self, width: float, queries: Array) -> Mask:
        """Whether each query (n,) is so many widths from all samples that nodes do not serve, but centroids."""
        if not len(self.keys):
            return numpy.zeros(len(queries), dtype=bool)
        distances = nearest_distances(self.points.x, queries - self.origin)
        return numpy.asarray(distances * math.ldexp(0.5, self.level) > FAR * width**2)


def nearest_distances(x: Array, queries: Array) -> Array:
    """From each of the queries (n,) to the nearest of the sorted numbers x (m,)."""
    index = numpy.searchsorted(x, queries)
    beyond = numpy.pad(x, 1, constant_values=(-numpy.inf, numpy.inf))
    return numpy.asarray(numpy.minimum(queries - beyond[index], beyond[index + 1] - queries))


def merge_all(states: list[Any], merge: Callable[[Any, Any], Any] = Compressed.merge) -> Any:
    """The state of all samples, merged in pairs; or what becomes that state, as on the workers of a cluster."""
    while len(states) > 1:
        pairs = [states[i : i + 2] for i in range(0, len(states), 2)]
        states = [merge(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return states[0]


def _check(x: Array, values: Array, counts: Array) -> None:
    if x.ndim != 1 or len(values) != len(x) or counts.shape != x.shape:
        raise ValueError(
            f"x: expected (m,), values (m, outputs), counts (m,), got {x.shape}, {values.shape} and {counts.shape}"
        )
    for name, numbers in (("x", x), ("values", values), ("counts", counts)):
        if not numpy.isfinite(numbers).all():
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity; drop or fill them before")
    if not ((counts >= 0) & (counts == numpy.floor(counts))).all():
        raise ValueError("counts: expected whole numbers that are not negative; other weights cannot be compressed")


def _cells(x: Array, width: float) -> tuple[Array, Indices]:
    """The keys (cells,) of the grid's cells that hold samples, and where these start, with one entry for the end."""
    keys, starts = numpy.empty(len(x)), numpy.empty(len(x) + 1, dtype=numpy.int64)
    count = load_kernels("sorting").group_by_grid(x, width, keys, starts)
    return keys[:count].copy(), starts[: count + 1].copy()


def _double_cells(keys: Array, moments: Array, width: float) -> tuple[Array, Array]:
    """Cells twice as wide, `width`, from their halves."""
    parents, in_parents = numpy.floor(keys / width) * width, numpy.empty_like(moments)
    for matrix, chosen in zip(HALVES, (keys == parents, keys > parents), strict=True):
        in_parents[chosen] = moments[chosen] @ matrix.T
    return _add_up_equal(parents, in_parents)


def _joined(x: list[Array], columns: list[Array]) -> tuple[Array, Array]:
    """Those of several lists at distinct x, or cells of distinct keys, sorted; columns at the same x are added up."""
    together = numpy.concatenate(x)
    order = numpy.argsort(together, kind="stable")
    return _add_up_equal(together[order], numpy.concatenate(columns)[order])


def _add_up_equal(x: Array, columns: Array) -> tuple[Array, Array]:
    """The same for one that is sorted."""
    first = numpy.flatnonzero(numpy.diff(x, prepend=numpy.nan))
    return (x, columns) if len(first) == len(x) else (x[first], numpy.add.reduceat(columns, first))
