"""The documentation's code runs as it stands; commands that train for minutes, download or serve are checked.

A block of Python is run, and a block of text after it is what it prints. A block of commands that a block of text
follows is run as well, and so are commands that need nothing else; of the others the real parsers read program, options
and arguments. A block that is none of these fails.
"""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path
from typing import NamedTuple

import click
import numpy
import pandas
import pytest
from torch.distributed.run import get_args_parser

from benchmarks import __main__ as benchmarks
from benchmarks import front
from benchmarks.measure import load_rows
from benchmarks.measured import read, replace_between
from experiments import __main__ as experiments
from experiments import promises
from experiments.grammar import sentences
from regard import KernelRegressor
from regard.cli import commands, main
from regard.data.fetching import SETS
from regard.kernel.estimator import BandwidthWarning
from regard.tour.words import TERMS
from regard.training.options import TASKS, resolve

ROOT = Path(__file__).resolve().parent.parent
FRONTS = [ROOT / "README.md", ROOT / "README.zh.md"]
DOCS = sorted((ROOT / "docs").glob("*.md"))
CHINESE = [page for page in [*FRONTS, *DOCS] if page.name.endswith(".zh.md")]  # whose code is that of the English pages
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(page for page in DOCS if page not in CHINESE)]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
DONE = []  # commands that were run: once is enough for the doctor, who is on several pages
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def text_of(page):
    return page.read_text(encoding="utf-8")


def name_of(page):
    return page.name


# ----------------------------------------------------------------------------------------------------- blocks of a page


class Block(NamedTuple):
    """Python or commands, and what they promise to print."""

    language: str
    code: str
    output: str


def blocks(text):
    """The blocks of a page, in their order. What is neither Python nor commands nor their output is an error."""
    fences = re.compile(r"^```(\w*)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
    found = [Block(*match.groups("")) for match in fences.finditer(text)]
    for block in found:
        assert block.language in ("python", "sh"), f"neither run nor checked: {block.code}"
    prose = fences.sub("", text)
    assert not re.search(r"^```|^\n    \S", prose, re.MULTILINE), "code that is not in a fence of python or sh"
    return found, prose


@pytest.mark.parametrize(
    "text",
    ["```\nx\n```\n", "```py\nx\n```\n", "```text\nx\n```\n", "\n    make tour\n", "```python\nx\n"],
    ids=["no language", "another one", "no code before it", "indented", "open"],
)
def test_a_block_that_nobody_reads_is_an_error(text):
    with pytest.raises(AssertionError):
        blocks(text)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in blocks(text_of(page))[0]:
        if block.language == "python":
            exec(compile(block.code, page.name, "exec"), scope)
            printed = capsys.readouterr().out
            assert block.output.strip() in ("", printed.strip())
        else:
            obey_all(block.code, monkeypatch, block.output)
            printed = "".join(capsys.readouterr())
            assert block.output in printed


# ------------------------------------------------------------------------------------------------------------- commands


def lines_of_shell(code):
    """The words of each command, also of those within $(…); without comments, redirections and assignments."""
    for line in code.replace("\\\n", " ").splitlines():
        inner = re.findall(r"\$\(([^()]*)\)", line)
        for command in inner:
            yield shlex.split(command)
        line = re.sub(r"\$\([^()]*\)", "FOLDER", line)
        words = shlex.split(re.sub(r"[<>] *\S+", "", line) if "<|" not in line else line, comments=True)
        if words and re.fullmatch(r"[A-Za-z]+=.*", words[0]):
            words = words[1:]
        if words:
            yield words


def obey_all(code, monkeypatch, output=""):
    for words in lines_of_shell(code):
        obey(words, monkeypatch, output)


def obey(words, monkeypatch, output=""):
    """Run a command of regard, or check it; of another program check what can be."""
    program, *arguments = words
    if program == "regard":
        if output or (is_quick(arguments) and words not in DONE):
            DONE.append(words)
            assert (main(arguments) != 0) == output.startswith("regard: "), words  # which is how an error begins
        else:
            parse(arguments, monkeypatch)
    elif program == "torchrun":
        options = get_args_parser().parse_args(arguments)
        assert options.module
        assert options.training_script == "regard"
        parse(options.training_script_args, monkeypatch)
    elif program == "make":
        assert {word for word in arguments if "=" not in word} <= TARGETS, words
    elif program == "python":
        assert arguments[0] == "-m"
        assert importlib.util.find_spec(arguments[1]), words
        assert all((ROOT / word).exists() for word in arguments if word.startswith("tests/")), words
    elif program == "pip":
        extras = re.findall(r"regard\[(\w+)\]", " ".join(arguments))
        assert arguments[0] == "install"
        assert set(extras) <= set(EXTRAS), words
    else:
        assert program == "." or program.startswith(".venv/bin/"), f"nobody checks {program}"


def is_quick(arguments):
    """Whether a command needs no model, no download and no minutes, and finds its file."""
    if arguments[0] == "curve":
        return Path(arguments[1]).exists()
    return arguments[0] == "doctor" or arguments[:2] in (["data", "list"], ["tour", "--code"])


def parse(arguments, monkeypatch):
    """Read the arguments as the command would, which is then not called; of a training, also resolve its options."""

    def check(command, context):
        if context.parent is not None and context.parent.info_name == "train":
            others = ("out", "config", "resume", "as_json")
            given = {name: value for name, value in context.params.items() if value is not None and name not in others}
            assert context.params["resume"] or resolve(context.info_name, given)
        if context.info_name == "fetch":
            assert context.params["name"] in {*SETS, "NAME"}
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(click.Command, "invoke", check)
        assert main(arguments) == 0, arguments


@pytest.mark.parametrize(
    "command",
    [
        "regard trian translate",
        "regard train translate --bath 3",
        "regard train translate pairs.tsv --model vit",
        "regard data fetch MiniML",
        'regard look "$(regard data fetsh MiniLM)" text',
        "regard curve data.csv --degree 9",
        "torchrun --stand-alone --nproc-per-node 2 -m regard train translate",
        "torchrun --standalone -m regard train translate --bath 3",
        "make tuor",
        "python -m experiments.nothing",
        "pip install 'regard[nothing]'",
        "nobody knows this",
    ],
)
def test_a_command_that_does_not_exist_is_an_error(command, monkeypatch):
    with pytest.raises((AssertionError, SystemExit)):
        obey_all(command, monkeypatch)


@pytest.mark.parametrize("page", [*PAGES, *CHINESE], ids=name_of)
def test_commands_in_sentences_exist(page, monkeypatch, capsys):
    for code in re.findall(r"`((?:regard|make|torchrun|python|pip) [^`\n]+)`", blocks(text_of(page))[1]):
        if not re.search(r"…|\b(TASK|COMMAND)\b", code):
            for words in lines_of_shell(code):
                if len(words) == 2 and words[1] in commands.commands:
                    continue  # the name alone
                if words[0] == "regard":
                    parse(words[1:], monkeypatch)
                else:
                    obey(words, monkeypatch)


def test_the_page_of_the_command_line_has_all_commands():
    text = text_of(ROOT / "docs/commands.md")
    headings = " ".join(re.findall(r"^## .*", text, re.MULTILINE))
    assert re.findall(r"`(\w+)`", headings) != []
    assert set(re.findall(r"`(\w+)`", headings)) == set(commands.commands)
    assert all(f"regard {name}" in text for name in commands.commands)
    assert all(f"`{task}`" in text or f"train {task}" in text for task in TASKS)


# ------------------------------------------------------------------------------------------------- two languages, links


def code_without_comments(text):
    found = blocks(text)[0]
    return [(block.language, re.sub(r" +# .*", "", block.code), block.output) for block in found]


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_a_chinese_page_has_the_code_links_and_tables_of_the_english_one(page):
    texts = [text_of(page), text_of(page.with_name(page.name.replace(".zh", "")))]
    assert code_without_comments(texts[0]) == code_without_comments(texts[1])
    for pattern in (r"^#+ ", r"^\|.*\|$", r"^- "):  # headings, rows, points
        chinese, english = (len(re.findall(pattern, text, re.MULTILINE)) for text in texts)
        assert chinese == english, pattern
    links = [sorted(re.sub(r"[.-]zh\b", "", link) for link in re.findall(r"\]\(([\w./-]+)", text)) for text in texts]
    assert links[0] == links[1]
    assert re.search(r"\]\(" + re.escape(page.name), texts[1]), "the English page has no link to it"


@pytest.mark.parametrize(
    "page",
    [*FRONTS, *DOCS, *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING"))],
    ids=name_of,
)
def test_links_lead_to_files_and_headings(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text_of(page)):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} points to {target}"
        headings = re.findall(r"^#+ (.*)", text_of(file), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {slug(heading) for heading in headings}, f"{page.name}: {target}#{anchor}"


def slug(heading):
    return re.sub(r"[^\w]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def test_all_pages_are_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert set(re.findall(r"[\w.-]+\.md", navigation)) == {page.name for page in DOCS}


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_a_page_says_what_it_is_about_before_it_lists_anything(page):
    start = re.sub(r"^# .*\n|^\[(?:中文|English)\].*\n", "", text_of(page), flags=re.MULTILINE).strip()
    assert not re.match(r"```|[|>#-]", start), f"begins with: {start[:80]}"
    assert len(start.partition("\n\n")[0].encode()) > 60, f"begins with little: {start[:80]}"


def test_the_glossary_has_the_terms_of_the_tour():
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (\d+) \|", text_of(ROOT / "docs/glossary.md"), re.MULTILINE)
    assert [(english, chinese, int(number)) for english, chinese, number in rows] == list(TERMS)


# ----------------------------------------------------------------------------------------------------------- the README


@pytest.mark.parametrize("page", FRONTS, ids=name_of)
def test_the_readme_fits_two_screens_and_has_one_picture(page):
    text = re.sub(r"^<!--.*-->\n", "", text_of(page), flags=re.MULTILINE)
    assert len(text.splitlines()) <= 100
    assert len(re.findall(r"!\[[^]]+\]\(docs/pictures/", text)) == 1


def test_figures_of_the_readmes_are_what_was_measured():
    rows, done = load_rows(), benchmarks.figures_by_name(read(benchmarks.MEASURED))
    tables, results = front.tables(rows, done), sentences(experiments.read().get("grammar", {}))
    for language, page in front.FRONTS.items():
        text = text_of(page)
        for word, content in (("bench", tables[language]), ("experiments", results[language])):
            command = {"bench": "benchmarks"}.get(word, word)
            assert text == replace_between(text, word, f"\n{content}\n"), f"run `python -m {command} --page`"


def test_a_page_without_marks_is_refused():
    for page in ("nothing", "<!-- bench: made by `make bench` -->", "<!-- end of bench -->"):
        with pytest.raises(ValueError, match="expected the marks"):
            replace_between(page, "bench", "table")


def test_the_architecture_has_the_rooms_that_are_there():
    table = text_of(ROOT / "ARCHITECTURE.md").partition("## The rooms")[2].partition("\n\nWhat ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)}
    rooms = {f"{path.parent.name}/" for path in ROOT.glob("regard/*/__init__.py")}
    assert named == rooms | {path.name for path in ROOT.glob("regard/*.py") if not path.name.startswith("__")}


# --------------------------------------------------------------------------------------------- what pages say of things


def kernel_page():
    return text_of(ROOT / "docs/kernel-regression.md")


def test_what_the_kernel_page_says_of_its_data():
    """A week or two by plain leave-one-out, with a warning, and the trend of half a century."""
    scope = {}
    for block in blocks(kernel_page())[0][:3]:
        exec(compile(block.code, "kernel-regression.md", "exec"), scope)
    assert "a window of a week or two and warn of\nit" in kernel_page()
    with pytest.warns(BandwidthWarning, match="block"):
        plain = KernelRegressor().fit(scope["weeks"], scope["parts"])
    assert round(plain.bandwidth_[0] / 7) in (1, 2)
    days = pandas.DataFrame({"week": pandas.to_datetime(["1960-01-01", "2000-01-01"])})
    assert numpy.all(numpy.abs(scope["trend"].predict(days) - [316.5, 369]) < 1)


# ------------------------------------------------------------------------------------------------------------- promises


def test_what_is_promised_is_shown():
    rows = promises.read()
    assert promises.problems(rows) == []
    assert text_of(promises.PAGE) == promises.page(rows), "run `make promises`"


def test_promises_that_are_not_shown_are_listed(tmp_path, monkeypatch):
    page, tests = tmp_path / "README.md", tmp_path / "test_it.py"
    page.write_text(
        "# It\n\nIt is *never* wrong.\nThe rest is prose: `a | b`, any.\n\n| it | always |\n"
        "<!-- bench: made by `make bench` -->\n| 3× as fast |\n<!-- end of bench -->\n```sh\nany\n```\n",
        encoding="utf-8",
    )
    tests.write_text("def test_it(case):\n    pass\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
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
