"""Texts from files that people have: the lines of a file, the paragraphs of a folder's files, or whole documents."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.errors import RegardError

__all__ = ["Text", "TextError", "read_documents", "read_lines", "read_texts"]

WORDS = 120  # of a paragraph: what an encoder of sentences reads at once
LONGEST = 1 << 20  # characters of one text: a longer line is no line that somebody wrote
MOST = 2_000_000_000  # bytes that are read at once: all of them are held in memory


class TextError(RegardError, ValueError):
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


def read_documents(path: Path) -> list[str]:
    """A file as one document, or a document per file of a folder, each as it is with its line ends. UTF-8.

    Blank files are passed over, and so are files of a folder that are no text, such as pictures.
    """
    if not path.is_dir():
        documents = ["".join(read_lines(path))]
    else:
        files = [file for file in _visible(path) if not _is_binary(file)]
        size = sum(file.stat().st_size for file in files)
        if size > MOST:
            raise TextError(f"{path}: holds {size} bytes of text, expected {MOST} at most: take a part of the files")
        documents = ["".join(read_lines(file)) for file in files]
    documents = [document for document in documents if document.strip()]
    if not documents:
        raise TextError(f"{path}: no text in it: expected UTF-8 (hidden files of a folder are left out)")
    return documents


def read_lines(path: Path) -> Iterator[str]:
    """Every line of a file with its end, blank or not. UTF-8, LONGEST bytes a line and MOST bytes in all."""
    try:
        with path.open("rb") as file:
            number = size = 0
            while line := file.readline(LONGEST + 1):
                number, size = number + 1, size + len(line)
                if len(line) > LONGEST:
                    raise TextError(f"{path}: line {number} is longer than {LONGEST} bytes: break it into lines")
                if size > MOST:
                    raise TextError(f"{path}: line {number}: expected {MOST} bytes at most: take a part of the file")
                yield _decoded(line if number > 1 else line.removeprefix(BOM_UTF8), f"{path}: line {number}")
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error


def _lines(path: Path) -> Iterator[Text]:
    for number, line in enumerate(read_lines(path), 1):
        if text := line.strip():
            yield Text(f"{path}:{number}", text)


def _files(folder: Path) -> Iterator[Text]:
    """The paragraphs of every file below, in order; files that are no text, such as pictures, are passed over."""
    for path in _visible(folder):
        content = _beginning(path, LONGEST)
        try:
            text = _decoded(content.removeprefix(BOM_UTF8), str(path), cut=len(content) == LONGEST)
        except TextError:
            continue
        yield from _paragraphs(path, text)


def _visible(folder: Path) -> list[Path]:
    """The files below a folder, in order, without hidden ones."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _beginning(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error


def _is_binary(path: Path) -> bool:
    """Whether a file begins as no text does. UTF-16 is text, and has to be refused rather than passed over."""
    content = _beginning(path, 1 << 13)
    return b"\0" in content and not content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))


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
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if not cut or error.start < len(content) - 3:
            raise TextError(f"{place}: not UTF-8 (byte {error.start}: {error.reason})") from error
        text = content[: error.start].decode()
    if "\0" in text:
        raise TextError(f"{place}: holds a NUL character, so it is no text")
    return text
