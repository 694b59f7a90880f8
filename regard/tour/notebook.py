"""A section as a Jupyter notebook: its texts, its code as it stands, and cells that run, draw and judge it."""

import ast
import inspect
import json
import sys
from typing import Any

from regard.tour import words
from regard.tour.section import Language, Section

__all__ = ["notebook"]

RUN = """import torch

from regard.tour.section import show, verdict

torch.manual_seed(0)
torch.set_num_threads(1)  # another number of threads changes the last bits
seen, drawing = run()
for name, label, value in seen.labelled():
    print(f"{{label.{language}}}: {{show(value)}}")"""
DRAW = """from IPython.display import Image

Image(pictures.png(drawing, "light"), width=640)"""
JUDGE = """from regard.tour import words

criteria = judge(seen)
for met, sentence in criteria:
    print("✓" if met else "✗", sentence.{language})
words.OUTCOMES[verdict(criteria)].{language}"""


def notebook(section: Section[Any], language: Language) -> str:
    """The notebook as JSON, with nothing run yet."""
    texts = (
        f"# {section.title.to(language)}\n\n"
        f"> **{words.THE_NOTES_SAY.to(language)}** {section.claim.to(language)}\n\n"
        f"{section.idea.to(language)}\n\n    {section.written(language)}"
    )
    cells = [_cell("markdown", texts), _cell("code", _source(section))]
    cells += [_cell("code", own.format(language=language) if own != DRAW else own) for own in (RUN, DRAW, JUDGE)]
    whole = {
        "cells": [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _cell(kind: str, text: str) -> dict[str, Any]:
    more: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True), **more}


def _source(section: Section[Any]) -> str:
    """The code of its file, without the first line and without the texts, which stand above."""
    lines = inspect.getsource(sys.modules[section.judge.__module__]).splitlines()
    first, *rest = ast.parse("\n".join(lines)).body
    texts = [own.lineno for own in rest if isinstance(own, ast.Assign) and ast.unparse(own.targets[0]) == "SECTION"]
    return "\n".join(lines[first.end_lineno : texts[0] - 1 if texts else None]).strip()
