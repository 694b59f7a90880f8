"""The lines of a text file of any size, one at a time, each with what is wrong with it."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from regard.data.encodings import BYTE_ORDER_MARKS
from regard.data.texts import TextError

__all__ = ["MAX_LINE", "NO_TEXT", "Encoding", "Line", "checked_lines", "find_encoding", "guess_encoding"]

MAX_LINE = 16_000_000  # characters
BLOCK = 1 << 20  # bytes that are looked at together
NO_TEXT = re.compile("[\0\ud800-\udfff]")  # NUL and half characters, which no tokenizer takes
# Letters and signs of Western Europe in Windows-1252. The others are so rare that a file with them is something else.
WESTERN = frozenset(
    "ÀÁÂÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüŒœŠšŽž€£§©®°±²³´·ºª«»¡¿½¼¾µ‚„…‘’“”•–—™\xa0".encode("cp1252")
)


class Encoding(NamedTuple):
    """Python's name of an encoding, and the one for people."""

    codec: str
    name: str


class Line(NamedTuple):
    """A line with its end; if it cannot be used, why."""

    number: int
    text: str
    flaw: str = ""


UTF_8, WINDOWS_1252 = Encoding("utf-8", "UTF-8"), Encoding("cp1252", "Windows-1252")


def find_encoding(path: Path) -> Encoding:
    """That of the mark a file begins with, or else UTF-8."""
    with _open(path) as file:
        start = file.read(4)
    marked = (Encoding(*encoding) for mark, encoding in BYTE_ORDER_MARKS.items() if start.startswith(mark))
    return next(marked, UTF_8)


def guess_encoding(path: Path) -> Encoding:
    """That of the file's mark, or UTF-8; or Windows-1252, if all beyond ASCII is no UTF-8 but Western letters there.

    In a file in UTF-8 with a few damaged lines there are other lines beyond ASCII: then these lines are wrong, not the
    encoding.
    """
    marked = find_encoding(path)
    if marked != UTF_8:
        return marked
    decoder, foreign = codecs.getincrementaldecoder("utf-8")("surrogateescape"), set()
    with _open(path) as file:
        while block := file.read(BLOCK):
            text = decoder.decode(block)
            if not text.isascii():
                foreign.update(NO_TEXT.findall(text))
                if not NO_TEXT.sub("", text).isascii():
                    return UTF_8
    unknown = "".join(foreign).replace("\0", "").encode("utf-8", "surrogateescape")
    return WINDOWS_1252 if unknown and WESTERN.issuperset(unknown) else UTF_8


def checked_lines(path: Path, encoding: Encoding | None = None, newline: str = "\n") -> Iterator[Line]:
    """Every line of a file, blank or not, MAX_LINE characters of it at most.

    encoding: found by the file's mark unless it is given. newline: as for `open`; "" ends lines at a lone CR as well.
    """
    codec, name = encoding or find_encoding(path)
    errors = "surrogateescape" if codec in ("utf-8", "utf-8-sig", "cp1252") else "strict"
    with _open(path) as raw, io.TextIOWrapper(raw, codec, errors, newline) as file:
        try:
            for number, text in enumerate(iter(lambda: file.readline(MAX_LINE + 1), ""), 1):
                if len(text) > MAX_LINE:
                    _skip_line(file, text)
                    yield Line(number, "", f"is longer than {MAX_LINE:,} characters")
                elif "\0" in text or not (text.isascii() or NO_TEXT.search(text) is None):
                    yield Line(number, text, _flaw(text, codec, name))
                else:
                    yield Line(number, text)
        except UnicodeError as error:
            raise TextError(f"{path}: is not {name} text: {error}") from error
        except OSError as error:
            raise TextError(f"{path}: {error.strerror or error}") from error


def _open(path: Path) -> io.BufferedReader:
    if path.is_dir():
        raise TextError(f"{path}: is a folder, expected a file")
    try:
        return path.open("rb")
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error


def _skip_line(file: io.TextIOWrapper, text: str) -> None:
    while text and not text.endswith("\n"):
        text = file.readline(BLOCK)


def _flaw(text: str, codec: str, name: str) -> str:
    try:
        text.encode(codec, "surrogateescape").decode(codec)
    except UnicodeDecodeError as error:
        return f"not {name} (byte {error.start}: {error.reason})"
    return "holds a NUL character, so it is no text"
