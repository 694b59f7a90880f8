"""A kernel regression as pictures: samples and curve, the window of every query, the heat map of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from regard.view import pictures
from regard.view.regression_curve import Curve, Inputs, curve_along, unwrap
from regard.view.regression_drawing import draw_curve, draw_groups, draw_weights, draw_window

__all__ = ["KernelRegressionDisplay"]

Array = NDArray[numpy.float64]
Kind = Literal["curve", "window", "weights"]
KINDS: tuple[Kind, ...] = ("curve", "window", "weights")

SHOWN = 2000  # samples that are drawn, evenly chosen where there are more
SHOWN_OF_GROUP = 500  # the same for each group
GROUPS = 12  # that are drawn, the largest where there are more


@dataclass(frozen=True, eq=False)
class Group:
    """The curve of some of the samples: those that are drawn, of so many."""

    label: str
    curve: Curve
    x: Array
    y: Array
    samples: int


@dataclass(frozen=True)
class Scales:
    """What the axes show: x may be dates, as days since 1970-01-01, or categories, by their numbers."""

    dates: bool = False
    categories: tuple[str, ...] = ()
    log_x: bool = False
    log_y: bool = False


class KernelRegressionDisplay:
    """A fitted kernel regression along one feature, averaged over the samples' others (its partial dependence).

    Make it with `from_estimator`, which draws it as well. Then `plot(kind=…)` draws it as a "curve" with its confidence
    band, as the "window" of every query (effective number of samples and the interval with 90 % of the weight; the
    other features are as in the sample nearest to the medians), or as the heat map of the "weights".

    curve: of the regressor; before: of another one (say, before learning), to be drawn beside it
    x, y: the samples that are drawn; samples: of so many
    truth: the true curve at curve.x, where it is known
    x_name, y_name: labels of the axes
    others: how many features there are besides this one
    groups: curves of groups of samples, drawn instead of `curve`; hidden: how many groups are not drawn
    level: of the band; rug: whether to mark the samples' x at the axis; scales: of the axes

    >>> import numpy as np, regard
    >>> x = np.linspace(0, 5, 50)
    >>> model = regard.KernelRegressor(bandwidth=0.3).fit(x[:, None], np.sin(x))
    >>> display = regard.KernelRegressionDisplay.from_estimator(model, x[:, None], np.sin(x))
    >>> list(display.to_frame())
    ['x', 'predicted', 'band_low', 'band_high', 'effective', 'low', 'high']
    """

    ax_: Axes
    figure_: Figure | None

    def __init__(
        self,
        curve: Curve,
        x: Array,
        y: Array,
        *,
        before: Curve | None = None,
        truth: Array | None = None,
        x_name: str = "x",
        y_name: str = "y",
        samples: int | None = None,
        others: int = 0,
        groups: Sequence[Group] = (),
        hidden: int = 0,
        level: float | None = None,
        rug: bool = False,
        scales: Scales = Scales(),  # noqa: B008 — it is frozen
    ) -> None:
        self.curve, self.before, self.truth = curve, before, truth
        self.samples, self.others = len(x) if samples is None else samples, others
        self.x, self.y, self.x_name, self.y_name = x, y, x_name, y_name
        self.groups, self.hidden, self.level, self.rug, self.scales = tuple(groups), hidden, level, rug, scales

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        feature: int | str = 0,
        before: Any = None,
        truth: Any = None,
        kind: Kind = "curve",
        level: float | None = 0.95,
        rug: bool = False,
        groups: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> KernelRegressionDisplay:
        """Compute and draw.

        estimator: a fitted KernelRegressor, a pipeline that ends in one, or a search (GridSearchCV, …) over either;
        axes are in the units of X. X may be a frame, with dates or categories. y has one output. truth: where it is
        known, as a function of X. level: of the confidence band, None for none. groups: labels (n,) of samples; a copy
        of the estimator is fitted to each group.
        """
        chain = unwrap("estimator", estimator)
        inputs, values = Inputs.of(X), numpy.asarray(y, dtype=numpy.float64)
        if values.ndim != 1 or len(values) != len(inputs):
            raise ValueError(f"y: expected one number per row of X, ({len(inputs)},), got shape {values.shape}")
        index, name = inputs.feature(feature)
        scales = Scales(inputs.dates[index], tuple(map(str, inputs.levels(index))) if inputs.categories[index] else ())
        x = numpy.arange(len(scales.categories), dtype=numpy.float64) if scales.categories else None
        positions = inputs.positions(index)
        curve = curve_along(chain, inputs, index, level, x)
        drawn = evenly(len(inputs), SHOWN)
        parts, hidden = _groups(estimator, inputs, values, index, level, groups)
        display = cls(
            curve,
            positions[drawn],
            values[drawn],
            before=None if before is None else curve_along(unwrap("before", before), inputs, index, None, curve.x),
            truth=None if truth is None else _truth(truth, inputs, index, curve.x),
            x_name=name,
            y_name=str(getattr(y, "name", None) or "y"),
            samples=len(inputs),
            others=inputs.features - 1,
            groups=parts,
            hidden=hidden,
            level=level,
            rug=rug,
            scales=scales,
        )
        return display.plot(kind, ax=ax)

    def plot(self, kind: Kind = "curve", *, ax: Axes | None = None) -> KernelRegressionDisplay:
        """Draw on these axes, or on those of a new figure; sets `ax_` and `figure_`."""
        if kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
        if kind != "curve" and self.groups:
            raise ValueError(f'kind: expected "curve", because there are groups, got {kind!r}')
        axes = self._figure(kind).axes[0] if ax is None else ax
        if ax is not None:
            self._draw(ax, kind)
        self.ax_, self.figure_, self._kind = axes, axes.get_figure(root=True), kind
        return self

    def save(self, path: str | Path, kind: Kind | None = None) -> Path:
        """Write the picture: .png, .svg, .pdf or .html (light or dark as the reader's), by the name's ending."""
        return pictures.write(lambda: self._figure(kind or self._kind), path)

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each point of the curve; of groups, with the group's label before.

        band_low and band_high are the ends of the confidence band, low and high those of the window.
        """
        import pandas

        if not self.groups:
            frame = pandas.DataFrame(self._columns(self.curve))
            return frame if self.truth is None else frame.assign(truth=self.truth)
        frames = [pandas.DataFrame({"group": group.label} | self._columns(group.curve)) for group in self.groups]
        return pandas.concat(frames, ignore_index=True)

    def print(self) -> None:
        """A short table in the terminal."""
        from rich.console import Console
        from rich.table import Table

        frame = self.to_frame()
        chosen = frame if len(frame) <= 11 else frame.iloc[numpy.linspace(0, len(frame) - 1, 11).astype(int)]
        table = Table(*map(str, frame.columns), box=None, pad_edge=False)
        for row in chosen.itertuples(index=False):
            table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell)[:16] for cell in row))
        Console().print(table)

    def _repr_html_(self) -> str:
        return pictures.html(lambda: self._figure(self._kind))

    def _columns(self, curve: Curve) -> dict[str, Any]:
        def as_given(x: Array) -> Any:
            if self.scales.dates:
                return numpy.round(x * 86400).astype("datetime64[s]")
            return [self.scales.categories[int(number)] for number in x] if self.scales.categories else x

        columns = {self.x_name: as_given(curve.x), "predicted": curve.predicted}
        if curve.band is not None:
            columns |= {"band_low": curve.band.low, "band_high": curve.band.high}
        if curve.weighed is not None:
            effective, low, high = curve.window
            columns |= {"effective": effective, "low": as_given(low), "high": as_given(high)}
        return columns

    def _figure(self, kind: Kind) -> Figure:
        figure = pictures.figure(3.6)
        self._draw(figure.subplots(), kind)
        return figure

    def _draw(self, axes: Axes, kind: Kind) -> None:
        if kind == "window":
            draw_window(axes, self)
        elif kind == "weights":
            draw_weights(axes, self)
        elif self.groups:
            draw_groups(axes, self)
        else:
            draw_curve(axes, self)


def evenly(count: int, most: int) -> NDArray[numpy.int64]:
    """Indices of at most so many of `count` things, at even distances."""
    return numpy.unique(numpy.linspace(0, count - 1, min(count, most)).astype(numpy.int64))


def _truth(truth: Any, inputs: Inputs, index: int, x: Array) -> Array:
    """Of one feature along x, the others at their medians."""
    queries = numpy.tile(numpy.median(inputs.points, axis=0), (len(x), 1))
    queries[:, index] = x
    return numpy.asarray(truth(queries), dtype=numpy.float64).reshape(len(x))


def _groups(
    estimator: Any, inputs: Inputs, values: Array, index: int, level: float | None, labels: ArrayLike | None
) -> tuple[list[Group], int]:
    """The largest groups with their curves, and how many there are besides."""
    if labels is None:
        return [], 0
    names = numpy.array([str(label) for label in numpy.asarray(labels, dtype=object)])
    if len(names) != len(inputs):
        raise ValueError(f"groups: expected a label per row of X, {len(inputs)}, got {len(names)}")
    known, counts = numpy.unique(names, return_counts=True)
    order = numpy.argsort(-counts, kind="stable")
    return [
        _group(estimator, inputs, values, index, level, name, numpy.flatnonzero(names == name))
        for name in known[order[:GROUPS]]
    ], max(0, len(known) - GROUPS)


def _group(
    estimator: Any,
    inputs: Inputs,
    values: Array,
    index: int,
    level: float | None,
    name: str,
    rows: NDArray[numpy.int64],
) -> Group:
    fitted = clone(getattr(estimator, "best_estimator_", estimator)).fit(inputs.take(rows), values[rows])
    part = Inputs.of(inputs.take(rows))
    x = numpy.arange(len(part.levels(index)), dtype=numpy.float64) if part.categories[index] else None
    curve = curve_along(unwrap("estimator", fitted), part, index, level, x)
    drawn = evenly(len(rows), SHOWN_OF_GROUP)
    return Group(str(name), curve, part.positions(index)[drawn], values[rows][drawn], len(rows))
