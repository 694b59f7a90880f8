"""Sentences and their translations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from regard.data.texts import TextError, read_lines

__all__ = ["Pair", "read_pairs"]


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation; if it is known, which words belong together."""

    source: str
    target: str
    alignment: frozenset[tuple[int, int]] | None = None  # (word of the source, word of the target), see words.split


def read_pairs(source: Path, target: Path | None = None) -> list[Pair]:
    """The pairs of a file with a tab between sentence and translation, or of two files line by line. UTF-8.

    Lines that are blank on both sides are left out.
    """
    for path in (source, target):
        if path is not None and path.is_dir():
            raise TextError(f"{path}: is a folder, expected a file with a sentence a line")
    pairs = []
    rows = _columns(source) if target is None else _parallel(source, target)
    for number, row in enumerate(rows, 1):
        left, right = (text.strip() for text in row)
        if left and right:
            pairs.append(Pair(left, right))
        elif left or right:
            side = "translation" if left else "sentence"
            raise TextError(f"{source}: line {number}: its {side} is blank; fill it in or delete the pair")
    if not pairs:
        raise TextError(f"{source}: no line in it that is not blank")
    return pairs


def _columns(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        cells = line.rstrip("\r\n").split("\t") if line.strip() else ["", ""]
        if len(cells) != 2:
            hint = "; or give the translations as a second file" if len(cells) == 1 else ""
            raise TextError(
                f"{path}: line {number}: expected two columns, sentence and translation with a tab between them, "
                f"got {len(cells)}{hint}"
            )
        yield cells[0], cells[1]


def _parallel(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    counts = [0, 0]
    for left, right in zip_longest(read_lines(source), read_lines(target)):
        counts[0] += left is not None
        counts[1] += right is not None
        if counts[0] == counts[1]:
            yield left, right
    if counts[0] != counts[1]:
        raise TextError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: expected a translation for every line"
        )
