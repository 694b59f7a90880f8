"""Batches: examples of about equal length together, so that little is padding, in an order that a seed decides.

An epoch is a permutation of the examples, taken a window at a time: within a window examples are sorted by length, cut
into batches, and the batches shuffled. So nothing is held that grows with the number of examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from regard.data.store import Column

WINDOW = 1 << 16  # examples
ROUNDS = 6
Integers = NDArray[Any]
Lengths = Column | Sequence[int] | Sequence[tuple[int, ...]] | Integers


@dataclass(frozen=True)
class Position:
    """Where a run stands in its data: before which batch of which window of which epoch."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


class Batches:
    """The batches of every epoch, a function of the lengths, the budget and the seed, and nothing else.

    lengths: for each example one length, or several: (source, target)
    budget: tokens of a batch at most, padding included; a longer example is a batch by itself
    seed: of the order
    """

    def __init__(self, lengths: Lengths, budget: int, seed: int, window: int = WINDOW) -> None:
        self.lengths: Column | Integers = numpy.asarray(lengths) if isinstance(lengths, Sequence) else lengths
        if not len(self.lengths):
            raise ValueError("lengths: expected at least one example, got none")
        self.budget, self.seed, self.window = budget, seed, window

    def following(self, position: Position) -> Iterator[tuple[list[int], Position]]:
        """The batches from a position on, without end, each with the position after it."""
        epoch, window, batch = position.epoch, position.window, position.batch
        while True:
            batches = self._window(epoch, window)
            for number in range(batch, len(batches)):
                yield batches[number], Position(epoch, window, number + 1)
            batch, window = 0, window + 1
            if window * self.window >= len(self.lengths):
                epoch, window = epoch + 1, 0

    def epoch(self, number: int) -> Iterator[list[int]]:
        """The batches of one epoch."""
        for rows, position in self.following(Position(number)):
            if position.epoch != number:
                return
            yield rows

    def padding(self) -> float:
        """The share of padding in the batches of a first window."""
        tokens = cells = 0
        for rows in self._window(0, 0):
            lengths = self._take(rows)
            tokens += int(lengths.sum())
            cells += len(rows) * int(lengths.max(0).sum())
        return 1 - tokens / cells

    def _take(self, rows: Sequence[int] | Integers) -> Integers:
        """Lengths (rows, sides)."""
        rows = numpy.asarray(rows)
        lengths = self.lengths[rows] if isinstance(self.lengths, numpy.ndarray) else self.lengths.take(rows)
        return numpy.asarray(lengths, dtype=numpy.int64).reshape(len(rows), -1)

    def _window(self, epoch: int, window: int) -> list[list[int]]:
        """The batches of a window, in their order."""
        count, start = len(self.lengths), window * self.window
        places = numpy.arange(start, min(start + self.window, count))
        rows = permuted(places, count, self.seed * 1_000_003 + epoch)
        lengths = self._take(rows)
        order = numpy.lexsort(lengths.T)  # the last side counts most; among equals the permutation decides
        batches = self._cut(rows[order].tolist(), lengths[order].tolist())
        key = self.seed * 1_000_003 + epoch + 7_919 * (window + 1)
        return [batches[index] for index in permuted(numpy.arange(len(batches)), len(batches), key).tolist()]

    def _cut(self, order: list[int], ordered_lengths: list[list[int]]) -> list[list[int]]:
        batches: list[list[int]] = []
        rows: list[int] = []
        longest = [0] * len(ordered_lengths[0])
        for row, lengths in zip(order, ordered_lengths, strict=True):
            wider = [max(pair) for pair in zip(longest, lengths, strict=True)]
            if rows and (len(rows) + 1) * sum(wider) > self.budget:
                batches.append(rows)
                rows, wider = [], lengths
            rows.append(row)
            longest = wider
        return [*batches, rows]


def permuted(places: Integers, count: int, key: int) -> Integers:
    """Where a permutation of `count` numbers, one for each key, puts these places: without making all of it.

    A Feistel network permutes the numbers below a power of four; a result of `count` or more is permuted again.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)  # bits
    mask = numpy.uint64((1 << half) - 1)
    rounds = _mix(numpy.arange(ROUNDS, dtype=numpy.uint64) + numpy.uint64(key % (1 << 40)) * numpy.uint64(ROUNDS))
    numbers = places.astype(numpy.uint64)
    outside = numpy.ones(len(numbers), dtype=bool)
    while outside.any():
        left, right = numbers[outside] >> numpy.uint64(half), numbers[outside] & mask
        for secret in rounds:
            left, right = right, left ^ (_mix(right ^ secret) & mask)
        numbers[outside] = (left << numpy.uint64(half)) | right
        outside[outside] = numbers[outside] >= count
    return numbers.astype(numpy.int64)


def _mix(numbers: Integers) -> Integers:
    """Each number of 64 bits as another one that looks random (the finaliser of splitmix64)."""
    with numpy.errstate(over="ignore"):
        numbers = numbers + numpy.uint64(0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        mixed: Integers = numbers ^ (numbers >> numpy.uint64(31))
    return mixed
