"""Texts with a label each, as people keep them: a table of CSV or TSV with named columns, or a JSON object a line."""

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

Row = tuple[int, str, str]  # line, text, label

_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # JSON can write NUL and half characters, which no tokenizer takes


@dataclass(frozen=True)
class Labelled:
    """A text, the class it belongs to, and where it stands."""

    text: str
    label: str
    place: str  # "file:line"


def read_labelled(path: Path, text: str = "text", label: str = "label") -> list[Labelled]:
    """The texts and labels in two named columns of a .csv, .tsv, .jsonl or .ndjson file. UTF-8, two classes or more.

    What is wrong with the table is a TableError, what is wrong with its encoding or its lines a TextError.
    """
    read = READERS.get(path.suffix.lower())
    if path.is_dir():
        raise TableError(f"{path}: is a folder, expected a file: {', '.join(READERS)}")
    if read is None:
        raise TableError(f"{path}: expected a file that ends in {', '.join(READERS)}, got {path.suffix or 'no ending'}")
    if text == label:
        raise TableError(f"{path}: expected two columns, text and label, got {text!r} for both")
    found = [_checked(path, row, text, label) for row in read(path, text, label)]
    if not found:
        raise TableError(f"{path}: no rows: expected texts with labels")
    classes = {each.label for each in found}
    if len(classes) == 1:
        raise TableError(f"{path}: expected two classes or more, all {len(found)} rows are {short(found[0].label)}")
    return found


def _checked(path: Path, row: Row, text: str, label: str) -> Labelled:
    line, *values = row
    for column, value in zip((text, label), values, strict=True):
        if not value.strip():
            raise TableError(f"{path}: line {line}, column {column!r}: is empty; fill it in or delete the row")
    return Labelled(values[0].strip(), values[1].strip(), f"{path}:{line}")


def _csv(path: Path, text: str, label: str) -> Iterator[Row]:
    return _rows(path, _cells(path), text, label)


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Cells may be quoted; a mark that is left open is an error, for it would swallow the rows below."""
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


def _tsv(path: Path, text: str, label: str) -> Iterator[Row]:
    """Between tabs everything is text: here a quotation mark is a character like any other."""
    rows = ((line, own.rstrip("\r\n").split("\t")) for line, own in enumerate(read_lines(path), 1))
    return _rows(path, rows, text, label)


def _rows(path: Path, rows: Iterator[tuple[int, list[str]]], text: str, label: str) -> Iterator[Row]:
    """The chosen cells below the header; a blank line is no row."""
    _, header = next(rows, (1, []))
    if not any(name.strip() for name in header):
        raise TableError(f"{path}: line 1: expected a header with the columns {text!r} and {label!r}, got none")
    chosen = [find_column(path, header, name, option) for name, option in ((text, "--text"), (label, "--label"))]
    for line, cells in rows:
        if len(cells) > 1 or any(cell.strip() for cell in cells):
            if len(cells) != len(header):
                raise TableError(f"{path}: line {line}: expected {len(header)} columns, got {len(cells)}")
            yield line, cells[chosen[0]], cells[chosen[1]]


def _json(path: Path, text: str, label: str) -> Iterator[Row]:
    for line, own in enumerate(read_lines(path), 1):
        if not own.strip():
            continue
        place = f"{path}: line {line}"
        try:
            row = json.loads(own)
        except (ValueError, RecursionError) as error:
            raise TableError(f"{place}: is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TableError(f"{place}: expected a JSON object such as {{{text!r}: …, {label!r}: …}}, got {short(row)}")
        for name in (text, label):
            find_column(place, list(row), name)
        yield line, _string(place, text, row[text]), _string(place, label, _written(row[label]))


def _written(label: object) -> object:
    """Labels may be whole numbers, true or false in JSON, and are then as JSON writes them."""
    return json.dumps(label) if isinstance(label, int) else label


def _string(place: str, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TableError(f"{place}, {name!r}: expected a string, got {short(value)}")
    if found := _NO_TEXT.search(value):
        raise TableError(f"{place}, {name!r}: holds {found[0]!r}, so it is no text")
    return value


READERS = {".csv": _csv, ".tsv": _tsv, ".jsonl": _json, ".ndjson": _json}
