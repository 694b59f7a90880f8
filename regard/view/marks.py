"""What charts are made of: texts in both languages, marks, and the panels that they stand in. Data, and no drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

__all__ = [
    "LANGUAGES",
    "Band",
    "Bars",
    "Dots",
    "Heat",
    "Label",
    "Language",
    "Line",
    "Mark",
    "Note",
    "Panel",
    "Text",
    "words",
]

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
