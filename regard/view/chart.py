"""Charts as SVG: real text in either language, colours of the page it stands in, light or dark.

A chart is data: panels, each with marks (lines, dots, bands, bars, a heat map). `svg` draws it, `table` has its
numbers.

    Chart([Panel([Line(x, y, "truth"), Dots(xs, ys, Text("samples", "样本"))], x="x", y="y")], caption=…)

Colours are names of the page's variables (chart.css): truth, samples, attention, pooled, other, ink. The browser sets
the text, so a chart needs no fonts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from regard.view.marks import LANGUAGES, Band, Bars, Dots, Heat, Language, Line, Mark, Note, Panel, Text, words
from regard.view.panels import (
    CELL,
    SERIES,
    WIDTH,
    PanelDrawing,
    Room,
    array_of,
    numbers_of,
    pooled,
    short,
    svg_text,
    swatch,
    text_width,
)

__all__ = ["LANGUAGES", "Band", "Bars", "Chart", "Dots", "Heat", "Language", "Line", "Mark", "Note", "Panel", "Text"]

NOTHING = Text("", "")
GAP = 26  # pixels between panels


@dataclass(frozen=True, eq=False)
class Chart:
    """Panels side by side, or in several rows."""

    panels: Sequence[Panel]
    caption: Text = NOTHING
    height: int = 260
    columns: int | None = None  # panels in a row; None: all

    def svg(self, language: Language) -> str:
        """The picture: an <svg> element to stand in a page, as wide as there is room."""
        rows = _rows(self.panels, self.columns or len(self.panels))
        heights = [max(self._panel_height(panel, row, language) for panel in row) for row in rows]
        colours = self._colours()
        legend, legend_height = self._legend(colours, language)
        height = legend_height + sum(heights)
        parts, top = [legend], legend_height
        for row, row_height in zip(rows, heights, strict=True):
            left = 0.0
            for panel, width in zip(row, _widths(row), strict=True):
                parts.append(PanelDrawing(panel, left, top, width, row_height, language, colours).draw())
                left += width + GAP
            top += row_height
        body = "".join(parts)
        label = escape(self.caption.to(language), quote=True)
        return f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">{body}</svg>'

    def table(self, language: Language) -> str:
        """The numbers behind the picture, as HTML tables."""
        return "".join(_table(panel, mark, language) for panel in self.panels for mark in panel.marks)

    def _colours(self) -> dict[str, str]:
        """The colour of each label; marks of one label have one colour in all panels."""
        chosen: dict[str, str] = {}
        for mark in _labelled(self.panels):
            name = words(mark.label, "en")
            free = [colour for colour in SERIES if colour not in chosen.values()] or list(SERIES)
            chosen.setdefault(name, mark.colour or free[0])
        return chosen

    def _legend(self, colours: dict[str, str], language: Language) -> tuple[str, float]:
        """The labels of all panels, once each, above them; and how much room they take."""
        parts, x, y = [], 4.0, 16.0
        written: set[str] = set()
        for mark in _labelled(self.panels):
            text = words(mark.label, language)
            if not text or text in written:
                continue
            written.add(text)
            width = 30 + text_width(text) + 18
            if x + width > WIDTH and x > 4:
                x, y = 4.0, y + 20
            colour = colours[words(mark.label, "en")]
            parts.append(swatch(mark, x, y - 4, colour) + svg_text(x + 30, y, text, "start"))
            x += width
        return "".join(parts), (y + 12 if parts else 0)

    def _panel_height(self, panel: Panel, row: Sequence[Panel], language: Language) -> float:
        """The chart's; that of a heat map, which has square cells as far as there is room, is its own."""
        if panel.heat is None:
            return self.height
        width = _widths(row)[row.index(panel)]
        matrix, _ = pooled(panel.heat)
        room = Room.of(panel, width, language)
        cell = min((width - room.left - 14) / max(matrix.shape[1], 1), CELL)
        below = room.below + (20 if panel.x else 0)
        return float(min(max(matrix.shape[0] * cell, 60) + 34 + below, 2 * self.height))


def _labelled(panels: Iterable[Panel]) -> Iterator[Any]:
    for panel in panels:
        for mark in panel.marks:
            if getattr(mark, "label", ""):
                yield mark


def _rows(panels: Sequence[Panel], columns: int) -> list[Sequence[Panel]]:
    return [panels[start : start + columns] for start in range(0, len(panels), columns)]


def _widths(row: Sequence[Panel]) -> list[float]:
    free, total = WIDTH - GAP * (len(row) - 1), sum(panel.share for panel in row)
    return [free * panel.share / total for panel in row]


# --------------------------------------------------------------------------------------------------------------- tables

LONGEST = 60  # rows of a table; longer ones are left out in part


def _table(panel: Panel, mark: Mark, language: Language) -> str:
    name = words(getattr(mark, "label", "") or panel.title or "", language)
    x, y = words(panel.x or "x", language), words(panel.y or "y", language)
    columns: list[Any]
    match mark:
        case Line() | Dots():
            heads, columns = [x, y], [numbers_of(mark.x), numbers_of(mark.y)]
        case Band():
            heads, columns = [x, f"{y} ↓", f"{y} ↑"], [numbers_of(mark.x), numbers_of(mark.low), numbers_of(mark.high)]
        case Bars():
            names = [words(name, language) for name in mark.names]
            heads, columns = [x, y], [names, numbers_of(mark.heights)]
            if mark.spread is not None:
                heads, columns = [*heads, "±"], [*columns, numbers_of(mark.spread)]
        case Heat():
            matrix = np.asarray(array_of(mark.matrix), dtype=float)[:24, :16]
            sides = [words(side, language) for side in mark.rows] or [str(i) for i in range(len(matrix))]
            tops = [words(top, language) for top in mark.columns] or [str(i) for i in range(matrix.shape[1])]
            lines = [[side, *map(_cell, row)] for side, row in zip(sides, matrix, strict=False)]
            return _html_table(name, ["", *tops[:16]], lines)
        case _:
            return ""
    every = max(1, math.ceil(len(columns[0]) / LONGEST))
    rows = [[_cell(value) for value in row] for row in list(zip(*columns, strict=True))[::every]]
    return _html_table(name, heads, rows)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else short(float(f"{value:.4g}")) if math.isfinite(value) else "–"


def _html_table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    caption = f"<caption>{escape(name)}</caption>" if name else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
