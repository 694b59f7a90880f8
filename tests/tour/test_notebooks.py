"""Sections as notebooks."""

import json
import types

import nbformat
import pytest
from nbclient import NotebookClient

from regard.tour import sections
from regard.tour.notebook import notebook
from regard.tour.runner import run_section
from regard.tour.section import show

SECTIONS = {section.number: section for section in sections.load()}


@pytest.mark.parametrize("number", SECTIONS)
def test_it_is_a_notebook_whose_code_stands_alone(number):
    """Its definitions are executed; `run` itself, which may take long, is not."""
    for language in ("en", "zh"):
        book = nbformat.reads(notebook(SECTIONS[number], language), as_version=4)
        nbformat.validate(book)
        text, definitions, *others = (cell.source for cell in book.cells)
        assert SECTIONS[number].title.to(language) in text
        assert "SECTION" not in definitions
        assert len(others) == 3
    module = types.ModuleType(f"notebook_{number}")
    exec(compile(definitions, "notebook", "exec"), module.__dict__)
    assert callable(module.run)


def test_it_runs_in_jupyter(monkeypatch):
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    book = nbformat.reads(notebook(SECTIONS[23], "en"), as_version=4)
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    printed = json.dumps([cell.get("outputs", []) for cell in book.cells], ensure_ascii=False)
    for _, meaning, value in run_section(SECTIONS[23]).labelled():  # the same as in the tour
        assert f"{meaning.en}: {show(value)}" in printed
    assert "image/png" in printed
    assert "'held'" in printed
