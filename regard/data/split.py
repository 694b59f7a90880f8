"""Training, validation and test: the SHA-256 of a content decides which part it belongs to.

So equal contents are in the same part, in whatever order they come, and what is trained on stays in the training part
when the file grows.

Rows of files of any size are read once to know them all, and again, a block at a time, to use them: `survey` counts
them, collects those that cannot be used, and stores a hash and a class for each of the others. A `Survey` knows from
these which part each row belongs to, and reads the rows again.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import numpy
from numpy.typing import NDArray

from regard.data import tokens
from regard.data.store import NUMBERS, Column, Store, StoreWriter, advance, content_digest, prepared
from regard.data.streams import fork
from regard.data.texts import Skipped, TextError
from regard.errors import RegardError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Item = TypeVar("Item")
Row = TypeVar("Row")
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
Array = NDArray[Any]
SHARE = 0.05  # of all contents, for validation and for the test each
MANY = 1 << 12  # contents: if there are so many for validation and test, they are not all in one of the two
LEFT_OUT = len(PARTS)  # what stands for the part of a row that is in none
MAX_CLASSES = 50_000  # more are no classes: the column is probably another one
FORMAT = 1  # rows are surveyed anew when what is read from a file changes


class SplitError(RegardError, ValueError):
    """The items cannot be split; the message says why."""


@dataclass(frozen=True)
class Parts(Generic[Item]):
    """Items to train on, to validate with during training, and to test with at the end; in the given order."""

    train: list[Item]
    validation: list[Item]
    test: list[Item]


@dataclass(frozen=True)
class Division:
    """Which part each content belongs to."""

    validation: float  # a share of 1, as the next one
    test: float
    moved: Mapping[int, Part]  # hashes whose part is another one, lest that were empty

    def __post_init__(self) -> None:
        if not (self.validation >= 0 and self.test >= 0 and self.validation + self.test < 1):
            got = f"{self.validation} and {self.test}"
            raise SplitError(f"expected shares of 0 or more that leave some to train on, got {got}")

    def part(self, content_hash: int) -> Part:
        """The part of a content, by its hash."""
        if content_hash in self.moved:
            return self.moved[content_hash]
        position = content_hash / 2**64  # from 0 to 1
        return "test" if position < self.test else "validation" if position < self.test + self.validation else "train"

    def parts(self, hashes: Array) -> Array:
        """The parts of contents, as indices of PARTS; hashes (n,)."""
        positions = hashes.astype(numpy.float64) / 2**64
        indices = numpy.where(positions < self.test, 2, numpy.where(positions < self.test + self.validation, 1, 0))
        for number, name in self.moved.items():
            indices[hashes == numpy.uint64(number)] = PARTS.index(name)
        return indices


def content_hash(content: str | bytes) -> int:
    """The first 64 bits of the SHA-256 of a content."""
    content = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big")


def part(content: str | bytes, validation: float = SHARE, test: float = SHARE) -> Part:
    """The part of a content. `validation` and `test` are shares of 1, and training gets the rest."""
    return Division(validation, test, {}).part(content_hash(content))


def split(
    items: Iterable[Item], key: Callable[[Item], str | bytes], validation: float = SHARE, test: float = SHARE
) -> Parts[Item]:
    """The items by their contents, equal ones together.

    key: gives the content of an item
    validation, test: shares of 1. A part whose share is above 0 gets at least one content: if it would be empty, the
        content with the smallest hash moves there from the largest part.
    """
    hashed = [(content_hash(key(item)), item) for item in items]
    division = _fill_empty({number for number, _ in hashed}, Division(validation, test, {}))
    parts: Parts[Item] = Parts([], [], [])
    for number, item in hashed:
        getattr(parts, division.part(number)).append(item)
    return parts


def divide(hashes: Column, validation: float = SHARE, test: float = SHARE) -> Division:
    """How contents are split of which a column has the hashes, see `content_hash`.

    validation, test: as in `split`, whose promises hold.
    """
    splitter = Splitter(validation, test)
    for block in hashes.blocks():
        splitter.add_hashes(numpy.unique(block)[:MANY].tolist())
    return splitter.division()


def balanced_rows(labels: Array, hashes: Array, count: int) -> Array:
    """`count` rows in ascending order, with equally many of each class if possible; all if count is 0.

    labels: the numbers of the rows' classes. hashes: those of a class that have the smallest ones are chosen.
    """
    if not count or count >= len(labels):
        return numpy.arange(len(labels))
    order = numpy.lexsort((hashes, labels))  # by class, and by hash within a class
    first = numpy.searchsorted(labels[order], labels[order])  # where the class of each begins
    turns = numpy.arange(len(labels)) - first
    return numpy.sort(order[numpy.lexsort((labels[order], turns))[:count]])


class Splitter:
    """`split` for more contents than fit in memory: `add` each of them, then ask for their `division`.

    validation, test: as in `split`, whose promises hold: equal contents are together, and no part is empty.
    """

    def __init__(self, validation: float = SHARE, test: float = SHARE) -> None:
        self.unfilled = Division(validation, test, {})
        self.smallest: set[int] = set()  # of the hashes: MANY, and a few more

    def add(self, content: str | bytes) -> Part:
        """Take note of a content, and say which part it will be in, unless that of another one would be empty."""
        number = content_hash(content)
        self.add_hashes([number])
        return self.unfilled.part(number)

    def add_hashes(self, hashes: Iterable[int]) -> None:
        """Take note of contents by their hashes."""
        self.smallest.update(hashes)
        if len(self.smallest) > 2 * MANY:
            self.smallest = set(heapq.nsmallest(MANY, self.smallest))

    def division(self) -> Division:
        """The parts of all contents that were added."""
        smallest = sorted(self.smallest)[:MANY]
        # If these many belong to validation and test, neither is empty.
        if len(smallest) == MANY and smallest[-1] < (self.unfilled.validation + self.unfilled.test) * 2**64:
            return self.unfilled
        return _fill_empty(smallest, self.unfilled)


def _fill_empty(hashes: Iterable[int], division: Division) -> Division:
    """The same with a content moved into each part that is wanted and empty."""
    part_of = {number: division.part(number) for number in hashes}
    shares: dict[Part, float] = {"train": 1, "validation": division.validation, "test": division.test}
    wanted = [name for name, share in shares.items() if share > 0]
    if len(part_of) < len(wanted):
        raise SplitError(
            f"{' and '.join(wanted)} need {len(wanted)} different contents at least, got {len(part_of)}: add more data"
        )
    moved: dict[int, Part] = {}
    for name in wanted:
        counts = Counter(part_of.values())
        if not counts[name]:
            largest = max(wanted, key=counts.__getitem__)
            smallest = min(number for number, current in part_of.items() if current == largest)
            part_of[smallest] = moved[smallest] = name
    return Division(division.validation, division.test, moved)


# ---------------------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class RowSource(Generic[Row]):
    """Where rows come from."""

    name: str  # for messages
    unit: str  # what a row is called
    files: Sequence[Path]  # that the rows are read from, with the content that the survey depends on
    key: Mapping[str, Any]  # what else the rows depend on, such as names of columns
    read: Callable[[Skipped], Iterator[Row]]  # the rows in their order, as often as needed; bad ones go to `Skipped`
    texts: Callable[[Row], Sequence[str]]  # of a row; the first one decides which part it belongs to
    label: Callable[[Row], str] | None = None  # of a row: its class, if it has one
    parts: Array | None = None  # of each row, as an index of PARTS, where that is known beforehand
    about: Callable[[], Mapping[str, Any]] = dict  # what else to remember, found out while the rows are read


class Block(NamedTuple, Generic[Row]):
    """Rows that follow each other, their parts as indices of PARTS, or LEFT_OUT, and the number of the first one."""

    rows: list[Row]
    parts: Array
    start: int


@dataclass(frozen=True)
class Survey(Generic[Row]):
    """What is known of all rows, without holding them. chosen: numbers of the rows to train on; None for all."""

    source: RowSource[Row]
    store: Store
    skipped: Skipped
    division: Division | None
    chosen: Array | None = None

    def __len__(self) -> int:
        return int(self.store.facts["rows"])

    @property
    def key(self) -> dict[str, Any]:
        """What the rows of each part depend on."""
        return {"survey": self.store.key, "division": None if self.division is None else vars(self.division)}

    @property
    def labels(self) -> list[str]:
        """The classes, in the order of their first rows."""
        return list(self.store.facts["labels"])

    def parts(self, start: int, stop: int) -> Array:
        """The part of each row from `start` up to `stop`."""
        if self.division is None:
            known = self.source.parts
            assert known is not None
            return known[start:stop]
        parts = self.division.parts(self.store.column("hash").between(start, stop))
        if self.chosen is not None:
            first, last = numpy.searchsorted(self.chosen, [start, stop])
            is_chosen = numpy.zeros(stop - start, dtype=bool)
            is_chosen[self.chosen[first:last] - start] = True
            parts[(parts == 0) & ~is_chosen] = LEFT_OUT
        return parts

    @cached_property
    def class_counts(self) -> Array:
        """Rows of each part and class (parts, classes); rows without classes are of one class."""
        classes = max(1, len(self.labels))
        counts = numpy.zeros((LEFT_OUT + 1) * classes, dtype=numpy.int64)
        for start, stop in self.spans():
            numbers = self.parts(start, stop) * classes + self.classes(start, stop)
            counts += numpy.bincount(numbers, minlength=len(counts))
        return counts.reshape(-1, classes)[:LEFT_OUT]

    @property
    def counts(self) -> list[int]:
        """Rows of each part."""
        return [int(count) for count in self.class_counts.sum(1)]

    def classes(self, start: int, stop: int) -> Array:
        """The class of each row, as its index in `labels`."""
        if self.source.label is None:
            return numpy.zeros(stop - start, dtype=numpy.int64)
        return self.store.column("label").between(start, stop)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows of which numbers are read together."""
        return ((start, min(start + NUMBERS, len(self))) for start in range(0, len(self), NUMBERS))

    @property
    def text_bytes(self) -> int:
        """Bytes of the texts to train on, about."""
        return int(self.store.facts["bytes"]) * self.counts[0] // len(self)

    def blocks(self, doing: str) -> Iterator[Block[Row]]:
        """All rows, a block at a time. doing: what for, for the progress."""
        start = 0
        for rows in row_blocks(self.source.read(Skipped("skip")), self.source.texts):
            if start + len(rows) > len(self):
                break
            yield Block(rows, self.parts(start, start + len(rows)), start)
            start += len(rows)
            advance(f"{doing} {self.source.name}", start, len(self))
        if start != len(self):
            raise _changed(self.source.name)

    def encoded(
        self, tokenizers: Sequence[Tokenizer], special: Sequence[bool]
    ) -> Iterator[tuple[Block[Row], Sequence[list[Array]]]]:
        """The blocks, and for each of a row's texts the ids of the whole block: one tokenizer for each text.

        special: whether the special tokens of each tokenizer are added.
        """
        blocks, *copies = fork(self.blocks("tokenizing"), 1 + len(tokenizers))

        def texts(side: int) -> Iterator[list[str]]:
            return ([self.source.texts(row)[side] for row in block.rows] for block in copies[side])

        ids = [
            tokens.encode_blocks(tokenizer, texts(side), add_special_tokens=special[side])
            for side, tokenizer in enumerate(tokenizers)
        ]
        return zip(blocks, zip(*ids, strict=True), strict=True)

    def sample(self, sides: slice) -> Iterator[str]:
        """Texts of the training part, as many as a tokenizer is trained on, spread evenly. sides: which of each row."""
        share = tokens.SAMPLE / max(1, self.store.facts["characters"])
        for block in self.blocks("sampling"):
            hashes = self.store.column("hash").between(block.start, block.start + len(block.rows))
            scattered = hashes * numpy.uint64(0x9E3779B97F4A7C15)  # the part depends on the hash itself
            is_sampled = (block.parts == 0) & (scattered.astype(numpy.float64) / 2**64 < share)
            for index in numpy.flatnonzero(is_sampled):
                yield from self.source.texts(block.rows[index])[sides]


def survey(source: RowSource[Row], policy: str, most: int) -> Survey[Row]:
    """Read all rows once, or open what an earlier survey of the same files has stored.

    policy: what to do about bad rows, see Skipped. most: rows for validation and for the test at most, about.
    """
    digest = content_digest(source.files)
    key = {"survey": FORMAT, "content": digest, **source.key}
    store = prepared(key, partial(_read_all, source, Skipped(policy, source.unit), digest))
    rows = store.facts["rows"]
    skipped = Skipped(policy, source.unit, store.facts["skipped"])
    skipped.check(rows)
    if source.parts is not None:
        return Survey(source, store, skipped, None)
    share = min(SHARE, most / max(1, rows))
    return Survey(source, store, skipped, divide(store.column("hash"), share, share))


def row_blocks(rows: Iterable[Row], texts: Callable[[Row], Sequence[str]]) -> Iterator[list[Row]]:
    """Rows that are worked on together: their texts have tokens.BLOCK characters or a little more."""
    block: list[Row] = []
    size = 0
    for row in rows:
        block.append(row)
        size += sum(map(len, texts(row)))
        if size >= tokens.BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _read_all(source: RowSource[Row], skipped: Skipped, digest: str, writer: StoreWriter) -> dict[str, Any]:
    labels: dict[str, int] = {}
    rows = characters = size = 0
    expected = sum(path.stat().st_size for path in source.files)
    for block in row_blocks(source.read(skipped), source.texts):
        texts = [source.texts(row) for row in block]
        writer.column("hash", numpy.array([content_hash(first) for first, *_ in texts], numpy.uint64))
        if source.label is not None:
            names = map(source.label, block)
            writer.column("label", numpy.array([labels.setdefault(name, len(labels)) for name in names], numpy.int32))
            if len(labels) > MAX_CLASSES:
                some = f"more than {MAX_CLASSES:,} classes ({', '.join(map(repr, islice(labels, 3)))} …)"
                raise TextError(f"{source.name}: {some}: is --label the right column?")
        rows += len(block)
        characters += sum(len(text) for row in texts for text in row)
        size += sum(len(text.encode()) for row in texts for text in row)
        advance(f"reading {source.name}", min(size, expected), expected)
    skipped.check(rows)
    if not rows:
        raise TextError(f"{source.name}: no {source.unit} in it")
    if content_digest(source.files) != digest:
        raise _changed(source.name)
    return {
        "rows": rows,
        "characters": characters,
        "bytes": size,
        "labels": list(labels),
        "skipped": skipped.facts(),
        **source.about(),
    }


def _changed(name: str) -> TextError:
    return TextError(f"{name}: changed while it was read: start again when it is complete")
