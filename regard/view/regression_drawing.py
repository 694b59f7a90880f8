"""How a kernel regression is drawn: its curve or those of groups, its windows, its weights."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from regard.view import pictures
from regard.view.regression_curve import Array, Curve

if TYPE_CHECKING:
    from regard.view.regression import KernelRegressionDisplay, Scales

__all__ = ["draw_curve", "draw_groups", "draw_weights", "draw_window", "width_text"]

RASTERED = 500  # samples from which on they are one image in a file of lines
MARKERS = "os^Dv<>phX*P"
DURATIONS = (("days", 1.0), ("hours", 1 / 24), ("minutes", 1 / 1440))


def draw_curve(axes: Axes, display: KernelRegressionDisplay) -> None:
    """Samples, truth, the curve before, and the curve with its band."""
    curve, scales = display.curve, display.scales
    with _fonts_for(display.x_name, display.y_name, *scales.categories):
        shown = len(display.x)
        label = f"{shown} samples" if shown == display.samples else f"{shown} of {display.samples} samples"
        _draw_samples(axes, display.x, display.y, "o", pictures.SAMPLES, 5 if shown <= 200 else 2.5, 0.8, label)
        if display.truth is not None:
            axes.plot(curve.x, display.truth, color=pictures.TRUTH, label="truth")
        if display.before is not None:
            before = f"before{_bandwidth(display.before, scales)}"
            axes.plot(curve.x, display.before.predicted, "--", color=pictures.POOLED, label=before)
        averaged = ", averaged over the other features" if display.others else ""
        _draw_line(axes, display, curve, pictures.ATTENTION, "-", "o", f"curve{_bandwidth(curve, scales)}{averaged}")
        _draw_rug(axes, display, display.x, pictures.SAMPLES)
        _finish(axes, display, 1 if display.others else 2)


def draw_groups(axes: Axes, display: KernelRegressionDisplay) -> None:
    """The samples of each group with their curve and its band: colours, then lines and marks tell them apart."""
    labels = [group.label for group in display.groups]
    with _fonts_for(display.x_name, display.y_name, *labels, *display.scales.categories):
        few = sum(len(group.x) for group in display.groups) <= 400
        for number, group in enumerate(display.groups):
            colour = pictures.SERIES[number % len(pictures.SERIES)]
            line, marker = pictures.LINES[number // len(pictures.SERIES) % 2], MARKERS[number % len(MARKERS)]
            _draw_samples(axes, group.x, group.y, marker, colour, 4.5 if few else 2.5, 0.45 if few else 0.3, None)
            _draw_line(axes, display, group.curve, colour, line, marker, None)
            axes.plot([], [], marker, linestyle=line, color=colour, label=f"{group.label} ({group.samples:,})")
            _draw_rug(axes, display, group.x, colour)
        longest = max(len(label) for label in axes.get_legend_handles_labels()[1])
        if display.level is not None:
            axes.fill_between(
                [], [], [], color=rcParams["text.color"], alpha=0.2, linewidth=0, label=_band_name(display)
            )
        if display.hidden:
            axes.plot([], [], " ", label=f"+ {display.hidden} groups")
        _finish(axes, display, min(4, max(1, int(6 / (0.6 + 0.08 * longest)))))


def draw_window(axes: Axes, display: KernelRegressionDisplay) -> None:
    """The interval with 90 % of the weight at each query."""
    curves = [(display.curve, pictures.ATTENTION, "90 % of the weight")]
    if display.before is not None:
        curves.insert(0, (display.before, pictures.POOLED, "before"))
    with _fonts_for(display.x_name):
        for curve, colour, name in curves:
            effective, low, high = curve.window
            label = f"{name}; {numpy.median(effective):.3g} samples count"
            axes.fill_between(curve.x, low, high, color=colour, alpha=0.25, linewidth=0, label=label)
            for end in (low, high):
                axes.plot(curve.x, end, color=colour, linewidth=1)
        x = display.curve.x
        axes.plot(x, x, ":", color=rcParams["text.color"], linewidth=1, label="the query itself")
        axes.set(xlabel=f"query: {display.x_name}", ylabel=f"samples: {display.x_name}")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, columnspacing=1.4, borderaxespad=0)
        if display.scales.dates:
            _time_axis(axes.xaxis)
            _time_axis(axes.yaxis)


def draw_weights(axes: Axes, display: KernelRegressionDisplay) -> None:
    """A row for each of some queries, a column for each sample or group of neighbours."""
    weights, edges = display.curve.heat_map
    x = display.curve.x
    half = (x[-1] - x[0]) / (2 * max(len(weights) - 1, 1))
    rows = numpy.linspace(x[0] - half, x[-1] + half, len(weights) + 1)
    # The colour is the weight on a length of x, so that columns of unequal width can be compared.
    density = weights / numpy.diff(edges)
    with _fonts_for(display.x_name):
        mesh = axes.pcolormesh(edges, rows, density, norm=PowerNorm(0.5, 0, float(density.max()) or 1.0))
        mesh.set_rasterized(True)
        axes.invert_yaxis()
        axes.grid(False)
        axes.set(xlabel=f"key: the samples' {display.x_name}", ylabel=f"query: {display.x_name}")
        if display.scales.dates:
            _time_axis(axes.xaxis)
            _time_axis(axes.yaxis)
        figure = axes.get_figure(root=True)
        assert figure is not None
        unit = "day" if display.scales.dates else f"unit of {display.x_name}"
        figure.colorbar(mesh, ax=axes, label=f"weight per {unit}")


def width_text(width: float, scale: str = "") -> str:
    """A bandwidth: of "dates" in days, hours or minutes, on a "log" scale in powers of ten."""
    if scale == "log":
        return f"{width:.4g} powers of ten"
    if scale == "":
        return f"{width:.4g}"
    name, days = next(((name, days) for name, days in DURATIONS if width >= 2 * days), DURATIONS[-1])
    return f"{width / days:.4g} {name}"


# ------------------------------------------------------------------------------------------------------------- details


def _draw_samples(
    axes: Axes, x: Array, y: Array, marker: str, colour: str, size: float, alpha: float, label: str | None
) -> None:
    axes.plot(
        x, y, marker, color=colour, markersize=size, alpha=alpha, markeredgewidth=0, label=label,
        rasterized=len(x) > RASTERED,
    )  # fmt: skip


def _draw_line(
    axes: Axes, display: KernelRegressionDisplay, curve: Curve, colour: str, line: Any, marker: str, label: str | None
) -> None:
    """The curve and its band; of categories marks and bars, because there is nothing between them."""
    about_band: dict[str, Any] = {"color": colour, "linewidth": 0, "alpha": 0.2}
    if not display.groups:
        about_band["label"] = _band_name(display)
    if not display.scales.categories:
        axes.plot(curve.x, curve.predicted, linestyle=line, color=colour, label=label)
        if curve.band is not None:
            axes.fill_between(curve.x, *curve.band, **about_band)
        return
    axes.plot(curve.x, curve.predicted, marker, color=colour, markersize=5, label=label)
    if curve.band is not None:
        axes.vlines(curve.x, *curve.band, **about_band | {"linewidth": 3, "alpha": 0.5})


def _band_name(display: KernelRegressionDisplay) -> str:
    return "" if display.level is None else f"{100 * display.level:.4g} % band{'s' if display.groups else ''}"


def _draw_rug(axes: Axes, display: KernelRegressionDisplay, x: Array, colour: str) -> None:
    if display.rug:
        axes.plot(
            x, numpy.zeros(len(x)), "|", color=colour, markersize=7, markeredgewidth=0.7, alpha=0.6,
            transform=axes.get_xaxis_transform(), clip_on=False, rasterized=len(x) > RASTERED,
        )  # fmt: skip


def _finish(axes: Axes, display: KernelRegressionDisplay, columns: int) -> None:
    """Names, scales and legend."""
    scales = display.scales
    axes.set(xlabel=display.x_name, ylabel=display.y_name)
    if scales.log_x:
        axes.set_xscale("log")
    if scales.log_y:
        axes.set_yscale("log")
    if scales.dates:
        _time_axis(axes.xaxis)
    if scales.categories:
        tilt: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, scales.categories)) > 60 else {}
        axes.set_xticks(range(len(scales.categories)), scales.categories, **tilt)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, columnspacing=1.4, borderaxespad=0)


def _time_axis(axis: Any) -> None:
    locator: Any = AutoDateLocator()  # type: ignore[no-untyped-call]
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _bandwidth(curve: Curve, scales: Scales) -> str:
    scale = "dates" if scales.dates else "log" if scales.log_x else ""
    return "" if numpy.isnan(curve.bandwidth) else f", bandwidth {width_text(curve.bandwidth, scale)}"


def _fonts_for(*texts: str) -> AbstractContextManager[None]:
    """Within this block new texts are written in fonts that have their letters."""
    return rc_context({} if all(text.isascii() for text in texts) else {"font.family": pictures.families(texts)})
