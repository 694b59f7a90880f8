"""The tour takes some seconds, so all tests look at one run of it."""

import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from filelock import FileLock
from matplotlib.text import Text

from regard.data.grammar import corpus
from regard.tour import sections
from regard.tour.page import write_folder
from regard.tour.result import Result
from regard.tour.runner import run_section


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Where results are cached in this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "regard" / "tour"


@dataclass(frozen=True)
class Tour:
    out: Path
    results: list
    labels: dict  # the texts of the pictures, by claim

    def page(self, language):
        return (self.out / f"{language}.html").read_text(encoding="utf-8")


def rehearsed(section, labels):
    """What came of a section, by its rehearsal if it has one; the texts of its picture are added to the labels."""

    def run():
        numbers, drawing = (section.rehearsal or section.run)()

        def draw():
            figure = drawing()
            if not labels:
                figure.draw_without_rendering()
                labels.update(text.get_text() for text in figure.findobj(Text))
            return figure

        return numbers, draw

    return replace(run_section(replace(section, run=run)), section=section)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole tour in English, with rehearsals of sections that train for long; all workers of a test run share it."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "tour.pickle"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            shared.write_bytes(pickle.dumps(rehearse_all(tmp_path_factory.mktemp("cache"))))
    claims, labels = pickle.loads(shared.read_bytes())
    loaded = {section.number: section for section in sections.load()}
    results = [Result(loaded[number], *rest) for number, *rest in claims]
    out = tmp_path_factory.mktemp("tour")
    write_folder(results, "en", out)
    return Tour(out, results, labels)


def rehearse_all(home):
    """The results of all sections by number (pickle takes no section, which has functions), and the labels."""
    labels = {section.number: set() for section in sections.load()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        patch.setattr(corpus, "__defaults__", ("fr", 700, 0))  # 700 sentences instead of 20,000
        results = [rehearsed(section, labels[section.number]) for section in sections.load()]
    return [(r.section.number, r.seconds, r.numbers, r.pictures, r.error) for r in results], labels
