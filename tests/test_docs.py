"""The documentation's code runs as it stands."""

import re
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if "```python\n" in page.read_text(encoding="utf-8")]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, page.name, "exec"), scope)
    assert capsys.readouterr().out


def test_what_the_kernel_page_says_of_its_data():
    """About one week, and the trend of half a century."""
    page = next(page for page in PAGES if page.name == "kernel-regression.md").read_text(encoding="utf-8")
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:3]:
        exec(compile(block, "kernel-regression.md", "exec"), scope)
    assert "about one week" in page
    assert 0.7 < 52 * scope["model"].bandwidth_[0] < 1.3
    assert numpy.all(numpy.abs(scope["trend"].predict([[1960.0], [2000.0]]) - [316.5, 369]) < 1)
