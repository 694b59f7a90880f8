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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from regard.data import tokens
from regard.data.split import Division, SplitError, Splitter, content_hash, row_blocks
from regard.data.store import Store, StoreWriter, advance, content_digest, prepared
from regard.data.streams import fork
from regard.data.texts import Skipped, TextError, find_encoding, flaw, open_file, text_files
from regard.data.tokens import encode_blocks, ids_dtype, tokenizer_digest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BLOCK = 1 << 20  # bytes
CHUNK = 2_000  # characters
SHARE = 0.05  # of the chunks, for validation, and as many for the test
ENOUGH = 2_000_000  # bytes for validation, and for the test: more would make evaluations long
SAMPLES = 2  # chunks of the validation part whose texts are kept
ALL = "all"  # the one part of a corpus that is not split


class Chunk(NamedTuple):
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

    Hidden files of a folder are left out, and files that are no text, such as images: `others`.
    on_error: "stop" if a line that is no text is an error, "skip" if it is left out.
    """
    files, others = text_files(path)
    try:
        size = sum(file.stat().st_size for file in files)
    except OSError as error:
        raise TextError(f"{path}: {error.strerror or error}") from error

    def read(reading: Reading) -> Iterator[Document]:
        return (_decoded_blocks(file, reading) for file in files)

    return Corpus(str(path), size, lambda: content_digest(files), read, on_error, others=others)


def corpus_of(texts: Sequence[str], name: str) -> Corpus:
    """Documents that are in memory."""
    contents = [text.encode() for text in texts]
    digests = "".join(hashlib.sha256(content).hexdigest() for content in contents)
    digest = hashlib.sha256(digests.encode()).hexdigest()

    def read(reading: Reading) -> Iterator[Document]:
        for text, content in zip(texts, contents, strict=True):
            reading.size += len(content)
            yield [text]

    return Corpus(name, sum(map(len, contents)), lambda: digest, read)


def topics() -> list[str]:
    """The topics of Python's help (`help("ASSERTION")` and so on): about half a megabyte of English and Python."""
    from pydoc_data.topics import topics as texts

    return [texts[name] for name in sorted(texts)]


@dataclass
class Corpus:
    """Documents as chunks of text, and as tokens in a store."""

    name: str  # for messages
    size: int  # bytes of all documents
    compute_digest: Callable[[], str]
    read: Callable[[Reading], Iterator[Document]]
    on_error: str = "stop"  # see `open_corpus`
    survey: tuple[Division, Skipped] | None = None  # of an earlier pass
    others: Sequence[Path] = ()  # that lie beside the documents, and are no text

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of what the documents hold."""
        return self.compute_digest()

    def chunks(self, reading: Reading, doing: str) -> Iterator[Chunk]:
        """The chunks of all documents; blank ones at the beginning of a document are left out."""
        for document in self.read(reading):
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
        (division, _), texts = self._read_all()
        return [text for text in texts if division.part(content_hash(text)) == "train"]

    def tokens(self, tokenizer: Tokenizer, eos: int | None) -> Store:
        """A store with the columns train, validation and test: ids end to end, with `eos` after each document.

        Its facts have the bytes of each part, texts of the validation part, and what was left out.
        """

        def build(writer: StoreWriter) -> dict[str, Any]:
            division, skipped = self.survey or self._read_all()[0]
            facts = self._write(tokenizer, eos, writer, lambda text: division.part(content_hash(text)), Reading())
            return {**facts, "skipped": skipped.facts()}

        return prepared(self._key(tokenizer, eos), build)

    def all_tokens(self, tokenizer: Tokenizer, eos: int | None) -> Store:
        """The same with one column, `all`, for texts that are not split."""
        reading = Reading(Skipped(self.on_error, "line"))
        key = {**self._key(tokenizer, eos), "parts": ALL}
        return prepared(key, lambda writer: self._write(tokenizer, eos, writer, lambda text: ALL, reading))

    def _key(self, tokenizer: Tokenizer, eos: int | None) -> dict[str, Any]:
        sizes = [BLOCK, CHUNK, SHARE, ENOUGH, SAMPLES]
        content, encoding = self.digest, tokenizer_digest(tokenizer)
        return {"content": content, "tokenizer": encoding, "eos": eos, "sizes": sizes, "on_error": self.on_error}

    def _check(self, reading: Reading, total: int) -> None:
        """At the end of a pass that has read so many characters."""
        reading.skipped.check(reading.lines)
        if not total:
            raise TextError(f"{self.name}: no text in it: expected UTF-8 (hidden files of a folder are left out)")
        if self.compute_digest() != self.digest:
            raise TextError(f"{self.name}: changed while it was read: start again when it is complete")

    def _read_all(self) -> tuple[tuple[Division, Skipped], list[str]]:
        """Read everything once: which chunk belongs where, what is no text, and a sample of the others."""
        share = min(SHARE, ENOUGH / max(self.size, 1))
        splitter, reading = Splitter(share, share), Reading(Skipped(self.on_error, "line"))
        texts: list[str] = []
        taken = total = 0
        for chunk in self.chunks(reading, "reading"):
            total += len(chunk.text)
            if splitter.add(chunk.text) == "train" and taken * self.size <= total * tokens.SAMPLE:
                texts.append(chunk.text)
                taken += len(chunk.text)
        self._check(reading, total)
        try:
            self.survey = splitter.division(), reading.skipped
        except SplitError as error:
            expected = f"expected three different chunks of about {CHUNK:,} characters or more"
            got = f"got {len(splitter.smallest)} in {total:,} characters: add more text"
            raise SplitError(f"{expected}, for training, validation and test; {got}") from error
        return self.survey, texts

    def _write(
        self, tokenizer: Tokenizer, eos: int | None, writer: StoreWriter, choose: Callable[[str], str], reading: Reading
    ) -> dict[str, Any]:
        """`choose` says which part a text is of."""
        sizes: Counter[str] = Counter()
        samples: list[str] = []
        end = numpy.array([eos if eos is not None else 0], ids_dtype(tokenizer.get_vocab_size()))
        blocks, copies = fork(row_blocks(self.chunks(reading, "tokenizing"), lambda chunk: (chunk.text,)), 2)
        encoded = encode_blocks(tokenizer, ([chunk.text for chunk in block] for block in copies))
        for block, sequences in zip(blocks, encoded, strict=True):
            arrays: defaultdict[str, list[Any]] = defaultdict(list)
            for chunk, ids in zip(block, sequences, strict=True):
                part = choose(chunk.text)
                arrays[part] += [ids, end] if chunk.last and eos is not None else [ids]
                sizes[part] += len(chunk.text.encode())
                if part == "validation" and len(samples) < SAMPLES:
                    samples.append(chunk.text)
            for part, values in arrays.items():
                writer.column(part, numpy.concatenate(values))
        self._check(reading, sizes.total())
        return {"bytes": dict(sizes), "samples": samples}


def _decoded_blocks(path: Path, reading: Reading) -> Iterator[str]:
    """The blocks of a file without the lines that are no text."""
    encoding = find_encoding(path).name
    if encoding != "UTF-8":
        raise TextError(f"{path}: is {encoding}, expected UTF-8: save it in that encoding")
    line, column = 1, 0  # where a block begins
    for number, block in enumerate(_read_blocks(path)):
        content = block if number else block.removeprefix(BOM_UTF8)
        texts = [content]
        if flaw(content):
            texts, rows = [], list(io.BytesIO(content))
            for index, row in enumerate(rows):
                if reason := flaw(row, column=0 if index else column):
                    reading.skipped.add(path, line + index, reason)
                else:
                    texts.append(row)
        last = block.rfind(b"\n")
        line, column = line + block.count(b"\n"), len(block) - last - 1 + (column if last < 0 else 0)
        reading.size += len(block)
        reading.lines += sum(text.count(b"\n") + (not text.endswith(b"\n")) for text in texts)
        yield b"".join(texts).decode()


def _read_blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, about BLOCK bytes at a time."""
    try:
        with open_file(path) as file:
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
