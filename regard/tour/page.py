"""The folder of a tour: a page for each language, one HTML file that loads nothing but the pictures next to it."""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pygments
from jinja2 import Environment, StrictUndefined, Template
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token

from regard.tour import report, words
from regard.tour.notebook import notebook
from regard.tour.result import Result
from regard.tour.section import LANGUAGES, Language, Outcome, Text, show

MARKS = {Outcome.HELD: "✓", Outcome.PARTLY: "◐", Outcome.DID_NOT_HOLD: "✗", Outcome.FAILED: "!"}


def write_folder(results: Sequence[Result], language: Language, out: Path) -> None:
    """Write pages, pictures, notebooks and results.json. index.html is the page in the chosen language."""
    files: dict[str, str | bytes] = {f"{other}.html": page(results, other) for other in LANGUAGES}
    files |= {"index.html": files[f"{language}.html"], "results.json": report.as_json(results, language)}
    for result in results:
        files |= {result.picture_name(*variant): picture for variant, picture in result.pictures.items()}
        files |= {result.notebook_name(other): notebook(result.section, other) for other in LANGUAGES}
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content.encode() if isinstance(content, str) else content)


def page(results: Sequence[Result], language: Language) -> str:
    """The whole page in one language."""

    def translate(text: Text) -> str:
        return text.to(language)

    return _template().render(
        results=results,
        language=language,
        languages=LANGUAGES,
        words=words,
        t=translate,
        marks=MARKS,
        tally=report.tally(results),
        versions=report.versions(),
        seconds=sum(result.seconds for result in results),
    )


@cache
def _template() -> Template:
    home = Path(__file__).parent
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals["css"] = (home / "page.css").read_text(encoding="utf-8")
    environment.filters["show"] = show
    environment.filters["code"] = lambda function: highlight(inspect.getsource(function))
    return environment.from_string((home / "page.html").read_text(encoding="utf-8"))


def highlight(source: str) -> str:
    """Python source as HTML, with a class for keywords, strings, numbers, comments and what is called from regard."""
    tokens = PythonLexer().get_tokens(source)
    return str(pygments.format(_coloured(tokens), HtmlFormatter(nowrap=True))).strip()


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
