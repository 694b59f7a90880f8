"""Tables from files: CSV in its many forms, its cells as text; or parquet, if pyarrow is installed.

The compression, the encoding, the separator, comments and the header are found out, and every cell is kept digit by
digit. Errors name the file and the line.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from regard.data.encodings import decode, decompress
from regard.data.tables import Table, TableError

__all__ = ["read_table"]

STDIN = Path("-")
SEPARATORS = {",": "comma-separated", ";": "';'-separated", "\t": "tab-separated", "|": "'|'-separated"}
BLANKS = r"\s+"  # as pandas takes it for a separator
SAMPLE = 50  # lines by which the separator is chosen
PLAIN_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def read_table(path: Path, encoding: str | None = None) -> Table:
    """The table of a file; "-" is stdin. encoding: of its text, found out unless it is given."""
    if path == STDIN:
        return _read_text("stdin", sys.stdin.buffer.read(), encoding)
    if not path.exists():
        raise TableError(f"{path}: no such file")
    if path.is_dir():
        raise TableError(f"{path}: is a folder, expected a CSV or parquet file")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    return _read_text(str(path), path.read_bytes(), encoding)


# ---------------------------------------------------------------------------------------------------------------- text


@dataclass(frozen=True, eq=False)
class _Lines:
    """The lines of a text as bytes.

    starts: where they begin; filled: which hold something besides blanks; quotes: how many quotation marks they have;
    outside: which begin outside of quoted cells, which may have several lines
    """

    content: bytes
    starts: NDArray[numpy.int64]
    filled: NDArray[numpy.bool_]
    quotes: NDArray[numpy.int64]
    outside: NDArray[numpy.bool_]

    @staticmethod
    def of(content: bytes) -> _Lines:
        characters = numpy.frombuffer(content, numpy.uint8)
        starts = numpy.concatenate([[0], numpy.flatnonzero(characters == ord("\n")) + 1])
        starts = starts[starts < len(content)]
        filled = numpy.ones(len(starts), dtype=bool)
        for line in numpy.flatnonzero(numpy.isin(characters[starts], list(b" \t\r\n"))):
            end = content.find(b"\n", starts[line])
            filled[line] = bool(content[starts[line] : end if end >= 0 else None].strip())
        quotes = numpy.zeros(len(starts), dtype=numpy.int64)
        if b'"' in content:
            quotes = _count(characters == ord('"'), starts)
        return _Lines(content, starts, filled, quotes, (numpy.cumsum(quotes) - quotes) % 2 == 0)

    @property
    def rows(self) -> NDArray[numpy.int64]:
        """The lines at which rows begin."""
        return numpy.flatnonzero(self.filled & self.outside)

    def text(self, line: int) -> str:
        end = self.content.find(b"\n", int(self.starts[line]))
        return self.content[self.starts[line] : end if end >= 0 else None].decode()

    def count(self, character: str) -> NDArray[numpy.int64]:
        return _count(numpy.frombuffer(self.content, numpy.uint8) == ord(character), self.starts)

    def beginning_with(self, mark: str) -> NDArray[numpy.int64]:
        first = numpy.frombuffer(self.content, numpy.uint8)[self.starts]
        return numpy.flatnonzero((first == ord(mark)) & self.outside)

    def without(self, lines: Sequence[int] | NDArray[numpy.int64]) -> _Lines:
        """These lines are emptied, not removed, so that the others keep their numbers."""
        if not len(lines):
            return self
        ends = numpy.append(self.starts[1:], len(self.content))
        parts, position = [], 0
        for line in lines:
            parts += [self.content[position : self.starts[line]], b"\n"]
            position = int(ends[line])
        return _Lines.of(b"".join([*parts, self.content[position:]]))


def _count(marked: NDArray[numpy.bool_], starts: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    return numpy.add.reduceat(marked, starts, dtype=numpy.int64)


def _read_text(place: str, raw: bytes, encoding: str | None) -> Table:
    unpacked, compression = decompress(raw, place)
    text, encoding = decode(unpacked, encoding, place)
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    if not text.strip():
        raise TableError(f"{place}: is empty")
    try:
        return _read_lines(place, _Lines.of(text.encode()), ", ".join(filter(None, [compression, encoding])))
    except csv.Error as error:
        raise TableError(f"{place}: is not a table that can be read: {error}") from error


def _read_lines(place: str, lines: _Lines, form: str) -> Table:
    comments = lines.beginning_with("#")
    lines, last_comment = lines.without(comments), lines.text(comments[-1])[1:] if len(comments) else ""
    if not len(lines.rows):
        raise TableError(f"{place}: is empty but for comments")
    if marker := re.fullmatch(r"sep=(.)", lines.text(0)):  # as Excel writes it
        lines = lines.without([0])
    delimiter = marker[1] if marker else _find_separator(lines)
    titles = _find_titles(lines, delimiter)
    cells, rows, widths = _read_cells(place, lines.without(titles), delimiter)
    header, rows_below = _find_header(cells, last_comment, delimiter)
    cells, rows, widths = cells.iloc[rows_below:], rows[rows_below:], widths[rows_below:]
    cells, header = _drop_empty_end(place, cells, rows, header)
    if not len(rows):
        raise TableError(f"{place}: no rows below the header")
    facts = [
        SEPARATORS.get(delimiter, "separated by blanks") if len(header) > 1 else "one column",
        form,
        _count_lines(len(comments), "comment line"),
        _count_lines(len(titles), "title"),
        "" if rows_below or last_comment else "no header, so columns are numbered",
    ]
    form = ", ".join(filter(None, facts))
    return Table(place, header, cells, rows + 1, widths, form, delimiter)


def _count_lines(count: int, name: str) -> str:
    return "" if not count else f"{count:,} {name}{'s' if count > 1 else ''}"


def _find_separator(lines: _Lines) -> str:
    """The separator by which most of the first rows have the same number of cells, and that is more than one."""
    texts = [lines.text(line) for line in lines.rows[:SAMPLE]]

    def regularity(delimiter: str) -> tuple[float, int]:
        (width, count), *_ = Counter(map(len, _split(texts, delimiter))).most_common()
        return (count / len(texts), width) if width > 1 else (0, 1)

    best = max(SEPARATORS, key=regularity)
    by_blanks = {len(text.split()) for text in texts}
    if regularity(best)[1] == 1 and len(by_blanks) == 1 and by_blanks != {1}:
        return BLANKS
    return best if regularity(best)[1] > 1 else ","


def _find_titles(lines: _Lines, delimiter: str) -> list[int]:
    """Lines above the header that have but a first cell."""
    rows = lines.rows[:SAMPLE].tolist()
    cells = _split([lines.text(line) for line in rows], delimiter)
    if delimiter == BLANKS or Counter(map(len, cells)).most_common(1)[0][0] == 1:
        return []
    count = len([*takewhile(lambda row: row and row[0] and not any(row[1:]), cells)])
    return rows[:count] if count < len(rows) else []


def _split(texts: list[str], delimiter: str) -> list[list[str]]:
    """The cells of each line."""
    if delimiter == BLANKS:
        return [text.split() for text in texts]
    return [next(csv.reader([text], delimiter=delimiter, skipinitialspace=True), []) for text in texts]


def _read_cells(place: str, lines: _Lines, delimiter: str) -> tuple[Any, NDArray[numpy.int64], NDArray[numpy.int64]]:
    """All cells with the header's, the line each row begins at, from 0, and how many cells it has."""
    import pandas

    width = max(map(len, _split([lines.text(line) for line in lines.rows[:SAMPLE]], delimiter)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # cells would be lost
            cells = pandas.read_csv(
                io.BytesIO(lines.content),
                sep=delimiter,
                names=range(width),
                dtype=str,
                keep_default_na=False,
                na_filter=False,
                skipinitialspace=True,
                index_col=False,
                low_memory=False,
            )
    except (pandas.errors.ParserError, pandas.errors.ParserWarning) as error:
        raise _parser_error(place, str(error)) from error
    rows = _row_lines(lines, delimiter, len(cells))
    widths = numpy.full(len(rows), -1)
    if delimiter != BLANKS and (cells[width - 1] == "").any():  # a row that is too short lacks its last cell
        simple = (lines.quotes == 0)[rows]
        widths[simple] = lines.count(delimiter)[rows][simple] + 1
    return cells, rows, widths


def _parser_error(place: str, message: str) -> TableError:
    if fields := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message):
        expected, line, count = fields.groups()
        return TableError(f"{place}: line {line}: expected {expected} columns, got {count}")
    if quoted := re.search(r"EOF inside string starting at row (\d+)", message):
        return TableError(f"{place}: row {int(quoted[1]) + 1}: a quotation mark is left open")
    return TableError(f"{place}: is not a table that can be read: {message.strip()}")


def _row_lines(lines: _Lines, delimiter: str, count: int) -> NDArray[numpy.int64]:
    if len(lines.rows) == count:
        return lines.rows
    # Quotation marks inside of cells that are not quoted mislead the count above; this one takes them one by one.
    delimiter = " " if delimiter == BLANKS else delimiter
    reader = csv.reader(io.StringIO(lines.content.decode(), newline=""), delimiter=delimiter, skipinitialspace=True)
    begins, line = [], 0
    for row in reader:
        if len(row) > 1 or any(cell.strip() for cell in row):
            begins.append(line)
        line = reader.line_num
    return numpy.array(begins if len(begins) == count else range(count), dtype=numpy.int64)


def _find_header(cells: Any, last_comment: str, delimiter: str) -> tuple[tuple[str, ...], int]:
    """The names of the columns, and whether they are a row of the table: 1 or 0."""
    first = [str(cell) for cell in cells.iloc[0]]
    if not all(PLAIN_NUMBER.fullmatch(cell) for cell in first):
        return tuple(first), 1
    commented = last_comment.split() if delimiter == BLANKS else last_comment.split(delimiter)
    if len(commented) == len(first):  # as numpy.savetxt writes it
        return tuple(name.strip() for name in commented), 0
    return tuple(str(number) for number in range(1, len(first) + 1)), 0


def _drop_empty_end(
    place: str, cells: Any, rows: NDArray[numpy.int64], header: tuple[str, ...]
) -> tuple[Any, tuple[str, ...]]:
    """Without the columns that have neither a name nor a cell, as separators at the ends of lines make them."""
    width = len(header)
    while width > 1 and not header[width - 1].strip():
        filled = numpy.flatnonzero((cells[width - 1] != "").to_numpy(dtype=bool))
        if len(filled):
            named = sum(1 for name in header if name.strip())
            if named < width:
                raise TableError(
                    f"{place}: line {rows[filled[0]] + 1}: expected {named} columns, as in the header, got {width}"
                )
        width -= 1
    return cells.iloc[:, :width], header[:width]


# ------------------------------------------------------------------------------------------------------------- parquet


def _read_parquet(path: Path) -> Table:
    try:
        import pandas
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise TableError(f"{path}: reading parquet needs pyarrow: pip install pyarrow") from error
    try:
        table = parquet.read_table(path)
    except ArrowException as error:
        raise TableError(f"{path}: is not a parquet file that can be read: {error}") from error
    if not table.num_rows:
        raise TableError(f"{path}: no rows")
    columns = {
        name: column.to_pandas(types_mapper=pandas.ArrowDtype)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return Table.of_columns(str(path), columns, "parquet")
