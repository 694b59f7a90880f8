"""Text from files that people have: lines of files of any size, passages that are held in memory, bad rows.

A line is read with what is wrong with it. Rows that cannot be used are all counted, and the first ones named.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import RegardError

MAX_LINE = 16_000_000  # characters
BLOCK = 1 << 20  # bytes that are looked at together
MAX_WORDS = 120  # of a paragraph: what an encoder of sentences reads at once
MAX_BYTES = 2_000_000_000  # of a file that is held in memory
NAMED = 10  # rows that cannot be used
NO_TEXT = re.compile("[\0\ud800-\udfff]")  # NUL and half characters, which no tokenizer takes
# What files begin with. Longer marks first: that of UTF-32 begins with that of UTF-16.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: ("utf-8-sig", "UTF-8"),
    codecs.BOM_UTF32_LE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF32_BE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF16_LE: ("utf-16", "UTF-16"),
    codecs.BOM_UTF16_BE: ("utf-16", "UTF-16"),
}
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\3\4": "zip"}
OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"
# Letters and signs of Western Europe in Windows-1252. The others are so rare that a file with them is something else.
WESTERN = frozenset(
    "ÀÁÂÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüŒœŠšŽž€£§©®°±²³´·ºª«»¡¿½¼¾µ‚„…‘’“”•–—™\xa0".encode("cp1252")
)


class TextError(RegardError, ValueError):
    """A file holds no text that can be used; the message says where and why."""


class RowsError(RegardError, ValueError):
    """Rows of a file that cannot be used; the message has a line for each of the first ones."""

    keeps_lines = True


class Encoding(NamedTuple):
    """Python's name of an encoding, and the one for people."""

    codec: str
    name: str


class Line(NamedTuple):
    """A line with its end; if it cannot be used, why."""

    number: int
    text: str
    flaw: str = ""


class Passage(NamedTuple):
    """A line or paragraph, and where it stands."""

    place: str  # "file:line"
    text: str


UTF_8, WINDOWS_1252 = Encoding("utf-8", "UTF-8"), Encoding("cp1252", "Windows-1252")

# --------------------------------------------------------------------------------------------------------------- lines


def open_file(path: Path) -> io.BufferedReader:
    """A regular file to read bytes from; TextError if there is none. Files are read several times, pipes cannot be."""
    if path.is_dir():
        raise TextError(f"{path}: is a folder, expected a file")
    if path.exists() and not path.is_file():
        raise TextError(f"{path}: is a pipe or a device, expected a file: save the text in one first")
    try:
        return path.open("rb")
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error


def find_encoding(path: Path) -> Encoding:
    """That of the mark a file begins with, or else UTF-8; TextError if the file is packed."""
    with open_file(path) as file:
        start = file.read(8)
    packed = [kind for mark, kind in COMPRESSIONS.items() if start.startswith(mark)]
    if packed or start.startswith(OLD_WORKBOOK):
        kind = "a workbook of Excel, or a zip archive" if packed in ([], ["zip"]) else f"compressed ({packed[0]})"
        raise TextError(f"{path}: is {kind}, expected plain text: unpack it, or save it as text")
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
    with open_file(path) as file:
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
    with open_file(path) as raw, io.TextIOWrapper(raw, codec, errors, newline) as file:
        try:
            for number, text in enumerate(iter(lambda: file.readline(MAX_LINE + 1), ""), 1):
                if len(text) > MAX_LINE:
                    while text and not text.endswith("\n"):
                        text = file.readline(BLOCK)
                    yield Line(number, "", f"is longer than {MAX_LINE:,} characters")
                elif "\0" in text or not (text.isascii() or NO_TEXT.search(text) is None):
                    yield Line(number, text, flaw(text.encode(codec, "surrogateescape"), Encoding(codec, name)))
                else:
                    yield Line(number, text)
        except UnicodeError as error:
            raise TextError(f"{path}: is not {name} text: {error}") from error
        except OSError as error:
            raise TextError(f"{path}: {error.strerror or error}") from error


def flaw(content: bytes, encoding: Encoding = UTF_8, column: int = 0) -> str:
    """Why this is no text, or ""; it begins at this column of its line."""
    try:
        content.decode(encoding.codec)
    except UnicodeDecodeError as error:
        return f"not {encoding.name} (byte {column + error.start}: {error.reason})"
    return "holds a NUL character, so it is no text" if b"\0" in content else ""


def read_lines(path: Path) -> Iterator[str]:
    """Every line of a file with its end, all of them text; TextError at one that is not, or beyond MAX_BYTES."""
    size = 0
    for line in checked_lines(path):
        size += len(line.text.encode(errors="surrogateescape"))
        if line.flaw or size > MAX_BYTES:
            reason = line.flaw or f"expected {MAX_BYTES} bytes at most: take a part of the file"
            raise TextError(f"{path}: line {line.number}: {reason}")
        yield line.text


# ------------------------------------------------------------------------------------------------------------ passages


def read_texts(path: Path) -> list[Passage]:
    """The lines of a file that are not blank, or the paragraphs of the files of a folder."""
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


def text_files(path: Path) -> tuple[list[Path], list[Path]]:
    """A file, or the files of a folder that are text, in order; and those that are none, such as images.

    Hidden ones do not count.
    """
    if not path.is_dir():
        return [path], []
    files = {file: _is_binary(file) for file in _visible(path)}
    return [file for file in files if not files[file]], [file for file in files if files[file]]


def _visible(folder: Path) -> list[Path]:
    """The files below a folder, in order, without hidden ones."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _is_binary(path: Path) -> bool:
    """Whether a file begins as no text does. UTF-16 is text, which is refused rather than left out."""
    with open_file(path) as file:
        content = file.read(1 << 13)
    return b"\0" in content and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _paragraphs(path: Path) -> Iterator[Passage]:
    """What stands between blank lines, MAX_WORDS at a time; nothing of a file that is no text, such as an image."""
    with open_file(path) as file:
        content = file.read(BLOCK)
    try:  # where only the beginning was read, the last character may be incomplete
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(content, final=len(content) < BLOCK)
    except UnicodeDecodeError:
        return
    if "\0" in text:
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


# ------------------------------------------------------------------------------------------------------------ bad rows


class Skipped:
    """The rows that a reader could not use. `check` stops at the end of the pass, when all of them are known.

    policy: "stop" if one such row is an error, "skip" if they are left out.
    unit: what one of them is called.
    facts: what a store remembers of them.
    """

    def __init__(self, policy: str = "stop", unit: str = "row", facts: Mapping[str, Any] | None = None) -> None:
        if policy not in ("stop", "skip"):
            raise ValueError(f"policy: expected stop or skip, got {policy!r}")
        self.policy, self.unit = policy, unit
        self.count = int(facts["count"]) if facts else 0
        self.named: list[str] = list(facts["named"]) if facts else []

    def add(self, file: Path | str, row: int | None, reason: str) -> None:
        """A row that cannot be used: its line number, or None if the file is one row, and why."""
        self.count += 1
        if len(self.named) < NAMED:
            place = file if row is None else f"{file}: line {row}"
            self.named.append(" ".join(f"{place}: {reason}".splitlines()))

    def check(self, usable: int) -> None:
        """At the end of a pass with so many usable rows: RowsError if there were others and the policy is to stop.

        If no row is usable, that is an error under both policies.
        """
        if not self.count or (self.policy == "skip" and usable):
            return
        if self.count == 1:
            cure = "fix it or pass --on-error skip" if usable else f"there is no other {self.unit}"
            raise RowsError(f"{self.named[0]}; {cure}")
        if not usable:  # it is another kind of file: one reason says it
            raise RowsError(f"{self.named[0]}; none of the {self.count:,} {self.unit}s can be used")
        amount, cure = f"{self.count:,} of {self.count + usable:,}", "fix them or pass --on-error skip"
        raise RowsError("\n".join([f"{amount} {self.unit}s cannot be used:", *self._lines(), cure]))

    def notes(self) -> list[str]:
        """What was left out, for the user to read."""
        if not self.count:
            return []
        counted = f"1 {self.unit} is" if self.count == 1 else f"{self.count:,} {self.unit}s are"
        return [f"{counted} left out:", *self._lines()]

    def facts(self) -> dict[str, Any]:
        """The same as JSON can write it, for a store."""
        return {"count": self.count, "named": self.named}

    def _lines(self) -> list[str]:
        more = self.count - len(self.named)
        return [*(f"  {line}" for line in self.named), *([f"  and {more:,} more"] if more else [])]
