"""The documentation's code runs as it stands."""

import re
from pathlib import Path

import numpy
import pandas
import pytest

from experiments import promises
from regard import KernelRegressor
from regard.cli import main
from regard.kernel.estimator import BandwidthWarning
from regard.tour.words import TERMS

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
CHINESE = [page for page in DOCS if page.name.endswith(".zh.md")]  # whose code is that of the English pages
PAGES = [page for page in DOCS if page not in CHINESE and "```python\n" in page.read_text(encoding="utf-8")]
EXAMPLES = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    printed = ""
    for program, promised in EXAMPLES.findall(page.read_text(encoding="utf-8")):
        exec(compile(program, page.name, "exec"), scope)
        output = capsys.readouterr().out
        assert promised.strip() in ("", output.strip())
        printed += output
    assert printed


def blocks(page):
    """Code in fences and indented, without the comments of the latter, which are prose."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"```\w+\n.*?```", text, re.DOTALL)
    indented = re.findall(r"^    (?=\S).*", re.sub(r"```\w+\n.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return fenced, [line.partition(" # ")[0].rstrip() for line in indented]


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_a_chinese_page_has_the_code_links_and_tables_of_the_english_one(page):
    english = page.with_name(page.name.replace(".zh", ""))
    assert blocks(page) == blocks(english)
    texts = [each.read_text(encoding="utf-8") for each in (page, english)]
    for pattern in (r"^#+ ", r"^\|.*\|$", r"^- "):  # headings, rows, points
        chinese, other = (len(re.findall(pattern, text, re.MULTILINE)) for text in texts)
        assert chinese == other, pattern
    links = [sorted(link.replace(".zh", "") for link in re.findall(r"\]\(([\w./-]+)", text)) for text in texts]
    assert links[0] == links[1]
    assert re.search(r"\]\(" + re.escape(page.name), texts[1]), "the English page has no link to it"


def test_the_glossary_has_the_terms_of_the_tour():
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (\d+) \|", (ROOT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE)
    assert [(english, chinese, int(number)) for english, chinese, number in rows] == list(TERMS)


def test_what_the_kernel_page_says_of_its_data():
    """A week or two by plain leave-one-out, with a warning, and the trend of half a century."""
    page = next(page for page in PAGES if page.name == "kernel-regression.md").read_text(encoding="utf-8")
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:3]:
        exec(compile(block, "kernel-regression.md", "exec"), scope)
    assert "a window of a week or two and warn of\nit" in page
    with pytest.warns(BandwidthWarning, match="block"):
        plain = KernelRegressor().fit(scope["weeks"], scope["parts"])
    assert round(plain.bandwidth_[0] / 7) in (1, 2)
    days = pandas.DataFrame({"week": pandas.to_datetime(["1960-01-01", "2000-01-01"])})
    assert numpy.all(numpy.abs(scope["trend"].predict(days) - [316.5, 369]) < 1)


def test_the_commands_of_the_kernel_page_run(tmp_path, monkeypatch, capsys):
    """And say what the page says they do."""
    monkeypatch.chdir(tmp_path)
    page = next(page for page in PAGES if page.name == "kernel-regression.md").read_text(encoding="utf-8")
    data = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "load_pandas" in block)
    table, commands, said = re.search(
        r"```python\n([^`]*?sales.csv.*?)```\s*```sh\n(.*?)```\s*```text\n(.*?)```", page, re.DOTALL
    ).groups()
    exec(compile(data + table, "kernel-regression.md", "exec"), {})
    capsys.readouterr()
    for command in commands.splitlines():
        assert main(command.split()[1:]) == 0
    assert said in capsys.readouterr().out
    assert len(list(tmp_path.glob("sales-*"))) == 4


def test_what_is_promised_is_shown():
    rows = promises.read()
    assert promises.problems(rows) == []
    assert promises.PAGE.read_text(encoding="utf-8") == promises.page(rows), "run `make promises`"


def test_promises_that_are_not_shown_are_listed(tmp_path, monkeypatch):
    page, tests = tmp_path / "README.md", tmp_path / "test_it.py"
    page.write_text(
        "# It\n\nIt is *never* wrong.\nThe rest is prose: `a | b`, any.\n\n| it | always |\n", encoding="utf-8"
    )
    tests.write_text("def test_it(case):\n    pass\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    for name in promises.GENERATED:
        (tmp_path / "docs" / name).touch()
    monkeypatch.setattr(promises, "ROOT", tmp_path)
    never = promises.Promise("README.md", "*never* wrong", ("test_it.py::test_it[1]",))
    rest = promises.Promise("README.md", "`a | b`, any", note="a figure of speech")
    always = promises.Promise("README.md", "always", ("test_it.py::test_it",))
    assert promises.problems([never, rest, always]) == []
    assert promises.problems([never, rest]) == ["README.md: no row for: always"]
    stale = promises.Promise("README.md", "sometimes right", ("test_it.py::test_it",))
    assert promises.problems([never, rest, always, stale]) == ["README.md: says no more: sometimes right"]
    missing = promises.Promise("README.md", "always", ("test_it.py::test_other", "test_no.py::test_it"))
    assert promises.problems([never, rest, missing]) == [
        "README.md: no such test: test_it.py::test_other",
        "README.md: no such test: test_no.py::test_it",
    ]
    for empty in (promises.Promise("README.md", "always"), promises.Promise("README.md", "always", ("x",), "and why")):
        assert "README.md: expected either tests or a note: always" in promises.problems([never, rest, empty])
