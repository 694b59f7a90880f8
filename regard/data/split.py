"""Training, validation and test: the SHA-256 of a content decides which part it belongs to.

So equal contents are in the same part, in whatever order they come, and what is trained on stays in the training part
when the file grows.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy
from numpy.typing import NDArray

from regard.data.store import Column
from regard.errors import RegardError

__all__ = [
    *("PARTS", "Division", "Part", "Parts", "SplitError", "Splitter", "content_hash", "divide", "part", "split"),
]

Item = TypeVar("Item")
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
Array = NDArray[Any]
SHARE = 0.05  # of all contents, for validation and for the test each
FEW = 64  # contents of each part that a Splitter holds
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


def part(content: str | bytes, validation: float = SHARE, test: float = SHARE) -> Part:
    """The part of a content. `validation` and `test` are shares of 1, and training gets the rest."""
    _check(validation, test)
    return _part(_digest(content), validation, test)


def split(
    items: Iterable[Item], key: Callable[[Item], str | bytes], validation: float = SHARE, test: float = SHARE
) -> Parts[Item]:
    """The items by their contents, equal ones together.

    key: gives the content of an item
    validation, test: shares of 1. A part whose share is above 0 gets at least one content: if it would be empty, the
        content with the smallest hash moves there from the largest part.
    """
    _check(validation, test)
    hashed = [(_digest(key(item)), item) for item in items]
    part_of = _fill_empty({digest: _part(digest, validation, test) for digest, _ in hashed}, validation, test)
    parts: Parts[Item] = Parts([], [], [])
    for digest, item in hashed:
        getattr(parts, part_of[digest]).append(item)
    return parts


@dataclass(frozen=True)
class Division:
    """Which part each content belongs to: the same as `split` says, for contents that are not held in memory.

    validation, test: shares of 1. moved: hashes whose part is another one, lest that were empty.
    """

    validation: float
    test: float
    moved: Mapping[int, Part]

    def parts(self, hashes: Array) -> Array:
        """The part of each content, as its index in PARTS; hashes (n,)."""
        places = hashes.astype(numpy.float64) / 2**64  # from 0 to 1
        indices = numpy.where(places < self.test, 2, numpy.where(places < self.test + self.validation, 1, 0))
        for number, name in self.moved.items():
            indices[hashes == numpy.uint64(number)] = PARTS.index(name)
        return indices


def content_hash(content: str | bytes) -> int:
    """The first 64 bits of the SHA-256 of a content."""
    return int.from_bytes(_digest(content)[:8], "big")


def divide(hashes: Column, validation: float = SHARE, test: float = SHARE) -> Division:
    """How contents are split of which a column has the hashes, see `content_hash`.

    validation, test: as in `split`, whose promises hold.
    """
    _check(validation, test)
    smallest = _smallest_hashes(hashes)
    moved: dict[int, Part] = {}
    # If these many belong to validation and test, neither is empty.
    if len(smallest) < MANY or smallest[-1] >= (validation + test) * 2**64:
        digests = [int(number).to_bytes(8, "big") for number in smallest]
        before: dict[bytes, Part] = {digest: _part(digest, validation, test) for digest in digests}
        after = _fill_empty(dict(before), validation, test)
        moved = {int.from_bytes(digest, "big"): name for digest, name in after.items() if before[digest] != name}
    return Division(validation, test, moved)


def _smallest_hashes(hashes: Column) -> Array:
    """The MANY smallest of the different hashes."""
    smallest = numpy.empty(0, numpy.uint64)
    for start in range(0, len(hashes), BLOCK):
        block = hashes.between(start, min(start + BLOCK, len(hashes)))
        smallest = numpy.unique(numpy.concatenate([smallest, block]))[:MANY]
    return smallest


class Splitter:
    """`split` for more contents than fit in memory: `add` each of them, then ask for the part of each.

    validation, test: as in `split`, whose promises hold: equal contents are together, and no part is empty.
    """

    def __init__(self, validation: float = SHARE, test: float = SHARE) -> None:
        _check(validation, test)
        self.validation, self.test = validation, test
        self._smallest: dict[Part, list[bytes]] = {"train": [], "validation": [], "test": []}
        self._moved: dict[bytes, Part] | None = None

    def add(self, content: str | bytes) -> Part:
        """Take note of a content, and say which part it will be in, unless that of another one would be empty."""
        digest = _digest(content)
        name = _part(digest, self.validation, self.test)
        smallest = self._smallest[name]
        if (len(smallest) < FEW or digest < smallest[-1]) and digest not in smallest:
            insort(smallest, digest)
            del smallest[FEW:]
        self._moved = None
        return name

    def part(self, content: str | bytes) -> Part:
        """The part of a content, when all have been added."""
        if self._moved is None:
            self._moved = self._fill()
        digest = _digest(content)
        return self._moved.get(digest) or _part(digest, self.validation, self.test)

    def _fill(self) -> dict[bytes, Part]:
        """Contents that are moved. If a part is empty, there are either few contents, or a few of each part will do."""
        before = {digest: name for name, digests in self._smallest.items() for digest in digests}
        after = _fill_empty(dict(before), self.validation, self.test)
        return {digest: name for digest, name in after.items() if name != before[digest]}


def _check(validation: float, test: float) -> None:
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise SplitError(f"expected shares of 0 or more that leave some to train on, got {validation} and {test}")


def _digest(content: str | bytes) -> bytes:
    content = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(content).digest()


def _part(digest: bytes, validation: float, test: float) -> Part:
    position = int.from_bytes(digest[:8], "big") / 2**64  # from 0 to 1
    if position < test:
        return "test"
    return "validation" if position < test + validation else "train"


def _fill_empty(part_of: dict[bytes, Part], validation: float, test: float) -> dict[bytes, Part]:
    """Moves a content into each part that is wanted and empty."""
    shares: dict[Part, float] = {"train": 1, "validation": validation, "test": test}
    wanted = [name for name, share in shares.items() if share > 0]
    if len(part_of) < len(wanted):
        raise SplitError(
            f"{' and '.join(wanted)} need {len(wanted)} different contents at least, got {len(part_of)}: add more data"
        )
    for name in wanted:
        counts = Counter(part_of.values())
        if not counts[name]:
            largest = max(wanted, key=counts.__getitem__)
            part_of[min(digest for digest, current in part_of.items() if current == largest)] = name
    return part_of
