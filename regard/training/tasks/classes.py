"""What the tasks with classes share: which classes there are, a subset of the examples, and metrics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy
from numpy.typing import NDArray
from torch import Tensor

from regard.training.metrics import confusion, macro_f1
from regard.training.task import TaskError

__all__ = [
    *("accuracy", "balanced_rows", "balanced_subset", "check_trained", "class_metrics", "class_names", "class_numbers"),
    "counted_classes",
]

Item = TypeVar("Item")
Rows = NDArray[Any]
SHOWN = 20  # classes of a line


def class_names(labels: Sequence[str], train_labels: Sequence[str], data: str) -> list[str]:
    """The classes, sorted; an error if one of them has no example in the training part."""
    classes = sorted(set(labels))
    missing = [label for label in classes if label not in set(train_labels)]
    if missing:
        raise TaskError(f"{data}: class {missing[0]!r} has too few examples: none is left to train on")
    return classes


def balanced_subset(items: Sequence[Item], count: int, label: Callable[[Item], str]) -> list[Item]:
    """`count` of the items, with equally many of each class if possible; all if count is 0. Always the same ones."""
    if not count or count >= len(items):
        return list(items)
    by_class: dict[str, list[int]] = {}
    shuffled = sorted(range(len(items)), key=lambda index: hashlib.sha256(str(index).encode()).digest())
    for index in shuffled:
        by_class.setdefault(label(items[index]), []).append(index)
    turns = [(turn, name, index) for name, indices in sorted(by_class.items()) for turn, index in enumerate(indices)]
    return [items[index] for index in sorted(index for _, _, index in sorted(turns)[:count])]


def balanced_rows(labels: Rows, hashes: Rows, count: int) -> Rows:
    """The same for examples of which the numbers of their classes and hashes are known: rows, in ascending order."""
    if not count or count >= len(labels):
        return numpy.arange(len(labels))
    order = numpy.lexsort((hashes, labels))  # by class, and by hash within a class
    first = numpy.searchsorted(labels[order], labels[order])  # where the class of each begins
    turns = numpy.arange(len(labels)) - first
    return numpy.sort(order[numpy.lexsort((labels[order], turns))[:count]])


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


def accuracy(probabilities: Tensor, labels: Sequence[str], names: Sequence[Any]) -> dict[str, Any]:
    """`class_metrics` of probabilities (examples, classes). names: of the model's classes."""
    targets = class_numbers(labels, names)
    losses = [-float(row[target].clamp(min=1e-38).log()) for row, target in zip(probabilities, targets, strict=True)]
    return class_metrics(targets, probabilities.argmax(1).tolist(), losses, names)


def class_metrics(
    targets: Sequence[int], predictions: Sequence[int], losses: Sequence[float], names: Sequence[Any]
) -> dict[str, Any]:
    """The share of examples whose likeliest class is right, F1 (the mean over classes), the mean loss, and `confusion`:

    a row for each true class and a column for each predicted one.
    """
    counts = confusion(targets, predictions, len(names))
    hits = sum(counts[number][number] for number in range(len(names)))
    return {
        "accuracy": hits / len(targets),
        "f1": macro_f1(counts),
        "loss": sum(losses) / len(targets),
        "confusion": {"labels": list(names), "counts": counts},
    }
