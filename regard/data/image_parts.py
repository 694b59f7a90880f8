"""What sets of images have in common: names of classes, what headers claim, pixels a block at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from regard.data.image_files import ImageError, Pixels

__all__ = [
    "MAX_BYTES",
    "Block",
    "ImagePart",
    "Names",
    "Refuse",
    "Shapes",
    "check_bytes",
    "check_names",
    "listed",
    "times",
]

MAX_BYTES = 4_000_000_000  # that a file may claim, or 16 times what it has: bombs claim a thousand times as much
RATIO = 16
BLOCK_BYTES = 1 << 22  # of pixels that are decoded at once

Array = NDArray[Any]
Names = tuple[str, ...]
Refuse = Callable[[str, ImageError], None]  # gets the file of an image that cannot be read, and the reason


@dataclass(frozen=True)
class Shapes:
    """What the headers of images claim.

    count: images that have a header · channels: 1 if all are grey, else 3 · edge: the median of the smaller edges ·
    size: (height, width) of the first one · other: another (height, width), if they are not all equal
    """

    count: int
    channels: int
    edge: int
    size: tuple[int, int]
    other: tuple[int, int] | None = None


@dataclass(frozen=True)
class Block:
    """A few images that are decoded."""

    pixels: Pixels  # (n, channels, height, width)
    labels: Array  # (n,), integers
    files: list[str]  # that they are from: empty where many are in one file


class ImagePart(ABC):
    """Images with classes in files: those to learn from, or those for the test."""

    path: Path
    names: Names  # of the classes

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """What the headers claim."""

    @abstractmethod
    def digest(self) -> str:
        """The SHA-256 of what the files hold."""

    @abstractmethod
    def blocks(self, shape: tuple[int, int, int], refuse: Refuse) -> Iterator[Block]:
        """All images in order, as (channels, height, width); of those that cannot be read, `refuse` is told."""


def times(*sizes: int) -> str:
    """Sizes, for a message."""
    return "×".join(map(str, sizes))


def listed(names: Names) -> str:
    """The first names, for a message."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def check_bytes(path: Path, shape: tuple[int, ...], itemsize: int = 1, *, limit: int = MAX_BYTES) -> None:
    """Refuse what claims too much, before memory or disk is taken for it."""
    if math.prod(shape) * itemsize > limit:
        raise ImageError(f"{path}: claims {times(*shape, itemsize)} bytes, expected {limit} at most: take fewer")


def check_names(path: Path, names: Names | None, train_names: Names | None) -> None:
    """The classes of a test part have to be those of the training part, if it names them."""
    if names is not None and train_names is not None and names != train_names:
        raise ImageError(f"{path}: expected the classes of train, {listed(train_names)}, got {listed(names)}")
