"""Pairs as tokens in a store: those of the training part as ids, those of validation and test as texts as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from regard.data.pairs import Pair, pair_rows
from regard.data.split import PARTS, Part, Parts
from regard.data.store import Store, StoreWriter, prepared
from regard.data.survey import Block, RowSource, Survey
from regard.data.token_files import encode_blocks, ids_dtype, tokenizer_digest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["EncodedPair", "StoredPairs", "pairs_in_files", "pairs_in_memory", "store_pairs"]

Ids = NDArray[Any]
UNALIGNED, ALIGNED = 0, 1


@dataclass(frozen=True)
class EncodedPair:
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
        return [EncodedPair(*ids) for ids in zip(*sides, strict=True)]

    def __getitem__(self, row: int) -> EncodedPair:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row: expected one of {len(self)}, got {row}")
        return self.take([row % len(self)])[0]

    def texts(self, count: int | None = None) -> list[Pair]:
        """The first pairs as texts, those that are too long included; all if count is None."""
        columns = [self.store.ragged(f"{self.part}.{name}") for name in ("source_text", "target_text", "links")]
        rows = range(len(columns[0]) if count is None else min(count, len(columns[0])))
        sources, targets, links = columns[0].texts(rows), columns[1].texts(rows), columns[2].take(rows)
        return [Pair(s, t, _alignment(numbers)) for s, t, numbers in zip(sources, targets, links, strict=True)]


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
    dtypes = [ids_dtype(tokenizer.get_vocab_size()) for tokenizer in (source, target)]
    for block, sources, targets in _encoded(survey, source, target):
        lengths = numpy.array([(len(ids), len(other) + 1) for ids, other in zip(sources, targets, strict=True)])
        fits = (lengths[:, 0] > 0) & (lengths[:, 1] > 1) & (lengths.max(1) <= max_length)
        for index, part in enumerate(PARTS):
            is_here = block.parts == index
            too_long[part] += int((is_here & ~fits).sum())
            rows = numpy.flatnonzero(is_here & fits)
            writer.column(f"{part}.lengths", lengths[rows].astype(numpy.int32))
            for side, dtype, ids in zip(("source", "target"), dtypes, (sources, targets), strict=True):
                chosen = [ids[row] for row in rows]
                joined = numpy.concatenate([numpy.empty(0, dtype), *chosen])
                writer.ragged(f"{part}.{side}", joined, [len(values) for values in chosen])
            if part != "train":
                _write_texts(writer, part, [block.rows[row] for row in numpy.flatnonzero(is_here)])
    return {"too_long": too_long}


def _encoded(
    survey: Survey[Pair], source: Tokenizer, target: Tokenizer
) -> Iterator[tuple[Block[Pair], list[Ids], list[Ids]]]:
    """Blocks with the ids of both sides."""
    blocks, left, right = tee(survey.blocks("tokenizing"), 3)
    sources = ([pair.source for pair in block.rows] for block in left)
    targets = ([pair.target for pair in block.rows] for block in right)
    return zip(
        blocks,
        encode_blocks(source, sources, add_special_tokens=True),
        encode_blocks(target, targets),
        strict=True,
    )


def _write_texts(writer: StoreWriter, part: Part, pairs: Sequence[Pair]) -> None:
    writer.texts(f"{part}.source_text", [pair.source for pair in pairs])
    writer.texts(f"{part}.target_text", [pair.target for pair in pairs])
    links = [_link_numbers(pair) for pair in pairs]
    writer.ragged(f"{part}.links", numpy.array([*chain(*links)], numpy.int32), [len(numbers) for numbers in links])


def _link_numbers(pair: Pair) -> list[int]:
    """Whether an alignment is known, and its links end to end."""
    if pair.alignment is None:
        return [UNALIGNED]
    return [ALIGNED, *(number for link in sorted(pair.alignment) for number in link)]


def _alignment(numbers: Ids) -> frozenset[tuple[int, int]] | None:
    if numbers[0] == UNALIGNED:
        return None
    return frozenset((int(source), int(target)) for source, target in numbers[1:].reshape(-1, 2))
