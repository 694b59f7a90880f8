"""What came of one section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.tour.section import Criterion, Numbers, Outcome, Section, Text, show, verdict
from regard.view.chart import LANGUAGES, Chart

__all__ = ["Picture", "Result"]


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
