"""The picture at the top of the README. `make pictures` makes it anew:

    python -m tests.tour.cover docs/pictures/attention.png

Left: one query at work. Right: the weights of all queries, by score, by mask and by normaliser.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

import regard
from regard.data import curve
from regard.view import pictures

QUERY = 36  # the sample whose x is the query on the left, and whose row is marked on the right
WIDTH, HEIGHT = 8.0, 3.9  # inches; 1600 pixels wide


def cover() -> Figure:
    """The figure: a sheet of paper with round corners, so that it stands on light and on dark pages."""
    figure = Figure(figsize=(WIDTH, HEIGHT))
    sheet = FancyBboxPatch((0, 0), 1, 1, boxstyle="round,pad=-0.002,rounding_size=0.02")
    sheet.set(transform=figure.transFigure, facecolor="#ffffff", edgecolor="#dfe2e7", linewidth=1, zorder=-1)
    sheet.set_mutation_aspect(WIDTH / HEIGHT)
    figure.add_artist(sheet)
    plot = figure.add_gridspec(1, 1, left=0.05, right=0.575, top=0.86, bottom=0.1)
    maps = figure.add_gridspec(4, 3, left=0.715, right=0.978, top=0.755, bottom=0.05, wspace=0.09, hspace=0.09)
    x, y = curve.samples(50, seed=4, noise=0.4)
    score = regard.Kernel("gaussian", width=0.3)
    _one_query(figure.add_subplot(plot[0]), x, y, score)
    _every_query([[figure.add_subplot(maps[row, column]) for column in range(3)] for row in range(4)], x, score)
    figure.text(0.05, 0.915, "output = Σⱼ normalizeⱼ( score(query, keyⱼ) restricted by mask ) · valueⱼ", fontsize=10.5)
    figure.text(0.978, 0.915, "other scores, masks, normalisers", fontsize=9, ha="right")
    figure.text(0.698, 0.785, "weights:\nquery ↓  key →", fontsize=7, ha="right", va="bottom", color="#6a717b")
    return figure


def _one_query(axes: Axes, x: Tensor, y: Tensor, score: regard.Score) -> None:
    """Samples as large as their weight, and the value that they are averaged to."""
    query = x[QUERY : QUERY + 1]
    output, weights = regard.attend(query, x, y, score=score, need_weights=True)
    position, answer = float(query), float(output)
    shares = (weights[0] / weights.max()).tolist()
    axes.axvline(position, color=pictures.ATTENTION, linewidth=1, linestyle=":")
    for (key,), (value,), share in zip(x.tolist(), y.tolist(), shares, strict=True):
        axes.plot([position, key], [answer, value], color=pictures.ATTENTION, linewidth=1.2, alpha=0.7 * share)
    axes.plot(curve.GRID, curve.truth(curve.GRID), color=pictures.TRUTH, linewidth=1.4, alpha=0.5)
    axes.plot(curve.GRID, regard.attend(curve.GRID, x, y, score=score), color=pictures.ATTENTION)
    axes.scatter(x, y, s=[16 + 64 * share for share in shares], color=pictures.SAMPLES, edgecolor="#ffffff", zorder=3)
    axes.plot(position, answer, "o", markersize=10, color="#ffffff", markeredgecolor=pictures.ATTENTION, zorder=4)
    axes.set(xlim=(-0.1, 5.1), ylim=(-0.2, 4.7))
    axes.tick_params(labelsize=8)
    axes.text(position + 0.07, -0.05, "query", color=pictures.ATTENTION)
    axes.text(position + 0.14, answer + 0.12, "output", color=pictures.ATTENTION)
    axes.text(0.32, 0.32, "truth", color=pictures.TRUTH)
    axes.text(position - 0.12, 0.32, "samples: key x, value y", color="#9c7000", ha="right")


def _every_query(panels: Iterable[Iterable[Axes]], x: Tensor, gaussian: regard.Score) -> None:
    """Heat maps: a row of maps for each mask and for another normaliser, a column for each score."""
    centred = x - x.mean()
    scores = {
        "average\npooling": regard.Kernel("constant"),
        "kernel\nregression": gaussian,
        "dot\nproduct": regard.Dot(scale=1.5),
    }
    options: dict[str, dict[str, Any]] = {
        "no mask": {},
        "causal()": {"mask": regard.causal()},
        "window(9, 9)": {"mask": regard.window(9, 9)},
        "Sparsemax()": {"normalizer": regard.Sparsemax()},
    }
    for row, (name, option) in zip(panels, options.items(), strict=True):
        for axes, (score_name, score) in zip(row, scores.items(), strict=True):
            image = pictures.heat(axes, regard.weights(centred, centred, score=score, **option))
            image.set_norm(PowerNorm(0.5, 0, 0.25))  # so that small weights are visible
            axes.set(xticks=[], yticks=[], aspect="equal")
            axes.spines[:].set(visible=True, color="#dfe2e7")
            if not option:
                axes.set_title(score_name, fontsize=8.5, loc="center", pad=5)
            if score is gaussian and not option:
                frame = Rectangle((-0.5, QUERY - 1), len(x), 2, fill=False, edgecolor="#30353d", linewidth=0.8)
                axes.add_patch(frame)
            if score_name.startswith("average"):
                axes.set_ylabel(name, fontsize=8.5, rotation=0, ha="right", va="center", labelpad=4)


def main(path: Path) -> None:
    """Draw it and write it."""
    with style.context(["default", pictures.THEMES["light"]]):
        cover().savefig(path, dpi=200, facecolor="none", metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
