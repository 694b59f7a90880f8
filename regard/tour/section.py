"""What a section of the tour is, and how a verdict comes out of numbers. All that the author of a section needs.

A section is one file of sections/, which ends in SECTION = Section(…), and one number in CHAPTERS (its __init__.py). On
the page stand, in this order: what the notes claim, the idea, the formula, the plain cell, the same with regard, the
picture of the cell, what was measured with its picture, the exercises, and the measuring code, folded.

- `plain` is the code that the notes lack: at most 25 lines of PyTorch. It runs after the cells of the claims in `uses`.
- `short` is the same with regard, and ends in a comparison with the plain cell's numbers.
- `show` draws the variables of the plain cell. Where the section has `controls`, it is drawn again for other values.
- `run` measures, with several seeds where chance matters; `judge` alone turns its numbers into criteria.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from torch import Tensor

from regard.view.chart import LANGUAGES, Chart, Language, Text
from regard.view.marks import power_of_ten

__all__ = [
    "LANGUAGES",
    "Choice",
    "Control",
    "Criteria",
    "Criterion",
    "Exercise",
    "Language",
    "Measured",
    "Need",
    "Numbers",
    "Outcome",
    "Passage",
    "Section",
    "Slider",
    "Text",
    "Words",
    "points",
    "show",
    "verdict",
]

# ------------------------------------------------------------------------------------------ from numbers to a verdict


class Outcome(StrEnum):
    """How a section ended."""

    HELD = "held"
    PARTLY = "partly"
    DID_NOT_HOLD = "did not hold"
    BY_DEFINITION = "true by definition"
    IMPRECISE = "imprecise"
    NOT_TESTABLE = "not testable here"
    FAILED = "failed"


Kind = Literal["measured", "definition", "correction", "untestable"]


class Criterion(NamedTuple):
    """One condition of a claim: whether the numbers met it, and a sentence that says what was expected and measured.

    kind: measured, so that it could have come out otherwise · definition: an identity, which is only checked ·
    correction: what has to be added to the claim for it to be true; met where the numbers show that it has to ·
    untestable: what would have to be done, and cannot be here.
    """

    met: bool
    sentence: Text
    kind: Kind = "measured"


def verdict(criteria: Sequence[Criterion]) -> Outcome:
    """The first measured criterion is the claim itself, the others are what it says besides.

    Not met, the claim did not hold; where one of the others is not met, it held partly. Identities are no evidence: a
    claim that is nothing else is true by definition. One that needs a correction is imprecise.
    """
    measured = [criterion.met for criterion in criteria if criterion.kind == "measured"]
    identities = [criterion.met for criterion in criteria if criterion.kind == "definition"]
    corrected = any(criterion.met for criterion in criteria if criterion.kind == "correction")
    open_part = any(criterion.kind == "untestable" for criterion in criteria)
    if not all(identities) or (measured and not measured[0]):
        return Outcome.DID_NOT_HOLD
    if not all(measured):
        return Outcome.PARTLY
    if corrected:
        return Outcome.IMPRECISE
    if open_part:
        return Outcome.PARTLY if measured or identities else Outcome.NOT_TESTABLE
    return Outcome.HELD if measured else Outcome.BY_DEFINITION


class Numbers(SimpleNamespace):
    """What a section measured: numbers, or tuples of numbers, by name. Tensors are turned into these.

    Numbers(error=tensor(0.5), sizes=[4, 16]) has the attributes error == 0.5 and sizes == (4, 16).
    """

    def __init__(self, **values: Tensor | float | Sequence[float]) -> None:
        plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in values.items()}
        super().__init__(**{name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()})

    def criterion(self, met: bool, en: str, zh: str, kind: Kind = "measured") -> Criterion:
        """A criterion whose sentences name the numbers in braces: {error}, {sizes[-1]}, {share:.1%}.

        Without a format they are written as `show` writes them.
        """
        shown = {name: _Shown(value) for name, value in vars(self).items()}
        return Criterion(bool(met), Text(en.format_map(shown), zh.format_map(shown)), kind)

    def identity(self, met: bool, en: str, zh: str) -> Criterion:
        """A criterion that is true by definition, and checked."""
        return self.criterion(met, en, zh, "definition")

    def correction(self, met: bool, en: str, zh: str) -> Criterion:
        """What the claim needs in order to be true, where the numbers show it."""
        return self.criterion(met, en, zh, "correction")

    def untestable(self, en: str, zh: str) -> Criterion:
        """A part of the claim that cannot be tested here, and what that would take."""
        return self.criterion(False, en, zh, "untestable")


class _Shown:
    """A number to be filled into a sentence."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, index: int | str) -> _Shown:
        return _Shown(self.value[int(index)])  # str.format passes "-1" as a string

    def __format__(self, specification: str) -> str:
        return format(self.value, specification) if specification else show(self.value)


Measured = tuple[Numbers, Chart | None]
Criteria = Iterator[Criterion]

# --------------------------------------------------------------------------------------------------- what a section has


class Passage(NamedTuple):
    """Lines of one set of the notes, the last included: Passage("000", 93, 95)."""

    file: str
    first: int
    last: int


class Exercise(NamedTuple):
    """One line of the plain cell that is changed, a question, and an answer with numbers.

    change: the line as it stands, without its indent, and what takes its place. answer: its braces read the variables
    of the cell, `was` before and `now` after: {now.w:.2f}.
    """

    change: tuple[str, str]
    question: Text
    answer: Text


class Slider(NamedTuple):
    """Numbers from low to high. log: by factors. whole: integers."""

    low: float
    high: float
    step: float = 0.01
    log: bool = False
    whole: bool = False


class Choice(NamedTuple):
    """One of these values of the plain cell's line."""

    values: tuple[str | int | float, ...]


class Words(NamedTuple):
    """A text that the reader types, of at most so many letters."""

    longest: int = 200


class Control(NamedTuple):
    """A variable of the plain cell that the reader may set: `line` is its assignment there, width = 1.0."""

    line: str
    name: Text
    values: Slider | Choice | Words


class Need(NamedTuple):
    """Something that takes long to make and that several sections share: make(*arguments) is called once for all."""

    make: Callable[..., object]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One claim of the notes."""

    number: int  # of the claim
    notes: tuple[Passage, ...]  # where the notes make it; () for what goes beyond them
    title: Text
    claim: Text  # what the notes claim, with its decisive words, in words of our own
    idea: Text  # three sentences
    formula: str | Text  # LaTeX; a Text, where it has words
    plain: str
    short: str
    meanings: Mapping[str, Text]  # of the numbers, by their names, in the order in which they are shown
    deciding: str  # the name of the number that stands for all of them in the table of verdicts
    run: Callable[[], Measured]
    judge: Callable[[Numbers], Criteria]
    exercises: tuple[Exercise, ...]
    uses: tuple[int, ...] = ()  # claims whose plain cells come before this one
    show: Callable[[SimpleNamespace], Chart] | None = None
    controls: tuple[Control, ...] = ()
    full: Callable[[], Measured] | None = None  # the same on real data, or with more seeds: --full
    rehearsal: Callable[[], Measured] | None = None  # in seconds, proves nothing: for tests
    needs: tuple[Need, ...] = ()  # what `run` shares with other sections
    full_needs: tuple[Need, ...] = ()  # what `full` shares with other sections
    laboratory: str = ""  # where the explorer has more of it, with its state: #/curve?kernel=gaussian

    def formula_in(self, language: Language) -> str:
        """The formula, its words in this language."""
        return self.formula.to(language) if isinstance(self.formula, Text) else self.formula

    def choose(self, full: bool) -> tuple[Callable[[], Measured], tuple[Need, ...]]:
        """What to run and what it needs: `full`, where it is wanted and there is one, else `run`."""
        return (self.full, self.full_needs) if full and self.full is not None else (self.run, self.needs)

    @property
    def anchor(self) -> str:
        """Its place in the page, and the name of its files."""
        return f"claim-{self.number:02}"

    def __reduce__(self) -> tuple[Callable[..., Section], tuple[Any, ...]]:
        """To another process goes the name of its file: that has functions without a name in it."""
        module = self.judge.__module__
        if getattr(sys.modules.get(module), "SECTION", None) is self:
            return _from_file, (module,)
        return _from_fields, (vars(self),)


def _from_file(module: str) -> Section:
    section: Section = import_module(module).SECTION
    return section


def _from_fields(fields: dict[str, Any]) -> Section:
    return Section(**fields)


# -------------------------------------------------------------------------------------------------- numbers for readers


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
        return f"{mantissa}·{power_of_ten(int(exponent))}".replace("-", "−")
    return (f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}").replace("-", "−")


def points(difference: float) -> str:
    """A difference of two shares in percentage points: +12.3, −0.5."""
    return f"{100 * difference:+.1f}".replace("-", "−")
