"""What the tasks share: classes of examples, rows that can be used, notes for the user."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy
from numpy.typing import NDArray

from regard.data.fetching import megabytes
from regard.data.split import RowSource, Survey
from regard.data.store import Store
from regard.data.texts import Skipped
from regard.models.texts import CutWarning
from regard.training.report import shorten
from regard.training.task import TaskError

Array = NDArray[Any]
Row = TypeVar("Row")
SHOWN = 20  # classes of a line
NAME = 40  # characters of each: a text may have been taken for a class
LONG = 2.0  # seconds: of a preparation that took longer the user is told


def check_trained(names: Sequence[str], counts: Sequence[int], data: str) -> None:
    """An error if a class has no example in the training part, which has so many of each."""
    missing = [name for name, count in zip(names, counts, strict=True) if not count]
    if missing:
        more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        raise TaskError(
            f"{data}: class {missing[0]!r}{more} has too few examples: none is left to train on; add some, or remove it"
        )


def counted_classes(names: Sequence[str], counts: Sequence[int]) -> str:
    """The classes with their counts, for a line; the first ones, if they are many."""
    shown = [f"{shorten(name, NAME)}: {count:,}" for name, count in zip(names, counts, strict=True)][:SHOWN]
    more = len(names) - len(shown)
    return " · ".join(shown) + (f" and {more:,} more" if more else "")


def class_notes(names: Sequence[str], hashes: Array, classes: Array, unit: str) -> list[str]:
    """What may be wrong with the classes: one that is written in two ways, examples that are in several of them.

    hashes, classes: of the contents of examples, and the numbers of their classes, (n,) each. unit: what they are.
    """
    notes: list[str] = []
    numbers: dict[float, str] = {}
    for name in names:
        with suppress(ValueError):
            other = numbers.setdefault(float(name), name)
            if other != name and not notes:  # one of perhaps many
                notes.append(f"the classes {other!r} and {name!r} are the same number: are they one class?")
    order = numpy.argsort(hashes, kind="stable")
    hashes, classes = hashes[order], classes[order]
    is_other = (hashes[1:] == hashes[:-1]) & (classes[1:] != classes[:-1])
    if count := len(numpy.unique(hashes[1:][is_other])):
        notes.append(f"{unit} that are in several classes: {count:,}; a model is wrong about all but one of these")
    return notes


def class_numbers(labels: Sequence[str], names: Sequence[Any]) -> list[int]:
    """The number that each of the labels has among the names of a model's classes."""
    numbers = {name: number for number, name in enumerate(names)}
    for label in labels:
        if label not in numbers:
            known = ", ".join(map(repr, names[:8]))
            raise TaskError(f"class {label!r} is none of the model's: {known}{' …' if len(names) > 8 else ''}")
    return [numbers[label] for label in labels]


def preparation_notes(survey: Survey[Any], store: Store, seconds: float) -> list[str]:
    """What was left out, how the file was read if that was guessed, and where it is kept if that took long."""
    notes = survey.skipped.notes()
    if survey.store.facts.get("encoding") == "Windows-1252":
        notes.append(f"{survey.source.name}: is not UTF-8 and was read as Windows-1252")
    return notes + storage_notes(store, seconds)


def storage_notes(store: Store, seconds: float) -> list[str]:
    """Where the data are kept, if it took long to prepare them; that they are not, if that is so."""
    if store.is_temporary:
        return ["the prepared data are not kept: set XDG_CACHE_HOME or REGARD_PREPARED to a folder that can be written"]
    size = megabytes(store.size)
    return [f"prepared in {seconds:,.0f} s; kept in {store.folder} ({size})"] if seconds > LONG else []


@contextmanager
def cuts_expected() -> Iterator[None]:
    """Within this block texts are cut without a warning: an evaluation has long ones, and max_length says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)
        yield


def usable_rows(source: RowSource[Row], on_error: str) -> Iterator[Row]:
    """The rows that can be used. All are read once before, to stop if there are bad ones, unless these are skipped."""
    skipped = Skipped(on_error, source.unit)
    count = sum(1 for _ in source.read(skipped))
    skipped.check(count)
    if not count:
        raise TaskError(f"{source.name}: no {source.unit} in it")
    return source.read(Skipped("skip", source.unit))
