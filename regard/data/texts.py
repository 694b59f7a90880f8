"""Texts from files that people have: the lines of a file, or the paragraphs of a folder's files."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.errors import RegardError

__all__ = ["Passage", "TextError", "read_lines", "read_texts", "text_files"]

MAX_WORDS = 120  # of a paragraph: what an encoder of sentences reads at once
MAX_LINE = 1 << 20  # bytes: nobody writes longer lines
MAX_BYTES = 2_000_000_000  # of all files together, which are held in memory


class TextError(RegardError, ValueError):
    """A file holds no text that can be used; the message says where and why."""


@dataclass(frozen=True)
class Passage:
    """A line or paragraph, and where it stands."""

    place: str  # "file:line"
    text: str


def read_texts(path: Path) -> list[Passage]:
    """The lines of a file that are not blank, or the paragraphs of the files of a folder. UTF-8."""
    if path.is_dir():
        passages = [passage for file in _visible(path) for passage in _paragraphs(file)]
        if not passages:
            raise TextError(f"{path}: no text in this folder: expected files in UTF-8 (hidden ones are left out)")
        return passages
    lines = enumerate(read_lines(path), 1)
    passages = [Passage(f"{path}:{number}", line.strip()) for number, line in lines if line.strip()]
    if not passages:
        raise TextError(f"{path}: no line in it that is not blank")
    return passages


def text_files(path: Path) -> list[Path]:
    """A file, or the files of a folder that are text, in order; hidden ones are left out, and images and the like."""
    return [file for file in _visible(path) if not _is_binary(file)] if path.is_dir() else [path]


def read_lines(path: Path) -> Iterator[str]:
    """Every line of a file with its end, blank or not. UTF-8, MAX_LINE bytes a line and MAX_BYTES in all."""
    try:
        with path.open("rb") as file:
            number = size = 0
            while line := file.readline(MAX_LINE + 1):
                number, size = number + 1, size + len(line)
                if len(line) > MAX_LINE:
                    raise TextError(f"{path}: line {number} is longer than {MAX_LINE} bytes: break it into lines")
                if size > MAX_BYTES:
                    raise TextError(
                        f"{path}: line {number}: expected {MAX_BYTES} bytes at most: take a part of the file"
                    )
                yield _decode(line if number > 1 else line.removeprefix(BOM_UTF8), f"{path}: line {number}")
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error


def _visible(folder: Path) -> list[Path]:
    """The files below a folder, in order, without hidden ones."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _read_beginning(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error


def _is_binary(path: Path) -> bool:
    """Whether a file begins as no text does. UTF-16 is text, which is refused rather than left out."""
    content = _read_beginning(path, 1 << 13)
    return b"\0" in content and not content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))


def _paragraphs(path: Path) -> Iterator[Passage]:
    """What stands between blank lines, MAX_WORDS at a time; nothing of a file that is no text, such as an image."""
    content = _read_beginning(path, MAX_LINE)
    try:
        text = _decode(content.removeprefix(BOM_UTF8), str(path), is_cut=len(content) == MAX_LINE)
    except TextError:
        return
    words: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if not words:
            start = number
        words += line.split()
        if words and (not line.strip() or len(words) >= MAX_WORDS):
            yield Passage(f"{path}:{start}", " ".join(words))
            words = []


def _decode(content: bytes, place: str, *, is_cut: bool = False) -> str:
    """UTF-8 without NUL; if only the beginning of a file was read, its last character may be incomplete."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(content) - 3:
            raise TextError(f"{place}: not UTF-8 (byte {error.start}: {error.reason})") from error
        text = content[: error.start].decode()
    if "\0" in text:
        raise TextError(f"{place}: holds a NUL character, so it is no text")
    return text
