"""Texts with a label each: a table of CSV or TSV with named columns, or a JSON object a line."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

from regard.data.encodings import COMPRESSIONS, OLD_WORKBOOK
from regard.data.line_files import MAX_LINE, NO_TEXT, Encoding, Line, checked_lines, find_encoding, guess_encoding
from regard.data.skipped import Skipped
from regard.data.tables import TableError, find_column, missing_column, separator
from regard.data.texts import TextError

__all__ = ["Labelled", "labelled_encoding", "labelled_rows", "read_labelled"]

Cells = Iterator[tuple[int, list[str], str]]  # line and cells of each row; and why it cannot be used, if so
Rows = Iterator[tuple[int, str, str]]  # line, text and label of each row

MAX_QUOTED = 1 << 20  # characters of a row of several lines: beyond them a quotation mark was left open
JSON_TYPES = {bool: "true or false", int: "a whole number", str: "a string"}  # of a label


@dataclass(frozen=True)
class Labelled:
    """A text and the class it belongs to."""

    text: str
    label: str


def read_labelled(path: Path, text: str = "text", label: str = "label") -> list[Labelled]:
    """The texts and labels in two named columns of a .csv, .tsv, .jsonl or .ndjson file. Two classes or more.

    Raises TableError for what is wrong with the table, TextError for what is wrong with its encoding, RowsError for
    what is wrong with its rows.
    """
    skipped = Skipped()
    examples = list(labelled_rows(path, text, label, skipped))
    skipped.check(len(examples))
    if not examples:
        raise TableError(f"{path}: no rows: expected texts with labels")
    if len({example.label for example in examples}) == 1:
        only = short(examples[0].label)
        raise TableError(f"{path}: expected two classes or more, all {len(examples)} rows are {only}")
    return examples


def labelled_rows(
    path: Path, text: str, label: str, skipped: Skipped, encoding: Callable[[], Encoding] | None = None
) -> Iterator[Labelled]:
    """The same one at a time, from a file of any size; `skipped` gets the rows that cannot be used.

    encoding: remembers what `labelled_encoding` finds, for files that are read several times.
    """
    read = READERS.get(path.suffix.lower())
    if path.is_dir():
        raise TableError(f"{path}: is a folder, expected a file: {', '.join(READERS)}")
    if read is None:
        raise TableError(f"{path}: expected a file that ends in {', '.join(READERS)}, got {path.suffix or 'no ending'}")
    if text == label:
        raise TableError(f"{path}: expected two columns, text and label, got {text!r} for both")
    for line, written, name in read(path, text, label, skipped, encoding() if encoding else labelled_encoding(path)):
        example = Labelled(written.strip(), name.strip())
        if example.text and example.label:
            yield example
        else:
            skipped.add(path, line, f"column {label if example.text else text!r} is empty")


def labelled_encoding(path: Path) -> Encoding:
    """The encoding of a file; that of a table is guessed if it is neither marked nor UTF-8."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error
    packed = [kind for mark, kind in COMPRESSIONS.items() if start.startswith(mark)]
    if packed or start.startswith(OLD_WORKBOOK):
        kind = "a workbook of Excel, or a zip archive" if packed in ([], ["zip"]) else f"compressed ({packed[0]})"
        raise TableError(f"{path}: is {kind}, expected plain text: save it as CSV, or unpack it")
    return guess_encoding(path) if path.suffix.lower() in (".csv", ".tsv") else find_encoding(path)


# ---------------------------------------------------------------------------------------------------------- CSV and TSV


def _read_csv(path: Path, text: str, label: str, skipped: Skipped, encoding: Encoding) -> Rows:
    return _choose_columns(path, _csv_cells(path, encoding), text, label, skipped)


class _Source:
    """The lines that a csv.reader asks for; it knows those of the row at hand, and can give them again."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.lines = lines
        self.taken: list[Line] = []
        self.size = 0  # of the lines taken, in characters
        self.waiting: list[Line] = []  # the next one last

    def __iter__(self) -> _Source:
        return self

    def __next__(self) -> str:
        line = self.waiting.pop() if self.waiting else next(self.lines)
        self.taken.append(line)
        self.size += len(line.text)
        if self.size > MAX_QUOTED and len(self.taken) > 1:
            raise csv.Error(f"a row of several lines and more than {MAX_QUOTED:,} characters")
        return line.text

    def begin_row(self) -> None:
        self.taken.clear()
        self.size = 0

    def give_again(self, lines: list[Line]) -> None:
        self.waiting += reversed(lines)


def _csv_cells(path: Path, encoding: Encoding) -> Cells:
    """Cells may be quoted. A quotation mark that is left open makes one line unusable, and not the rows below it."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    source = _Source(checked_lines(path, encoding, newline=""))
    delimiter = _find_delimiter(source)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        source.begin_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield source.taken[0].number, [], f"{error}; is a quotation mark open or not doubled?"
            source.give_again(source.taken[1:])
            continue
        flawed = [line for line in source.taken if line.flaw] or [source.taken[0]]
        yield flawed[0].number, cells, flawed[0].flaw


def _find_delimiter(source: _Source) -> str:
    """By the header, or by a line such as `sep=;` that Excel writes above it."""
    first = next(source, "")
    if first.strip().lower() in ("sep=,", "sep=;", "sep=|", "sep=\t", "sep="):
        return first.strip()[4:] or "\t"
    source.give_again(source.taken)
    source.begin_row()
    return separator(first)


def _read_tsv(path: Path, text: str, label: str, skipped: Skipped, encoding: Encoding) -> Rows:
    return _choose_columns(path, _tsv_cells(path, encoding), text, label, skipped)


def _tsv_cells(path: Path, encoding: Encoding) -> Cells:
    """Between tabs everything is text: a quotation mark is a character like any other."""
    for number, line, flaw in checked_lines(path, encoding):
        yield number, line.rstrip("\r\n").split("\t"), flaw


def _choose_columns(path: Path, rows: Cells, text: str, label: str, skipped: Skipped) -> Rows:
    """The text and label cells below the header; a blank line is no row."""
    first, header, flaw = next(rows, (1, [], ""))
    if flaw:
        raise TableError(f"{path}: line {first}: the header cannot be read: {flaw}")
    if not any(name.strip() for name in header):
        raise TableError(f"{path}: line {first}: expected a header with the columns {text!r} and {label!r}, got none")
    _refuse_twins(path, first, header)
    columns = [find_column(path, header, name, option) for name, option in ((text, "--text"), (label, "--label"))]
    for line, cells, flaw in rows:
        if flaw:
            skipped.add(path, line, flaw)
        elif len(cells) == len(header):
            yield line, cells[columns[0]], cells[columns[1]]
        elif len(cells) > 1 or any(cell.strip() for cell in cells):
            skipped.add(path, line, f"expected {len(header)} columns, got {len(cells)}")


def _refuse_twins(path: Path, line: int, header: list[str]) -> None:
    names = [name.strip() for name in header]
    for name, count in Counter(names).items():
        if name and count > 1:
            places = ", ".join(str(number) for number, other in enumerate(names, 1) if other == name)
            raise TableError(f"{path}: line {line}: columns {places} are all called {short(name)}: rename them")


# ----------------------------------------------------------------------------------------------------------------- JSON


def _read_json(path: Path, text: str, label: str, skipped: Skipped, encoding: Encoding) -> Rows:
    types: dict[type, tuple[int, object]] = {}  # of the labels: where each was seen first
    for number, line, flaw in checked_lines(path, encoding):
        if not line.strip() and not flaw:
            continue
        row, reason = _parse(line, text, label) if not flaw else ({}, flaw)
        if reason:
            skipped.add(path, number, reason)
            continue
        name = row[label]
        types.setdefault(type(name), (number, name))
        if len(types) > 1:
            raise _mixed_types(path, types)
        # A label may be a whole number, true or false, and is then the text that JSON writes for it.
        yield number, row[text], name if isinstance(name, str) else json.dumps(name)


def _parse(line: str, text: str, label: str) -> tuple[dict[str, Any], str]:
    """The object in a line; or why it cannot be used."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"is not JSON: {error}"
    if not isinstance(row, dict):
        return {}, f"expected a JSON object such as {{{text!r}: …, {label!r}: …}}, got {short(row)}"
    for name, types in ((text, (str,)), (label, tuple(JSON_TYPES))):
        if name not in row:
            return {}, missing_column(list(row), name)
        value = row[name]
        if not isinstance(value, types):
            return {}, f"{name!r}: expected a string, got {short(value)}"
        if isinstance(value, str) and (character := NO_TEXT.search(value)):
            return {}, f"{name!r}: holds {character[0]!r}, so it is no text"
    return row, ""


def _mixed_types(path: Path, types: dict[type, tuple[int, object]]) -> TableError:
    (one, (line, value)), (other, (second_line, second_value)) = types.items()
    return TableError(
        f"{path}: line {second_line}: its label {json.dumps(second_value)} is {JSON_TYPES[other]}, but that of line "
        f"{line}, {json.dumps(value)}, is {JSON_TYPES[one]}: write all labels in one way"
    )


READERS = {".csv": _read_csv, ".tsv": _read_tsv, ".jsonl": _read_json, ".ndjson": _read_json}
