"""Samples of one feature that came in parts: a compressed state (compressed.py) in the place of samples."""

from __future__ import annotations

from functools import cached_property

import numpy
from numpy.typing import NDArray

from regard.attention.sums_1d import Form, Samples1D
from regard.kernel.compressed import Compressed
from regard.kernel.features import Features, Rows
from regard.kernel.local import fit_locally
from regard.kernel.pyramid import Pyramid
from regard.kernel.samples import Samples, Weighing

__all__ = ["MergedSamples"]

Array = NDArray[numpy.float64]


class MergedSamples(Samples):
    """Samples and pseudo-samples of a state; kernel sums are those of all samples that it was made of."""

    def __init__(self, state: Compressed, features: Features) -> None:
        self.state, self.features, self.counts = state, features, True
        self.points = state.samples()
        outputs, counts = state.outputs, self.points.columns[:, :1]
        self.mean = state.mean
        moved = state.mean - state.shift
        first = self.points.columns[:, 1 : 1 + outputs]
        self.squares = self.points.columns[:, 1 + outputs :] - 2 * moved * first + moved**2 * counts  # Σ (y − mean)²
        self.columns = numpy.hstack([counts, first - moved * counts])
        self.weights = counts[:, 0]
        self.rows = Rows(self.points.x[:, None] + self.points.origin, numpy.empty((len(counts), 0)))
        self.values = numpy.empty((0, outputs))  # not kept

    @property
    def count(self) -> float:
        """How many samples the parts had."""
        return self.state.count

    @cached_property
    def spans(self) -> Array:
        """The range of the feature, (1,)."""
        return numpy.array([(self.state.high - self.state.low) or 1.0])

    @property
    def _x(self) -> Array:
        return self.points.x

    @property
    def _origin(self) -> float:
        return self.points.origin

    def _line_sums(
        self, weighing: Weighing, widths: Array, queries: Rows, order: int, form: Form, columns: Array | None
    ) -> Array:
        """Far from all samples those of the cells' means: pseudo-samples, of which some are negative, do not serve."""
        sums = super()._line_sums(weighing, widths, queries, order, form, columns)
        x, width = queries.points[:, 0], self._width(widths)
        far = numpy.flatnonzero(self.state.is_far(width, x))
        if len(far):
            far = far[numpy.argsort(x[far])]
            means = self.state.add_up_nodes(self.columns if columns is None else columns)
            line = Samples1D(self.state.centroids().x, means)
            sums[far] = line.sums(weighing.kernel, width, x[far] - self._origin, order, form)
        return sums

    @cached_property
    def pyramid(self) -> Pyramid:
        """The samples in cells of many widths."""
        return Pyramid(self.state)

    def noise_columns(self, weighing: Weighing, widths: Array, degree: int) -> tuple[Array, float]:
        """Counts and squared errors (m, 1 + outputs), less what comes from the curve's variance; degrees of freedom."""
        fit = fit_locally(self.sums(weighing, widths, self.rows, 2 * degree), 1, degree)
        leverage, heights = fit.duals[:, :1], fit.heights
        squares = self.squares - heights * (2 * self.columns[:, 1:] - heights * self.columns[:, :1])
        columns = numpy.hstack([self.columns[:, :1], squares / numpy.maximum(1 - leverage, 1e-9)])
        return columns, float(self.count - (self.weights * leverage[:, 0]).sum())
