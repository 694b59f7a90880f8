"""What a section of the tour is, and how a verdict comes out of numbers. All that the author of a section needs.

A section is two files of sections/, claim_NN_name.md with all that it says and shows (content.py) and claim_NN_name.py,
which measures, judges and draws, and ends in SECTION = section(…); and one number in CHAPTERS (its __init__.py). On the
page stand, in this order: what the notes claim, the idea, the formula, the plain cell, the same with regard, its
picture, what was measured with its picture, the exercises, and the measuring code, folded.

- `plain` is the code that the notes lack: at most 25 lines of PyTorch. It runs after the cells of the claims in `uses`.
- `short` is the same with regard, and ends in a comparison with the plain cell's numbers.
- `show` draws the variables of the plain cell. Where the section has `controls`, it is drawn again for other values.
- `run` measures, with several seeds where chance matters; `judge` alone turns its numbers into criteria.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial, partialmethod
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from regard.tour.content import Choice, Content, Control, Exercise, Passage, Slider, Words, fill
from regard.view.chart import LANGUAGES, Band, Chart, Heat, Language, Line, Mark, Panel, Text
from regard.view.marks import Label, power_of_ten

# Content and its parts are for authors to import from here, too.
__all__ = ["LANGUAGES", "Choice", "Content", "Control", "Exercise", "Language", "Passage", "Slider", "Text", "Words"]

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

    def criterion(self, met: bool, sentence: Text, kind: Kind = "measured", **values: Any) -> Criterion:
        """A criterion whose sentence names the numbers in braces: {error}, {sizes[-1]}, {share:.1%}.

        Without a format they are written as `show` writes them. values: what else the sentence names.
        """
        shown = {name: _Shown(value) for name, value in vars(self).items()}
        return Criterion(bool(met), fill(sentence, shown | values), kind)

    # True by definition, and checked · what the claim needs in order to be true, where the numbers show it · a part of
    # the claim that cannot be tested here, and what that would take
    identity = partialmethod(criterion, kind="definition")
    correction = partialmethod(criterion, kind="correction")
    untestable = partialmethod(criterion, False, kind="untestable")


def grid(measure: Callable[..., Any], axis: Iterable[Any], *axes: Iterable[Any]) -> Tensor:
    """What `measure(a, b, …)` gives for each combination of these: (axis, …, *what one measurement gives)."""
    rows = (grid(partial(measure, value), *axes) if axes else measure(value) for value in axis)
    return torch.stack([torch.as_tensor(row) for row in rows])


def seeded(measure: Callable[[], Any], seeds: Iterable[int]) -> Tensor:
    """What `measure()` gives with the random numbers of each seed: (seeds, *what one measurement gives)."""

    def of_seed(seed: int) -> Any:
        torch.manual_seed(seed)
        return measure()

    return grid(of_seed, seeds)


def with_spread(**values: Tensor) -> dict[str, Tensor]:
    """Mean over the last axis, the seeds, and standard deviation: `error` and `error_spread`."""
    spreads = {f"{name}_spread": value.std(-1) for name, value in values.items()}
    return {name: value.mean(-1) for name, value in values.items()} | spreads


class _Shown:
    """A number to be filled into a sentence."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, index: int | str) -> _Shown:
        return _Shown(self.value[int(index)])  # str.format passes "-1" as a string

    def __format__(self, specification: str) -> str:
        return format(self.value, specification) if specification else show(self.value)


Cell = SimpleNamespace  # the variables that a plain cell leaves behind
Measured = tuple[Numbers, Chart | None]
Criteria = Iterator[Criterion]

# --------------------------------------------------------------------------------------------------- what a section has


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
    formula: str  # LaTeX
    plain: str
    short: str
    meanings: Mapping[str, Text]  # of the numbers, by their names, in the order in which they are shown
    deciding: str  # the name of the number that stands for all of them in the table of verdicts
    run: Callable[[], Measured]
    judge: Callable[[Numbers], Criteria]
    exercises: tuple[Exercise, ...]
    uses: tuple[int, ...] = ()  # claims whose plain cells come before this one
    show: Callable[[Cell], Chart] | None = None
    controls: tuple[Control, ...] = ()
    full: Callable[[], Measured] | None = None  # the same on real data, or with more seeds: --full
    rehearsal: Callable[[], Measured] | None = None  # in seconds, proves nothing: for tests
    needs: tuple[Need, ...] = ()  # what `run` shares with other sections
    full_needs: tuple[Need, ...] = ()  # what `full` shares with other sections
    laboratory: str = ""  # where the explorer has more of it, with its state: #/curve?kernel=gaussian

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
        return partial(Section, **vars(self)), ()


Form = Callable[[], Measured] | Sequence[Any]


def section(
    say: Content,
    show: Callable[[Cell], Chart] | None,
    judge: Callable[[Numbers], Criteria],
    run: Callable[..., Measured],
    *,
    full: Form = (),
    rehearsal: Form = (),
    needs: tuple[Need, ...] = (),
    full_needs: tuple[Need, ...] = (),
) -> Section:
    """The section of a content file. full, rehearsal: the arguments that `run` has there, or another function."""

    def form(given: Form) -> Callable[[], Measured] | None:
        return given if callable(given) else partial(run, *given) if given else None

    forms: dict[str, Any] = {"full": form(full), "rehearsal": form(rehearsal)}
    return Section(**say.fields, **forms, run=run, show=show, judge=judge, needs=needs, full_needs=full_needs)


def _from_file(module: str) -> Section:
    section: Section = import_module(module).SECTION
    return section


# ----------------------------------------------------------------------------------------------- what came of a section


class Picture(NamedTuple):
    """A chart in both languages: an <svg> element, what it shows, and its numbers as HTML."""

    svg: Text
    caption: Text
    table: Text

    @classmethod
    def of(cls, chart: Chart) -> Picture:
        """The picture of a chart."""
        return cls(Text(*map(chart.svg, LANGUAGES)), chart.caption, Text(*map(chart.table, LANGUAGES)))


@dataclass(frozen=True)
class Result:
    """What came of one section. One that failed has an error, in one line, and neither numbers nor pictures.

    section: the claim.
    seconds: how long it took, with its share of what it needs.
    numbers: what it measured.
    pictures: of its plain cell, and of what was measured.
    answers: of its exercises.
    error: why it failed.
    cached: whether it comes from an earlier tour.
    """

    section: Section
    seconds: float
    numbers: Numbers | None = None
    pictures: Sequence[Picture] = ()
    answers: Sequence[Text] = ()
    error: str = ""
    cached: bool = False
    criteria: list[Criterion] = field(init=False)  # what the section's `judge` says of the numbers

    def __post_init__(self) -> None:
        criteria: list[Criterion] = []
        if self.numbers is not None:
            names, meanings = vars(self.numbers), self.section.meanings
            if names.keys() != meanings.keys():
                raise TypeError(f"Numbers: expected {', '.join(meanings)}, as in `meanings`, got {', '.join(names)}")
            criteria = list(self.section.judge(self.numbers))
        object.__setattr__(self, "criteria", criteria)

    @property
    def outcome(self) -> Outcome:
        """The verdict."""
        return Outcome.FAILED if self.numbers is None else verdict(self.criteria)

    def labelled(self) -> Iterator[tuple[str, Text, Any]]:
        """Name, meaning and value of each number."""
        for name, meaning in self.section.meanings.items() if self.numbers else ():
            yield name, meaning, getattr(self.numbers, name)

    @property
    def deciding(self) -> tuple[str, Text]:
        """The number that stands for all in the table of verdicts, and what it is; the error, where there is none."""
        if self.numbers is None:
            return "", Text(self.error, self.error)
        name = self.section.deciding
        return show(getattr(self.numbers, name)), self.section.meanings[name]


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


def points(difference: float, spread: float) -> str:
    """A difference of two shares and its spread in percentage points: −12.3 ± 0.5."""
    return f"{100 * difference:+.1f} ± {100 * spread:.1f}".replace("-", "−")


# --------------------------------------------------------------------------------------- charts of the usual kinds


def single(caption: Text, *marks: Mark, height: int = 260, **axes: Any) -> Chart:
    """A chart of one panel. axes: what `Panel` takes."""
    return Chart([Panel(marks, **axes)], caption, height)


def maps(matrices: Mapping[str, Any] | Mapping[Text, Any], x: Label = "", y: Label = "", **heat: Any) -> list[Panel]:
    """Heat maps side by side, by their titles. heat: what `Heat` takes."""
    return [Panel([Heat(matrix, **heat)], x, y, title) for title, matrix in matrices.items()]


def by_seed(x: Sequence[float], values: Tensor, label: Label, colour: str) -> list[Mark]:
    """Values (x, seeds): their mean as a line, in a band from the least to the most."""
    band = Band(x, values.amin(-1), values.amax(-1), colour=colour)
    return [band, Line(x, values.mean(-1), label, colour, dots=True)]
