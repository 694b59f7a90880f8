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
numbers, drawing = run()
meanings = {{
{meanings}
}}
for name, meaning in meanings.items():
    print(f"{{meaning}}: {{show(getattr(numbers, name))}}")"""
DRAW = """from IPython.display import Image

Image(pictures.png(drawing, "light"), width=640)"""
JUDGE = """from regard.tour import words

criteria = list(judge(numbers))
for met, sentence in criteria:
    print("✓" if met else "✗", sentence.{language})
words.OUTCOMES[verdict(criteria)].{language}"""


def notebook(section: Section, language: Language) -> str:
    """The notebook as JSON, with nothing run yet."""
    texts = (
        f"# {section.title.to(language)}\n\n"
        f"> **{words.THE_NOTES_SAY.to(language)}** {section.claim.to(language)}\n\n"
        f"{section.idea.to(language)}\n\n    {section.formula_in(language)}"
    )
    meanings = "\n".join(f"    {name!r}: {meaning.to(language)!r}," for name, meaning in section.meanings.items())
    codes = (_source(section), RUN.format(meanings=meanings), DRAW, JUDGE.format(language=language))
    cells: list[dict[str, Any]] = [{"cell_type": "markdown", "source": texts}]
    cells += [{"cell_type": "code", "source": code, "execution_count": None, "outputs": []} for code in codes]
    for number, cell in enumerate(cells):
        cell |= {"id": f"cell-{number}", "metadata": {}, "source": cell["source"].splitlines(keepends=True)}
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _source(section: Section) -> str:
    """The code of its file, without the first line and without the texts, which stand above."""
    lines = inspect.getsource(sys.modules[section.judge.__module__]).splitlines()
    first, *statements = ast.parse("\n".join(lines)).body
    texts = [
        statement.lineno
        for statement in statements
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "SECTION"
    ]
    return "\n".join(lines[first.end_lineno : texts[0] - 1 if texts else None]).strip()
