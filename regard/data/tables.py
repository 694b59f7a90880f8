"""Tables from files: CSV in its many forms, its cells as text; or parquet, if pyarrow is installed.

The compression, the encoding, the separator, comments and the header are found out, and every cell is kept digit by
digit; what cells mean is found out by `regard.data.columns`. Errors name the file and the line.
"""

from __future__ import annotations

import bz2
import csv
import difflib
import gzip
import io
import lzma
import re
import sys
import textwrap
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from regard.data.cell_texts import are_values, is_number
from regard.data.texts import BYTE_ORDER_MARKS, COMPRESSIONS, OLD_WORKBOOK
from regard.errors import RegardError

STDIN = Path("-")
UNPACKED, UNPACKED_RATIO = 1 << 28, 64  # bytes that a packed table may have, or so many times its own: bombs have more
# Where an archive is broken, needs a password (RuntimeError) or a library that is not here (ImportError).
BROKEN = (OSError, EOFError, ValueError, RuntimeError, ImportError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
STREAMED = 1 << 30  # bytes that are read of stdin or a pipe
ENDLESS = "{}: expected a table that ends; save it as a file and name that: got"
SEPARATORS = {",": "comma-separated", ";": "';'-separated", "\t": "tab-separated", "|": "'|'-separated"}
BLANKS = r"\s+"  # as pandas takes it for a separator
SAMPLE = 50  # lines by which the separator is chosen


class TableError(RegardError, ValueError):
    """A file is not a table that can be used; the message says where and why."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table whose cells are text, as they stand in the file; those of parquet have types."""

    place: str
    names: tuple[str, ...]  # of the columns, as they stand in the header
    cells: Any  # a pandas DataFrame whose columns are numbered; its index: the numbers of the rows
    form: str  # how it is written, such as "';'-separated, Latin-1"
    separator: str = ""  # of its cells, "" for parquet
    text: str = ""  # that the cells were read from, "" for parquet
    rows: int = 0  # of the text, the header's included

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def lines(self) -> NDArray[numpy.int64]:
        """(n,): where the rows begin in the file, from 1; of parquet, their numbers."""
        numbers: NDArray[numpy.int64] = self.cells.index.to_numpy()
        return numpy.array([line for line, _ in self._rows])[numbers] if self.text else numbers + 1

    @cached_property
    def _rows(self) -> list[tuple[int, int]]:
        """Line and number of cells of all rows. Only errors need them, so they are not counted before."""
        lines, separator = io.StringIO(self.text), " " if self.separator == BLANKS else self.separator
        rows = [(line + 1, len(row)) for line, row in _parsed_rows(lines, separator)]
        # Where pandas takes quotation marks otherwise, lines cannot be told.
        return rows if len(rows) == self.rows else [(number + 1, len(self.names)) for number in range(self.rows)]

    def index(self, name: str) -> int:
        """The number of a column. Raises TableError where there is none of this name, or where a row is too short."""
        try:
            column = find_column(self.place, self.names, name)
        except TableError as error:
            if all(ord(letter) < 0x300 for letter in name) or not re.search("Latin-1|Windows-1252", self.form):
                raise
            raise TableError(f"{error}; was it read in the right encoding? try --encoding gb18030") from None
        if self.separator not in ("", BLANKS):
            is_empty = (self.cells[column] == "") & (self.cells.iloc[:, -1] == "")  # as in a row that is too short
            for number in self.cells.index[is_empty]:
                line, width = self._rows[number]
                if width <= column:
                    raise TableError(f"{self.place}: line {line}: expected {len(self.names)} columns, got {width}")
        return column

    @staticmethod
    def of_columns(place: str, columns: dict[str, Any], form: str) -> Table:
        """A table of columns that have types already; a row's line is its number."""
        import pandas

        return Table(place, tuple(columns), pandas.DataFrame(dict(enumerate(columns.values()))), form)


def find_column(place: Path | str, header: Sequence[str], name: str, option: str = "") -> int:
    """The index of a column; if there is none of this name, the error lists the columns and names the nearest.

    option: of the command line, by which another column can be named
    """
    known, name = [plain_name(column) for column in header], plain_name(name)
    if known.count(name) == 1:
        return known.index(name)
    if name in known:
        raise TableError(f"{place}: {known.count(name)} columns are named {name!r}; rename all but one")
    cure = f"; name another one by {option}" if option else ""
    raise TableError(f"{place}: {missing_column(known, name)}{cure}")


def plain_name(name: str) -> str:
    """A column's name in one line, without blanks around it."""
    return " ".join(name.split())


def missing_column(known: Sequence[str], name: str) -> str:
    """That there is no column of this name, what there is, and what was probably meant."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if all(part.strip() in known for part in name.split(",")):
        hint = f"; separate columns by spaces: {name.replace(',', ' ')}"
    columns = textwrap.shorten(", ".join(known), 300)  # on one line, whatever stands in the header
    return f"no column {name!r}{hint} (columns: {columns})"


def read_table(path: Path, encoding: str | None = None) -> Table:
    """The table of a file; "-" is stdin. encoding: of its text, found out unless it is given."""
    if path == STDIN:
        return _read_text("stdin", _read_stream(sys.stdin.buffer, STREAMED, ENDLESS.format("stdin")), encoding)
    if not path.exists():
        raise TableError(f"{path}: no such file")
    if path.is_dir():
        raise TableError(f"{path}: is a folder, expected a CSV or parquet file")
    if path.is_char_device() or path.is_block_device():  # some have no end; a pipe is as good as stdin
        raise TableError(f"{path}: is a device, expected a CSV or parquet file")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(str(path), path)
    with path.open("rb") as file:
        content = file.read() if path.is_file() else _read_stream(file, STREAMED, ENDLESS.format(path))
    return _read_text(str(path), content, encoding)


def _read_parquet(place: str, source: Path | io.BytesIO) -> Table:
    try:
        import pandas
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise TableError(f"{place}: reading parquet needs pyarrow: pip install pyarrow") from error
    try:
        table = parquet.read_table(source)
    except ArrowException as error:
        raise TableError(f"{place}: is not a parquet file that can be read: {error}") from error
    if not table.num_rows:
        raise TableError(f"{place}: no rows")
    columns = zip(table.column_names, table.columns, strict=True)
    typed = {name: column.to_pandas(types_mapper=pandas.ArrowDtype) for name, column in columns}
    return Table.of_columns(place, typed, "parquet")


# --------------------------------------------------------------------------------------------------------------- bytes


def _read_stream(file: Any, limit: int, excess: str) -> bytes:
    """All bytes of a file whose size is not known before; `excess` is the error where they are more than the limit."""
    content: bytes = file.read(limit + 1)
    if len(content) > limit:
        raise TableError(f"{excess} more than {limit:,} bytes")
    return content


def _decompress(raw: bytes, place: str) -> tuple[bytes, str]:
    """The content of gzip, bz2, xz, zstd, or of a zip archive with one file, and which of them it was, or ""."""
    if raw.startswith(OLD_WORKBOOK) or (raw.startswith(b"PK") and b"xl/workbook.xml" in raw):
        raise TableError(f"{place}: is a workbook of Excel; save it as CSV")
    kind = next((name for mark, name in COMPRESSIONS.items() if raw.startswith(mark)), "")
    if not kind:
        return raw, kind
    try:
        with _unpacker(raw, kind) as file:
            return _read_stream(file, max(UNPACKED, UNPACKED_RATIO * len(raw)), "it unpacks to"), kind
    except BROKEN as error:
        raise TableError(f"{place}: cannot be decompressed as {kind}: {error}") from error


def _unpacker(raw: bytes, kind: str) -> Any:
    """A file that unpacks bytes as they are read."""
    file = io.BytesIO(raw)
    if kind == "zip":
        archive = zipfile.ZipFile(file)
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) != 1:
            raise ValueError(f"expected one file in it, got {len(names)}")
        return archive.open(names[0])
    if kind == "zstd":
        import pyarrow

        return pyarrow.CompressedInputStream(pyarrow.BufferReader(raw), "zstd")
    opener: Any = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}[kind]
    return opener(file)


def _decode(raw: bytes, encoding: str | None, place: str) -> tuple[str, str]:
    """The text, and the encoding it was in: as given, by its mark, UTF-8, or else Latin-1 or Windows-1252."""
    marked = next((known for mark, known in BYTE_ORDER_MARKS.items() if raw.startswith(mark)), None)
    if encoding is not None:
        marked = encoding, encoding
    elif marked is None and raw.count(0) > len(raw) // 4:  # every other byte of a text in UTF-16
        little = raw[1::2].count(0) >= raw[::2].count(0)
        marked = "utf-16-le" if little else "utf-16-be", "UTF-16"
    codec, name = marked or ("utf-8", "UTF-8")
    try:
        return raw.decode(codec), name
    except UnicodeError as error:
        if marked is not None:
            raise TableError(f"{place}: is not {name} text: {error}") from error
        latin = not any(0x80 <= byte < 0xA0 for byte in set(raw))  # control characters there, signs in Windows-1252
        return raw.decode("latin-1" if latin else "cp1252", "replace"), "Latin-1" if latin else "Windows-1252"
    except LookupError as error:
        raise TableError(f"{place}: no encoding {codec!r}; try gb18030, latin-1 or utf-16") from error


# --------------------------------------------------------------------------------------------------------------- lines


def _read_text(place: str, raw: bytes, encoding: str | None) -> Table:
    unpacked, compression = _decompress(raw, place)
    if unpacked.startswith(b"PAR1"):
        return _read_parquet(place, io.BytesIO(unpacked))
    text, encoding = _decode(unpacked, encoding, place)
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    if not text.strip():
        raise TableError(f"{place}: is empty")
    if "\0" in text:
        raise TableError(f"{place}: holds a NUL character, so it is no text")
    if re.match(r'\s*(\[\s*)?\{\s*"', text):
        raise TableError(f"{place}: is JSON; save it as CSV")
    try:
        return _read_lines(place, text, ", ".join(filter(None, [compression, encoding])))
    except csv.Error as error:
        raise TableError(f"{place}: is not a table that can be read: {error}") from error


def _read_lines(place: str, text: str, form: str) -> Table:
    has_comments = text.startswith("#") or "\n#" in text
    rows = _row_starts(text) if has_comments else iter(())
    comments = {number: line for number, line in rows if line.startswith("#")}
    last_comment = [*comments.values()][-1][1:] if comments else ""
    text = _emptied(text, comments)
    if not text.strip():
        raise TableError(f"{place}: is empty but for comments")
    if marker := re.match(r"sep=(.)(?:\n|$)", text):  # as Excel writes it
        text = _emptied(text, [0])
    delimiter = marker[1] if marker else _find_separator(text)
    titles = _find_titles(text, delimiter)
    text = _emptied(text, titles)
    cells = _read_cells(place, text, delimiter)
    header, header_rows = _find_header(cells, last_comment, delimiter)
    table = _drop_empty_end(Table(place, header, cells.iloc[header_rows:], "", delimiter, text, len(cells)))
    if not len(table):
        raise TableError(f"{place}: no rows below the header")
    facts = [
        SEPARATORS.get(delimiter, "separated by blanks") if len(table.names) > 1 else "one column",
        form,
        f"{len(comments):,} comment line{'s' * (len(comments) > 1)}" if comments else "",
        f"{len(titles):,} title{'s' * (len(titles) > 1)}" if titles else "",
        "" if header_rows or last_comment else "no header, so columns are numbered",
    ]
    return replace(table, form=", ".join(filter(None, facts)))


def _row_starts(text: str) -> Iterator[tuple[int, str]]:
    """The lines at which rows begin, with their numbers: not blank ones, nor those inside quoted cells."""
    inside = False
    for number, line in enumerate(io.StringIO(text)):
        if not inside and line.strip():
            yield number, line.rstrip("\n")
        if '"' in line:
            inside ^= line.count('"') % 2 == 1


def _parsed_rows(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of the line at which it begins, from 0."""
    reader, line = csv.reader(lines, delimiter=delimiter, skipinitialspace=True), 0
    for row in reader:
        if len(row) > 1 or any(cell.strip() for cell in row):
            yield line, row
        line = reader.line_num


def _first_rows(text: str, delimiter: str) -> dict[int, list[str]]:
    """The cells of the first rows, by the numbers of their lines."""
    if delimiter == BLANKS:
        return {number: line.split() for number, line in islice(_row_starts(text), SAMPLE)}
    rows: dict[int, list[str]] = {}
    with suppress(csv.Error):  # pandas will say it
        rows.update(islice(_parsed_rows(islice(io.StringIO(text), 10 * SAMPLE), delimiter), SAMPLE))
    return rows or {0: [text]}


def _emptied(text: str, numbers: Collection[int]) -> str:
    """The text without the contents of these lines; they stay as empty ones, so that the others keep their numbers."""
    if not numbers:
        return text
    lines = text.split("\n")
    for number in numbers:
        lines[number] = ""
    return "\n".join(lines)


def _find_separator(text: str) -> str:
    """The separator by which most of the first rows have the same number of cells, and that is more than one; of
    several the one by which more cells are numbers: in "1,5;2,5" the commas are decimal."""

    def regularity(delimiter: str) -> tuple[float, float, int]:
        rows = [*_first_rows(text, delimiter).values()]
        width, count = Counter(map(len, rows)).most_common(1)[0]
        numbers = [is_number(cell) for row in rows for cell in row]
        return (count / len(rows), sum(numbers) / len(numbers), width) if width > 1 else (0, 0, 1)

    best = max(SEPARATORS, key=regularity)
    *_, width = regularity(best)
    by_blanks = {len(cells) for cells in _first_rows(text, BLANKS).values()}
    if width == 1 and len(by_blanks) == 1 and by_blanks != {1}:
        return BLANKS
    return best if width > 1 else ","


def _find_titles(text: str, delimiter: str) -> list[int]:
    """Lines above the header that have but a first cell, or none; a number is one only where a header follows."""
    rows = _first_rows(text, delimiter)
    if delimiter == BLANKS or Counter(map(len, rows.values())).most_common(1)[0][0] == 1:
        return []
    titles = [*takewhile(lambda number: not any(rows[number][1:]), rows)]
    if are_values(*[*rows.values()][len(titles) :][:2]):
        titles = [*takewhile(lambda number: not is_number(rows[number][0]), titles)]
    return titles if len(titles) < len(rows) else []


def _read_cells(place: str, text: str, delimiter: str) -> Any:
    """All cells with the header's."""
    import pandas

    width = max(map(len, _first_rows(text, delimiter).values()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # cells would be lost
            return pandas.read_csv(
                io.BytesIO(text.encode()),
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
        message = str(error).strip()
        if fields := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message):
            expected, line, count = fields.groups()
            message = f"line {line}: expected {expected} columns, got {count}"
        elif quoted := re.search(r"EOF inside string starting at row (\d+)", message):
            message = f"row {int(quoted[1]) + 1}: a quotation mark is left open"
        else:
            message = f"is not a table that can be read: {message}"
        raise TableError(f"{place}: {message}") from error


def _find_header(cells: Any, last_comment: str, delimiter: str) -> tuple[tuple[str, ...], int]:
    """The names of the columns, and whether they are a row of the table: 1 or 0."""
    first, *below = cells.iloc[:2].astype(str).to_numpy().tolist()
    if not are_values(first, *below):
        return tuple(first), 1
    commented = last_comment.split() if delimiter == BLANKS else last_comment.split(delimiter)
    if len(commented) == len(first):  # as numpy.savetxt writes it
        return tuple(name.strip() for name in commented), 0
    return tuple(str(number) for number in range(1, len(first) + 1)), 0


def _drop_empty_end(table: Table) -> Table:
    """Without the columns that have neither a name nor a cell, as separators at the ends of lines make them."""
    width, names = len(table.names), table.names
    while width > 1 and not names[width - 1].strip():
        filled = numpy.flatnonzero((table.cells[width - 1] != "").to_numpy(dtype=bool))
        named = sum(1 for name in names if name.strip())
        if len(filled) and named < width:
            line = table.lines[filled[0]]
            raise TableError(f"{table.place}: line {line}: expected {named} columns, as in the header, got {width}")
        width -= 1
    return replace(table, names=names[:width], cells=table.cells.iloc[:, :width])
