"""A table as it stands in a file, and the error of files that hold none.

It is read by `regard.data.table_files`; what its cells mean is found out by `regard.data.columns`.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from regard.errors import RegardError

__all__ = ["Table", "TableError", "find_column", "missing_column", "separator"]


class TableError(RegardError, ValueError):
    """A file is not a table that can be used; the message says where and why."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table whose cells are text, as they stand in the file; those of parquet have types.

    names: of the columns, as they stand in the header; cells: a pandas DataFrame whose columns are numbered
    lines (n,): where the rows begin in the file; widths (n,): how many cells they have, -1 where that was not counted
    form: how it is written, such as "';'-separated, Latin-1"; separator: of its cells, "" for parquet
    """

    place: str
    names: tuple[str, ...]
    cells: Any
    lines: NDArray[numpy.int64]
    widths: NDArray[numpy.int64]
    form: str
    separator: str = ""

    def __len__(self) -> int:
        return len(self.lines)

    def index(self, name: str) -> int:
        """The number of a column. Raises TableError where there is none of this name, or where a row is too short."""
        column = find_column(self.place, self.names, name)
        short = numpy.flatnonzero((self.widths >= 0) & (self.widths <= column))
        if len(short):
            line, width = self.lines[short[0]], self.widths[short[0]]
            raise TableError(f"{self.place}: line {line}: expected {len(self.names)} columns, got {width}")
        return column

    def head(self, rows: int) -> Table:
        """The first rows."""
        return Table(
            self.place,
            self.names,
            self.cells.iloc[:rows],
            self.lines[:rows],
            self.widths[:rows],
            self.form,
            self.separator,
        )

    @staticmethod
    def of_columns(place: str, columns: dict[str, Any], form: str) -> Table:
        """A table of columns that have types already; a row's line is its number."""
        import pandas

        cells = pandas.DataFrame(dict(enumerate(columns.values())))
        rows = len(cells)
        return Table(place, tuple(columns), cells, numpy.arange(1, rows + 1), numpy.full(rows, -1), form)


def separator(header: str) -> str:
    """The most frequent of comma, semicolon, tab and vertical bar in a header."""
    return max(",;\t|", key=header.count)


def find_column(place: Path | str, header: Sequence[str], name: str, option: str = "") -> int:
    """The index of a column; if there is none of this name, the error lists the columns and names the nearest.

    option: of the command line, by which another column can be named
    """
    known = [column.strip() for column in header]
    if name in known:
        return known.index(name)
    cure = f"; name another one by {option}" if option else ""
    raise TableError(f"{place}: {missing_column(known, name)}{cure}")


def missing_column(known: Sequence[str], name: str) -> str:
    """That there is no column of this name, what there is, and what was probably meant."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if all(part.strip() in known for part in name.split(",")):
        hint = f"; separate columns by spaces: {name.replace(',', ' ')}"
    columns = textwrap.shorten(", ".join(known), 300)  # on one line, whatever stands in the header
    return f"no column {name!r}{hint} (columns: {columns})"
