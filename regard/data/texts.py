"""Texts from files that people have: the lines of a file, or the paragraphs of the files of a folder."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Text", "TextError", "read_texts"]

WORDS = 120  # of a paragraph: what an encoder of sentences reads at once
LONGEST = 1 << 20  # characters of one text: a longer line is no line that somebody wrote


class TextError(ValueError):
    """The file holds no text that can be used; the message says where and why."""


@dataclass(frozen=True)
class Text:
    """A text and where it stands."""

    place: str  # "file:line"
    text: str


def read_texts(path: Path) -> list[Text]:
    """The lines of a file that are not blank, or the paragraphs of the files of a folder. UTF-8."""
    if path.is_dir():
        texts = list(_files(path))
        if not texts:
            raise TextError(f"{path}: no text in this folder: expected files in UTF-8 (hidden ones are left out)")
        return texts
    texts = list(_lines(path))
    if not texts:
        raise TextError(f"{path}: no line in it that is not blank")
    return texts


def _lines(path: Path) -> Iterator[Text]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST:
                    raise TextError(f"{path}: line {number} is longer than {LONGEST} bytes")
                text = _decoded(line, f"{path}: line {number}").strip()
                if text:
                    yield Text(f"{path}:{number}", text)
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error


def _files(folder: Path) -> Iterator[Text]:
    """The paragraphs of every file below, in order; files that are no text, such as pictures, are passed over."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            with path.open("rb") as file:
                content = file.read(LONGEST)
            text = _decoded(content, str(path), cut=len(content) == LONGEST)
        except TextError:
            continue
        except OSError as error:
            raise TextError(f"{path}: {error.strerror or error}") from error
        yield from _paragraphs(path, text)


def _paragraphs(path: Path, text: str) -> Iterator[Text]:
    """What stands between blank lines, WORDS at a time at most."""
    words: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if not words:
            start = number
        words += line.split()
        if words and (not line.strip() or len(words) >= WORDS):
            yield Text(f"{path}:{start}", " ".join(words))
            words = []


def _decoded(content: bytes, place: str, *, cut: bool = False) -> str:
    """UTF-8 without NUL; the last character may be cut off where only the beginning was read."""
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if not cut or error.start < len(content) - 3:
            raise TextError(f"{place}: not UTF-8 (byte {error.start}: {error.reason})") from error
        text = content[: error.start].decode()
    if "\0" in text:
        raise TextError(f"{place}: holds a NUL character, so it is no text")
    return text
