"""Walking through sections: run, judge and draw each; one that fails does not stop the others."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.tour.section import Criterion, Numbers, Outcome, Section, verdict
from regard.view.pictures import THEMES, png


@dataclass(frozen=True)
class Result:
    """What came of one section. One that failed has an error, in one line, and nothing else."""

    section: Section[Any]
    outcome: Outcome
    seconds: float
    numbers: Numbers | None = None
    criteria: Sequence[Criterion] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)  # theme → PNG
    error: str = ""

    @property
    def anchor(self) -> str:
        """The section's place in the page."""
        return f"claim-{self.section.number:02}"

    def picture_name(self, theme: str) -> str:
        """The file of its picture."""
        return f"{self.anchor}.png" if theme == "light" else f"{self.anchor}-{theme}.png"


def walk(sections: Iterable[Section[Any]]) -> Iterator[Result]:
    """The results, one by one."""
    return map(visit, sections)


def visit(section: Section[Any]) -> Result:
    """Run, judge and draw a section. It starts from the same seed, whatever ran before it."""
    start = time.perf_counter()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            numbers, drawing = section.run()
            criteria = section.judge(numbers)
            pictures = {theme: png(drawing, theme) for theme in THEMES}
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Result(section, Outcome.FAILED, time.perf_counter() - start, error=line)
    return Result(section, verdict(criteria), time.perf_counter() - start, numbers, criteria, pictures)
