"""The page of a tour: one HTML file for each language, which loads nothing. Served by `regard explore`, it is live."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pygments
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from latex2mathml.converter import convert
from markupsafe import Markup
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token

from regard.tour import course, report, words
from regard.tour.cells import changed
from regard.tour.notes import Notes
from regard.tour.section import LANGUAGES, Choice, Control, Language, Result, Section, Slider, Words, show
from regard.tour.sections import CHAPTERS
from regard.view.page import static

# What the laboratory has: address and name.
LABORATORY = {
    "curve": "Curve",
    "formula": "Formula",
    "heads": "Heads",
    "translate": "Translate",
    "language": "Write",
    "image": "Image",
    "model": "Your models",
}


def write_folder(
    sections: Sequence[Section], results: Sequence[Result], language: Language, out: Path, notes: Notes
) -> None:
    """Write pages, results.json, the course as scripts and notebooks, and with notes the page of their lines."""
    write_pages(sections, results, language, out, notes)
    (out / "results.json").write_text(report.as_json(results, language), encoding="utf-8")
    course.write_code(sections, out)
    for section in sections:
        for other in LANGUAGES:
            path = out / "notebooks" / other / f"{section.anchor}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(course.notebook([section], other), encoding="utf-8")
    for other in LANGUAGES if notes.lines else ():
        lines = notes.coverage(sections)
        content = _template("coverage.html").render(_common(other), coverage=lines, sections=sections)
        (out / f"notes.{other}.html").write_text(content, encoding="utf-8")


def write_pages(
    sections: Sequence[Section], results: Sequence[Result], language: Language, out: Path, notes: Notes
) -> None:
    """The page in each language, with what is there so far. index.html is the page in the chosen language."""
    for other in LANGUAGES:
        content = page(sections, results, other, notes=notes)
        for name in [f"{other}.html", *(["index.html"] if other == language else [])]:
            (out / name).write_text(content, encoding="utf-8")


def page(
    sections: Sequence[Section],
    results: Sequence[Result],
    language: Language,
    *,
    notes: Notes | None = None,
    is_live: bool = False,
    laboratory: bool = False,
) -> str:
    """The whole page in one language.

    results: of some or all of the sections; a section without one is being run.
    is_live: a server answers it; else the page cannot compute.
    laboratory: the laboratory's page, with the same frame.
    """
    chapters = {
        title: [section for section in sections if section.number in numbers] for title, numbers in CHAPTERS.items()
    }
    return _template("page.html").render(
        _common(language),
        chapters={title: members for title, members in chapters.items() if members},
        sections=sections,
        results={result.section.number: result for result in results},
        notes=notes or Notes(),
        tally=report.tally(results),
        versions=", ".join(f"{name} {number}" for name, number in report.versions().items()),
        seconds=sum(result.seconds for result in results),
        is_live=is_live,
        laboratory=laboratory,
    )


def fragment(section: Section, result: Result, language: Language) -> str:
    """What stands on the page in the place of a section that is being run."""
    body = _template("section.html").module.body  # type: ignore[attr-defined]
    return str(body(section, result, Notes(), True, _common(language)))


def _common(language: Language) -> dict[str, Any]:
    return {"language": language, "t": words.translator(language)}


@cache
def _template(name: str) -> Template:
    home = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(home), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "css": Markup(static("chart.css") + (home / "page.css").read_text(encoding="utf-8")),
        "js": Markup((home / "page.js").read_text(encoding="utf-8")),
        "words": words,
        "marks": {outcome: mark for outcome, (mark, _) in report.MARKS.items()},
        "languages": LANGUAGES,
        "places": LABORATORY.items(),
        "control": _control,
    }
    environment.filters |= {
        "show": show,
        "code": lambda source: Markup(highlight(source)),
        "source": measuring_code,
        "file": lambda section: f"regard/tour/sections/{Path(inspect.getfile(section.judge)).name}",
        "mathml": _mathml,
        "slug": lambda text: re.sub(r"\W+", "-", text.lower()),
        "changed": _changed,
        "svg": Markup,
    }
    return environment.get_template(name)


def measuring_code(section: Section) -> str:
    """The code of a section's file, without its first line, and without the last ones, which make it a section."""
    module = sys.modules[section.judge.__module__]
    if getattr(module, "SECTION", None) is not section:
        return inspect.getsource(section.run)
    _, _, code = inspect.getsource(module).split('"""', 2)
    return code.partition("\nSECTION = ")[0].strip()


@cache
def _mathml(formula: str) -> Markup:
    return Markup(convert(formula, display="block"))


def _changed(section: Section, change: tuple[str, str]) -> Markup:
    """The lines of a changed cell, the changed one marked."""
    lines = highlight(section.plain).splitlines()
    after = highlight(changed(section.plain, change)).splitlines()
    for old, new in zip(lines, after, strict=True):
        if old != new:
            return Markup(f"<del>{old.strip()}</del>\n<ins>{new.strip()}</ins>")
    raise ValueError(f"an exercise of claim {section.number} changes nothing")


def _control(control: Control, language: Language) -> str:
    """A control for the page's script, as JSON."""
    name, value = (part.strip() for part in control.line.split("=", 1))
    kind = {Slider: "slider", Choice: "choice", Words: "text"}[type(control.values)]
    shown = {"variable": name, "name": control.name.to(language), "value": ast.literal_eval(value)}
    whole = {**shown, "kind": kind, **control.values._asdict()}
    return json.dumps(whole, ensure_ascii=False).replace("<", "\\u003c")


def highlight(source: str) -> str:
    """Python source as HTML, with a class for keywords, strings, numbers, comments and what is called from regard."""
    tokens = PythonLexer().get_tokens(source.strip("\n"))
    return str(pygments.format(_coloured(tokens), HtmlFormatter(nowrap=True))).rstrip()


def _coloured(tokens: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    """Tokens with the few kinds that page.css gives a colour; any other is plain text."""
    before = ""  # the token before this one, dots left out
    for kind, text in tokens:
        if kind in Name and "regard" in (text, before):
            yield Name.Namespace, text
        elif kind is Operator.Word:  # and, in, not …
            yield Keyword, text
        else:
            yield next((group for group in (Comment, Keyword, Number, String) if kind in group), Token.Text), text
        if text != ".":
            before = text
