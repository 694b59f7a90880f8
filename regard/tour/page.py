"""The page of a tour: one HTML file that loads nothing but the pictures next to it."""

import inspect
import io
import keyword
import tokenize
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from regard.tour import report, words
from regard.tour.section import LANGUAGES, Language, Outcome, show
from regard.tour.walk import Result

MARKS = {Outcome.HELD: "✓", Outcome.PARTLY: "◐", Outcome.DID_NOT_HOLD: "✗", Outcome.FAILED: "!"}


def page(results: Sequence[Result], language: Language) -> str:
    """The whole page in one language."""
    title = words.TITLE.to(language)
    return f"""<!doctype html>
<html lang="{words.LANGUAGE_CODES.to(language)}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · regard</title>
<style>
{(files("regard.tour") / "page.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<a class="skip" href="#claims">{words.SKIP.to(language)}</a>
{_contents(results, language)}
<main>
{_front(results, language)}
<div id="claims">
{"".join(_section(result, language) for result in results)}</div>
{_foot(results, language)}
</main>
</body>
</html>
"""


def _pill(outcome: Outcome, language: Language) -> str:
    kind = outcome.replace(" ", "-")
    return f'<span class="pill {kind}"><i>{MARKS[outcome]}</i> {words.OUTCOMES[outcome].to(language)}</span>'


def _contents(results: Sequence[Result], language: Language) -> str:
    """The table of contents beside the page, where there is room beside it."""
    items = "\n".join(
        f'<li><a href="#{result.anchor}"><b>{result.section.number}</b> {escape(result.section.title.to(language))} '
        f'<i class="dot {result.outcome.replace(" ", "-")}" title="{words.OUTCOMES[result.outcome].to(language)}">'
        f"{MARKS[result.outcome]}</i></a></li>"
        for result in results
    )
    return f"""<nav aria-label="{words.CONTENTS.to(language)}">
<a class="name" href="#top">regard</a>
<ol>
{items}
</ol>
</nav>"""


def _front(results: Sequence[Result], language: Language) -> str:
    """Title, the one formula, the verdicts of all claims."""
    languages = " · ".join(
        f"<b>{words.LANGUAGE_NAMES.to(each)}</b>"
        if each == language
        else f'<a href="{each}.html" lang="{words.LANGUAGE_CODES.to(each)}">{words.LANGUAGE_NAMES.to(each)}</a>'
        for each in LANGUAGES
    )
    rows = "\n".join(_verdict_row(result, language) for result in results)
    counts = " ".join(
        f'<span class="pill {outcome.replace(" ", "-")}"><i>{MARKS[outcome]}</i> '
        f"{words.count(outcome, times).to(language)}</span>"
        for outcome, times in report.tally(results)
    )
    return f"""<header id="top">
<p class="languages">{languages}</p>
<h1>{words.TITLE.to(language)}</h1>
<p class="lead">{words.LEAD.to(language)}</p>
<p class="formula">{escape(words.FORMULA)}</p>
<h2>{words.CONTENTS.to(language)}</h2>
<p>{counts}</p>
<table class="verdicts">
<thead><tr><th>#</th><th>{words.CLAIM.to(language)}</th><th>{words.VERDICT.to(language)}</th>
<th class="n">{words.NUMBER.to(language)}</th><th class="what">{words.MEANING.to(language)}</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</header>"""


def _verdict_row(result: Result, language: Language) -> str:
    number, label = report.deciding(result)
    return (
        f'<tr><td>{result.section.number}</td><td><a href="#{result.anchor}">'
        f"{escape(result.section.title.to(language))}</a></td><td>{_pill(result.outcome, language)}</td>"
        f'<td class="n">{number}</td><td class="what">{escape(label.to(language))}</td></tr>'
    )


def _section(result: Result, language: Language) -> str:
    section = result.section
    return f"""<section id="{result.anchor}" aria-labelledby="{result.anchor}-title">
<p class="source">{words.CLAIM.to(language)} {section.number} · {words.notes(section.notes).to(language)} · \
{words.seconds(result.seconds).to(language)}</p>
<h2 id="{result.anchor}-title">{escape(section.title.to(language))} {_pill(result.outcome, language)}</h2>
<blockquote><b>{words.THE_NOTES_SAY.to(language)}</b> {escape(section.claim.to(language))}</blockquote>
<p>{escape(section.idea.to(language))}</p>
<p class="formula">{escape(section.written(language))}</p>
{_found(result, language)}
<h3>{words.CODE.to(language)} <a class="notebook" href="{result.notebook_name(language)}" download>\
{words.NOTEBOOK.to(language)}</a></h3>
<pre tabindex="0"><code>{highlighted(inspect.getsource(section.run))}</code></pre>
</section>
"""


def _found(result: Result, language: Language) -> str:
    """Picture, criteria and numbers; for a section that failed, its error."""
    if result.numbers is None:
        return f'<p class="error">{escape(result.error)}</p>'
    caption = escape(result.section.caption.to(language))
    criteria = "\n".join(
        f'<li class="{"met" if criterion.met else "not-met"}">'
        f'<i role="img" aria-label="{(words.MET if criterion.met else words.NOT_MET).to(language)}"></i> '
        f"{escape(criterion.sentence.to(language))}</li>"
        for criterion in result.criteria
    )
    numbers = "\n".join(
        f'<tr><th scope="row">{escape(label.to(language))}</th><td class="n">{show(value)}</td></tr>'
        for _, label, value in result.numbers.labelled()
    )
    light, dark = (result.picture_name(language, theme) for theme in ("light", "dark"))
    return f"""<figure>
<a href="{light}"><picture>
<source srcset="{dark}" media="screen and (prefers-color-scheme: dark)">
<img src="{light}" alt="{caption}">
</picture></a>
<figcaption aria-hidden="true">{caption}</figcaption>
</figure>
<h3>{words.WHY.to(language)}</h3>
<ul class="criteria">
{criteria}
</ul>
<h3>{words.MEASURED.to(language)}</h3>
<table class="numbers">
<tbody>
{numbers}
</tbody>
</table>"""


def _foot(results: Sequence[Result], language: Language) -> str:
    elapsed = sum(result.seconds for result in results)
    line = words.made_by(report.versions(), elapsed).to(language)
    return f'<footer><p>{escape(line)} <a href="results.json">results.json</a></p></footer>'


def highlighted(source: str) -> str:
    """Python source as HTML: keywords, strings, numbers, comments, and whatever is called from regard."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    html, position, previous = [], 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        start, end = starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]
        kind = _kind(token, previous)
        if kind and end > start:
            html += [escape(source[position:start], quote=False), f'<span class="{kind}">']
            html += [escape(source[start:end], quote=False), "</span>"]
            position = end
        if token.string != ".":
            previous = token.string
    html.append(escape(source[position:], quote=False))
    return "".join(html).strip()


def _kind(token: tokenize.TokenInfo, previous: str) -> str:
    """The class of a token; `previous` is the token before it, dots left out."""
    if token.type == tokenize.COMMENT:
        return "comment"
    if token.type == tokenize.NUMBER:
        return "number"
    if token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith("FSTRING"):
        return "string"
    if token.type == tokenize.NAME and keyword.iskeyword(token.string):
        return "keyword"
    if token.type == tokenize.NAME and "regard" in (token.string, previous):
        return "regard"
    return ""
