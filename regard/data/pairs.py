"""Sentences and their translations: read from files of any size, and stored as tokens.

Of the training part a store has the ids, of validation and test the texts as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from regard.data.split import PARTS, Part, Parts, RowSource, Survey
from regard.data.store import Store, StoreWriter, prepared
from regard.data.texts import Skipped, TextError, checked_lines, read_lines
from regard.data.tokens import ids_dtype, tokenizer_digest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = NDArray[Any]
UNALIGNED, ALIGNED = 0, 1
COLUMNS = "expected two columns, sentence and translation with a tab between them"


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation; if it is known, which words belong together."""

    source: str
    target: str
    alignment: frozenset[tuple[int, int]] | None = None  # (word of the source, word of the target), see words.split


# ------------------------------------------------------------------------------------------------------------- reading


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


def read_aligned_pairs(folder: Path) -> list[Pair]:
    """The pairs of a fetched set, with their alignments."""
    pairs, lines = read_pairs(folder / "pairs.tsv"), list(read_lines(folder / "alignments.txt"))
    if len(pairs) != len(lines):
        raise TextError(f"{folder}: {len(pairs)} pairs and {len(lines)} lines of alignments; move it away, fetch again")
    links = [frozenset((int(s), int(t)) for s, t in (link.split("-") for link in line.split())) for line in lines]
    return [Pair(pair.source, pair.target, alignment) for pair, alignment in zip(pairs, links, strict=True)]


def pair_rows(source: Path, target: Path | None, skipped: Skipped) -> Iterator[Pair]:
    """The pairs one at a time, from files of any size; `skipped` gets the lines that are no pair."""
    rows = _columns(source, skipped) if target is None else _parallel(source, target, skipped)
    for path, number, left, right in rows:
        left, right = left.strip(), right.strip()
        if left and right:
            yield Pair(left, right)
        elif left or right:
            skipped.add(path, number, f"its {'translation' if left else 'sentence'} is blank")


def _columns(path: Path, skipped: Skipped) -> Iterator[tuple[Path, int, str, str]]:
    """File, line and both sides of each row."""
    for number, text, flaw in checked_lines(path):
        left, *others = text.split("\t")
        if flaw:
            skipped.add(path, number, flaw)
        elif len(others) == 1:
            yield path, number, left, others[0]
        elif text.strip():
            hint = "" if others else "; or give the translations as a second file"
            skipped.add(path, number, f"{COLUMNS}, got {1 + len(others)}{hint}")


def _parallel(source: Path, target: Path, skipped: Skipped) -> Iterator[tuple[Path, int, str, str]]:
    for left, right in zip_longest(checked_lines(source), checked_lines(target)):
        if left is None or right is None:
            one, other = (sum(1 for _ in checked_lines(path)) for path in (source, target))
            raise TextError(f"{source} has {one} lines and {target} has {other}: expected a translation for every line")
        for path, line in ((source, left), (target, right)):
            if line.flaw:
                skipped.add(path, line.number, line.flaw)
                break
        else:
            yield source, left.number, left.text, right.text


# ------------------------------------------------------------------------------------------------------------- storing


class EncodedPair(NamedTuple):
    """The ids of a pair; those of the target are without bos and eos."""

    source: Ids
    target: Ids


class StoredPairs:
    """The pairs of one part: those that are short enough as ids, and all as texts, unless it is the training part."""

    def __init__(self, store: Store, part: Part) -> None:
        self.store, self.part = store, part
        self.lengths = store.column(f"{part}.lengths")  # (pairs, 2): source, and target with one of bos and eos
        self.too_long: int = store.facts["too_long"][part]

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Sequence[int]) -> list[EncodedPair]:
        """Pairs as ids, by their numbers."""
        sides = (self.store.ragged(f"{self.part}.{side}").take(rows) for side in ("source", "target"))
        return list(map(EncodedPair, *sides))

    def __getitem__(self, row: int) -> EncodedPair:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row: expected one of {len(self)}, got {row}")
        return self.take([row % len(self)])[0]

    def texts(self, count: int | None = None) -> list[Pair]:
        """The first pairs as texts, those that are too long included; all if count is None."""
        sources, targets, links = (
            self.store.ragged(f"{self.part}.{name}") for name in ("source_text", "target_text", "links")
        )
        rows = range(len(sources))[:count]
        return list(map(Pair, sources.texts(rows), targets.texts(rows), map(_alignment, links.take(rows))))


def pairs_in_files(source: Path, target: Path | None = None) -> RowSource[Pair]:
    """The pairs of a file of two columns, or of two files line by line."""
    files = [source] if target is None else [source, target]
    key = {"rows": "pairs", "files": len(files)}
    return RowSource(str(source), "pair", files, key, partial(pair_rows, source, target), _texts)


def pairs_in_memory(name: str, parts: Parts[Pair]) -> RowSource[Pair]:
    """Pairs whose parts are known."""
    pairs = [*parts.train, *parts.validation, *parts.test]
    indices = numpy.repeat([0, 1, 2], [len(parts.train), len(parts.validation), len(parts.test)])
    content = [[pair.source, pair.target, sorted(pair.alignment or ())] for pair in pairs]
    key = {"rows": content, "parts": indices.tolist()}
    return RowSource(name, "pair", [], key, lambda skipped: iter(pairs), _texts, parts=indices)


def _texts(pair: Pair) -> tuple[str, str]:
    return pair.source, pair.target


def store_pairs(survey: Survey[Pair], source: Tokenizer, target: Tokenizer, max_length: int) -> Store:
    """The pairs of each part as tokens; those with more than max_length on either side are left out."""
    key = {**survey.key, "tokenizers": [tokenizer_digest(source), tokenizer_digest(target)], "max_length": max_length}
    return prepared(key, partial(_write, survey, source, target, max_length))


def _write(
    survey: Survey[Pair], source: Tokenizer, target: Tokenizer, max_length: int, writer: StoreWriter
) -> dict[str, Any]:
    too_long = dict.fromkeys(PARTS, 0)
    dtypes = {"source": ids_dtype(source.get_vocab_size()), "target": ids_dtype(target.get_vocab_size())}
    for block, ids in survey.encoded([source, target], special=[True, False]):
        lengths = numpy.array([(len(left), len(right) + 1) for left, right in zip(*ids, strict=True)])
        fits = (lengths[:, 0] > 0) & (lengths[:, 1] > 1) & (lengths.max(1) <= max_length)
        for index, part in enumerate(PARTS):
            is_here = block.parts == index
            too_long[part] += int((is_here & ~fits).sum())
            rows = numpy.flatnonzero(is_here & fits)
            writer.column(f"{part}.lengths", lengths[rows].astype(numpy.int32))
            for (side, dtype), sequences in zip(dtypes.items(), ids, strict=True):
                writer.arrays(f"{part}.{side}", [sequences[row] for row in rows], dtype)
            if part != "train":
                pairs = [block.rows[row] for row in numpy.flatnonzero(is_here)]
                writer.texts(f"{part}.source_text", [pair.source for pair in pairs])
                writer.texts(f"{part}.target_text", [pair.target for pair in pairs])
                writer.arrays(f"{part}.links", [_link_numbers(pair) for pair in pairs], numpy.int32)
    return {"too_long": too_long}


def _link_numbers(pair: Pair) -> Ids:
    """Whether an alignment is known, and its links end to end."""
    numbers = [UNALIGNED] if pair.alignment is None else [ALIGNED, *chain.from_iterable(sorted(pair.alignment))]
    return numpy.array(numbers, numpy.int32)


def _alignment(numbers: Ids) -> frozenset[tuple[int, int]] | None:
    if numbers[0] == UNALIGNED:
        return None
    return frozenset((int(source), int(target)) for source, target in numbers[1:].reshape(-1, 2))
