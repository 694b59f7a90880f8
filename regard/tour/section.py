"""What a section of the tour is, and how a verdict comes out of numbers. All that the author of a section needs.

A section is one file of sections/, which ends in SECTION = Section(…). Its `run` is short, because the page shows it as
it stands: it measures, and returns the numbers and a way to draw the picture. Its `judge` gets those numbers alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from matplotlib.figure import Figure
from torch import Tensor

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Text(NamedTuple):
    """A text in each language of the tour."""

    en: str
    zh: str

    def to(self, language: Language) -> str:
        """The text in this language."""
        return self.en if language == "en" else self.zh


class Criterion(NamedTuple):
    """One condition of a claim: whether the numbers met it, and a sentence that says what was expected and measured."""

    met: bool
    sentence: Text


class Numbers(SimpleNamespace):
    """What a section measured: numbers, or tuples of numbers, by name. Tensors are turned into these.

    Numbers(error=tensor(0.5), sizes=[4, 16]) has the attributes error == 0.5 and sizes == (4, 16).
    """

    def __init__(self, **values: Tensor | float | Sequence[float]) -> None:
        plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in values.items()}
        super().__init__(**{name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()})

    def criterion(self, met: bool, en: str, zh: str) -> Criterion:
        """A criterion whose sentences name the numbers in braces: {error}, {sizes[-1]}, {share:.1%}.

        Without a format they are written as `show` writes them.
        """
        shown = {name: _Shown(value) for name, value in vars(self).items()}
        return Criterion(met, Text(en.format_map(shown), zh.format_map(shown)))


class _Shown:
    """A number to be filled into a sentence."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, index: int | str) -> "_Shown":
        return _Shown(self.value[int(index)])  # str.format passes "-1" as a string

    def __format__(self, specification: str) -> str:
        return format(self.value, specification) if specification else show(self.value)


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


Drawing = Callable[[], Figure]  # called once for each language and theme
Measured = tuple[Numbers, Drawing]
Criteria = Iterator[Criterion]


class Need(NamedTuple):
    """Something that takes long to make and that several sections share: make(*arguments) is called once for all."""

    make: Callable[..., object]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One claim of the notes."""

    number: int  # of the claim
    notes: tuple[str, ...]  # the sets of notes that make it
    title: Text
    claim: Text
    idea: Text  # a few sentences of our own
    formula: str | Text  # a Text, where it has words
    caption: Text  # what the picture shows, also for those who cannot see it
    meanings: Mapping[str, Text]  # of the numbers, by their names, in the order in which they are shown
    deciding: str  # the name of the number that stands for all of them in the table of verdicts
    run: Callable[[], Measured]
    judge: Callable[[Numbers], Criteria]
    full: Callable[[], Measured] | None = None  # the same on real data, or with more seeds: --full
    rehearsal: Callable[[], Measured] | None = None  # in seconds, proves nothing: for tests
    needs: tuple[Need, ...] = ()  # what `run` shares with other sections
    full_needs: tuple[Need, ...] = ()  # what `full` shares with other sections

    def formula_in(self, language: Language) -> str:
        """The formula, its words in this language."""
        return self.formula.to(language) if isinstance(self.formula, Text) else self.formula

    def choose(self, full: bool) -> tuple[Callable[[], Measured], tuple[Need, ...]]:
        """What to run and what it needs: `full`, where it is wanted and there is one, else `run`."""
        return (self.full, self.full_needs) if full and self.full is not None else (self.run, self.needs)


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
