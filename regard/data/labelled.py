"""Texts with a label each: a table of CSV or TSV with named columns, or a JSON object a line."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from reprlib import repr as short

from regard.data.tables import TableError, find_column, separator
from regard.data.texts import read_lines

__all__ = ["Labelled", "read_labelled"]

Cells = Iterator[tuple[int, list[str]]]  # line and cells of each row
Rows = Iterator[tuple[int, str, str]]  # line, text and label of each row

_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # JSON can write NUL and half characters, which no tokenizer takes


@dataclass(frozen=True)
class Labelled:
    """A text and the class it belongs to."""

    text: str
    label: str


def read_labelled(path: Path, text: str = "text", label: str = "label") -> list[Labelled]:
    """The texts and labels in two named columns of a .csv, .tsv, .jsonl or .ndjson file. UTF-8, two classes or more.

    Raises TableError for what is wrong with the table, TextError for what is wrong with its encoding or its lines.
    """
    read = READERS.get(path.suffix.lower())
    if path.is_dir():
        raise TableError(f"{path}: is a folder, expected a file: {', '.join(READERS)}")
    if read is None:
        raise TableError(f"{path}: expected a file that ends in {', '.join(READERS)}, got {path.suffix or 'no ending'}")
    if text == label:
        raise TableError(f"{path}: expected two columns, text and label, got {text!r} for both")
    examples = []
    for line, *cells in read(path, text, label):
        for column, cell in zip((text, label), cells, strict=True):
            if not cell.strip():
                raise TableError(f"{path}: line {line}, column {column!r}: is empty; fill it in or delete the row")
        examples.append(Labelled(*(cell.strip() for cell in cells)))
    if not examples:
        raise TableError(f"{path}: no rows: expected texts with labels")
    if len({example.label for example in examples}) == 1:
        only = short(examples[0].label)
        raise TableError(f"{path}: expected two classes or more, all {len(examples)} rows are {only}")
    return examples


def _read_csv(path: Path, text: str, label: str) -> Rows:
    return _choose_columns(path, _csv_cells(path), text, label)


def _csv_cells(path: Path) -> Cells:
    """Cells may be quoted; a quotation mark that is left open is an error, as it would swallow the rows below."""
    lines = read_lines(path)
    first = next(lines, "")
    reader = csv.reader(chain([first], lines), delimiter=separator(first), strict=True)
    line = 1  # where a row begins; it may have several lines
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise TableError(f"{path}: line {line}: {error}; is a quotation mark open or not doubled?") from error


def _read_tsv(path: Path, text: str, label: str) -> Rows:
    """Between tabs everything is text: a quotation mark is a character like any other."""
    rows = ((number, line.rstrip("\r\n").split("\t")) for number, line in enumerate(read_lines(path), 1))
    return _choose_columns(path, rows, text, label)


def _choose_columns(path: Path, rows: Cells, text: str, label: str) -> Rows:
    """The text and label cells below the header; a blank line is no row."""
    _, header = next(rows, (1, []))
    if not any(name.strip() for name in header):
        raise TableError(f"{path}: line 1: expected a header with the columns {text!r} and {label!r}, got none")
    columns = [find_column(path, header, name, option) for name, option in ((text, "--text"), (label, "--label"))]
    for line, cells in rows:
        if len(cells) > 1 or any(cell.strip() for cell in cells):
            if len(cells) != len(header):
                raise TableError(f"{path}: line {line}: expected {len(header)} columns, got {len(cells)}")
            yield line, cells[columns[0]], cells[columns[1]]


def _read_json(path: Path, text: str, label: str) -> Rows:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TableError(f"{place}: is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TableError(f"{place}: expected a JSON object such as {{{text!r}: …, {label!r}: …}}, got {short(row)}")
        for name in (text, label):
            find_column(place, list(row), name)
        # A label may be a whole number, true or false, and is then the text that JSON writes for it.
        written = json.dumps(row[label]) if isinstance(row[label], int) else row[label]
        yield number, _check_string(place, text, row[text]), _check_string(place, label, written)


def _check_string(place: str, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TableError(f"{place}, {name!r}: expected a string, got {short(value)}")
    if character := _NO_TEXT.search(value):
        raise TableError(f"{place}, {name!r}: holds {character[0]!r}, so it is no text")
    return value


READERS = {".csv": _read_csv, ".tsv": _read_tsv, ".jsonl": _read_json, ".ndjson": _read_json}
