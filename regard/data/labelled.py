"""Texts with a label each: a table of CSV or TSV with named columns, or a JSON object a line; stored as tokens.

Of each part a store has ids and class numbers, of validation and test the texts as well.
"""

from __future__ import annotations

import copy
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from regard.data.split import LEFT_OUT, PARTS, Part, RowSource, Survey, balanced_rows
from regard.data.store import Store, StoreWriter, prepared
from regard.data.tables import TableError, find_column, missing_column
from regard.data.texts import MAX_LINE, NO_TEXT, Encoding, Line, Skipped, checked_lines, find_encoding, guess_encoding
from regard.data.tokens import ids_dtype, tokenizer_digest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Array = NDArray[Any]
Cells = Iterator[tuple[int, list[str], str]]  # line and cells of each row; and why it cannot be used, if so
Rows = Iterator[tuple[int, str, str]]  # line, text and label of each row

MAX_QUOTED = 1 << 20  # characters of a row of several lines: beyond them a quotation mark was left open
JSON_TYPES = {str: "a string", int: "a whole number", bool: "true or false"}  # of a label


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


def labelled_encoding(path: Path) -> Encoding:
    """The encoding of a file; that of a table is guessed if it is neither marked nor UTF-8."""
    return guess_encoding(path) if path.suffix.lower() in (".csv", ".tsv") else find_encoding(path)


def labelled_rows(
    path: Path, text: str, label: str, skipped: Skipped, encoding: Callable[[Path], Encoding] = labelled_encoding
) -> Iterator[Labelled]:
    """The same one at a time, from a file of any size; `skipped` gets the rows that cannot be used.

    encoding: finds that of a file, and may remember it for files that are read several times.
    """
    read = READERS.get(path.suffix.lower())
    if path.is_dir():
        raise TableError(f"{path}: is a folder, expected a file: {', '.join(READERS)}")
    if read is None:
        raise TableError(f"{path}: expected a file that ends in {', '.join(READERS)}, got {path.suffix or 'no ending'}")
    if text == label:
        raise TableError(f"{path}: expected two columns, text and label, got {text!r} for both")
    for line, written, name in read(path, text, label, skipped, encoding(path)):
        example = Labelled(written.strip(), name.strip())
        if example.text and example.label:
            yield example
        else:
            skipped.add(path, line, f"column {label if example.text else text!r} is empty")


# ---------------------------------------------------------------------------------------------------------- CSV and TSV


def _csv_cells(path: Path, encoding: Encoding) -> Cells:
    """Cells may be quoted. A quotation mark that is left open makes one line unusable, and not the rows below it."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    lines = checked_lines(path, encoding, newline="")
    taken: list[Line] = []  # those of the row at hand
    waiting: list[Line] = []  # those that are read again, the next one last

    def texts() -> Iterator[str]:
        size = 0  # of the row at hand, in characters
        while line := waiting.pop() if waiting else next(lines, None):
            taken.append(line)
            size = len(line.text) + (size if len(taken) > 1 else 0)
            if size > MAX_QUOTED and len(taken) > 1:
                raise csv.Error(f"a row of several lines and more than {MAX_QUOTED:,} characters")
            yield line.text

    first = next(lines, None)
    if first is None:
        return
    marker = re.fullmatch(r"sep=([,;|\t]?)", first.text.strip(" \r\n").lower())  # as Excel writes it above the header
    delimiter = (marker[1] or "\t") if marker else max(",;\t|", key=first.text.count)
    waiting += [] if marker else [first]
    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
    while True:
        taken.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield taken[0].number, [], f"{error}; is a quotation mark open or not doubled?"
            waiting += taken[:0:-1]
            reader = csv.reader(texts(), delimiter=delimiter, strict=True)
            continue
        flawed = [line for line in taken if line.flaw] or [taken[0]]
        yield flawed[0].number, cells, flawed[0].flaw


def _tsv_cells(path: Path, encoding: Encoding) -> Cells:
    """Between tabs everything is text: a quotation mark is a character like any other."""
    for number, line, flaw in checked_lines(path, encoding):
        yield number, line.rstrip("\r\n").split("\t"), flaw


def _read_table(path: Path, text: str, label: str, skipped: Skipped, encoding: Encoding) -> Rows:
    """The text and label cells below the header; a blank line is no row."""
    rows = (_csv_cells if path.suffix.lower() == ".csv" else _tsv_cells)(path, encoding)
    first, header, flaw = next(rows, (1, [], ""))
    if flaw:
        raise TableError(f"{path}: line {first}: the header cannot be read: {flaw}")
    if not any(name.strip() for name in header):
        raise TableError(f"{path}: line {first}: expected a header with the columns {text!r} and {label!r}, got none")
    names = [name.strip() for name in header]
    for name, count in Counter(names).items():
        if name and count > 1:
            places = ", ".join(str(number) for number, other in enumerate(names, 1) if other == name)
            raise TableError(f"{path}: line {first}: columns {places} are all called {short(name)}: rename them")
    columns = [find_column(path, header, name, option) for name, option in ((text, "--text"), (label, "--label"))]
    for line, cells, flaw in rows:
        if flaw:
            skipped.add(path, line, flaw)
        elif len(cells) == len(header):
            yield line, cells[columns[0]], cells[columns[1]]
        elif len(cells) > 1 or any(cell.strip() for cell in cells):
            skipped.add(path, line, f"expected {len(header)} columns, got {len(cells)}")


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
            (one, (line_one, value_one)), (other, (line_other, value_other)) = types.items()
            raise TableError(
                f"{path}: line {line_other}: its label {json.dumps(value_other)} is {JSON_TYPES[other]}, but that of "
                f"line {line_one}, {json.dumps(value_one)}, is {JSON_TYPES[one]}: write all labels in one way"
            )
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
            expected = ", ".join(JSON_TYPES[kind] for kind in types)
            return {}, f"{name!r}: expected {expected}, got {short(value)}"
        if isinstance(value, str) and (character := NO_TEXT.search(value)):
            return {}, f"{name!r}: holds {character[0]!r}, so it is no text"
    return row, ""


READERS = {".csv": _read_table, ".tsv": _read_table, ".jsonl": _read_json, ".ndjson": _read_json}


# ------------------------------------------------------------------------------------------------------------- storing


class StoredTexts:
    """The texts of one part, as ids, with the number of each one's class."""

    def __init__(self, store: Store, part: Part) -> None:
        self.store, self.part = store, part
        self.lengths = store.column(f"{part}.lengths")
        self.classes = store.column(f"{part}.class")  # of each text, as its index in names
        self.names: list[str] = store.facts["classes"]

    def __len__(self) -> int:
        return len(self.lengths)

    def count(self, length: int) -> int:
        """How many texts have this many tokens."""
        return sum(int((lengths == length).sum()) for lengths in self.lengths.blocks())

    def ids(self, rows: Sequence[int]) -> list[Array]:
        """The ids of some texts."""
        return self.store.ragged(f"{self.part}.ids").take(rows)

    def texts(self, rows: Sequence[int]) -> list[str]:
        """The texts themselves; those of the training part are not stored."""
        return self.store.ragged(f"{self.part}.text").texts(rows)


def texts_in_file(path: Path, text: str, label: str) -> RowSource[Labelled]:
    """The rows of a CSV, TSV or JSONL file, in whose columns the texts and labels are."""
    encoding = cache(labelled_encoding)  # the file may have to be read for it
    return RowSource(
        str(path),
        unit="row",
        files=[path],
        key={"rows": "texts", "text": text, "label": label, "format": path.suffix.lower()},
        read=lambda skipped: labelled_rows(path, text, label, skipped, encoding),
        texts=lambda row: (row.text,),
        label=lambda row: row.label,
        about=lambda: {"encoding": encoding(path).name},
    )


def choose_balanced(survey: Survey[Labelled], count: int) -> Survey[Labelled]:
    """The same with `count` texts to train on, equally many of each class if possible; with all if count is 0.

    Those of a class that have the smallest hashes are chosen, so the same ones in any order of the file.
    """
    if not count or count >= survey.counts[0]:
        return survey
    labels = survey.labels
    ranks = numpy.argsort(sorted(range(len(labels)), key=labels.__getitem__))  # of the classes, by their names
    chosen = numpy.empty((0, 3), dtype=numpy.uint64)  # class, hash and row of the best ones so far
    for start, stop in survey.spans():
        classes, hashes = ranks[survey.classes(start, stop)], survey.store.column("hash").between(start, stop)
        rows = numpy.stack([classes, hashes, numpy.arange(start, stop)], 1, dtype=numpy.uint64, casting="unsafe")
        chosen = numpy.concatenate([chosen, rows[survey.parts(start, stop) == 0]])
        chosen = chosen[balanced_rows(chosen[:, 0], chosen[:, 1], count)]
    return replace(survey, chosen=chosen[:, 2].astype(numpy.int64))


def store_texts(survey: Survey[Labelled], tokenizer: Tokenizer, max_length: int, examples: int) -> Store:
    """The texts of each part as tokens, cut at max_length; those without any token are left out, and counted.

    examples: how many were chosen, for the key.
    """
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    key = {**survey.key, "examples": examples, "tokenizer": tokenizer_digest(tokenizer)}
    return prepared(key, partial(_write, survey, tokenizer))


def _write(survey: Survey[Labelled], tokenizer: Tokenizer, writer: StoreWriter) -> dict[str, Any]:
    names = sorted(survey.labels)
    numbers = {name: number for number, name in enumerate(names)}
    dtype = ids_dtype(tokenizer.get_vocab_size())
    empty = 0
    for block, (ids,) in survey.encoded([tokenizer], special=[True]):
        lengths = numpy.array([len(values) for values in ids], numpy.int32)
        empty += int(((lengths == 0) & (block.parts != LEFT_OUT)).sum())
        for index, part in enumerate(PARTS):
            rows = numpy.flatnonzero((block.parts == index) & (lengths > 0))
            writer.column(f"{part}.lengths", lengths[rows])
            writer.arrays(f"{part}.ids", [ids[row] for row in rows], dtype)
            classes = [numbers[block.rows[row].label] for row in rows]
            writer.column(f"{part}.class", numpy.array(classes, numpy.int32))
            if part != "train":
                writer.texts(f"{part}.text", [block.rows[row].text for row in rows])
    return {"classes": names, "empty": empty}
