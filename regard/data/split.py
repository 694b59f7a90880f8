"""Training, validation and test: each content's SHA-256 decides where it goes.

So equal contents are never on two sides, and nothing changes sides when the file grows or is shuffled.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from regard.errors import RegardError

__all__ = ["Part", "Parts", "SplitError", "part", "split"]

Item = TypeVar("Item")
Part = Literal["train", "validation", "test"]


class SplitError(RegardError, ValueError):
    """The items cannot be split; the message says why."""


@dataclass(frozen=True)
class Parts(Generic[Item]):
    """What is trained on, what is watched meanwhile, and what is looked at in the end; in the given order."""

    train: list[Item]
    validation: list[Item]
    test: list[Item]


def part(content: str | bytes, validation: float = 0.05, test: float = 0.05) -> Part:
    """Where a content goes; the shares are of 1, and training gets the rest."""
    _check(validation, test)
    return _part(_digest(content), validation, test)


def split(
    items: Iterable[Item], key: Callable[[Item], str | bytes], validation: float = 0.05, test: float = 0.05
) -> Parts[Item]:
    """The items by their contents, equal ones together.

    A part whose share is above 0 gets one content at least: where few are so placed, that with the smallest hash moves.
    """
    _check(validation, test)
    held = [(_digest(key(item)), item) for item in items]
    places = _filled({digest: _part(digest, validation, test) for digest, _ in held}, validation, test)
    parts: Parts[Item] = Parts([], [], [])
    for digest, item in held:
        getattr(parts, places[digest]).append(item)
    return parts


def _check(validation: float, test: float) -> None:
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise SplitError(f"expected shares of 0 or more that leave some to train on, got {validation} and {test}")


def _digest(content: str | bytes) -> bytes:
    content = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(content).digest()


def _part(digest: bytes, validation: float, test: float) -> Part:
    place = int.from_bytes(digest[:8], "big") / 2**64
    if place < test:
        return "test"
    return "validation" if place < test + validation else "train"


def _filled(places: dict[bytes, Part], validation: float, test: float) -> dict[bytes, Part]:
    """The places, with a content moved into each part that is wanted and empty."""
    shares: dict[Part, float] = {"train": 1, "validation": validation, "test": test}
    wanted = [name for name, share in shares.items() if share > 0]
    if len(places) < len(wanted):
        raise SplitError(
            f"{' and '.join(wanted)} need {len(wanted)} different contents at least, got {len(places)}: add more data"
        )
    for name in wanted:
        counts = Counter(places.values())
        if not counts[name]:
            largest = max(wanted, key=counts.__getitem__)
            places[min(digest for digest, own in places.items() if own == largest)] = name
    return places
