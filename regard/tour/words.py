"""What the tour says around its sections: words.md has it in both languages, by its English."""

from collections.abc import Callable, Sequence
from typing import Any

from regard.tour.section import Content, Language, Passage, Text

say = Content(__file__)

COLON = Text(": ", "：")
LANGUAGE_NAMES = Text("English", "中文")
LANGUAGE_CODES = Text("en", "zh-Hans")
FORMULA = r"o_i = \sum_j \mathrm{normalize}_j\left(\mathrm{score}(q_i, k_j)\ \mathrm{restricted\ by\ mask}\right) v_j"
KINDS = {"measured": "measured", "definition": "by definition", "correction": "correction", "untestable": "not tested"}
# English, Chinese, and the claim that explains it.
GLOSSARY = (line.split(" | ") for line in say.data["glossary"].splitlines())
TERMS = [(english, chinese, int(number)) for english, chinese, number in GLOSSARY]


def translator(language: Language) -> Callable[..., str]:
    """A function that says a text in this language, or what words.md has for some English; values: for its braces."""

    def translate(text: Text | str, **values: Any) -> str:
        return (say(text, **values) if isinstance(text, str) else text).to(language)

    return translate


def notes(passages: Sequence[Passage]) -> Text:
    """Where the notes make a claim."""
    if not passages:
        return say("beyond the notes")
    files: dict[str, list[str]] = {}
    for file, first, last in passages:
        files.setdefault(file, []).append(str(first) if first == last else f"{first}–{last}")
    parts = []
    for file, lines in files.items():
        single = len(lines) == 1 and lines[0].isdecimal()
        label = "notes {file}, line {lines}" if single else "notes {file}, lines {lines}"
        parts.append(say(label, file=file, lines=lines))
    return Text("; ".join(part.en for part in parts), "；".join(part.zh for part in parts))
