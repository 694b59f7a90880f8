"""Text of any size for language models: read a block at a time, cut into chunks, stored as tokens.

    file  → blocks of about BLOCK bytes         cut behind a line end; else before a space; else between two characters
    block → chunks of about CHUNK characters    likewise
    chunk → train, validation or test           by its hash; its tokens follow those of the chunk before it in that part

So neither the length of a line nor that of a file matters, and what is stored depends on the texts, the tokenizer and
these sizes alone.
"""

from __future__ import annotations

import hashlib
import io
from codecs import BOM_UTF8
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from regard.data import token_files
from regard.data.split import Splitter
from regard.data.store import Store, StoreWriter, advance, content_digest, prepared
from regard.data.texts import Skipped, TextError, text_files
from regard.data.token_files import encode_blocks, ids_dtype, tokenizer_digest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Chunk", "Corpus", "corpus_of", "open_corpus"]

BLOCK = 1 << 20  # bytes
CHUNK = 2_000  # characters
SHARE = 0.05  # of the chunks, for validation, and as many for the test
ENOUGH = 2_000_000  # bytes for validation, and for the test: more would make evaluations long
SAMPLES = 2  # chunks of the validation part whose texts are kept
ALL = "all"  # the one part of a corpus that is not split


@dataclass(frozen=True)
class Chunk:
    """Some lines of a document; `last` if the document ends with them."""

    text: str
    last: bool


@dataclass
class Reading:
    """How far documents have been read, and what in them was no text."""

    skipped: Skipped = field(default_factory=lambda: Skipped("skip", "line"))
    size: int = 0  # bytes
    lines: int = 0  # that are text; of a line in several blocks, each piece


Document = Iterable[str]  # its blocks


def open_corpus(path: Path, on_error: str = "stop") -> Corpus:
    """A text file as one document, or a document per file of a folder, unchanged with their line ends. UTF-8.

    Hidden files of a folder are left out, and files that are no text, such as images.
    on_error: "stop" if a line that is no text is an error, "skip" if it is left out.
    """
    files = text_files(path)
    try:
        size = sum(file.stat().st_size for file in files)
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error
    return Corpus(str(path), size, lambda: content_digest(files), partial(_read_files, files), on_error)


def corpus_of(texts: Sequence[str], name: str) -> Corpus:
    """Documents that are in memory."""
    digests = "".join(hashlib.sha256(text.encode()).hexdigest() for text in texts)
    digest = hashlib.sha256(digests.encode()).hexdigest()
    return Corpus(name, sum(len(text.encode()) for text in texts), lambda: digest, partial(_read_texts, texts))


class Corpus:
    """Documents as chunks of text, and as tokens in a store.

    name: for messages. size: bytes of all documents. digest: computes the SHA-256 of what they hold.
    read: the documents, each as its blocks.
    on_error: see `open_corpus`.
    """

    def __init__(
        self,
        name: str,
        size: int,
        digest: Callable[[], str],
        read: Callable[[Reading], Iterator[Document]],
        on_error: str = "stop",
    ) -> None:
        self.name, self.size, self.on_error = name, size, on_error
        self._digest, self._read = digest, read
        self._survey: tuple[Splitter, Skipped] | None = None

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of what the documents hold."""
        return self._digest()

    def chunks(self, reading: Reading, doing: str) -> Iterator[Chunk]:
        """The chunks of all documents; blank ones at the beginning of a document are left out."""
        for document in self._read(reading):
            waiting = ""
            for block in document:
                for text in _cut_text(block):
                    if waiting:
                        yield Chunk(waiting, last=False)
                    waiting = text if waiting or not text.isspace() else ""
                advance(f"{doing} {self.name}", reading.size, self.size)
            if waiting:
                yield Chunk(waiting, last=True)

    def sample(self) -> list[str]:
        """Texts of the training part, spread evenly over it, as many as a tokenizer is trained on."""
        (splitter, _), texts = self._read_all()
        return [text for text in texts if splitter.part(text) == "train"]

    def tokens(self, tokenizer: Tokenizer, eos: int | None) -> Store:
        """A store with the columns train, validation and test: ids end to end, with `eos` after each document.

        Its facts have the bytes of each part, texts of the validation part, and what was left out.
        """
        return prepared(self._key(tokenizer, eos), partial(self._write_parts, tokenizer, eos))

    def all_tokens(self, tokenizer: Tokenizer, eos: int | None) -> Store:
        """The same with one column, `all`, for texts that are not split."""
        return prepared({**self._key(tokenizer, eos), "parts": ALL}, partial(self._write_all, tokenizer, eos))

    def _key(self, tokenizer: Tokenizer, eos: int | None) -> dict[str, Any]:
        sizes = [BLOCK, CHUNK, SHARE, ENOUGH, SAMPLES]
        content, encoding = self.digest, tokenizer_digest(tokenizer)
        return {"content": content, "tokenizer": encoding, "eos": eos, "sizes": sizes, "on_error": self.on_error}

    def _check(self, reading: Reading, total: int) -> None:
        """At the end of a pass that has read so many characters."""
        reading.skipped.check(reading.lines)
        if not total:
            raise TextError(f"{self.name}: no text in it: expected UTF-8 (hidden files of a folder are left out)")
        if self._digest() != self.digest:
            raise TextError(f"{self.name}: changed while it was read: start again when it is complete")

    def _read_all(self) -> tuple[tuple[Splitter, Skipped], list[str]]:
        """Read everything once: which chunk belongs where, what is no text, and a sample of the others."""
        share = min(SHARE, ENOUGH / max(self.size, 1))
        splitter, reading = Splitter(share, share), Reading(Skipped(self.on_error, "line"))
        texts: list[str] = []
        taken = total = 0
        for chunk in self.chunks(reading, "reading"):
            total += len(chunk.text)
            if splitter.add(chunk.text) == "train" and taken * self.size <= total * token_files.SAMPLE:
                texts.append(chunk.text)
                taken += len(chunk.text)
        self._check(reading, total)
        self._survey = splitter, reading.skipped
        return self._survey, texts

    def _write_parts(self, tokenizer: Tokenizer, eos: int | None, writer: StoreWriter) -> dict[str, Any]:
        splitter, skipped = self._survey or self._read_all()[0]
        facts = self._write(tokenizer, eos, writer, splitter.part, Reading())
        return {**facts, "skipped": skipped.facts()}

    def _write_all(self, tokenizer: Tokenizer, eos: int | None, writer: StoreWriter) -> dict[str, Any]:
        return self._write(tokenizer, eos, writer, lambda text: ALL, Reading(Skipped(self.on_error, "line")))

    def _write(
        self,
        tokenizer: Tokenizer,
        eos: int | None,
        writer: StoreWriter,
        part_of: Callable[[str], str],
        reading: Reading,
    ) -> dict[str, Any]:
        sizes: Counter[str] = Counter()
        samples: list[str] = []
        end = numpy.array([eos if eos is not None else 0], ids_dtype(tokenizer.get_vocab_size()))
        batches: deque[list[Chunk]] = deque()  # those that are being encoded
        texts = _noted(_batches(self.chunks(reading, "tokenizing")), batches)
        for encoded in encode_blocks(tokenizer, texts):
            arrays: defaultdict[str, list[Any]] = defaultdict(list)
            for chunk, ids in zip(batches.popleft(), encoded, strict=True):
                part = part_of(chunk.text)
                arrays[part] += [ids, end] if chunk.last and eos is not None else [ids]
                sizes[part] += len(chunk.text.encode())
                if part == "validation" and len(samples) < SAMPLES:
                    samples.append(chunk.text)
            for part, sequences in arrays.items():
                writer.column(part, numpy.concatenate(sequences))
        self._check(reading, sizes.total())
        return {"bytes": dict(sizes), "samples": samples}


def _batches(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Chunks that are encoded together."""
    batch: list[Chunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk.text)
        if size >= token_files.BLOCK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _noted(batches: Iterable[list[Chunk]], notes: deque[list[Chunk]]) -> Iterator[list[str]]:
    """The texts of batches, each of which is noted when it is asked for."""
    for batch in batches:
        notes.append(batch)
        yield [chunk.text for chunk in batch]


def _read_texts(texts: Sequence[str], reading: Reading) -> Iterator[Document]:
    for text in texts:
        reading.size += len(text.encode())
        yield [text]


def _read_files(files: Sequence[Path], reading: Reading) -> Iterator[Document]:
    for file in files:
        yield _decoded_blocks(file, reading)


def _decoded_blocks(path: Path, reading: Reading) -> Iterator[str]:
    line, column = 1, 0  # where a block begins
    for number, block in enumerate(_read_blocks(path)):
        content = block if number else block.removeprefix(BOM_UTF8)
        texts = [content] if _flaw(content) is None else _usable_lines(path, content, line, column, reading.skipped)
        last = block.rfind(b"\n")
        line, column = line + block.count(b"\n"), len(block) - last - 1 + (column if last < 0 else 0)
        reading.size += len(block)
        reading.lines += sum(text.count(b"\n") + (not text.endswith(b"\n")) for text in texts)
        yield b"".join(texts).decode()


def _usable_lines(path: Path, content: bytes, line: int, column: int, skipped: Skipped) -> list[bytes]:
    """The lines of a block that are text; the block begins at this line and column."""
    usable = []
    for number, row in enumerate(io.BytesIO(content)):
        reason = _flaw(row, 0 if number else column)
        if reason is None:
            usable.append(row)
        else:
            skipped.add(path, line + number, reason)
    return usable


def _flaw(content: bytes, column: int = 0) -> str | None:
    """Why this is no text, if it is none; it begins at this column of its line."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 (byte {column + error.start}: {error.reason})"
    return "holds a NUL character, so it is no text" if b"\0" in content else None


def _read_blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, about BLOCK bytes at a time."""
    try:
        with path.open("rb") as file:
            block = b""
            while more := file.read(BLOCK - len(block)):
                block += more
                if len(block) == BLOCK:
                    end = _end_of_block(block)
                    yield block[:end]
                    block = block[end:]
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error
    if block:
        yield block


def _end_of_block(block: bytes) -> int:
    """Behind the last line end, else before the last space, else before the last character."""
    end = block.rfind(b"\n") + 1 or max(block.rfind(b" "), 0)
    if end:
        return end
    starts = (place for place in range(len(block) - 1, len(block) - 5, -1) if block[place] & 0xC0 != 0x80)
    return next(starts, len(block))  # no start among four bytes: that is no UTF-8, and is refused later


def _cut_text(text: str) -> Iterator[str]:
    """Chunks of whole lines that have about CHUNK characters; a longer line is cut before a space, or anywhere."""
    start = 0
    while len(text) - start > CHUNK:
        least, most = start + CHUNK, start + 2 * CHUNK
        end = text.find("\n", least - 1, most) + 1 or text.find(" ", least, most)
        end = end if end > 0 else most
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]
