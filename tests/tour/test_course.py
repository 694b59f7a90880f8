"""The course: cells that are short, plain and formatted, and that run in a row as a script and as notebooks."""

import json
import re
import subprocess
import sys

import pytest

from regard import cli
from regard.tour import course, sections
from regard.tour.cells import PRELUDE
from regard.tour.section import LANGUAGES

SECTIONS = sections.load()
every_section = pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.number)


@every_section
def test_a_plain_cell_is_short_and_needs_nothing_but_pytorch(section):
    lines = section.plain.strip().splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 120
    assert "regard" not in section.plain
    assert len(section.short.strip().splitlines()) <= 18
    assert "import regard" in section.short
    assert "assert_close" in section.short or "assert" in section.short


def test_the_script_is_formatted_and_has_no_faults(tmp_path):
    (tmp_path / "course.py").write_text(course.script(SECTIONS, "en"), encoding="utf-8")
    shorts = "\n\n".join(f"{PRELUDE}\n\n\n{section.short.strip()}\n" for section in SECTIONS[:1])
    (tmp_path / "short.py").write_text(shorts, encoding="utf-8")
    for command in (["check", "--select", "E9,F63,F7,F821,F841"], ["format", "--check", "--diff"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length", "120", "course.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_script_runs_from_the_first_line_to_the_last(tmp_path, language):
    assert cli.main(["tour", "--code", str(tmp_path)]) == 0
    path = tmp_path / f"course.{language}.py"
    compile(path.read_text(encoding="utf-8"), path.name, "exec")
    if language == "en":  # the other differs in its comments
        subprocess.run([sys.executable, path.name], cwd=tmp_path, check=True, timeout=600)


def test_the_two_scripts_differ_in_comments_only():
    texts = [
        re.sub(r'""".*?"""|^#.*$', "", course.script(SECTIONS, language), flags=re.M | re.S) for language in LANGUAGES
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_notebook_has_no_framework_on_its_first_screen(language):
    cells = json.loads(course.notebook(SECTIONS, language))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert codes[0] == PRELUDE
    assert "regard" not in codes[1]
    assert len({cell["id"] for cell in cells}) == len(cells)


@pytest.mark.parametrize("language", ["en", pytest.param("zh", marks=pytest.mark.faults)])
def test_a_notebook_runs(language):
    """Plain cell, regard cell, picture, exercises, of the first section that trains."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    section = next(section for section in SECTIONS if section.number == 8)
    notebook = nbformat.reads(course.notebook([section], language), as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=120).execute()
    pictures = [out for cell in notebook.cells for out in cell.get("outputs", []) if "text/html" in out.get("data", {})]
    assert len(pictures) == 1
    assert "<svg" in pictures[0]["data"]["text/html"]
