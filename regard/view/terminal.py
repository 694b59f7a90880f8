"""Heat maps in the terminal, in characters: the darker the box, the larger the weight.

Colours are added where the terminal has them and NO_COLOR does not forbid them: nothing is said by colour alone.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text
from torch import Tensor

__all__ = ["AXES", "heat_map", "print_map", "shown"]

AXES = "query (looks) at the left, key (looked at) above"
SHADES = " ░▒▓█"
COLOURS = ("", "#f0b27a", "#ee8f5b", "#e4584b", "#c92a35")  # of the shades, from light to dark in grey as well
EDGES = (0.05, 0.2, 0.4, 0.7)  # of the weight, from one shade to the next
CELL = 3  # characters


def print_map(
    weights: Tensor, rows: Sequence[str], columns: Sequence[str], *, legend: str = AXES, file: TextIO | None = None
) -> None:
    """Print a heat map, in colours where the terminal has them."""
    text = Text(heat_map(weights, rows, columns, legend))
    for shade, colour in zip(SHADES[1:], COLOURS[1:], strict=True):
        text.highlight_regex(f"{shade}+", colour)
    Console(file=file or sys.stdout, highlight=False).print(text, soft_wrap=True)


def heat_map(weights: Tensor, rows: Sequence[str], columns: Sequence[str], legend: str = AXES) -> str:
    """Weights (rows, columns) as a table: names of the rows at the left, of the columns above, downwards."""
    names, heads = [shown(name) for name in rows], [shown(name) for name in columns]
    margin, depth = max(map(width, names), default=0), max(map(len, heads), default=0)
    lines = [" " * margin + " " + "".join(_cell(head.rjust(depth)[level]) for head in heads) for level in range(depth)]
    for name, row in zip(names, weights.tolist(), strict=True):
        lines.append(" " * (margin - width(name)) + name + " " + "".join(_shade(weight) * CELL for weight in row))
    edges = "  ".join(f"{shade * 2} ≥ {edge:g}" for shade, edge in zip(SHADES[1:], EDGES, strict=True))
    return "\n".join([*(line.rstrip() for line in lines), f"{legend}: {edges}"])


def shown(text: str) -> str:
    """A token as it can be printed: no line breaks or escapes, and a mark for a space that stands alone."""
    plain = "".join(letter if letter.isprintable() else "·" for letter in text)
    return plain.strip() or "␣"


def width(text: str) -> int:
    """The columns that a text takes: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _shade(weight: float) -> str:
    return SHADES[sum(weight >= edge for edge in EDGES)]


def _cell(letter: str) -> str:
    return letter + " " * (CELL - width(letter))
