"""What the documentation promises, and what shows it: python -m experiments.promises [--check].

A promise is a sentence of README.md, of a page in docs/ or of a docstring with a word such as "never" or "bit for bit",
or with a ratio. docs/promises.toml says for each of them which tests show it, or why it promises nothing; here it is
compared with the sentences that are there, and with the tests that are there, and written as docs/promises.md.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.trial import table
from regard import files

ROOT = Path(__file__).parent.parent
LIST, PAGE = ROOT / "docs" / "promises.toml", ROOT / "docs" / "promises.md"
# Made by commands from what was measured, or by this one.
GENERATED = {"benchmarks.md", "results.md", "verdicts.md", "promises.md", "mutants.md"}
PROMISE = re.compile(
    r"\b(any|every|ever|never|always|exact|exactly|identical|guarantee[sd]?|bit for bit|no (?:bit|more than|matter))\b"
    r"|\d[\d.,]* ?(?:×|times (?:as|faster))",
    re.IGNORECASE,
)
STRONG = re.compile(r"\b(never|always|guarantee[sd]?|bit for bit|bit-identical)\b", re.IGNORECASE)  # in docstrings
# Code, and what commands have written between their marks.
NOT_PROSE = re.compile(r"^```.*?^```|^<!-- (\w+): made by .*?^<!-- end of \1 -->", re.DOTALL | re.MULTILINE)
# A sentence ends with its full stop, cell, paragraph, point or heading; a bar within `code` ends no cell.
BAR = r"\s*\|\s*(?=(?:[^`\n]*`[^`\n]*`)*[^`\n]*$)"
ENDS = re.compile(rf"(?<=[.!?:])\s+(?=[A-Z`*“(\[])|{BAR}|\n{{2,}}|\n(?=[-#|] ?)", re.MULTILINE)

INTRODUCTION = """# Promises

What README, docs and docstrings promise, and what shows it. A sentence is on this list if it has a word such as
“never”, “every” or “bit for bit”, or a ratio; a sentence that is not on it fails a test, and so does a row whose
sentence or test is gone. To check a promise, run what stands beside it, such as `python -m pytest
tests/attention/test_promises.py -k empty`; to doubt it, open the test and look for the case that it leaves out.

Made from `docs/promises.toml` by `make promises`, and not by hand.
"""


@dataclass(frozen=True)
class Promise:
    """A sentence, by words that stand in it; the tests that show it; or, in `note`, why it promises nothing."""

    where: str
    words: str
    tests: tuple[str, ...] = ()
    note: str = ""


def main() -> int:
    """Exit code 1 where a promise has no row, a row no promise, or a test is not there."""
    parser = argparse.ArgumentParser(prog="python -m experiments.promises", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    rows = read()
    faults = problems(rows)
    print("\n".join(faults) or f"{len(rows)} sentences, each with its tests", file=sys.stderr if faults else sys.stdout)
    if not options.check:
        files.write(PAGE, page(rows))
        print(f"wrote docs/{PAGE.name}")
    return 1 if faults else 0


def read() -> list[Promise]:
    """The rows of docs/promises.toml."""
    rows = tomllib.loads(LIST.read_text(encoding="utf-8")).get("promise", [])
    return [Promise(row["where"], row["words"], tuple(row.get("tests", ())), row.get("note", "")) for row in rows]


def sentences() -> Iterator[tuple[str, str, bool]]:
    """File, sentence, and whether a word of it makes it a promise."""
    pages = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED]
    for path in [ROOT / "README.md", *pages]:
        if path.name.endswith(".zh.md"):
            continue  # says what the English page says, which a test checks
        yield from _cut(path, NOT_PROSE.sub("", path.read_text(encoding="utf-8")), PROMISE)
    for path in sorted((ROOT / "regard").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield from _cut(path, ast.get_docstring(node) or "", STRONG)


def _cut(path: Path, prose: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str, bool]]:
    for sentence in ENDS.split(prose):
        text = " ".join(sentence.split())
        yield path.relative_to(ROOT).as_posix(), text, bool(pattern.search(text))


def problems(rows: list[Promise]) -> list[str]:
    """A line for each promise without a row, row without a sentence, row that shows nothing, and test that is missing.

    A sentence without any of the words may have a row, too.
    """
    lines, used = [], set()
    for where, sentence, promises in sentences():
        row = next((row for row in rows if row.where == where and row.words in sentence), None)
        if promises and row is None:
            lines.append(f"{where}: no row for: {sentence}")
        used.add(row)
    for row in rows:
        if row not in used:
            lines.append(f"{row.where}: says no more: {row.words}")
        if bool(row.tests) == bool(row.note):
            lines.append(f"{row.where}: expected either tests or a note: {row.words}")
        lines += [f"{row.where}: no such test: {test}" for test in row.tests if not _exists(test)]
    return lines


def _exists(test: str) -> bool:
    """Whether a test, file::function or file::function[case], is there."""
    path, _, name = test.partition("[")[0].partition("::")
    file = ROOT / path
    return file.is_file() and bool(re.search(rf"^def {re.escape(name)}\(", file.read_text(encoding="utf-8"), re.M))


def page(rows: list[Promise]) -> str:
    """The list in Markdown."""
    cells = [[row.where, row.words.replace("|", "\\|"), _shown(row)] for row in rows]
    return "\n".join([INTRODUCTION, table(["where", "says", "shown by"], cells), ""])


def _shown(row: Promise) -> str:
    return "<br>".join(f"`{test}`" for test in row.tests) or row.note


if __name__ == "__main__":
    sys.exit(main())
