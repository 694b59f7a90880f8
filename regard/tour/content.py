"""What a section says and shows, from the Markdown file beside its code: claim_02_….md beside claim_02_….py.

A text is two paragraphs, English and then Chinese; in a list it is two lines. Headings, those in brackets if needed:

    # Claim 2            a list: notes: 000:36-39, 000:89 · deciding: rise · [uses: 3, 39] · [laboratory: #/curve]
    ## Title             a text; so are ## Claim and ## Idea
    ## Formula           ```math
    ## Plain cell        ```python, the code that the notes lack
    ## With regard       ```python
    [## Controls]        a list: - `width = 1.0` `Slider(0.02, 10, log=True)`: width
    ## Numbers           a list: - `rise`: largest − smallest value
    ## Criteria          ### key and a text with numbers in braces, for `judge`
    ## Pictures          ### key and a text: captions
    [## Labels]          a list of the words in the pictures; the code names them by their English
    ## Exercises         ### 1 and so on: a question, ```diff with the line that is changed, an answer
    [## Data]            ### key and ```text, which the code reads
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import RegardError
from regard.view.chart import Text

# All that a file consists of, with blank lines between.
BLOCK = re.compile(
    r"^(?:(?P<level>#{1,3}) (?P<heading>.+)"
    r"|```(?P<language>\w+)\n(?P<code>(?:(?!```).*\n)*)```$"
    r"|(?P<list>- .+(?:\n.+)*)"
    r"|(?P<paragraph>.+(?:\n.+)*))",
    re.MULTILINE,
)
HEADINGS = (
    *("Title", "Claim", "Idea", "Formula", "Plain cell", "With regard", "Controls"),
    *("Numbers", "Criteria", "Pictures", "Labels", "Exercises", "Texts", "Data"),
)
# What stands below the first heading: its form, and an example.
FACTS = {
    "notes": (r"\d+:\d+(-\d+)?(, \d+:\d+(-\d+)?)*", "000:36-39, 000:89"),
    "deciding": (r"\w+", "rise"),
    "uses": (r"\d+(, \d+)*", "3, 39"),
    "laboratory": (r"#/\S+", "#/curve"),
}
# What stands in an English line of a list.
ITEMS = {
    "Labels": ("(.+)", "English"),
    "Numbers": ("`(.+?)`: (.+)", "`name`: what it is"),
    "Controls": ("`(.+?)` `(.+?)`: (.+)", "`width = 1.0` `Slider(0.1, 10)`: what it is"),
}
COMMAS = Text(", ", "、")
LETTER, PUNCTUATION = "[\u4e00-\u9fff]", "[\u3000-\u303f\uff00-\uffef]"  # of Chinese
TEXT = ("paragraph", "paragraph")


class Passage(NamedTuple):
    """Lines of one set of the notes, the last included: Passage("000", 93, 95)."""

    file: str
    first: int
    last: int


class Exercise(NamedTuple):
    """One line of the plain cell that is changed, a question, and an answer with numbers.

    change: the line as it stands, without its indent, and what takes its place. answer: its braces read the variables
    of the cell, `was` before and `now` after: {now.w:.2f}.
    """

    change: tuple[str, str]
    question: Text
    answer: Text


class Slider(NamedTuple):
    """Numbers from low to high. log: by factors. whole: integers."""

    low: float
    high: float
    step: float = 0.01
    log: bool = False
    whole: bool = False


class Choice(NamedTuple):
    """One of these values of the plain cell's line."""

    values: tuple[str | int | float, ...]


class Words(NamedTuple):
    """A text that the reader types, of at most so many letters."""

    longest: int = 200


class Control(NamedTuple):
    """A variable of the plain cell that the reader may set: `line` is its assignment there, width = 1.0."""

    line: str
    name: Text
    values: Slider | Choice | Words


class ContentError(RegardError, ValueError):
    """A content file that cannot be read. The message names the file, the line, what was expected and what came."""


class Block(NamedTuple):
    """A paragraph, a list or a fenced cell, and the line it begins in. kind: of a cell, its language."""

    line: int
    kind: str
    source: str


class Content:
    """The content of one section: `fields` are those of `Section`, and `content(key)` is one of its texts."""

    def __init__(self, code: str) -> None:
        """code: the file of the section's code, `__file__`."""
        self.path = Path(code).with_suffix(".md")
        self.source = self.path.read_text(encoding="utf-8")
        self._lines: dict[str, int] = {}  # where each heading is; a ### is named with its ##: "Criteria: flat"
        self._blocks: dict[str, list[Block]] = {}  # below each heading
        self._divide()
        groups = ("Criteria", "Pictures", "Texts")
        self.texts = {key: self._text(name) for group in groups for key, name in self._below(group)}
        self.texts |= {english: Text(english, chinese) for _, (english,), chinese in self._items("Labels")}
        self.data = {key: self._take(name, "text")[0] for key, name in self._below("Data")}

    def __call__(self, key: str, **values: Any) -> Text:
        """A criterion or a caption by its key, a label by its English. values: what its braces stand for."""
        if key not in self.texts:
            raise ContentError(f"{self.path.name}: expected one of {', '.join(self.texts)}, got {key!r}")
        return fill(self.texts[key], values) if values else self.texts[key]

    def _error(self, line: int, expected: str, got: str) -> ContentError:
        return ContentError(f"{self.path.name}:{line}: expected {expected}, got {got}")

    def _divide(self) -> None:
        """The headings, and the blocks below each of them."""
        group = heading = ""
        for match in BLOCK.finditer(self.source):
            line = self.source.count("\n", 0, match.start()) + 1
            if match["level"]:
                group = group if match["level"] == "###" else match["heading"]
                heading = f"{group}: {match['heading']}" if match["level"] == "###" else group
                if match["level"] == "##" and heading not in HEADINGS:
                    raise self._error(line, f"one of the headings {', '.join(HEADINGS)}", heading)
                if heading in self._lines:
                    raise self._error(line, "every heading once", f"a second {heading}")
                self._lines[heading], self._blocks[heading] = line, []
            elif heading:
                kind = match["language"] or str(match.lastgroup)
                source = match[0] if match["code"] is None else match["code"]
                self._blocks[heading].append(Block(line, kind, source.rstrip("\n")))
            else:
                raise self._error(line, "# and a heading", match[0])

    def _below(self, group: str) -> list[tuple[str, str]]:
        """The keys of the ### below a ##, with the whole name of each."""
        return [(name.removeprefix(f"{group}: "), name) for name in self._lines if name.startswith(f"{group}: ")]

    def _take(self, heading: str, *kinds: str) -> list[str]:
        """The blocks below a heading, which have to be of these kinds; paragraphs without their line breaks."""
        if heading not in self._lines:
            raise self._error(1, f"a heading {heading}", ", ".join(self._lines) or "none")
        blocks = self._blocks[heading]
        if [block.kind for block in blocks] != list(kinds):
            present = ", ".join(block.kind for block in blocks) or "nothing"
            raise self._error(self._lines[heading], f"{', '.join(kinds)} below {heading}", present)
        return [_unwrapped(block.source) if block.kind == "paragraph" else block.source for block in blocks]

    def _text(self, heading: str) -> Text:
        return Text(*self._take(heading, *TEXT))

    def _items(self, heading: str) -> Iterator[tuple[int, tuple[str, ...], str]]:
        """The items of a list: the line, the parts of the English one, the Chinese one."""
        pattern, example = ITEMS[heading]
        for block in self._blocks.get(heading, ()):
            lines = [*block.source.splitlines(), ""]
            for index in range(0, len(lines) - 1, 2):
                match, chinese = re.fullmatch(f"- {pattern}", lines[index]), lines[index + 1]
                if match is None or not chinese.startswith("  "):
                    expected = f"- {example} and in the next line, indented, Chinese"
                    raise self._error(block.line + index, expected, lines[index])
                yield block.line + index, match.groups(), chinese.strip()

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The arguments of `Section`, but for its functions."""
        first = next(iter(self._lines), "nothing")
        number = re.fullmatch(r"Claim (\d+)", first)
        if number is None:
            raise self._error(1, "# Claim and its number", first)
        facts = self._facts(first)
        meanings = {name: Text(en, zh) for _, (name, en), zh in self._items("Numbers")}
        if facts.get("deciding") not in meanings:
            raise self._error(1, f"- deciding: and one of {', '.join(meanings)}", str(facts.get("deciding")))
        return {
            "number": int(number[1]),
            **facts,
            "title": self._text("Title"),
            "claim": self._text("Claim"),
            "idea": self._text("Idea"),
            "formula": self._take("Formula", "math")[0],
            "plain": self._take("Plain cell", "python")[0],
            "short": self._take("With regard", "python")[0],
            "controls": tuple(self._controls()),
            "meanings": meanings,
            "exercises": tuple(self._exercise(name) for _, name in self._below("Exercises")),
        }

    def _facts(self, heading: str) -> dict[str, Any]:
        """What stands below the first heading, a line for each."""
        facts = {}
        (source,) = self._take(heading, "list")
        for line, item in enumerate(source.splitlines(), self._blocks[heading][0].line):
            name, _, value = item.removeprefix("- ").partition(": ")
            if name not in FACTS or not re.fullmatch(FACTS[name][0], value):
                examples = ", ".join(f"{name}: {example}" for name, (_, example) in FACTS.items())
                raise self._error(line, f"- and one of {examples}", item)
            facts[name] = value
        passages = re.findall(r"(\d+):(\d+)-?(\d*)", facts.pop("notes", ""))
        notes = tuple(Passage(file, int(first), int(last or first)) for file, first, last in passages)
        return {"notes": notes, "uses": tuple(map(int, re.findall(r"\d+", facts.pop("uses", "")))), **facts}

    def _controls(self) -> Iterator[Control]:
        """Values are written as they are made: `Slider(0.02, 10, log=True)`."""
        for line, (assignment, values, english), chinese in self._items("Controls"):
            try:
                call: Any = ast.parse(values, mode="eval").body
                kind = {"Slider": Slider, "Choice": Choice, "Words": Words}[call.func.id]
                more = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
                yield Control(assignment, Text(english, chinese), kind(*map(ast.literal_eval, call.args), **more))
            except (SyntaxError, AttributeError, KeyError, ValueError, TypeError) as error:
                raise self._error(line, "Slider(low, high), Choice(values) or Words(longest)", values) from error

    def _exercise(self, heading: str) -> Exercise:
        question_en, question_zh, diff, answer_en, answer_zh = self._take(heading, *TEXT, "diff", *TEXT)
        match = re.fullmatch(r"- (.+)\n\+ (.+)", diff)
        if match is None:
            raise self._error(self._lines[heading], "- the line as it is, + the line in its place", diff)
        return Exercise((match[1], match[2]), Text(question_en, question_zh), Text(answer_en, answer_zh))


def _unwrapped(paragraph: str) -> str:
    """A paragraph as one line; between Chinese letters, and beside Chinese punctuation, a line break is no space."""
    tight = f"(?<={LETTER})\n(?={LETTER})|(?<={PUNCTUATION})\n|\n(?={PUNCTUATION})"
    return re.sub(tight, "", paragraph).replace("\n", " ")


def fill(text: Text, values: Mapping[str, Any]) -> Text:
    """A text with values in the place of its braces: of texts what is in the same language, lists with commas."""
    parts = []
    for index, (part, comma) in enumerate(zip(text, COMMAS, strict=True)):
        shown = {name: comma.join(value) if isinstance(value, list) else value for name, value in values.items()}
        shown |= {name: value[index] for name, value in values.items() if isinstance(value, Text)}
        parts.append(part.format(**shown))
    return Text(*parts)
