"""What the tasks with classes share: which classes there are, a subset of the examples, and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from regard.data.labelled import Labelled
from regard.data.split import content_hash
from regard.training.metrics import confusion, macro_f1
from regard.training.task import TaskError

__all__ = [
    *("ClassCounts", "balanced_rows", "balanced_subset", "check_trained", "class_metrics", "class_numbers"),
    "counted_classes",
]

Rows = NDArray[Any]
SHOWN = 20  # classes of a line


def balanced_rows(labels: Rows, hashes: Rows, count: int) -> Rows:
    """`count` rows in ascending order, with equally many of each class if possible; all if count is 0.

    labels: the numbers of the rows' classes. hashes: those of a class that have the smallest ones are chosen.
    """
    if not count or count >= len(labels):
        return numpy.arange(len(labels))
    order = numpy.lexsort((hashes, labels))  # by class, and by hash within a class
    first = numpy.searchsorted(labels[order], labels[order])  # where the class of each begins
    turns = numpy.arange(len(labels)) - first
    return numpy.sort(order[numpy.lexsort((labels[order], turns))[:count]])


def balanced_subset(examples: Sequence[Labelled], count: int) -> list[Labelled]:
    """The examples of a training part that `regard train text --examples COUNT` learns from."""
    _, labels = numpy.unique([example.label for example in examples], return_inverse=True)
    hashes = numpy.array([content_hash(example.text) for example in examples], numpy.uint64)
    return [examples[row] for row in balanced_rows(labels, hashes, count)]


def check_trained(names: Sequence[str], counts: Sequence[int], data: str) -> None:
    """An error if a class has no example in the training part, which has so many of each."""
    for name, count in zip(names, counts, strict=True):
        if not count:
            raise TaskError(f"{data}: class {name!r} has too few examples: none is left to train on")


def counted_classes(names: Sequence[str], counts: Sequence[int]) -> str:
    """The classes with their counts, for a line; the first ones, if they are many."""
    shown = [f"{name} {count:,}" for name, count in zip(names, counts, strict=True)][:SHOWN]
    more = len(names) - len(shown)
    return " · ".join(shown) + (f" and {more:,} more" if more else "")


def class_numbers(labels: Sequence[str], names: Sequence[Any]) -> list[int]:
    """The number that each of the labels has among the names of a model's classes."""
    numbers = {name: number for number, name in enumerate(names)}
    for label in labels:
        if label not in numbers:
            known = ", ".join(map(repr, names[:8]))
            raise TaskError(f"class {label!r} is none of the model's: {known}{' …' if len(names) > 8 else ''}")
    return [numbers[label] for label in labels]


def class_metrics(
    targets: Sequence[int], predictions: Sequence[int], losses: Sequence[float], names: Sequence[Any]
) -> dict[str, Any]:
    """The metrics of examples of which the class, the prediction and the loss are known, see ClassCounts."""
    counts = ClassCounts(names)
    counts.add(targets, predictions, losses)
    return counts.metrics()


class ClassCounts:
    """How often each class was predicted as each class, of examples that come a block at a time.

    names: of the classes.
    """

    def __init__(self, names: Sequence[Any]) -> None:
        self.names = list(names)
        self.counts = [[0] * len(self.names) for _ in self.names]
        self.loss = 0.0

    def add(self, targets: Sequence[int], predictions: Sequence[int], losses: Sequence[float]) -> None:
        """Examples: their classes, and what was predicted with which loss."""
        for row, added in zip(self.counts, confusion(targets, predictions, len(self.names)), strict=True):
            row[:] = [before + count for before, count in zip(row, added, strict=True)]
        self.loss += sum(losses)

    def metrics(self) -> dict[str, Any]:
        """The share of examples whose likeliest class is right, F1 (the mean over classes), the mean loss, and

        `confusion`: a row for each true class and a column for each predicted one.
        """
        total = sum(map(sum, self.counts))
        hits = sum(self.counts[number][number] for number in range(len(self.names)))
        return {
            "accuracy": hits / total,
            "f1": macro_f1(self.counts),
            "loss": self.loss / total,
            "confusion": {"labels": self.names, "counts": self.counts},
        }
