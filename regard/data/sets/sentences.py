"""Pairs of sentences out of pairs of longer texts, as translators leave them: what cannot be aligned is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["pairs_of_sentences", "write_pairs"]

LEAST = 3  # words of a sentence
CLOSING = """"'”’»)」』"""
# After the mark that ends a sentence comes a capital or a quotation; "e.g." and "..." end none. Chinese has no spaces.
END = re.compile(
    rf"""((?<!\.\w)(?<!\.\.)[.!?](?:\s?»)?[{CLOSING}]*)\s+(?=[^\Wa-zß-ÿ]|["“‘«(¿¡—])"""
    rf"""|([。！？]+[{CLOSING}]*)\s*"""
)
MARKUP = re.compile(r"[<>{}|\\_&@#$%=~^*`\[\]\x00-\x1f]|://|--")
HAN = re.compile(r"[\u3400-\u9fff]")
RATIO = 2.5  # of the numbers of words, at most: where it is larger, one of the two says something else
HAN_IN_A_WORD = 1.7  # characters of Chinese for a word of English, so that the limits mean about the same


def pairs_of_sentences(source: str, target: str, most: int) -> Iterator[tuple[str, str]]:
    """The sentences of two texts side by side, line by line, where both have equally many; LEAST to `most` words."""
    lines = [(" ".join(own.split()), " ".join(other.split())) for own, other in _both(source, target)]
    for own, other in lines:
        ours, theirs = _sentences(own), _sentences(other)
        if len(ours) != len(theirs):
            ours, theirs = [own], [other]
        for pair in zip(ours, theirs, strict=True):
            if _usable(*pair, most):
                yield pair


def write_pairs(pairs: Iterable[tuple[str, str]], path: Path) -> int:
    """A line `source<TAB>target` for each source, with the first of its targets; how many there are."""
    first: dict[str, str] = {}
    for source, target in pairs:
        first.setdefault(source, target)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in first.items())
    return len(first)


def _both(source: str, target: str) -> list[tuple[str, str]]:
    own, other = source.strip().splitlines(), target.strip().splitlines()
    return list(zip(own, other, strict=True)) if len(own) == len(other) else [(source, target)]


def _sentences(text: str) -> list[str]:
    return END.sub(lambda end: f"{end[1] or end[2]}\n", text).splitlines()


def _usable(source: str, target: str, most: int) -> bool:
    few, many = sorted((_words(source), _words(target)))
    return (
        source != target
        and LEAST <= few <= many <= min(most, RATIO * few)
        and not MARKUP.search(source + target)
        and _is_prose(source)
        and _is_prose(target)
    )


def _words(text: str) -> float:
    characters = len(HAN.findall(text))
    return characters / HAN_IN_A_WORD + len(HAN.sub(" ", text).split()) if characters else len(text.split())


def _is_prose(text: str) -> bool:
    """More letters than other marks: no table, version number or list of keys."""
    marks = "".join(text.split())
    return sum(mark.isalpha() for mark in marks) > 0.6 * len(marks)
