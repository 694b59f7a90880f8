"""What a section of the tour is, and how a verdict comes out of numbers. All that the author of a section needs.

A section is one file of sections/, which ends in SECTION = Section(…). Its `run` is short, because the page shows it as
it stands: it measures, and returns the numbers and a way to draw the picture. Its `judge` sees those numbers alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_type_hints

from matplotlib.figure import Figure

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Text(NamedTuple):
    """A text in each language of the tour."""

    en: str
    zh: str

    def to(self, language: Language) -> str:
        """The text in this language."""
        return self.en if language == "en" else self.zh


@dataclass(frozen=True)
class Numbers:
    """What a section measured. A section subclasses it; each field is a number, or a tuple of numbers, and says in
    both languages what it is: ``error: Annotated[float, Text("mean squared error", "均方误差")]``."""

    def labelled(self) -> Iterator[tuple[str, Text, Any]]:
        """Name, meaning and value of each number."""
        hints = get_type_hints(type(self), include_extras=True)
        for field in fields(self):
            label = next(iter(getattr(hints[field.name], "__metadata__", ())), None)
            if not isinstance(label, Text):
                raise TypeError(f"{type(self).__name__}.{field.name}: expected Annotated[…, Text(en, zh)]")
            yield field.name, label, getattr(self, field.name)


class Criterion(NamedTuple):
    """One condition of a claim: whether the numbers met it, and the sentence that says what was asked and what came."""

    met: bool
    sentence: Text


class Outcome(StrEnum):
    """How a section ended."""

    HELD = "held"
    PARTLY = "partly"
    DID_NOT_HOLD = "did not hold"
    FAILED = "failed"


def verdict(criteria: Sequence[Criterion]) -> Outcome:
    """The first criterion is the claim itself: where it is not met, the claim did not hold. The others are what the
    claim says besides: where one of them is not met, it held partly."""
    if not criteria[0].met:
        return Outcome.DID_NOT_HOLD
    return Outcome.HELD if all(criterion.met for criterion in criteria) else Outcome.PARTLY


Drawing = Callable[[], Figure]  # called once for the light page and once for the dark one
Measured = TypeVar("Measured", bound=Numbers)


class Need(NamedTuple):
    """Something that takes long, and that several sections share: made once, and then kept."""

    make: Callable[..., object]
    of: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Section(Generic[Measured]):
    """One claim of the notes."""

    number: int  # of the claim
    notes: tuple[str, ...]  # the sets of notes that make it
    title: Text
    claim: Text
    idea: Text  # a few sentences of our own
    formula: str | Text  # a Text, where it has words
    caption: Text  # what the picture shows, also for those who cannot see it
    deciding: str  # the name of the number that stands for all of them in the table of verdicts
    run: Callable[[], tuple[Measured, Drawing]]
    judge: Callable[[Measured], Sequence[Criterion]]
    full: Callable[[], tuple[Measured, Drawing]] | None = None  # the same on real data, or with more seeds: --full
    rehearsal: Callable[[], tuple[Measured, Drawing]] | None = None  # in seconds, proves nothing: for tests
    needs: tuple[Need, ...] = ()  # what `run` shares with other sections
    full_needs: tuple[Need, ...] = ()  # what `full` shares with other sections

    def written(self, language: Language) -> str:
        """The formula, its words in this language."""
        return self.formula.to(language) if isinstance(self.formula, Text) else self.formula


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def show(value: float | Sequence[float]) -> str:
    """A number as people write it: 0, 0.302, 1024, 4.4·10⁻¹⁶, (2, 1, 20)."""
    if isinstance(value, Sequence):
        return f"({', '.join(map(show, value))})"
    if value == 0:
        return "0"
    if isinstance(value, int):
        return str(value).replace("-", "−")
    if not 1e-3 <= abs(value) < 1e5 and abs(value) < float("inf"):
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−")
    return (f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}").replace("-", "−")


def points(difference: float) -> str:
    """A difference of two shares in percentage points: +12.3, −0.5."""
    return f"{100 * difference:+.1f}".replace("-", "−")
