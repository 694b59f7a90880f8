"""Sections as notebooks."""

import json
import types

import nbformat
import pytest
from nbclient import NotebookClient

from regard.tour import sections, walk
from regard.tour.notebook import notebook
from regard.tour.section import show

SECTIONS = {section.number: section for section in sections.load()}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("number", SECTIONS)
def test_it_is_a_notebook(number, language):
    found = nbformat.reads(notebook(SECTIONS[number], language), as_version=4)
    nbformat.validate(found)
    assert SECTIONS[number].title.to(language) in found.cells[0].source
    assert "SECTION" not in found.cells[1].source


@pytest.mark.parametrize("number", SECTIONS)
def test_its_code_stands_alone(number):
    """All of it but the drawing; those that take long are defined, and not run."""
    own = types.ModuleType(f"notebook_{number}")
    first, *others = (cell.source for cell in nbformat.reads(notebook(SECTIONS[number], "en"), 4).cells[1:])
    exec(compile(first, "notebook", "exec"), own.__dict__)
    assert callable(own.run)
    assert len(others) == 3


def test_it_runs_in_jupyter(monkeypatch):
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    found = nbformat.reads(notebook(SECTIONS[23], "en"), as_version=4)
    NotebookClient(found, timeout=120, kernel_name="python3").execute()
    printed = json.dumps([cell.get("outputs", []) for cell in found.cells], ensure_ascii=False)
    for _, label, value in walk.visit(SECTIONS[23]).numbers.labelled():  # the same as in the tour
        assert f"{label.en}: {show(value)}" in printed
    assert "image/png" in printed
    assert "'held'" in printed
