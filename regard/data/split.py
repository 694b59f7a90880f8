"""Training, validation and test: the SHA-256 of a content decides which part it belongs to.

So equal contents are in the same part, in whatever order they come, and what is trained on stays in the training part
when the file grows.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy
from numpy.typing import NDArray

from regard.data.store import Column
from regard.errors import RegardError

Item = TypeVar("Item")
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
Array = NDArray[Any]
SHARE = 0.05  # of all contents, for validation and for the test each
MANY = 1 << 12  # contents: if there are so many for validation and test, they are not all in one of the two
BLOCK = 1 << 20  # hashes read at a time


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
    """Which part each content belongs to.

    validation, test: shares of 1. moved: hashes whose part is another one, lest that were empty.
    """

    validation: float
    test: float
    moved: Mapping[int, Part]

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
    for start in range(0, len(hashes), BLOCK):
        block = numpy.unique(hashes.between(start, min(start + BLOCK, len(hashes))))
        splitter.add_hashes(block[:MANY].tolist())
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
