"""Columns of numbers from a CSV file, or from parquet if pyarrow is installed.

Errors name the file, the line and the column.
"""

from __future__ import annotations

import csv
import difflib
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from regard.errors import RegardError

__all__ = ["Table", "TableError", "find_column", "read_columns", "read_names", "separator"]

Array = NDArray[numpy.float64]

MISSING = {"", "na", "n/a", "nan", "null", "none", "."}


class TableError(RegardError, ValueError):
    """A file is not a table that can be used; the message says where and why."""


@dataclass(frozen=True)
class Table:
    """The rows (n, columns) that have a number in every requested column, and how many rows have not."""

    names: tuple[str, ...]
    rows: Array
    left_out: int
    first_left_out: int | None  # the line of the file


def read_columns(path: Path, names: Sequence[str]) -> Table:
    """Columns of a file. Rows with a missing value are left out and counted; text among numbers is an error."""
    read = _read_parquet if _is_parquet(path) else _read_csv
    rows, lines = read(path, names)
    if not len(rows):
        raise TableError(f"{path}: no rows below the header")
    infinite = numpy.argwhere(numpy.isinf(rows))
    if len(infinite):
        row, column = infinite[0]
        raise TableError(f"{path}: line {lines[row]}, column {names[column]!r}: expected a finite number, got infinity")
    missing = numpy.isnan(rows).any(1)
    if missing.all():
        raise TableError(f"{path}: no row has a number in every one of the columns {', '.join(names)}")
    first = int(lines[missing][0]) if missing.any() else None
    return Table(tuple(names), rows[~missing], int(missing.sum()), first)


def read_names(path: Path) -> list[str]:
    """The names of a file's columns."""
    if _is_parquet(path):
        return list(_parquet_module(path).read_schema(path).names)
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        header = file.readline()
    return [name.strip() for name in next(csv.reader([header], delimiter=separator(header)), [])]


def separator(header: str) -> str:
    """The most frequent of comma, semicolon and tab in a header."""
    return max(",;\t", key=header.count)


def find_column(place: Path | str, header: Sequence[str], name: str, option: str = "") -> int:
    """The index of a column; if there is none of this name, the error lists the columns and names the nearest.

    option: of the command line, by which another column can be named
    """
    known = [column.strip() for column in header]
    if name in known:
        return known.index(name)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if all(part.strip() in known for part in name.split(",")):
        hint = f"; separate columns by spaces: {name.replace(',', ' ')}"
    columns = textwrap.shorten(", ".join(known), 300)  # on one line, whatever stands in the header
    cure = f"; name another one by {option}" if option else ""
    raise TableError(f"{place}: no column {name!r}{hint} (columns: {columns}){cure}")


def _is_parquet(path: Path) -> bool:
    if not path.exists():
        raise TableError(f"{path}: no such file")
    if path.is_dir():
        raise TableError(f"{path}: is a folder, expected a CSV or parquet file")
    return path.suffix.lower() in (".parquet", ".pq")


def _read_csv(path: Path, names: Sequence[str]) -> tuple[Array, NDArray[numpy.int64]]:
    rows: list[list[float]] = []
    lines: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = separator(file.readline())
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter)
            header = next(reader, None)
            if header is None:
                raise TableError(f"{path}: is empty")
            chosen = [find_column(path, header, name) for name in names]
            for cells in reader:
                if cells:  # a blank line is no row
                    rows.append(list(_numbers(path, header, cells, chosen, reader.line_num)))
                    lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise TableError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8, or as parquet") from error
    except csv.Error as error:
        raise TableError(f"{path}: line {reader.line_num}: {error}") from error
    return numpy.array(rows, dtype=numpy.float64).reshape(len(rows), len(names)), numpy.array(lines, dtype=numpy.int64)


def _numbers(path: Path, header: list[str], cells: list[str], chosen: list[int], line: int) -> Iterator[float]:
    for column in chosen:
        if column >= len(cells):
            raise TableError(f"{path}: line {line}: expected {len(header)} columns, got {len(cells)}")
        text = cells[column].strip()
        try:
            yield numpy.nan if text.lower() in MISSING else float(text)
        except ValueError:
            hint = " (write a decimal point, not a comma)" if re.fullmatch(r"[-+]?\d+,\d+", text) else ""
            raise TableError(
                f"{path}: line {line}, column {header[column].strip()!r}: expected a number, got {text!r}{hint}"
            ) from None


def _read_parquet(path: Path, names: Sequence[str]) -> tuple[Array, NDArray[numpy.int64]]:
    parquet = _parquet_module(path)
    from pyarrow import ArrowException, types

    try:
        schema = parquet.read_schema(path)
        chosen = [schema.names[find_column(path, schema.names, name)] for name in names]
        for name in chosen:
            kind = schema.field(name).type
            if not (
                types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
            ):
                raise TableError(f"{path}: column {name!r}: expected numbers, got {kind}")
        table = parquet.read_table(path, columns=list(dict.fromkeys(chosen)))
    except ArrowException as error:
        raise TableError(f"{path}: is not a parquet file that can be read: {error}") from error
    columns = [table.column(name).to_pandas().to_numpy(dtype=numpy.float64, na_value=numpy.nan) for name in chosen]
    return numpy.stack(columns, axis=1), numpy.arange(1, table.num_rows + 1)


def _parquet_module(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise TableError(f"{path}: reading parquet needs pyarrow: pip install pyarrow") from error
    return parquet
