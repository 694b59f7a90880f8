"""A kernel regression as pictures: samples and curve, the window of every query, the heat map of the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from regard.kernel.regressor import Interval
from regard.view import pictures
from regard.view.display import Display, print_table
from regard.view.regression_curve import Chain, Curve, Inputs, curve_along, evenly, unwrap, width_text

Array = NDArray[numpy.float64]
Kind = Literal["curve", "window", "weights"]
KINDS: tuple[Kind, ...] = ("curve", "window", "weights")

SHOWN = 2000  # samples that are drawn, evenly chosen where there are more
SHOWN_OF_GROUP = 500  # the same for each group
GROUPS = 12  # that are drawn, the largest where there are more
PRINTED = 11  # points in the terminal
KNOWN_DAYS = numpy.array(["0001-01-01", "9999-12-31"], dtype="datetime64[D]").astype(float)  # to matplotlib
RASTERED = 500  # samples from which on they are one image in a file of lines
MARKERS = "os^Dv<>phX*P"


@dataclass(frozen=True)
class Scales:
    """What the axes show: x may be dates, as days since 1970-01-01, or categories, by their numbers.

    log_x, log_y: the model has log₁₀ x and ln y.
    """

    dates: bool = False
    categories: tuple[str, ...] = ()
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, eq=False)
class Group:
    """The curve of some of the samples: those that are drawn, of so many."""

    label: str
    curve: Curve
    x: Array
    y: Array
    samples: int

    @staticmethod
    def along(
        scales: Scales, index: int, label: str, chain: Chain, inputs: Inputs, y: Array, level: float | None
    ) -> Group:
        """The curve of a fitted regression along one feature; categories have the same places in all groups."""
        curve, x = curve_along(chain, inputs, index, level), inputs.positions(index)
        if scales.categories:
            places = [scales.categories.index(str(category)) for category in inputs.levels(index)]
            shift = numpy.array(places, dtype=numpy.float64) - numpy.arange(len(places))
            curve, x = replace(curve, x=curve.x + shift), x + shift[numpy.round(x).astype(int)]
        if scales.log_x:
            curve, x = replace(curve, x=10.0**curve.x, inner=None), 10**x
        if scales.log_y:
            band = curve.band and Interval(*map(numpy.exp, curve.band))
            curve, y = replace(curve, predicted=numpy.exp(curve.predicted), band=band, inner=None), numpy.exp(y)
        drawn = evenly(len(x), SHOWN_OF_GROUP if label else SHOWN)
        return Group(label, curve, x[drawn], y[drawn], len(x))


@dataclass(eq=False, repr=False)
class KernelRegressionDisplay(Display):
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

    curve: Curve
    x: Array
    y: Array
    _: KW_ONLY
    before: Curve | None = None
    truth: Array | None = None
    x_name: str = "x"
    y_name: str = "y"
    samples: int | None = None
    others: int = 0
    groups: Sequence[Group] = ()
    hidden: int = 0
    level: float | None = None
    rug: bool = False
    scales: Scales = Scales()
    _kind: Kind = field(default="curve", init=False)

    height = 3.6

    def __post_init__(self) -> None:
        self.samples = len(self.x) if self.samples is None else self.samples

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
        group_of = partial(Group.along, scales, index, level=level)
        whole = group_of("", chain, inputs, values)
        parts, hidden = ([], 0) if groups is None else _groups(estimator, inputs, values, groups, group_of)
        x = whole.curve.x
        if truth is not None:  # with the other features at their medians
            queries = numpy.tile(numpy.median(inputs.points, axis=0), (len(x), 1))
            queries[:, index] = x
            truth = numpy.asarray(truth(queries), dtype=numpy.float64).reshape(len(x))
        display = cls(
            whole.curve,
            whole.x,
            whole.y,
            before=None if before is None else curve_along(unwrap("before", before), inputs, index, None, x),
            truth=truth,
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
        self._kind = kind
        return super().plot(ax=ax)

    def save(self, path: str | Path, kind: Kind | None = None) -> Path:
        """Write the picture: .png, .svg, .pdf or .html (light or dark as the reader's), by the name's ending."""
        display = copy.copy(self)
        display._kind = kind or self._kind
        return super(KernelRegressionDisplay, display).save(path)

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
        frame = self.to_frame()
        rows = [
            [f"{cell:.4g}" if isinstance(cell, float) else str(cell)[:16] for cell in row]
            for row in frame.iloc[evenly(len(frame), PRINTED)].itertuples(index=False)
        ]
        print_table(map(str, frame.columns), *rows)

    def _columns(self, curve: Curve) -> dict[str, Any]:
        def as_given(x: Array) -> Any:
            if self.scales.dates:
                return numpy.round(x * 86400).astype("datetime64[s]")
            return [self.scales.categories[int(number)] for number in x] if self.scales.categories else x

        columns = {self.x_name: as_given(curve.x), "predicted": curve.predicted}
        if curve.band is not None:
            columns |= {"band_low": curve.band.low, "band_high": curve.band.high}
        if curve.inner is not None:
            effective, low, high = curve.window
            columns |= {"effective": effective, "low": as_given(low), "high": as_given(high)}
        return columns

    # -------------------------------------------------------------------------------------------------------- pictures

    def _draw(self, axes: Axes) -> None:
        curve = self._draw_groups if self.groups else self._draw_curve
        {"curve": curve, "window": self._draw_window, "weights": self._draw_weights}[self._kind](axes)

    def _draw_curve(self, axes: Axes) -> None:
        """Samples, truth, the curve before, and the curve with its band."""
        curve, scales = self.curve, self.scales
        with pictures.fonts_for(self.x_name, self.y_name, *scales.categories):
            shown = len(self.x)
            label = f"{shown} samples" if shown == self.samples else f"{shown} of {self.samples} samples"
            size = 5 if shown <= 200 else 2.5
            _draw_samples(axes, self.x, self.y, "o", pictures.SAMPLES, markersize=size, alpha=0.8, label=label)
            if self.truth is not None:
                axes.plot(curve.x, self.truth, color=pictures.TRUTH, label="truth")
            if self.before is not None:
                before = f"before{_bandwidth(self.before, scales)}"
                axes.plot(curve.x, self.before.predicted, "--", color=pictures.POOLED, label=before)
            averaged = ", averaged over the other features" if self.others else ""
            self._draw_line(axes, curve, pictures.ATTENTION, "-", "o", f"curve{_bandwidth(curve, scales)}{averaged}")
            self._draw_rug(axes, self.x, pictures.SAMPLES)
            self._finish(axes, 1 if self.others else 2)

    def _draw_groups(self, axes: Axes) -> None:
        """The samples of each group with their curve and its band: colours, then lines and marks tell them apart."""
        labels = [group.label for group in self.groups]
        with pictures.fonts_for(self.x_name, self.y_name, *labels, *self.scales.categories):
            few = sum(len(group.x) for group in self.groups) <= 400
            size, alpha = (4.5, 0.45) if few else (2.5, 0.3)
            for number, group in enumerate(self.groups):
                colour = pictures.SERIES[number % len(pictures.SERIES)]
                line, marker = pictures.LINES[number // len(pictures.SERIES) % 2], MARKERS[number % len(MARKERS)]
                _draw_samples(axes, group.x, group.y, marker, colour, markersize=size, alpha=alpha)
                self._draw_line(axes, group.curve, colour, line, marker, None)
                axes.plot([], [], marker, linestyle=line, color=colour, label=f"{group.label} ({group.samples:,})")
                self._draw_rug(axes, group.x, colour)
            longest = max(len(label) for label in axes.get_legend_handles_labels()[1])
            if self.level is not None:
                band: dict[str, Any] = {"color": rcParams["text.color"], "alpha": 0.2, "linewidth": 0}
                axes.fill_between([], [], [], label=self._band_name, **band)
            if self.hidden:
                axes.plot([], [], " ", label=f"+ {self.hidden} groups")
            self._finish(axes, min(4, max(1, int(6 / (0.6 + 0.08 * longest)))))

    def _draw_window(self, axes: Axes) -> None:
        """The interval with 90 % of the weight at each query."""
        curves = [(self.curve, pictures.ATTENTION, "90 % of the weight")]
        if self.before is not None:
            curves.insert(0, (self.before, pictures.POOLED, "before"))
        with pictures.fonts_for(self.x_name):
            for curve, colour, name in curves:
                effective, low, high = curve.window
                label = f"{name}; {numpy.median(effective):.3g} samples count"
                axes.fill_between(curve.x, low, high, color=colour, alpha=0.25, linewidth=0, label=label)
                for end in (low, high):
                    axes.plot(curve.x, end, color=colour, linewidth=1)
            x = self.curve.x
            axes.plot(x, x, ":", color=rcParams["text.color"], linewidth=1, label="the query itself")
            axes.set(xlabel=f"query: {self.x_name}", ylabel=f"samples: {self.x_name}")
            pictures.legend(axes)
            if self.scales.dates:
                _show_times(axes.xaxis, axes.yaxis)

    def _draw_weights(self, axes: Axes) -> None:
        """A row for each of some queries, a column for each sample or group of neighbours."""
        weights, edges = self.curve.heat_map
        x = self.curve.x
        half = (x[-1] - x[0]) / (2 * max(len(weights) - 1, 1))
        rows = numpy.linspace(x[0] - half, x[-1] + half, len(weights) + 1)
        # The colour is the weight on a length of x, so that columns of unequal width can be compared.
        density = weights / numpy.diff(edges)
        with pictures.fonts_for(self.x_name):
            mesh = axes.pcolormesh(edges, rows, density, norm=PowerNorm(0.5, 0, float(density.max()) or 1.0))
            mesh.set_rasterized(True)
            axes.invert_yaxis()
            axes.grid(False)
            axes.set(xlabel=f"key: the samples' {self.x_name}", ylabel=f"query: {self.x_name}")
            if self.scales.dates:
                _show_times(axes.xaxis, axes.yaxis)
            unit = "day" if self.scales.dates else f"unit of {self.x_name}"
            pictures.colorbar(axes, mesh, f"weight per {unit}")

    def _draw_line(self, axes: Axes, curve: Curve, colour: str, line: Any, marker: str, label: str | None) -> None:
        """The curve and its band; of categories marks and bars, because there is nothing between them."""
        about_band: dict[str, Any] = {"color": colour, "linewidth": 0, "alpha": 0.2}
        if not self.groups:
            about_band["label"] = self._band_name
        if not self.scales.categories:
            axes.plot(curve.x, curve.predicted, linestyle=line, color=colour, label=label)
            if curve.band is not None:
                axes.fill_between(curve.x, *curve.band, **about_band)
            return
        axes.plot(curve.x, curve.predicted, marker, color=colour, markersize=3.5, label=label)
        if curve.band is not None:
            axes.vlines(curve.x, *curve.band, **about_band | {"linewidth": 3, "alpha": 0.5})

    @property
    def _band_name(self) -> str:
        return "" if self.level is None else f"{100 * self.level:.4g} % band{'s' if self.groups else ''}"

    def _draw_rug(self, axes: Axes, x: Array, colour: str) -> None:
        if self.rug:
            axes.plot(
                x, numpy.zeros(len(x)), "|", color=colour, markersize=7, markeredgewidth=0.7, alpha=0.6,
                transform=axes.get_xaxis_transform(), clip_on=False, rasterized=len(x) > RASTERED,
            )  # fmt: skip

    def _finish(self, axes: Axes, columns: int) -> None:
        """Names, scales and legend."""
        scales = self.scales
        axes.set(xlabel=self.x_name, ylabel=self.y_name)
        if scales.log_x:
            axes.set_xscale("log")
        if scales.log_y:
            axes.set_yscale("log")
        if scales.dates:
            _show_times(axes.xaxis)
        if scales.categories:
            tilt: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, scales.categories)) > 60 else {}
            axes.set_xticks(range(len(scales.categories)), scales.categories, **tilt)
        pictures.legend(axes, columns)


def _draw_samples(axes: Axes, x: Array, y: Array, marker: str, colour: str, **style: Any) -> None:
    axes.plot(x, y, marker, color=colour, markeredgewidth=0, rasterized=len(x) > RASTERED, **style)


def _show_times(*axes: Any) -> None:
    for axis in axes:
        # Margins beside a last day of 9999, which stands for "never", would be days that matplotlib does not know.
        axis.set_view_interval(*numpy.clip(axis.get_view_interval(), *KNOWN_DAYS), ignore=True)
        locator: Any = AutoDateLocator()  # type: ignore[no-untyped-call]
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _bandwidth(curve: Curve, scales: Scales) -> str:
    scale = "dates" if scales.dates else "log" if scales.log_x else ""
    return "" if numpy.isnan(curve.bandwidth) else f", bandwidth {width_text(curve.bandwidth, scale)}"


def _groups(
    estimator: Any, inputs: Inputs, values: Array, labels: ArrayLike, group_of: Callable[..., Group]
) -> tuple[list[Group], int]:
    """The largest groups with their curves, and how many there are besides."""
    names = numpy.array([str(label) for label in numpy.asarray(labels, dtype=object)])
    if len(names) != len(inputs):
        raise ValueError(f"groups: expected a label per row of X, {len(inputs)}, got {len(names)}")
    known, counts = numpy.unique(names, return_counts=True)
    groups = []
    for name in known[numpy.argsort(-counts, kind="stable")[:GROUPS]]:
        rows = numpy.flatnonzero(names == name)
        fitted = clone(getattr(estimator, "best_estimator_", estimator)).fit(inputs.take(rows), values[rows])
        groups.append(group_of(str(name), unwrap("estimator", fitted), Inputs.of(inputs.take(rows)), values[rows]))
    return groups, max(0, len(known) - GROUPS)
