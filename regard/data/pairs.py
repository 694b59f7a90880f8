"""Sentences and their translations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from regard.data.line_files import checked_lines
from regard.data.skipped import Skipped
from regard.data.texts import TextError

__all__ = ["Pair", "pair_rows", "read_pairs"]

COLUMNS = "expected two columns, sentence and translation with a tab between them"


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
    skipped = Skipped(unit="pair")
    pairs = list(pair_rows(source, target, skipped))
    skipped.check(len(pairs))
    if not pairs:
        raise TextError(f"{source}: no line in it that is not blank")
    return pairs


def pair_rows(source: Path, target: Path | None, skipped: Skipped) -> Iterator[Pair]:
    """The same one at a time, from files of any size; `skipped` gets the lines that are no pair."""
    return _columns(source, skipped) if target is None else _parallel(source, target, skipped)


def _columns(path: Path, skipped: Skipped) -> Iterator[Pair]:
    for number, text, flaw in checked_lines(path):
        left, *others = text.split("\t")
        if flaw:
            skipped.add(path, number, flaw)
        elif len(others) == 1:
            yield from _pair(left, others[0], path, number, skipped)
        elif text.strip():
            hint = "" if others else "; or give the translations as a second file"
            skipped.add(path, number, f"{COLUMNS}, got {1 + len(others)}{hint}")


def _parallel(source: Path, target: Path, skipped: Skipped) -> Iterator[Pair]:
    counts = [0, 0]
    for left, right in zip_longest(checked_lines(source), checked_lines(target)):
        counts[0] += left is not None
        counts[1] += right is not None
        if counts[0] != counts[1]:
            continue
        for path, line in ((source, left), (target, right)):
            if line.flaw:
                skipped.add(path, line.number, line.flaw)
                break
        else:
            yield from _pair(left.text, right.text, source, left.number, skipped)
    if counts[0] != counts[1]:
        raise TextError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: expected a translation for every line"
        )


def _pair(left: str, right: str, path: Path, number: int, skipped: Skipped) -> Iterator[Pair]:
    left, right = left.strip(), right.strip()
    if left and right:
        yield Pair(left, right)
    elif left or right:
        skipped.add(path, number, f"its {'translation' if left else 'sentence'} is blank")
