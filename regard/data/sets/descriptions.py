"""Translations out of the descriptions of Debian's packages: apt brings them in every language it is asked for."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.archives import FetchError
from regard.data.sets.sentences import pairs_of_sentences, write_pairs

__all__ = ["unpack"]

MOST = 25  # words of a sentence
LONGEST = 1 << 20  # bytes of a line
BULLETS = " \t*-•"  # one of them begins an item of a list; so does a dash in French, but there it begins asides, too
FIELD = re.compile(r"Description-(md5|[a-z]{2}): (.*)")


def unpack(archives: Sequence[Path], place: Path, *, language: str) -> None:
    """pairs.tsv, from English: descriptions belong together by their md5, and are aligned by paragraphs."""
    (archive,) = archives
    try:
        count = write_pairs(_pairs(archive, language), place / "pairs.tsv")
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise FetchError(f"{archive}: is broken ({error}); delete it and fetch again") from error
    if not count:
        raise FetchError(f"{archive}: no description is in English and in {language!r}; does your apt offer them?")


def _pairs(archive: Path, language: str) -> Iterator[tuple[str, str]]:
    english: dict[str, str] = {}
    foreign: dict[str, str] = {}
    for found, key, text in _descriptions(archive):
        if found in ("en", language):
            (english if found == "en" else foreign)[key] = text
    for key, text in foreign.items():
        source, target = (_paragraphs(each) for each in (english.get(key, ""), text))
        if len(source) == len(target):
            for own, other in zip(source, target, strict=True):
                yield from pairs_of_sentences(own, other, MOST)


def _descriptions(archive: Path) -> Iterator[tuple[str, str, str]]:
    """Language, md5 and text of each description; a blank line ends one."""
    with gzip.open(archive, "rt", encoding="utf-8") as file:
        key = language = ""
        lines: list[str] = []
        while line := file.readline(LONGEST):
            if field := FIELD.match(line):
                if field[1] == "md5":
                    key = field[2]
                else:
                    language, lines = field[1], [field[2], "."]
            elif line.startswith(" ") and language:
                lines.append(line[1:].rstrip("\n"))
            elif not line.strip() and language:
                yield language, key, "\n".join(lines)
                key = language = ""
        if language:
            yield language, key, "\n".join(lines)


def _paragraphs(text: str) -> list[str]:
    """What stands between lines with a point alone; an indented line or an item of a list stands for itself."""
    paragraphs: list[str] = []
    fresh = True
    for line in text.splitlines():
        alone = line.startswith(tuple(BULLETS))
        if line.strip() == ".":
            fresh = True
        elif fresh or alone:
            paragraphs.append(line.strip(f"{BULLETS}–"))
            fresh = False
        else:
            paragraphs[-1] += f" {line.strip()}"
    return paragraphs
