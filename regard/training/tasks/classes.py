"""What tasks with classes share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from regard.training.task import TaskError

__all__ = ["accuracy", "chosen", "classes_of"]

Item = TypeVar("Item")


def classes_of(labels: Sequence[str], trained: Sequence[str], data: str) -> list[str]:
    """The classes, sorted; each has to be among those that are trained on."""
    classes = sorted(set(labels))
    missing = [label for label in classes if label not in set(trained)]
    if missing:
        raise TaskError(f"{data}: class {missing[0]!r} has too few examples: none is left to train on")
    return classes


def chosen(items: Sequence[Item], count: int, label: Callable[[Item], str]) -> list[Item]:
    """`count` of the items, as many of each class as can be; all where count is 0. The same ones each time."""
    if not count or count >= len(items):
        return list(items)
    groups: dict[str, list[int]] = {}
    order = sorted(range(len(items)), key=lambda number: hashlib.sha256(str(number).encode()).digest())
    for number in order:
        groups.setdefault(label(items[number]), []).append(number)
    turns = [(turn, name, number) for name, numbers in sorted(groups.items()) for turn, number in enumerate(numbers)]
    return [items[number] for _, _, number in sorted(sorted(turns)[:count], key=lambda own: own[2])]


def accuracy(probabilities: Tensor, labels: Sequence[str], names: Sequence[Any]) -> dict[str, Any]:
    """The share of rows whose likeliest class is right, and −log p of the right class on average."""
    for label in labels:
        if label not in names:
            known = ", ".join(map(repr, names[:8]))
            raise TaskError(f"class {label!r} is none of the model's: {known}{' …' if len(names) > 8 else ''}")
    places = [names.index(label) for label in labels]
    right = probabilities.argmax(1).tolist()
    loss = -sum(float(row[place].clamp(min=1e-38).log()) for row, place in zip(probabilities, places, strict=True))
    hits = sum(found == place for found, place in zip(right, places, strict=True))
    return {"accuracy": hits / len(places), "loss": loss / len(places)}
