"""A kernel regression as pictures: samples and curve, the window of every query, the heat map of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from regard.kernel import KernelRegressor
from regard.view import pictures

__all__ = ["KernelRegressionDisplay"]

Array = NDArray[numpy.float64]
Kind = Literal["curve", "window", "weights"]
KINDS: tuple[Kind, ...] = ("curve", "window", "weights")

SHOWN = 2000  # samples that are drawn, evenly chosen where there are more
CELLS = 100  # rows and columns of a heat map; with more samples, neighbours share a column


@dataclass(frozen=True)
class Curve:
    """A regressor along one feature, computed once."""

    x: Array  # (points,)
    predicted: Array
    effective: Array
    low: Array
    high: Array
    weights: Array  # (CELLS, columns): a row for each of some queries, a column for each sample or group of neighbours
    edges: Array  # (columns + 1,): where the columns begin and end on x
    bandwidth: float


class KernelRegressionDisplay:
    """A fitted KernelRegressor along one feature; the others stay at their medians.

    Make it with `from_estimator`, which draws it as well. Then `plot(kind=…)` draws it as a "curve", as the "window" of
    every query (effective number of samples and the interval with 90 % of the weight), or as the heat map of the
    "weights".

    curve: of the regressor; before: of another one (say, before learning), to be drawn beside it
    x, y: the samples that are drawn; samples: of so many
    truth: the true curve at curve.x, where it is known
    x_name, y_name: labels of the axes
    others: how many features there are besides this one

    >>> import numpy as np, regard
    >>> x = np.linspace(0, 5, 50)
    >>> model = regard.KernelRegressor(bandwidth=0.3).fit(x[:, None], np.sin(x))
    >>> display = regard.KernelRegressionDisplay.from_estimator(model, x[:, None], np.sin(x))
    >>> list(display.to_frame())
    ['x', 'predicted', 'effective', 'low', 'high']
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
    ) -> None:
        self.curve, self.before, self.truth = curve, before, truth
        self.samples, self.others = len(x) if samples is None else samples, others
        self.x, self.y, self.x_name, self.y_name = x, y, x_name, y_name

    @classmethod
    def from_estimator(
        cls,
        estimator: KernelRegressor,
        X: ArrayLike,
        y: ArrayLike,
        *,
        feature: int | str = 0,
        before: KernelRegressor | None = None,
        truth: Any = None,
        kind: Kind = "curve",
        ax: Axes | None = None,
    ) -> KernelRegressionDisplay:
        """Compute and draw. `truth`, where it is known, is a function of X; `y` has one output."""
        estimators: dict[str, object] = {"estimator": estimator, "before": before}
        for name, given in estimators.items():
            if given is not None and not isinstance(given, KernelRegressor):
                hint = "; pass the last step of a pipeline, and X as it gets it" if hasattr(given, "steps") else ""
                raise TypeError(f"{name}: expected a fitted KernelRegressor, got {type(given).__name__}{hint}")
        check_is_fitted(estimator)
        points, values = _columns(X), numpy.asarray(y, dtype=numpy.float64)
        if values.ndim != 1 or len(values) != len(points):
            raise ValueError(f"y: expected one number per row of X, ({len(points)},), got shape {values.shape}")
        index, name = _feature(estimator, feature, points.shape[1])
        x = numpy.linspace(points[:, index].min(), points[:, index].max(), 301)
        queries = numpy.tile(numpy.median(points, axis=0), (len(x), 1))
        queries[:, index] = x
        shown = numpy.unique(numpy.linspace(0, len(points) - 1, min(len(points), SHOWN)).astype(int))
        display = cls(
            _curve(estimator, queries, index),
            points[shown, index],
            values[shown],
            before=None if before is None else _curve(before, queries, index),
            truth=None if truth is None else numpy.asarray(truth(queries), dtype=numpy.float64).reshape(len(x)),
            x_name=name,
            y_name=str(getattr(y, "name", None) or "y"),
            samples=len(points),
            others=points.shape[1] - 1,
        )
        return display.plot(kind, ax=ax)

    def plot(self, kind: Kind = "curve", *, ax: Axes | None = None) -> KernelRegressionDisplay:
        """Draw on these axes, or on those of a new figure; sets `ax_` and `figure_`."""
        if kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
        axes = self._figure(kind).axes[0] if ax is None else ax
        if ax is not None:
            self._draw(ax, kind)
        self.ax_, self.figure_, self._kind = axes, axes.get_figure(root=True), kind
        return self

    def save(self, path: str | Path, kind: Kind | None = None) -> Path:
        """Write the picture: .png, .svg, .pdf or .html (light or dark as the reader's), by the name's ending."""
        return pictures.write(lambda: self._figure(kind or self._kind), path)

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each point of the curve."""
        import pandas

        columns = {self.x_name: self.curve.x, "predicted": self.curve.predicted, "effective": self.curve.effective}
        columns |= {"low": self.curve.low, "high": self.curve.high}
        return pandas.DataFrame(columns if self.truth is None else columns | {"truth": self.truth})

    def print(self) -> None:
        """A short table in the terminal."""
        from rich.console import Console
        from rich.table import Table

        table = Table(self.x_name, self.y_name, "effective samples", "90 % of the weight", box=None, pad_edge=False)
        for i in numpy.linspace(0, len(self.curve.x) - 1, 11).astype(int):
            curve = self.curve
            interval = f"{curve.low[i]:.4g} … {curve.high[i]:.4g}"
            table.add_row(f"{curve.x[i]:.4g}", f"{curve.predicted[i]:.4g}", f"{curve.effective[i]:.1f}", interval)
        Console().print(table)

    def _repr_html_(self) -> str:
        return pictures.html(lambda: self._figure(self._kind))

    # ------------------------------------------------------------------------------------------------------- drawing

    def _figure(self, kind: Kind) -> Figure:
        figure = pictures.figure(3.6)
        self._draw(figure.subplots(), kind)
        return figure

    def _draw(self, axes: Axes, kind: Kind) -> None:
        {"curve": self._draw_curve, "window": self._draw_window, "weights": self._draw_weights}[kind](axes)

    def _draw_curve(self, axes: Axes) -> None:
        size = 5 if len(self.x) <= 200 else 2.5
        label = f"{len(self.x)} samples" if len(self.x) == self.samples else f"{len(self.x)} of {self.samples} samples"
        axes.plot(
            self.x, self.y, "o", color=pictures.SAMPLES, markersize=size, alpha=0.8, markeredgewidth=0, label=label
        )
        if self.truth is not None:
            axes.plot(self.curve.x, self.truth, color=pictures.TRUTH, label="truth")
        if self.before is not None:
            before = f"before, bandwidth {self.before.bandwidth:.4g}"
            axes.plot(self.curve.x, self.before.predicted, "--", color=pictures.POOLED, label=before)
        label = f"curve, bandwidth {self.curve.bandwidth:.4g}"
        label += "" if not self.others else ", the other features at their medians"
        axes.plot(self.curve.x, self.curve.predicted, color=pictures.ATTENTION, label=label)
        axes.set(xlabel=self.x_name, ylabel=self.y_name)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=1 if self.others else 2, columnspacing=1.4, borderaxespad=0
        )

    def _draw_window(self, axes: Axes) -> None:
        curves = [(self.curve, pictures.ATTENTION, "90 % of the weight")]
        if self.before is not None:
            curves.insert(0, (self.before, pictures.POOLED, "before"))
        for curve, colour, name in curves:
            label = f"{name}; {numpy.median(curve.effective):.3g} samples count"
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.25, linewidth=0, label=label)
            for end in (curve.low, curve.high):
                axes.plot(curve.x, end, color=colour, linewidth=1)
        axes.plot(self.curve.x, self.curve.x, ":", color=rcParams["text.color"], linewidth=1, label="the query itself")
        axes.set(xlabel=f"query: {self.x_name}", ylabel=f"samples: {self.x_name}")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, columnspacing=1.4, borderaxespad=0)

    def _draw_weights(self, axes: Axes) -> None:
        curve = self.curve
        half = (curve.x[-1] - curve.x[0]) / (2 * max(len(curve.weights) - 1, 1))
        rows = numpy.linspace(curve.x[0] - half, curve.x[-1] + half, len(curve.weights) + 1)
        # The colour is the weight on a length of x, so that columns of unequal width can be compared.
        density = curve.weights / numpy.diff(curve.edges)
        mesh = axes.pcolormesh(curve.edges, rows, density, norm=PowerNorm(0.5, 0, float(density.max()) or 1.0))
        mesh.set_rasterized(True)
        axes.invert_yaxis()
        axes.grid(False)
        axes.set(xlabel=f"key: the samples' {self.x_name}", ylabel=f"query: {self.x_name}")
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.colorbar(mesh, ax=axes, label=f"weight per unit of {self.x_name}")


def _curve(estimator: KernelRegressor, queries: Array, index: int) -> Curve:
    """The regressor at queries that differ in one feature, at this index."""
    effective, low, high = estimator.window(_named(estimator, queries))
    low, high = (ends if ends.ndim == 1 else ends[:, index] for ends in (low, high))
    points = estimator.samples_.points[:, index]
    order = numpy.argsort(points, kind="stable")
    groups = numpy.array_split(order, min(CELLS, len(order)))
    rows = queries[numpy.linspace(0, len(queries) - 1, CELLS).astype(int)]
    by_sample = estimator._weights(rows, degree=0)
    weights = numpy.stack([by_sample[:, group].sum(1) for group in groups], axis=1)
    middles = numpy.array([points[group].mean() for group in groups])
    between = (middles[1:] + middles[:-1]) / 2
    edges = numpy.concatenate([[points.min()], between, [points.max()]])
    # Samples with the same x still get a column of a visible width.
    least = 1e-6 * max(float(numpy.ptp(points)), 1e-12)
    edges = numpy.maximum.accumulate(edges) + least * numpy.arange(len(edges))
    predicted = numpy.asarray(estimator.predict(_named(estimator, queries)), dtype=numpy.float64)
    if predicted.ndim != 1:
        raise ValueError(f"estimator: expected one output, got {predicted.shape[1]}")
    bandwidth = float(estimator.bandwidth_[index])
    return Curve(queries[:, index], predicted, effective, low, high, weights, edges, bandwidth)


def _named(estimator: KernelRegressor, rows: Array) -> Any:
    """Rows with the feature names that the estimator was fitted with, if it was: it would warn of rows without."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return rows
    import pandas

    return pandas.DataFrame(rows, columns=names)


def _columns(X: ArrayLike) -> Array:
    points = numpy.asarray(X, dtype=numpy.float64)
    if points.ndim != 2 or not len(points):
        raise ValueError(f"X: expected rows of features, (n, features), got shape {points.shape}")
    return points


def _feature(estimator: KernelRegressor, feature: int | str, count: int) -> tuple[int, str]:
    names = list(getattr(estimator, "feature_names_in_", []))
    if isinstance(feature, str):
        if feature not in names:
            known = f"one of {', '.join(names)}" if names else "a number, as the estimator knows no names"
            raise ValueError(f"feature: expected {known}, got {feature!r}")
        return names.index(feature), feature
    if not 0 <= feature < count:
        raise ValueError(f"feature: expected a number from 0 to {count - 1}, got {feature}")
    return feature, names[feature] if names else "x" if count == 1 else f"x{feature}"
