"""The leave-one-out error of a Gaussian kernel regression on one feature, at a price that falls with the bandwidth.

A sample's leverage l is what its estimate changes with its own value; with the sums S of the samples' v^(a+b) about it,
l = (S⁻¹)₀₀, and without the sample its residual would be (y − m(x)) / (1 − l(x)). Both m and l are smooth functions of
x, so that the sum over the samples of a compressed cell (compressed.py) is one over its nodes,

    Σ_j (y_j − m)² / (1 − l)²  =  Σ_a (Σ y² − 2 m Σ y + m² n)_a / (1 − l)²      at node a

A pyramid holds the same samples in cells of many widths, and answers for a bandwidth from cells of half of it.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy
from numpy.typing import ArrayLike, NDArray

from regard.attention.sums_1d import Samples1D
from regard.kernel.compressed import COARSEST, FINEST, PER_WIDTH, Compressed, PseudoSamples

__all__ = ["LeaveOneOutError", "Pyramid", "local_fit", "loo_error"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
Chosen = NDArray[numpy.bool_]

FLAT = 1e-9  # a variance below this part of the mean square is a sum of rounding errors
FAR = 2.0  # (distance of the nearest sample) · (half a cell) in squared bandwidths, up to which nodes serve: 1e-13
LEVERAGE = 0.1  # from which on 1 / (1 − l)² is not left to an interpolation
NEGLIGIBLE = 80.0  # in squared bandwidths: exp(−40) is 4e-18


class LeaveOneOutError(NamedTuple):
    """Mean squared errors (outputs,) of the samples left out and of the samples within, and the sum of leverages."""

    loo: Array
    trace: float
    in_sample: Array


def local_fit(sums: Array, degree: int) -> tuple[Array, Array]:
    """Heights (n, outputs) of local polynomials and (S⁻¹)₀₀ (n,), from sums (n, 2 degree + 1, 1 + outputs) of v^k.

    S = L Lᵀ is factored column by column; where samples do not span a power of v, its column counts as 0, and the
    polynomial is of a lower degree. NaN and infinity where no sample is within reach.
    """
    n, powers = len(sums), degree + 1
    moments, right = sums[:, :, 0], sums[:, :powers, 1:].copy()  # right becomes L⁻¹ Σ K v^k y
    matrix = numpy.stack([moments[:, a : a + powers] for a in range(powers)], axis=1)
    unit = numpy.zeros((n, powers))  # becomes L⁻¹ (1, 0, …)
    unit[:, 0] = 1.0
    inverse = numpy.zeros(n)
    heights = numpy.zeros((n, sums.shape[2] - 1))
    with numpy.errstate(divide="ignore", invalid="ignore"):
        for a in range(powers):
            pivot = matrix[:, a, a]
            spanned = pivot > (0.0 if a == 0 else FLAT * moments[:, 2 * a])
            scale = numpy.where(spanned, 1 / pivot, math.nan if a == 0 else 0.0)
            heights += (unit[:, a] * scale)[:, None] * right[:, a]
            inverse += unit[:, a] ** 2 * scale
            for b in range(a + 1, powers):
                factor = matrix[:, b, a] * scale
                unit[:, b] -= factor * unit[:, a]
                right[:, b] -= factor[:, None] * right[:, a]
                matrix[:, b] -= factor[:, None] * matrix[:, a]
    inverse[~(moments[:, 0] > 0)] = math.inf
    return heights, inverse


class Layer:
    """The samples and pseudo-samples of a state, as sources of kernel sums and as targets of estimates.

    centroids: with each compressed cell as one sample at the mean of its x, which serves, roughly, at any distance.
    """

    def __init__(self, state: Compressed, *, centroids: bool = False) -> None:
        self.points = state.centroids() if centroids else state.samples()
        self.outputs, self.cell = state.outputs, math.ldexp(1.0, state.level)
        self.keys = state.keys - self.points.origin
        self.single = (self.points.cells < 0) & (self.points.columns[:, 0] == 1)
        self.has_nodes = len(self.keys) > 0 and not centroids
        self._columns = numpy.ascontiguousarray(self.points.columns[:, : 1 + self.outputs])
        self._samples: Samples1D | None = None

    def errors(self, targets: Indices, width: float, degree: int) -> tuple[LeaveOneOutError, Array]:
        """What each target adds to the errors (n, outputs) and to the trace (n,), and its leverage (n,).

        A sample alone at its x is left out of the sums: where others are far away, nothing would remain of them in a
        difference. With (S⁻¹)₀₀ = g over the others, its leverage is g / (1 + g).
        """
        heights, inverse = local_fit(self._sums(targets, width, degree), degree)
        columns, single = self.points.columns[targets], self.single[targets]
        count, first, second = columns[:, :1], columns[:, 1 : 1 + self.outputs], columns[:, 1 + self.outputs :]
        squares = second - heights * (2 * first - heights * count)
        leverage = numpy.where(single, 1 - 1 / (1 + inverse), inverse)
        change = numpy.square(1 - leverage)[:, None]
        loo = numpy.where(single[:, None], squares, squares / change)
        in_sample = numpy.where(single[:, None], squares * change, squares)
        return LeaveOneOutError(loo, columns[:, 0] * leverage, in_sample), leverage

    def doubtful(self, targets: Indices, leverage: Array, width: float) -> Chosen:
        """Of the targets: samples so far from others, and cells of such leverage, that nodes do not serve them."""
        if not self.has_nodes:
            return numpy.zeros(len(targets), dtype=bool)
        cells = self.points.cells[targets]
        steep = (cells >= 0) & ~((leverage >= 0) & (leverage <= LEVERAGE))
        far = self.single[targets] & (self._to_others(targets) * self.cell / 2 > FAR * width**2)
        return far | numpy.isin(cells, cells[steep])

    def places(self, targets: Indices) -> tuple[Array, Array]:
        """Where the targets are, from (n,) to (n,): the place of a sample, or the cell of a pseudo-sample."""
        cells, x = self.points.cells[targets], self.points.x[targets]
        starts = numpy.append(self.keys, numpy.nan)[cells]
        ends = numpy.nextafter(starts + self.cell, -numpy.inf)
        return numpy.where(cells < 0, x, starts), numpy.where(cells < 0, x, ends)

    def within(self, starts: Array, ends: Array) -> Indices:
        """The samples and pseudo-samples in any of these intervals, ends included."""
        x = self.points.x
        change = numpy.zeros(len(x) + 1, dtype=numpy.int64)
        numpy.add.at(change, numpy.searchsorted(x, starts), 1)
        numpy.add.at(change, numpy.searchsorted(x, ends, side="right"), -1)
        return numpy.flatnonzero(numpy.cumsum(change[:-1]))

    def _sums(self, targets: Indices, width: float, degree: int) -> Array:
        """Sums of v^0 … v^(2 degree) at the targets, over all that counts beside the nearest."""
        x = self.points.x
        if len(targets) == len(x):
            self._samples = self._samples or Samples1D(x, self._columns)
            return self._sums_of_others(self._samples, slice(None), width, degree)
        reach = numpy.sqrt(self._to_others(targets) ** 2 + NEGLIGIBLE * width**2)
        near = self.within(x[targets] - reach, x[targets] + reach)
        sums = self._sums_of_others(Samples1D(x[near], self._columns[near]), near, width, degree)
        return sums[numpy.searchsorted(near, targets)]

    def _sums_of_others(self, samples: Samples1D, near: Indices | slice, width: float, degree: int) -> Array:
        left_out = numpy.where(self.single[near, None], self._columns[near], 0.0)
        return samples.sums_of_others("gaussian", width, "linear" if degree else "average", left_out)

    def _to_others(self, targets: Indices) -> Array:
        """The distance to the nearest other sample or pseudo-sample."""
        gaps = numpy.diff(self.points.x, prepend=-numpy.inf, append=numpy.inf)
        nearest: Array = numpy.minimum(gaps[targets], gaps[targets + 1])
        return nearest


class Pyramid:
    """The samples of a state in cells of its width and of all that are wider."""

    def __init__(self, finest: Compressed) -> None:
        self.finest = finest
        self._states: dict[int, Compressed] = {}
        self._layers: dict[int, Layer] = {}

    @classmethod
    def from_samples(cls, x: ArrayLike, values: ArrayLike, counts: ArrayLike | None = None) -> Pyramid:
        """Of all samples, none of them compressed for bandwidths of a few gaps between them."""
        return cls(Compressed.from_samples(x, values, counts, limit=math.inf))

    def layer(self, width: float) -> Layer:
        """The samples in cells of half a width or less; as they are, where compressing them would not pay."""
        return self._layer(max(math.frexp(width / PER_WIDTH)[1] - 1, self._base - 1))

    def estimated(self, width: float) -> bool:
        """Whether an error for this bandwidth is taken from pseudo-samples."""
        return self.layer(width).has_nodes

    @cached_property
    def _base(self) -> int:
        """The first level above the finest: with cells twice as wide, or wide enough to leave half of the samples."""
        if len(self.finest.keys):
            return self.finest.level + 1
        fine, coarse = FINEST, COARSEST
        while coarse - fine > 1:
            middle = (fine + coarse) // 2
            fine, coarse = (middle, coarse) if 2 * self.finest.size_at(middle) > self.finest.size else (fine, middle)
        return coarse

    def _layer(self, level: int) -> Layer:
        if level not in self._layers:
            self._layers[level] = Layer(self._state(level))
        return self._layers[level]

    def _state(self, level: int) -> Compressed:
        if level < self._base:
            return self.finest
        if level not in self._states:
            self._states[level] = self._state(level - 1).coarsened(level)
        return self._states[level]

    def error(self, width: float, degree: int = 0) -> LeaveOneOutError:
        """The leave-one-out error with this bandwidth; what its layer cannot answer for is asked of the finest."""
        layer, outputs = self.layer(width), self.finest.outputs
        targets = numpy.arange(len(layer.points.x))
        loo, in_sample, trace = numpy.zeros(outputs), numpy.zeros(outputs), 0.0
        for following in (self._layer(self._base - 1), self._centroids, None):
            errors, leverage = layer.errors(targets, width, degree)
            doubtful = layer.doubtful(targets, leverage, width)
            loo += errors.loo[~doubtful].sum(0)
            in_sample += errors.in_sample[~doubtful].sum(0)
            trace += errors.trace[~doubtful].sum()
            if following is None or not doubtful.any():
                break
            targets = following.within(*layer.places(targets[doubtful]))
            layer = following
        return LeaveOneOutError(loo / self.finest.count, float(trace), in_sample / self.finest.count)

    @cached_property
    def _centroids(self) -> Layer:
        return Layer(self.finest, centroids=True)


def loo_error(samples: Compressed | Pyramid, width: float, degree: int = 0) -> LeaveOneOutError:
    """The leave-one-out error of local polynomials of this degree under a Gaussian kernel of this width."""
    return (Pyramid(samples) if isinstance(samples, Compressed) else samples).error(width, degree)
