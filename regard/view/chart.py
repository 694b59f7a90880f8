"""Charts as SVG: real text in either language, colours of the page it stands in, light or dark.

A chart is data: panels, each with marks (lines, dots, bands, bars, a heat map). `svg` draws it, `table` has its
numbers.

    Chart([Panel([Line(x, y, "truth"), Dots(xs, ys, Text("samples", "样本"))], x="x", y="y")], caption=…)

Colours are names of the page's variables (chart.css): truth, samples, attention, pooled, other, ink. The browser sets
the text, so a chart needs no fonts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np

from regard.view import marks
from regard.view.marks import LANGUAGES, Band, Bars, Dots, Heat, Label, Language, Line, Mark, Note, Panel, Text, words

__all__ = ["LANGUAGES", "Band", "Bars", "Chart", "Dots", "Heat", "Language", "Line", "Mark", "Note", "Panel", "Text"]

SERIES = ("truth", "attention", "samples", "pooled", "other", "ink")  # colours of marks that name none, in turn
DASHES = {"solid": "", "dashed": "6 4", "dotted": "1.5 4"}
LEVELS = 24  # shades of a heat map
CELLS = 72  # a larger map is drawn by the largest weight of each block
WIDTH, CELL = 720, 46  # pixels: of a chart, and of the largest cell of a heat map
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
        columns, colours = self.columns or len(self.panels), self._colours()
        body, top = self._legend(colours, language)
        for start in range(0, len(self.panels), columns):
            row = self.panels[start : start + columns]
            free, total = WIDTH - GAP * (len(row) - 1), sum(panel.share for panel in row)
            drawings = [PanelDrawing(panel, free * panel.share / total, language, colours) for panel in row]
            height, left = max(drawing.height(self.height) for drawing in drawings), 0.0
            for drawing in drawings:
                body += drawing.draw(left, top, height)
                left += drawing.width + GAP
            top += height
        label = escape(self.caption.to(language), quote=True)
        return f'<svg class="chart" viewBox="0 0 {WIDTH} {top:g}" role="img" aria-label="{label}">{body}</svg>'

    def table(self, language: Language) -> str:
        """The numbers behind the picture, as HTML tables."""
        return "".join(marks.table_of(panel, mark, language) for panel in self.panels for mark in panel.marks)

    @property
    def _labelled(self) -> list[Any]:
        return [mark for panel in self.panels for mark in panel.marks if getattr(mark, "label", "")]

    def _colours(self) -> dict[str, str]:
        """The colour of each label; marks of one label have one colour in all panels."""
        chosen: dict[str, str] = {}
        for mark in self._labelled:
            name = words(mark.label, "en")
            free = [colour for colour in SERIES if colour not in chosen.values()] or list(SERIES)
            chosen.setdefault(name, mark.colour or free[0])
        return chosen

    def _legend(self, colours: dict[str, str], language: Language) -> tuple[str, float]:
        """The labels of all panels, once each, above them; and how much room they take."""
        parts, x, y = [], 4.0, 16.0
        written: set[str] = set()
        for mark in self._labelled:
            text = words(mark.label, language)
            if not text or text in written:
                continue
            written.add(text)
            width = 30 + marks.text_width(text) + 18
            if x + width > WIDTH and x > 4:
                x, y = 4.0, y + 20
            colour = colours[words(mark.label, "en")]
            parts.append(swatch(mark, x, y - 4, colour) + marks.svg_text(x + 30, y, text, "start"))
            x += width
        return "".join(parts), (y + 12 if parts else 0)


# ------------------------------------------------------------------------------------------------------------ one panel


class PanelDrawing:
    """One panel in its frame.

    margin, below: what texts take at its left, and the names below it, without its label
    turned: whether these are longer than their place
    """

    def __init__(self, panel: Panel, width: float, language: Language, colours: dict[str, str]) -> None:
        self.panel, self.width, self.language, self.colours, self.heat = panel, width, language, colours, panel.heat
        self.bars = [mark for mark in panel.marks if isinstance(mark, Bars)]
        names = max((mark.names for mark in self.bars), key=len, default=())
        self.margin, cells, largest = 44.0, len(names), WIDTH
        if self.heat is not None:
            self.matrix, self.pool = pooled(self.heat)
            names, cells, largest = self.heat.columns, self.matrix.shape[1], CELL
            if self.heat.rows:
                self.margin = self._longest(self.heat.rows) + 10
        self.margin += 18 if panel.y else 0
        self.turned = self._longest(names) > min((width - self.margin - 14) / max(cells, 1), largest)
        self.below = self._longest(names) * 0.75 + 10 if self.turned else 16.0

    def _longest(self, names: Sequence[Label]) -> float:
        return max((marks.text_width(words(name, self.language)) for name in names), default=0)

    def height(self, usual: float) -> float:
        """The chart's; that of a heat map, which has square cells as far as there is room, is its own."""
        if self.heat is None:
            return usual
        rows, columns = self.matrix.shape
        cell = min((self.width - self.margin - 14) / max(columns, 1), CELL)
        return float(min(max(rows * cell, 60) + 34 + self.below + (20 if self.panel.x else 0), 2 * usual))

    def draw(self, left: float, top: float, height: float) -> str:
        """The panel, with its left upper corner there."""
        panel = self.panel
        self.outer_left, self.left, self.right = left, left + self.margin, left + self.width - 14
        self.top = top + (24 if panel.title else 10)
        self.bottom = top + height - self.below - (26 if panel.x else 6)
        if self.heat is not None:
            rows, columns = self.matrix.shape
            cell = min((self.right - self.left) / max(columns, 1), (self.bottom - self.top) / max(rows, 1))
            self.right, self.bottom = self.left + columns * cell, self.top + rows * cell
            self.x_range, self.y_range = (0.0, float(columns)), (float(rows), 0.0)
        else:
            self.x_range = panel.x_limits or self._range("x", panel.x_log)
            self.y_range = panel.y_limits or self._range("y", panel.y_log)
        parts = [self._axes()]
        for index, mark in enumerate(self.panel.marks):
            colour = self.colours.get(words(getattr(mark, "label", ""), "en")) or getattr(mark, "colour", "")
            parts.append(self._mark(mark, colour or SERIES[index % len(SERIES)]))
        return "".join(parts)

    # ------------------------------------------------------------------------------------------------- from data to ink

    def _range(self, axis: Literal["x", "y"], log: bool) -> tuple[float, float]:
        if axis == "x" and self.bars:
            return -0.6, max(len(mark.names) for mark in self.bars) - 0.4
        values = [marks.numbers_of(part) for mark in self.panel.marks for part in _values(mark, axis)]
        numbers = np.concatenate([np.empty(0), *values])
        numbers = numbers[np.isfinite(numbers) & ((numbers > 0) | (not log))]
        if not numbers.size:
            return (0.1, 1.0) if log else (0.0, 1.0)
        low, high = float(numbers.min()), float(numbers.max())
        if axis == "y" and self.bars and not log:
            low, high = min(low, 0.0), max(high, 0.0)
        if log:
            return (low / 1.15, high * 1.15) if high > low else (low / 2, high * 2)
        margin = 0.05 * (high - low) or abs(high) / 2 or 0.5
        held = axis == "y" and self.bars  # bars stand on 0
        return (low if held and low == 0 else low - margin), high + margin

    def _x(self, value: float) -> float:
        return marks.scaled(value, self.x_range, (self.left, self.right), self.panel.x_log)

    def _y(self, value: float) -> float:
        return marks.scaled(value, self.y_range, (self.bottom, self.top), self.panel.y_log)

    def _points(self, xs: Any, ys: Any) -> Iterator[tuple[float, float]]:
        for x, y in zip(marks.numbers_of(xs).tolist(), marks.numbers_of(ys).tolist(), strict=True):
            drawable = math.isfinite(x) and math.isfinite(y)
            if drawable and (x > 0 or not self.panel.x_log) and (y > 0 or not self.panel.y_log):
                yield self._x(x), min(max(self._y(y), self.top - 4), self.bottom + 4)

    # ------------------------------------------------------------------------------------------------------------- axes

    def _axes(self) -> str:
        panel, parts = self.panel, []
        for value, name in self._ticks("x"):
            x = self._x(value)
            if self.heat is None and not self.bars:
                parts.append(f'<path class="grid" d="M{x:.1f} {self.top:.1f}V{self.bottom:.1f}"/>')
            if self.turned:
                turn = f' transform="rotate(-48 {x:.1f} {self.bottom + 12:.1f})"'
                parts.append(marks.svg_text(x + 3, self.bottom + 12, name, "end", turn=turn))
            else:
                parts.append(marks.svg_text(x, self.bottom + 16, name, "middle"))
        for value, name in self._ticks("y"):
            y = self._y(value)
            if self.heat is None:
                parts.append(f'<path class="grid" d="M{self.left:.1f} {y:.1f}H{self.right:.1f}"/>')
            parts.append(marks.svg_text(self.left - 6, y + 4, name, "end"))
        if panel.title:
            title = words(panel.title, self.language)
            parts.append(marks.svg_text(self.outer_left, self.top - 10, title, "start", "title"))
        if panel.x:
            x, y = (self.left + self.right) / 2, self.bottom + self.below + 16
            parts.append(marks.svg_text(x, y, words(panel.x, self.language), "middle", "axis"))
        if panel.y:
            x, y = self.outer_left + 12, (self.top + self.bottom) / 2
            turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"'
            parts.append(marks.svg_text(x, y, words(panel.y, self.language), "middle", "axis", turned))
        return "".join(parts)

    def _ticks(self, axis: Literal["x", "y"]) -> list[tuple[float, str]]:
        if self.heat is not None:
            names = self.heat.columns if axis == "x" else self.heat.rows
            if names:
                return [(index + 0.5, words(name, self.language)) for index, name in enumerate(names)]
            count = np.shape(self.heat.matrix)[1 if axis == "x" else 0]
            step = max(1, round(count / 5 / 5) * 5) if count > 10 else max(1, count // 5)
            return [((index + 0.5) / self.pool, str(index)) for index in range(0, count, step)]
        if axis == "x" and self.bars:
            longest = max(self.bars, key=lambda mark: len(mark.names))
            return [(float(index), words(name, self.language)) for index, name in enumerate(longest.names)]
        log = self.panel.x_log if axis == "x" else self.panel.y_log
        low, high = self.x_range if axis == "x" else self.y_range
        return [(value, marks.short(value)) for value in marks.ticks(low, high, log)]

    # ------------------------------------------------------------------------------------------------------------ marks

    def _mark(self, mark: Mark, colour: str) -> str:
        match mark:
            case Line():
                points = list(self._points(mark.x, mark.y))
                path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""
                dots = "".join(_dot(x, y, 3, colour) for x, y in points) if mark.dots else ""
                return _line(mark, colour, path) + dots if points else ""
            case Dots():
                return "".join(_dot(x, y, mark.size, colour) for x, y in self._points(mark.x, mark.y))
            case Band():
                up, down = list(self._points(mark.x, mark.high)), list(self._points(mark.x, mark.low))
                corners = "L".join(f"{x:.1f} {y:.1f}" for x, y in [*up, *reversed(down)])
                return f'<path class="band" fill="var(--{colour})" d="M{corners}Z"/>' if corners else ""
            case Bars():
                return self._bars(mark, colour)
            case Heat():
                return self._heat_map(mark)
            case Note():
                text = words(mark.text, self.language)
                return marks.svg_text(self._x(mark.x), self._y(mark.y), text, "middle", colour=colour)

    def _bars(self, mark: Bars, colour: str) -> str:
        count, parts = len(self.bars), []
        width = 0.8 / count
        heights = marks.numbers_of(mark.heights).tolist()
        spreads = [0.0] * len(heights) if mark.spread is None else marks.numbers_of(mark.spread).tolist()
        ground = self._y(max(self.y_range[0], 0.0) if not self.panel.y_log else self.y_range[0])
        for index, (height, spread) in enumerate(zip(heights, spreads, strict=True)):
            if not math.isfinite(height):
                continue
            left = index - 0.4 + self.bars.index(mark) * width
            x, right, y = self._x(left), self._x(left + width * 0.92), self._y(height)
            top, size = min(y, ground), abs(y - ground)
            box = f'x="{x:.1f}" y="{top:.1f}" width="{right - x:.1f}" height="{size:.1f}"'
            parts.append(f'<rect class="bar" fill="var(--{colour})" {box}/>')
            if spread:
                middle, low, high = (x + right) / 2, self._y(height - spread), self._y(height + spread)
                parts.append(f'<path class="whisker" d="M{middle:.1f} {low:.1f}V{high:.1f}"/>')
        return "".join(parts)

    def _heat_map(self, mark: Heat) -> str:
        largest = mark.largest or float(np.nanmax(self.matrix, initial=0)) or 1.0
        levels = np.clip(np.nan_to_num(self.matrix) / largest, 0, 1) * LEVELS
        cell = (self.right - self.left) / max(self.matrix.shape[1], 1)
        parts = []
        for level in range(1, LEVELS + 1):  # one path for each shade
            rows, columns = np.nonzero(np.ceil(levels).astype(int) == level)
            if len(rows):
                shape = "".join(
                    f"M{self.left + column * cell:.1f} {self.top + row * cell:.1f}h{cell:.2f}v{cell:.2f}h-{cell:.2f}z"
                    for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
                )
                parts.append(f'<path fill="var(--{mark.colour})" fill-opacity="{level / LEVELS:.2f}" d="{shape}"/>')
        width, height = self.right - self.left, self.bottom - self.top
        frame = f'x="{self.left:.1f}" y="{self.top:.1f}" width="{width:.1f}" height="{height:.1f}"'
        parts.append(f'<rect class="frame" {frame}/>')
        for row, column in mark.marked:
            x, y = self.left + column * cell, self.top + row * cell
            parts.append(f'<rect class="marked" x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}"/>')
        return "".join(parts)


def pooled(heat: Heat) -> tuple[np.ndarray, int]:
    """The matrix, or the largest numbers of its blocks; and how long the sides of the blocks are."""
    matrix = np.asarray(marks.array_of(heat.matrix), dtype=float)
    pool = max(1, math.ceil(max(matrix.shape) / CELLS))
    if pool > 1:
        rows, columns = (-size % pool for size in matrix.shape)
        matrix = np.pad(matrix, ((0, rows), (0, columns)), constant_values=np.nan)
        blocks = matrix.reshape(matrix.shape[0] // pool, pool, -1, pool)
        matrix = np.nanmax(blocks, axis=(1, 3))
    return matrix, pool


def _values(mark: Mark, axis: str) -> list[Any]:
    match mark:
        case Line() | Dots():
            return [getattr(mark, axis)]
        case Band():
            return [mark.x] if axis == "x" else [mark.low, mark.high]
        case Bars():
            heights = marks.numbers_of(mark.heights)
            spread = 0.0 if mark.spread is None else marks.numbers_of(mark.spread)
            return [] if axis == "x" else [heights + spread, heights - spread]
        case Note():
            return [[getattr(mark, axis)]]
    return []


def _line(mark: Line, colour: str, path: str) -> str:
    dash = f' stroke-dasharray="{DASHES[mark.style]}"' if DASHES[mark.style] else ""
    return f'<path class="line" stroke="var(--{colour})"{dash} d="{path}"/>'


def _dot(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="var(--{colour})"/>'


def swatch(mark: Any, x: float, y: float, colour: str) -> str:
    """The sign in front of a label."""
    match mark:
        case Line():
            dot = _dot(x + 12, y, 3, colour) if mark.dots else ""
            return _line(mark, colour, f"M{x:.1f} {y:.1f}h24") + dot
        case Dots():
            return _dot(x + 12, y, mark.size, colour)
    kind = "band" if isinstance(mark, Band) else "bar"
    return f'<rect class="{kind}" fill="var(--{colour})" x="{x + 4:.1f}" y="{y - 6:.1f}" width="16" height="11"/>'
