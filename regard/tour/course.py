"""The plain cells of all sections as one course: a script to read from the first line to the last, and notebooks.

course.py            the plain cells and nothing else, with the titles in English; course.zh.py in Chinese
course.en.ipynb      plain cell, regard cell, picture and exercises of every section; course.zh.ipynb in Chinese
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.tour import words
from regard.tour.cells import PRELUDE, changed, with_earlier
from regard.tour.section import LANGUAGES, Language, Section

Cell = dict[str, Any]
COURSE = "Attention in plain PyTorch, from the first line to the last"


def write_code(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Write the scripts and notebooks of these sections and of those that they build on; the files, in order."""
    files = {}
    for language in LANGUAGES:
        files[f"course.{language}.py"] = script(sections, language)
        files[f"course.{language}.ipynb"] = notebook(sections, language)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in files]


def script(sections: Sequence[Section], language: Language) -> str:
    """The plain cells, one behind the other, as a program that runs."""
    t = words.translator(language)
    parts = [f'"""{t(COURSE)}"""\n\n{PRELUDE}\n']
    for section in with_earlier(sections):
        title = f"{t('claim')} {section.number}: {t(section.title)}"
        parts.append(f"# {'-' * 100}\n# {title}\n\n{_seeded(section.plain)}\n")
    return "\n\n".join(parts)


def notebook(sections: Sequence[Section], language: Language) -> str:
    """Plain cell, regard cell, picture and exercises of each section, with nothing run yet."""
    cells: list[Cell] = [_text(f"# {words.translator(language)(COURSE)}"), _code(PRELUDE)]
    for section in with_earlier(sections):
        cells += _cells(section, language)
    for number, cell in enumerate(cells):
        cell |= {"id": f"cell-{number}", "metadata": {}, "source": cell["source"].splitlines(keepends=True)}
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _cells(section: Section, language: Language) -> Iterator[Cell]:
    t = words.translator(language)
    claim = f"**{t('What the notes claim.')}** {t(section.claim)}"
    yield _text(f"## {section.number}. {t(section.title)}\n\n{claim}\n\n{t(section.idea)}\n\n$${section.formula}$$")
    yield _code(_seeded(section.plain))
    yield _text(f"**{t('The same with regard')}**")
    yield _code(section.short.strip())
    if section.show is not None:
        yield _code(_DRAW.format(number=section.number, language=language))
    for exercise in section.exercises:
        yield _text(f"**{t('Exercise.')}** {t(exercise.question)}")
        old, new = exercise.change
        comment = f"# {t('instead of:')} {old}"
        yield _code(_seeded(changed(section.plain, (old, f"{new}  {comment}"))))


def _seeded(cell: str) -> str:
    """A cell that begins with the same random numbers wherever it runs."""
    cell = cell.strip()
    gap = "\n\n" if cell.startswith(("def ", "class ", "@")) else ""
    return f"torch.manual_seed(0)\n{gap}{cell}"


_DRAW = """from regard.tour import draw

draw({number}, globals(), "{language}")"""


def _text(source: str) -> Cell:
    return {"cell_type": "markdown", "source": source}


def _code(source: str) -> Cell:
    return {"cell_type": "code", "source": textwrap.dedent(source), "execution_count": None, "outputs": []}
