"""The tour takes some seconds, so all tests look at one run of it."""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from matplotlib.figure import Figure

from regard import tour
from regard.tour import runner
from regard.tour.section import Criterion, Numbers, Section, Text


@dataclass(frozen=True)
class Tour:
    out: Path
    code: int
    stdout: str
    stderr: str
    results: list

    def page(self, language):
        return (self.out / f"{language}.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole tour, in English."""
    out = tmp_path_factory.mktemp("tour") / "made" / "by the tour"
    results = []

    def listening(sections):
        for result in walk(sections):
            results.append(result)
            yield result

    walk = runner.walk
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "walk", listening)
        with contextlib.redirect_stdout(io.StringIO()) as stdout, contextlib.redirect_stderr(io.StringIO()) as stderr:
            code = tour.run(out, "en")
    return Tour(out, code, stdout.getvalue(), stderr.getvalue(), results)


@dataclass(frozen=True)
class Size(Numbers):
    size: Annotated[float, Text("the size", "大小")]


@pytest.fixture
def small_section():
    """Makes sections that take no time: small_section(7, 0.5), or small_section(7, an exception to raise)."""

    def make(number, outcome):
        def run():
            if isinstance(outcome, BaseException):
                raise outcome
            return Size(outcome), lambda: Figure(figsize=(1, 1))

        def judge(size):
            return [Criterion(size.size > 0, Text("It is > 0 & <small>.", "它大于 0。"))]

        both = Text(f"Title {number} <&>", f"标题 {number}")
        texts = dict.fromkeys(("title", "claim", "idea", "caption"), both)
        return Section(number=number, notes=("000",), **texts, formula="a < b", deciding="size", run=run, judge=judge)

    return make
