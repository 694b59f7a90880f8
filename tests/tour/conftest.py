"""The tour takes some seconds, so all tests look at one run of it."""

import contextlib
import io
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text as Words

from regard import tour
from regard.data.grammar import parallel
from regard.tour import cache as kept
from regard.tour import labels, runner, walk
from regard.tour.labels import chinese
from regard.tour.section import Criterion, Numbers, Section, Text


@dataclass(frozen=True)
class Tour:
    out: Path
    code: int
    stdout: str
    stderr: str
    results: list
    labels: dict  # of the Chinese pictures, by claim

    def page(self, language):
        return (self.out / f"{language}.html").read_text(encoding="utf-8")


def rehearsed(section):
    """What came of a section, by its rehearsal if it has one."""
    return replace(walk.visit(replace(section, run=section.rehearsal or section.run)), section=section)


def listened(words, drawing):
    """A Chinese picture, whose words are written down."""

    def draw():
        figure = chinese(drawing)()
        figure.draw_without_rendering()
        words.update(text.get_text() for text in figure.findobj(Words))
        return figure

    return draw


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole tour, in English, in which sections that train for long are rehearsed."""
    out = tmp_path_factory.mktemp("tour") / "made" / "by the tour"
    results, words = [], {}

    def walking(sections, **_):
        for section in sections:
            patch.setattr(walk, "chinese", partial(listened, words.setdefault(section.number, set())))
            results.append(rehearsed(section))
            yield results[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            labels, "fonts", lambda: ["DejaVu Sans"]
        )  # what is tested are the words, whatever fonts there are
        patch.setattr(parallel, "DEFAULT_COUNT", 700)
        cache = tmp_path_factory.mktemp("cache")
        patch.setattr(kept, "cache_folder", lambda: cache)
        patch.setattr(runner, "walk_together", walking)
        with contextlib.redirect_stdout(io.StringIO()) as stdout, contextlib.redirect_stderr(io.StringIO()) as stderr:
            code = tour.run(tour.Request(out))
    return Tour(out, code, stdout.getvalue(), stderr.getvalue(), results, words)


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
