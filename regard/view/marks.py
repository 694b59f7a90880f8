"""What charts are made of: texts in both languages, marks, and the panels that they stand in; and how their numbers and
texts are written. Data, and no drawing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np

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


def words(label: Label, language: Language) -> str:
    """A label in a language; names and numbers are the same in both."""
    return label.to(language) if isinstance(label, Text) else label


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

    @property
    def heat(self) -> Heat | None:
        """Its heat map, if it is one."""
        return next((mark for mark in self.marks if isinstance(mark, Heat)), None)


# ------------------------------------------------------------------------------------------------------ numbers, texts

LETTER = 6.6  # pixels of a Latin letter at 12 px; a Chinese one is twice as wide
LONGEST = 60  # rows of a table; longer ones are left out in part
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def array_of(values: Any) -> Any:
    """Numbers as NumPy takes them."""
    return values.detach().numpy() if hasattr(values, "detach") else values


def numbers_of(values: Any) -> np.ndarray:
    """Numbers in a row; those that are not finite are NaN, and are not drawn."""
    numbers = np.asarray(array_of(values), dtype=float).reshape(-1)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def power_of_ten(exponent: int) -> str:
    """10⁻¹⁶."""
    return f"10{str(exponent).translate(SUPERSCRIPT)}"


def short(value: float) -> str:
    """A number at an axis or in a table: 0, 0.25, 1,024, 10⁻¹⁶."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:,.6g}".replace("-", "−")
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    mantissa = value / 10.0**exponent
    front = "" if abs(mantissa - 1) < 1e-9 else f"{mantissa:.3g}·"
    return f"{front}{power_of_ten(exponent)}".replace("-", "−")


def text_width(text: str) -> float:
    """About how wide a text is, in pixels."""
    return sum(2 * LETTER if ord(letter) > 0x2E80 else LETTER for letter in text)


def svg_text(x: float, y: float, text: str, anchor: str, kind: str = "", turn: str = "", colour: str = "") -> str:
    """A text beside a point: start, middle or end of it there."""
    kind = f' class="{kind}"' if kind else ""
    fill = f' fill="var(--{colour})"' if colour and colour != "ink" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}{fill}{turn}>{escape(text)}</text>'


def scaled(value: float, given: tuple[float, float], wanted: tuple[float, float], log: bool) -> float:
    """A number of one range in another."""
    low, high, value = (math.log(x) for x in (*given, value)) if log else (*given, value)
    return wanted[0] + (value - low) / ((high - low) or 1) * (wanted[1] - wanted[0])


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers in a range, three to seven of them; on a logarithmic axis powers of ten."""
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        parts = (1, 2, 5) if len(powers) <= 2 else (1,)
        numbers = [part * 10.0**power for power in powers[:: max(1, len(powers) // 6)] for part in parts]
        return [number for number in numbers if low <= number <= high]
    rough = (high - low) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(part * power for part in (1, 2, 5, 10) if part * power >= rough * 0.999)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def table_of(panel: Panel, mark: Mark, language: Language) -> str:
    """The numbers of a mark as an HTML table."""
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
