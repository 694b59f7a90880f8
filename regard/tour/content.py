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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import RegardError
from regard.tour.section import Choice, Control, Exercise, Passage, Slider, Text, Words, fill

# All that a file consists of, with blank lines between.
BLOCK = re.compile(
    r"^(?:(?P<level>#{1,3}) (?P<heading>.+)"
    r"|```(?P<language>\w+)\n(?P<code>(?:.*\n)*?)```$"
    r"|(?P<list>- .+(?:\n.+)*)"
    r"|(?P<paragraph>.+(?:\n.+)*))",
    re.MULTILINE,
)
HEADINGS = (
    *("Title", "Claim", "Idea", "Formula", "Plain cell", "With regard", "Controls"),
    *("Numbers", "Criteria", "Pictures", "Labels", "Exercises", "Data"),
)
# What stands below the first heading: its form, and an example.
FACTS = {
    "notes": (r"\d+:\d+(-\d+)?(, \d+:\d+(-\d+)?)*", "000:36-39, 000:89"),
    "deciding": (r"\w+", "rise"),
    "uses": (r"\d+(, \d+)*", "3, 39"),
    "laboratory": (r"#/\S+", "#/curve"),
}
LETTER, PUNCTUATION = "[\u4e00-\u9fff]", "[\u3000-\u303f\uff00-\uffef]"  # of Chinese
TEXT = ("paragraph", "paragraph")


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
        self.texts = {key: self._text(name) for group in ("Criteria", "Pictures") for key, name in self._below(group)}
        self.texts |= {english: Text(english, chinese) for _, (english,), chinese in self._items("Labels", "(.+)")}
        self.data = {key: self._take(name, "text")[0] for key, name in self._below("Data")}
        self.fields = self._read_fields()

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
                self._blocks[heading].append(Block(line, kind, (match["code"] or match[0]).rstrip("\n")))
            else:
                raise self._error(line, "# Claim and its number", match[0])

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

    def _items(self, heading: str, pattern: str) -> Iterator[tuple[int, tuple[str, ...], str]]:
        """The items of a list: the line, the groups of the pattern in the English one, the Chinese one."""
        for block in self._blocks.get(heading, ()):
            lines = [*block.source.splitlines(), ""]
            for index in range(0, len(lines) - 1, 2):
                match, chinese = re.fullmatch(f"- {pattern}", lines[index]), lines[index + 1]
                if match is None or not chinese.startswith("  "):
                    expected = f"- {pattern} and in the next line, indented, the same in Chinese"
                    raise self._error(block.line + index, expected, "\n".join(lines[index : index + 2]))
                yield block.line + index, match.groups(), chinese.strip()

    def _read_fields(self) -> dict[str, Any]:
        """The arguments of `Section`, but for its functions."""
        first = next(iter(self._lines), "nothing")
        number = re.fullmatch(r"Claim (\d+)", first)
        if number is None:
            raise self._error(1, "# Claim and its number", first)
        facts = self._facts(first)
        meanings = {name: Text(en, zh) for _, (name, en), zh in self._items("Numbers", "`(.+?)`: (.+)")}
        if facts.get("deciding") not in meanings:
            raise self._error(
                self._lines[first], f"- deciding: one of {', '.join(meanings)}", str(facts.get("deciding"))
            )
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
        for line, (assignment, values, english), chinese in self._items("Controls", "`(.+?)` `(.+?)`: (.+)"):
            try:
                call = ast.parse(values, mode="eval").body
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
