"""What the tasks with classes share: which classes there are, a subset of the examples, and metrics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from regard.training.metrics import confusion, macro_f1
from regard.training.task import TaskError

__all__ = ["accuracy", "balanced_subset", "class_names"]

Item = TypeVar("Item")


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


def accuracy(probabilities: Tensor, labels: Sequence[str], names: Sequence[Any]) -> dict[str, Any]:
    """Probabilities (examples, classes) → the share of examples whose likeliest class is right, F1, mean of −log p.

    names: of the model's classes. F1 is the mean over classes; `confusion` has a row for each true class and a column
    for each predicted one.
    """
    for label in labels:
        if label not in names:
            known = ", ".join(map(repr, names[:8]))
            raise TaskError(f"class {label!r} is none of the model's: {known}{' …' if len(names) > 8 else ''}")
    targets = [names.index(label) for label in labels]
    loss = -sum(float(row[target].clamp(min=1e-38).log()) for row, target in zip(probabilities, targets, strict=True))
    predictions = probabilities.argmax(1).tolist()
    counts = confusion(targets, predictions, len(names))
    hits = sum(counts[number][number] for number in range(len(names)))
    return {
        "accuracy": hits / len(targets),
        "f1": macro_f1(counts),
        "loss": loss / len(targets),
        "confusion": {"labels": list(names), "counts": counts},
    }
