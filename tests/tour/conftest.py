"""The tour takes a while, so all tests look at one run of it."""

import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from filelock import FileLock

from regard.data.grammar import corpus
from regard.tour import sections
from regard.tour.notes import Notes
from regard.tour.page import write_folder
from regard.tour.runner import run_section
from regard.tour.section import Result


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Where results are cached in this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "regard" / "tour"


@dataclass(frozen=True)
class Tour:
    out: Path
    results: list

    def page(self, language):
        return (self.out / f"{language}.html").read_text(encoding="utf-8")


def rehearsed(section):
    """What came of a section, by its rehearsal if it has one."""
    return replace(run_section(replace(section, run=section.rehearsal or section.run)), section=section)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole tour in English, with rehearsals of sections that measure for long; all workers of a run share it."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "tour.pickle"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            shared.write_bytes(pickle.dumps(rehearse_all(tmp_path_factory.mktemp("cache"))))
    loaded = sections.load()
    by_number = {section.number: section for section in loaded}
    results = [Result(by_number[number], *rest) for number, *rest in pickle.loads(shared.read_bytes())]
    out = tmp_path_factory.mktemp("tour")
    write_folder(loaded, results, "en", out, Notes())
    return Tour(out, results)


def rehearse_all(home):
    """The results of all sections by number: pickle takes no section, which has functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        patch.setattr(corpus, "__defaults__", ("fr", 700, 0))  # 700 sentences instead of 20,000
        results = [rehearsed(section) for section in sections.load()]
    return [(r.section.number, r.seconds, r.numbers, r.pictures, r.answers, r.error) for r in results]
