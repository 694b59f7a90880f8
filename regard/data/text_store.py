"""Texts with classes as tokens in a store: ids and class numbers of each part; validation and test as texts as well."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from regard.data.labelled import Labelled, labelled_encoding, labelled_rows
from regard.data.skipped import Skipped
from regard.data.split import PARTS, Part
from regard.data.store import Store, StoreWriter, prepared
from regard.data.survey import LEFT_OUT, RowSource, Survey
from regard.data.token_files import encode_blocks, ids_dtype, tokenizer_digest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["StoredTexts", "choose_balanced", "store_texts", "texts_in_file"]

Array = NDArray[Any]


class StoredTexts:
    """The texts of one part, as ids, with the number of each one's class."""

    def __init__(self, store: Store, part: Part) -> None:
        self.store, self.part = store, part
        self.lengths = store.column(f"{part}.lengths")
        self.classes = store.column(f"{part}.class")  # of each text, as its index in names
        self.names: list[str] = store.facts["classes"]

    def __len__(self) -> int:
        return len(self.lengths)

    def ids(self, rows: Sequence[int]) -> list[Array]:
        """The ids of some texts."""
        return self.store.ragged(f"{self.part}.ids").take(rows)

    def texts(self, rows: Sequence[int]) -> list[str]:
        """The texts themselves; those of the training part are not stored."""
        return self.store.ragged(f"{self.part}.text").texts(rows)


def texts_in_file(path: Path, text: str, label: str) -> RowSource[Labelled]:
    """The rows of a CSV, TSV or JSONL file, in whose columns the texts and labels are."""
    encoding = cache(lambda: labelled_encoding(path))  # the file may have to be read for it

    def read(skipped: Skipped) -> Iterator[Labelled]:
        return labelled_rows(path, text, label, skipped, encoding)

    key = {"rows": "texts", "text": text, "label": label, "format": path.suffix.lower()}
    return RowSource(str(path), "row", [path], key, read, _text, _label, about=lambda: {"encoding": encoding().name})


def _text(example: Labelled) -> tuple[str]:
    return (example.text,)


def _label(example: Labelled) -> str:
    return example.label


def choose_balanced(survey: Survey[Labelled], count: int) -> Survey[Labelled]:
    """The same with `count` texts to train on, equally many of each class if possible; with all if count is 0.

    Those of a class that have the smallest hashes are chosen, so the same ones in any order of the file.
    """
    if not count or count >= survey.counts[0]:
        return survey
    quotas = _quotas(survey, count)
    chosen = numpy.empty((0, 3), dtype=numpy.uint64)  # class, hash and row of the best ones so far
    for start, stop in survey.spans():
        rows = numpy.stack(
            [survey.classes(start, stop), survey.store.column("hash").between(start, stop), numpy.arange(start, stop)],
            axis=1,
            dtype=numpy.uint64,
            casting="unsafe",
        )
        chosen = numpy.concatenate([chosen, rows[survey.parts(start, stop) == 0]])
        chosen = chosen[numpy.lexsort((chosen[:, 2], chosen[:, 1], chosen[:, 0]))]
        first = numpy.searchsorted(chosen[:, 0], chosen[:, 0])  # where the class of each begins
        chosen = chosen[numpy.arange(len(chosen)) - first < quotas[chosen[:, 0].astype(numpy.int64)]]
    return replace(survey, chosen=numpy.sort(chosen[:, 2]).astype(numpy.int64))


def _quotas(survey: Survey[Labelled], count: int) -> Array:
    """How many texts of each class are chosen: classes take turns in the order of their names while they have some."""
    available: Array = survey.class_counts[0]
    least, most = 0, int(available.max())
    while least < most:  # the number of turns that all classes together can take
        turns = (least + most + 1) // 2
        least, most = (turns, most) if numpy.minimum(available, turns).sum() <= count else (least, turns - 1)
    quotas: Array = numpy.minimum(available, least)
    for index in sorted(range(len(quotas)), key=survey.labels.__getitem__):
        if quotas.sum() < count and available[index] > quotas[index]:
            quotas[index] += 1
    return quotas


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
    blocks, texts = tee(survey.blocks("tokenizing"))
    encoded = encode_blocks(tokenizer, ([row.text for row in block.rows] for block in texts), add_special_tokens=True)
    empty = 0
    for block, ids in zip(blocks, encoded, strict=True):
        has_tokens = numpy.array([len(values) > 0 for values in ids])
        empty += int((~has_tokens & (block.parts != LEFT_OUT)).sum())
        for index, part in enumerate(PARTS):
            rows = numpy.flatnonzero((block.parts == index) & has_tokens)
            chosen = [ids[row] for row in rows]
            lengths = numpy.array([len(values) for values in chosen], numpy.int32)
            writer.column(f"{part}.lengths", lengths)
            writer.ragged(f"{part}.ids", numpy.concatenate([numpy.empty(0, dtype), *chosen]), lengths)
            classes = [numbers[block.rows[row].label] for row in rows]
            writer.column(f"{part}.class", numpy.array(classes, numpy.int32))
            if part != "train":
                writer.texts(f"{part}.text", [block.rows[row].text for row in rows])
    return {"classes": names, "empty": empty}
