"""What displays share, in scikit-learn's pattern: computed once, then drawn, saved, shown in a notebook or printed.

In the terminal nothing is said by colour alone: the darker the box of a heat map, the larger the weight. matplotlib and
rich are imported when something is drawn.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from torch import Tensor

from regard.errors import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Display(ABC):
    """Something that is computed once; `plot` draws it on axes, `save` into a file, and a notebook shows it."""

    ax_: Axes
    figure_: Figure | None
    height = 3.3  # inches

    @abstractmethod
    def _draw(self, axes: Axes) -> None:
        """Draw on these axes."""

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on these axes, or on those of a new figure; sets `ax_` and `figure_`."""
        axes = self._figure().axes[0] if ax is None else ax
        if ax is not None:
            self._draw(ax)
        self.ax_, self.figure_ = axes, axes.get_figure(root=True)
        return self

    def save(self, path: str | Path) -> Path:
        """Write .png, .svg, .pdf or .html, by the name's ending."""
        from regard.view import pictures

        return pictures.write(self._figure, path)

    def _repr_html_(self) -> str:
        from regard.view import pictures

        return pictures.html(self._figure)

    def _figure(self) -> Figure:
        from regard.view import pictures

        figure = pictures.figure(self.height)
        self._draw(figure.subplots())
        return figure


class TableDisplay(Display):
    """One that a notebook and the terminal show as a table."""

    @abstractmethod
    def _rows(self) -> list[Sequence[str]]:
        """The table: its head, and then its rows."""

    def print(self) -> None:
        """The table, in the terminal."""
        print_table(*self._rows())

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.rjust(size) for cell, size in zip(row, widths, strict=True)) for row in rows)

    def _repr_html_(self) -> str:
        head, *rows = (map(escape, row) for row in self._rows())
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{body}</table>"


class LayersDisplay(Display):
    """One of several layers with heads: a picture of each, and a grid of all."""

    @abstractmethod
    def plot(self, layer: Any = ..., head: int | None = None, *, ax: Axes | None = None) -> Self:
        """Draw one head of a layer, or all of its heads together."""

    @abstractmethod
    def _grid(self) -> Figure:
        """All layers in one figure."""

    @property
    @abstractmethod
    def _has_grid(self) -> bool:
        """Whether there is more than one picture."""

    def _draw(self, axes: Axes) -> None:
        self.plot(ax=axes)

    def plot_grid(self) -> Self:
        """Draw all layers in one figure; sets `ax_` and `figure_`."""
        figure = self._grid()
        self.ax_, self.figure_ = figure.axes[0], figure
        return self

    def save(self, path: str | Path, layer: int | None = None, head: int | None = None) -> Path:
        """Write .png, .svg, .pdf or .html: one picture, or the grid where neither layer nor head is given."""
        from regard.view import pictures

        return pictures.write(lambda: self._figure(layer, head), path)

    def _figure(self, layer: int | None = None, head: int | None = None) -> Any:
        if layer is None and head is None and self._has_grid:
            return self._grid()
        chosen: Any = {} if layer is None else {"layer": layer}
        return self.plot(**chosen, head=head).figure_


# ------------------------------------------------------------------------------------------------------- the terminal

AXES = "query (looks) at the left, key (looked at) above"
SHADES = " ░▒▓█"
COLOURS = ("", "#f0b27a", "#ee8f5b", "#e4584b", "#c92a35")  # of the shades, from light to dark in grey as well
EDGES = (0.05, 0.2, 0.4, 0.7)  # of the weight, from one shade to the next
CELL = 3  # characters


def print_table(head: Iterable[str], *rows: Iterable[str]) -> None:
    """Print a table without lines; what is too long for the terminal, such as a module's path, goes on below."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    # As Text: of a str rich would take what stands in brackets for its markup.
    table = Table(*(Column(Text(visible(name)), overflow="fold") for name in head), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console().print(table)


def print_map(
    weights: Tensor, rows: Sequence[str], columns: Sequence[str], *, legend: str = AXES, file: TextIO | None = None
) -> None:
    """Print a heat map, in colours where the terminal has them and NO_COLOR does not forbid them."""
    from rich.console import Console
    from rich.text import Text

    text = Text(heat_map(weights, rows, columns, legend))
    for shade, colour in zip(SHADES[1:], COLOURS[1:], strict=True):
        text.highlight_regex(f"{shade}+", colour)
    Console(file=file or sys.stdout, highlight=False).print(text, soft_wrap=True)


def heat_map(weights: Tensor, rows: Sequence[str], columns: Sequence[str], legend: str = AXES) -> str:
    """Weights (rows, columns) as a table: names of the rows at the left, of the columns above, downwards."""
    from rich.cells import cell_len  # two for Chinese characters

    names, heads = [shown(name) for name in rows], [shown(name) for name in columns]
    margin, depth = max(map(cell_len, names), default=0), max(map(len, heads), default=0)
    lines = []
    for letters in zip(*(head.rjust(depth) for head in heads), strict=True):
        lines.append(" " * (margin + 1) + "".join(letter + " " * (CELL - cell_len(letter)) for letter in letters))
    for name, row in zip(names, weights.tolist(), strict=True):
        shades = [SHADES[sum(weight >= edge for edge in EDGES)] * CELL for weight in row]
        lines.append(" " * (margin - cell_len(name)) + name + " " + "".join(shades))
    edges = "  ".join(f"{shade * 2} ≥ {edge:g}" for shade, edge in zip(SHADES[1:], EDGES, strict=True))
    return "\n".join([*(line.rstrip() for line in lines), f"{legend}: {edges}"])


def shown(text: str) -> str:
    """A token as it can be printed: no line breaks or escapes, and a mark for a space that stands alone."""
    plain = "".join(letter if letter.isprintable() else "·" for letter in text)
    return plain.strip() or "␣"
