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
from typing import Any, Literal, NamedTuple

import numpy as np

__all__ = ["LANGUAGES", "Band", "Bars", "Chart", "Dots", "Heat", "Language", "Line", "Mark", "Note", "Panel", "Text"]

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Text(NamedTuple):
    """A text in each language."""

    en: str
    zh: str

    def to(self, language: Language) -> str:
        """The text in this language."""
        return self.en if language == "en" else self.zh


Label = str | Text
SERIES = ("truth", "attention", "samples", "pooled", "other", "ink")  # colours of marks that name none, in turn
DASHES = {"solid": "", "dashed": "6 4", "dotted": "1.5 4"}
NOTHING = Text("", "")
LEVELS = 24  # shades of a heat map
CELLS = 72  # a larger map is drawn by the largest weight of each block
WIDTH, GAP, CELL = 720, 26, 46  # pixels; CELL: the largest of a heat map
LETTER = 6.6  # pixels of a Latin letter at 12 px; a Chinese one is twice as wide


def words(label: Label, language: Language) -> str:
    """A label in a language; names and numbers are the same in both."""
    return label.to(language) if isinstance(label, Text) else label


# --------------------------------------------------------------------------------------------------------------- marks


@dataclass(frozen=True, eq=False)
class Line:
    """A curve through points, in the order given."""

    x: Any
    y: Any
    label: Label = ""
    colour: str = ""
    style: Literal["solid", "dashed", "dotted"] = "solid"
    dots: bool = False  # whether its points are marked


@dataclass(frozen=True, eq=False)
class Dots:
    """Points."""

    x: Any
    y: Any
    label: Label = ""
    colour: str = ""
    size: float = 3.0


@dataclass(frozen=True, eq=False)
class Band:
    """The area between two curves: a spread."""

    x: Any
    low: Any
    high: Any
    label: Label = ""
    colour: str = ""


@dataclass(frozen=True, eq=False)
class Bars:
    """A bar for each name, one behind the other at x = 0, 1, …; several Bars of a panel stand side by side."""

    names: Sequence[Label]
    heights: Any
    label: Label = ""
    colour: str = ""
    spread: Any = None  # a whisker of this length to both sides


@dataclass(frozen=True, eq=False)
class Heat:
    """A matrix (rows, columns) as shades from paper to ink: rows look, columns are looked at.

    rows, columns: names, or none: then the axes are numbered. marked: cells (row, column) with a frame.
    """

    matrix: Any
    rows: Sequence[Label] = ()
    columns: Sequence[Label] = ()
    largest: float | None = None  # the number of the darkest shade; None: the matrix's
    marked: Sequence[tuple[int, int]] = ()
    colour: str = "attention"


@dataclass(frozen=True, eq=False)
class Note:
    """A text at a point."""

    x: float
    y: float
    text: Label
    colour: str = "ink"


Mark = Line | Dots | Band | Bars | Heat | Note


@dataclass(frozen=True, eq=False)
class Panel:
    """Marks in one pair of axes. limits: None where the marks decide. share: of the chart's width."""

    marks: Sequence[Mark]
    x: Label = ""
    y: Label = ""
    title: Label = ""
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    x_log: bool = False
    y_log: bool = False
    share: float = 1.0


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
        legend, legend_height = self._legend(language)
        height = legend_height + sum(heights)
        parts, top = [legend], legend_height
        for row, row_height in zip(rows, heights, strict=True):
            left = 0.0
            for panel, width in zip(row, _widths(row), strict=True):
                parts.append(_PanelDrawing(panel, left, top, width, row_height, language, self._colours).draw())
                left += width + GAP
            top += row_height
        body = "".join(parts)
        label = escape(self.caption.to(language), quote=True)
        return f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">{body}</svg>'

    def table(self, language: Language) -> str:
        """The numbers behind the picture, as HTML tables."""
        return "".join(_table(panel, mark, language) for panel in self.panels for mark in panel.marks)

    @property
    def _colours(self) -> dict[str, str]:
        """The colour of each label; marks of one label have one colour in all panels."""
        chosen: dict[str, str] = {}
        for mark in _labelled(self.panels):
            name = words(mark.label, "en")
            free = [colour for colour in SERIES if colour not in chosen.values()] or list(SERIES)
            chosen.setdefault(name, mark.colour or free[0])
        return chosen

    def _legend(self, language: Language) -> tuple[str, float]:
        """The labels of all panels, once each, above them; and how much room they take."""
        parts, x, y = [], 4.0, 16.0
        seen: set[str] = set()
        for mark in _labelled(self.panels):
            text = words(mark.label, language)
            if not text or text in seen:
                continue
            seen.add(text)
            width = 30 + _width(text) + 18
            if x + width > WIDTH and x > 4:
                x, y = 4.0, y + 20
            colour = self._colours[words(mark.label, "en")]
            parts.append(_swatch(mark, x, y - 4, colour) + _text(x + 30, y, text, "start"))
            x += width
        return "".join(parts), (y + 12 if parts else 0)

    def _panel_height(self, panel: Panel, row: Sequence[Panel], language: Language) -> float:
        """The chart's; that of a heat map, which has square cells as far as there is room, is its own."""
        heat = next((mark for mark in panel.marks if isinstance(mark, Heat)), None)
        if heat is None:
            return self.height
        width = _widths(row)[row.index(panel)]
        matrix, _ = _pooled(heat)
        room = _Room.of(panel, heat, width, language)
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


# ------------------------------------------------------------------------------------------------------------ one panel


class _PanelDrawing:
    """One panel in its frame."""

    def __init__(
        self,
        panel: Panel,
        left: float,
        top: float,
        width: float,
        height: float,
        language: Language,
        colours: dict[str, str],
    ) -> None:
        self.panel, self.language, self.colours = panel, language, colours
        self.heat = next((mark for mark in panel.marks if isinstance(mark, Heat)), None)
        self.room = _Room.of(panel, self.heat, width, language)
        self.left, self.right = left + self.room.left, left + width - 14
        self.top = top + (24 if panel.title else 10)
        self.bottom = top + height - self.room.below - (26 if panel.x else 6)
        self.outer_left = left
        self.bars = [mark for mark in panel.marks if isinstance(mark, Bars)]
        if self.heat is not None:
            self.matrix, self.pool = _pooled(self.heat)
            rows, columns = self.matrix.shape
            cell = min((self.right - self.left) / max(columns, 1), (self.bottom - self.top) / max(rows, 1))
            self.right, self.bottom = self.left + columns * cell, self.top + rows * cell
            self.x_range, self.y_range = (0.0, float(columns)), (float(rows), 0.0)
        else:
            self.x_range = panel.x_limits or self._range("x", panel.x_log)
            self.y_range = panel.y_limits or self._range("y", panel.y_log)

    def draw(self) -> str:
        parts = [self._axes()]
        for index, mark in enumerate(self.panel.marks):
            colour = self.colours.get(words(getattr(mark, "label", ""), "en")) or getattr(mark, "colour", "")
            parts.append(self._mark(mark, colour or SERIES[index % len(SERIES)]))
        return "".join(parts)

    # ------------------------------------------------------------------------------------------------- from data to ink

    def _range(self, axis: Literal["x", "y"], log: bool) -> tuple[float, float]:
        if axis == "x" and self.bars:
            return -0.6, max(len(mark.names) for mark in self.bars) - 0.4
        values = [_numbers(part) for mark in self.panel.marks for part in _values(mark, axis)]
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
        return _scaled(value, self.x_range, (self.left, self.right), self.panel.x_log)

    def _y(self, value: float) -> float:
        return _scaled(value, self.y_range, (self.bottom, self.top), self.panel.y_log)

    def _points(self, xs: Any, ys: Any) -> Iterator[tuple[float, float]]:
        for x, y in zip(_numbers(xs).tolist(), _numbers(ys).tolist(), strict=True):
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
            parts.append(self._tick_below(x, name))
        for value, name in self._ticks("y"):
            y = self._y(value)
            if self.heat is None:
                parts.append(f'<path class="grid" d="M{self.left:.1f} {y:.1f}H{self.right:.1f}"/>')
            parts.append(_text(self.left - 6, y + 4, name, "end"))
        if panel.title:
            parts.append(_text(self.outer_left, self.top - 10, words(panel.title, self.language), "start", "title"))
        middle = (self.left + self.right) / 2
        if panel.x:
            below = self.bottom + self.room.below + 16
            parts.append(_text(middle, below, words(panel.x, self.language), "middle", "axis"))
        if panel.y:
            x, y = self.outer_left + 12, (self.top + self.bottom) / 2
            turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"'
            parts.append(_text(x, y, words(panel.y, self.language), "middle", "axis", turned))
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
        return [(value, _short(value)) for value in (_log_ticks(low, high) if log else _ticks(low, high))]

    def _tick_below(self, x: float, name: str) -> str:
        if not self.room.turned:
            return _text(x, self.bottom + 16, name, "middle")
        y = self.bottom + 12
        return _text(x + 3, y, name, "end", turn=f' transform="rotate(-48 {x:.1f} {y:.1f})"')

    # ------------------------------------------------------------------------------------------------------------ marks

    def _mark(self, mark: Mark, colour: str) -> str:
        match mark:
            case Line():
                points = list(self._points(mark.x, mark.y))
                path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""
                dash = f' stroke-dasharray="{DASHES[mark.style]}"' if DASHES[mark.style] else ""
                dots = "".join(_dot(x, y, 3, colour) for x, y in points) if mark.dots else ""
                return f'<path class="line" stroke="var(--{colour})"{dash} d="{path}"/>{dots}' if points else ""
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
                return _text(self._x(mark.x), self._y(mark.y), text, "middle", colour=colour)

    def _bars(self, mark: Bars, colour: str) -> str:
        count, parts = len(self.bars), []
        width = 0.8 / count
        heights = _numbers(mark.heights).tolist()
        spreads = [0.0] * len(heights) if mark.spread is None else _numbers(mark.spread).tolist()
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


class _Room(NamedTuple):
    """What the texts around a panel take."""

    left: float
    below: float  # the names below it, without its label
    turned: bool  # whether these are longer than their place

    @classmethod
    def of(cls, panel: Panel, heat: Heat | None, width: float, language: Language) -> _Room:
        """Of a panel so many pixels wide."""
        left = 44.0
        if heat is not None and heat.rows:
            left = max(_width(words(name, language)) for name in heat.rows) + 10
        left += 18 if panel.y else 0
        bars = [mark.names for mark in panel.marks if isinstance(mark, Bars)]
        names = heat.columns if heat is not None else max(bars, key=len, default=())
        longest = max((_width(words(name, language)) for name in names), default=0)
        cells = _pooled(heat)[0].shape[1] if heat is not None else len(names)
        place = min((width - left - 14) / max(cells, 1), CELL if heat is not None else WIDTH)
        turned = longest > place
        return cls(left, longest * 0.75 + 10 if turned else 16.0, turned)


def _pooled(heat: Heat) -> tuple[np.ndarray, int]:
    """The matrix, or the largest numbers of its blocks; and how long the sides of the blocks are."""
    matrix = np.asarray(_array(heat.matrix), dtype=float)
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
            spread = 0.0 if mark.spread is None else _numbers(mark.spread)
            return [] if axis == "x" else [_numbers(mark.heights) + spread, _numbers(mark.heights) - spread]
        case Note():
            return [[getattr(mark, axis)]]
    return []


def _array(values: Any) -> Any:
    return values.detach().numpy() if hasattr(values, "detach") else values


def _numbers(values: Any) -> np.ndarray:
    """Numbers in a row; those that are not finite are NaN, and are not drawn."""
    numbers = np.asarray(_array(values), dtype=float).reshape(-1)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _scaled(value: float, given: tuple[float, float], wanted: tuple[float, float], log: bool) -> float:
    low, high, value = (math.log(x) for x in (*given, value)) if log else (*given, value)
    return wanted[0] + (value - low) / ((high - low) or 1) * (wanted[1] - wanted[0])


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers in a range, three to seven of them."""
    rough = (high - low) / about or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(part * power for part in (1, 2, 5, 10) if part * power >= rough * 0.999)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, len(powers) // 6)
    parts = (1, 2, 5) if len(powers) <= 2 else (1,)
    return [part * 10.0**power for power in powers[::every] for part in parts if low <= part * 10.0**power <= high]


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _short(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:,.6g}".replace("-", "−")
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    mantissa = value / 10.0**exponent
    front = "" if abs(mantissa - 1) < 1e-9 else f"{mantissa:.3g}·"
    return f"{front}10{str(exponent).translate(_SUPERSCRIPT)}".replace("-", "−")


def _width(text: str) -> float:
    """About how wide a text is, in pixels."""
    return sum(2 * LETTER if ord(letter) > 0x2E80 else LETTER for letter in text)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "", turn: str = "", colour: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    fill = f' fill="var(--{colour})"' if colour and colour != "ink" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}{fill}{turn}>{escape(text)}</text>'


def _dot(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="var(--{colour})"/>'


def _swatch(mark: Any, x: float, y: float, colour: str) -> str:
    """The sign in front of a label."""
    match mark:
        case Line():
            dash = f' stroke-dasharray="{DASHES[mark.style]}"' if DASHES[mark.style] else ""
            dot = _dot(x + 12, y, 3, colour) if mark.dots else ""
            return f'<path class="line" stroke="var(--{colour})"{dash} d="M{x:.1f} {y:.1f}h24"/>{dot}'
        case Dots():
            return _dot(x + 12, y, mark.size, colour)
    kind = "band" if isinstance(mark, Band) else "bar"
    return f'<rect class="{kind}" fill="var(--{colour})" x="{x + 4:.1f}" y="{y - 6:.1f}" width="16" height="11"/>'


# --------------------------------------------------------------------------------------------------------------- tables

LONGEST = 60  # rows of a table; longer ones are thinned out


def _table(panel: Panel, mark: Mark, language: Language) -> str:
    name = words(getattr(mark, "label", "") or panel.title or "", language)
    x, y = words(panel.x or "x", language), words(panel.y or "y", language)
    columns: list[Any]
    match mark:
        case Line() | Dots():
            heads, columns = [x, y], [_numbers(mark.x), _numbers(mark.y)]
        case Band():
            heads, columns = [x, f"{y} ↓", f"{y} ↑"], [_numbers(mark.x), _numbers(mark.low), _numbers(mark.high)]
        case Bars():
            names = [words(name, language) for name in mark.names]
            heads, columns = [x, y], [names, _numbers(mark.heights)]
            if mark.spread is not None:
                heads, columns = [*heads, "±"], [*columns, _numbers(mark.spread)]
        case Heat():
            matrix = np.asarray(_array(mark.matrix), dtype=float)[:24, :16]
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
    return value if isinstance(value, str) else _short(float(f"{value:.4g}")) if math.isfinite(value) else "–"


def _html_table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    caption = f"<caption>{escape(name)}</caption>" if name else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
