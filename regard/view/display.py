"""What displays of one picture share, in scikit-learn's pattern. matplotlib is imported when something is drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Display", "TableDisplay"]


class Drawing(ABC):
    """Something that is computed once; `plot` draws it on axes, `save` into a file."""

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

    def _figure(self) -> Figure:
        from regard.view import pictures

        figure = pictures.figure(self.height)
        self._draw(figure.subplots())
        return figure


class Display(Drawing):
    """One that a notebook shows as its picture."""

    def _repr_html_(self) -> str:
        from regard.view import pictures

        return pictures.html(self._figure)


class TableDisplay(Drawing):
    """One that a notebook and the terminal show as a table."""

    @abstractmethod
    def _rows(self) -> list[Sequence[str]]:
        """The table: its head, and then its rows."""

    def print(self) -> None:
        """The table, in the terminal."""
        from rich.console import Console
        from rich.table import Table

        head, *rows = self._rows()
        table = Table(*head, box=None, pad_edge=False)
        for row in rows:
            table.add_row(*row)
        Console().print(table)

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.rjust(size) for cell, size in zip(row, widths, strict=True)) for row in rows)

    def _repr_html_(self) -> str:
        head, *rows = (map(escape, row) for row in self._rows())
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{body}</table>"
