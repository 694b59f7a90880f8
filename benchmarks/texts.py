"""A large text on its way to a language model: read, tokenized, on disk and ready for a first batch."""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.measure import Row, duration
from regard.data.corpus import open_corpus, topics
from regard.data.store import Column
from regard.data.tokens import EOS, train_tokenizer
from regard.measure import Work, peak_memory_alone

LINE = 60  # words
VOCABULARY = 4_096
SLICES = 4  # of the text, which both prepare in turn
PROCESSES = 2


def rows(tiny: bool = False) -> Iterator[Row]:
    """Time against the usual way, time to open it again, and memory."""
    size = 100_000 if tiny else 1_000_000_000
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        tokenizer = train_tokenizer(topics(), "bpe", VOCABULARY, append_eos=False, sentences=False)
        yield from _preparing(folder, tokenizer, size // (1 if tiny else SLICES), 1 if tiny else SLICES)
        yield _memory(folder, size // 10, size // 2)


def write_text(path: Path, size: int, seed: int) -> Path:
    """Text of about `size` bytes: each word of a line follows the one before it somewhere in Python's manual.

    One in fifty is a number instead, and most of those are new: texts never run out of rare words.
    """
    words = " ".join(topics()).split()
    ids = numpy.unique(words, return_inverse=True)[1]
    names: NDArray[Any] = numpy.array(sorted(set(words)), dtype=object)
    order = numpy.argsort(ids[:-1], kind="stable")
    following, counts = ids[1:][order], numpy.bincount(ids[:-1], minlength=len(names))
    first, generator = numpy.cumsum(counts) - counts, numpy.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            word = generator.choice(ids[:-1], 2_000)  # a line each
            lines = [word]
            for _ in range(LINE - 1):
                place = first[word] + generator.random(len(word)) * counts[word]
                word = following[numpy.minimum(place, len(following) - 1).astype(int)]
                lines.append(word)
            text = names[numpy.stack(lines, 1)]  # (lines, words)
            rare = generator.random(text.shape) < 1 / 50
            text[rare] = [f"{10**digits:.0f}" for digits in generator.uniform(0, 9, rare.sum())]
            file.writelines(" ".join(line) + "\n" for line in text)
    return path


def _preparing(folder: Path, tokenizer: Tokenizer, size: int, slices: int) -> Iterator[Row]:
    against, by_hand = _peer()
    times: dict[str, list[float]] = {"ours": [], "peer": [], "again": []}
    for number in range(slices):
        path = write_text(folder / f"{number}.txt", size, number)
        ways: dict[str, Callable[[], Column]] = {
            "ours": partial(prepare, path, tokenizer, folder / "prepared"),
            "peer": partial(by_hand, path, tokenizer, folder / "by-hand"),
            "again": partial(prepare, path, tokenizer, folder / "prepared"),
        }
        columns = {}
        for name, way in ways.items():
            start = time.perf_counter()
            columns[name] = way()
            columns[name].windows([0, 7], 129)  # of a first batch
            times[name].append(time.perf_counter() - start)
        # Ours begins a new token every 2,000 characters, and ends the document.
        if not 0.99 < len(columns["ours"]) / len(columns["peer"]) < 1.01:
            raise AssertionError(f"{len(columns['ours'])} tokens against {len(columns['peer'])}")
        path.unlink()
    fast, slow = (statistics.median(times[name]) * slices for name in ("ours", "peer"))
    ratio, work = slow / fast, "1 GB of text tokenized (BPE) and ready for a first batch"
    yield Row(work, against, duration(slow), duration(fast), f"{ratio:.2f}×", "≥ 2×", ratio >= 2)
    longest = duration(max(times["again"]))
    yield Row("the same when it has been prepared", "absolute", "", longest, longest, "≤ 2 s", max(times["again"]) <= 2)


def prepare(path: Path, tokenizer: Tokenizer, folder: Path) -> Column:
    """The tokens of a text, as `regard train language` prepares them."""
    with patch.dict(os.environ, {"REGARD_PREPARED": str(folder)}):
        return open_corpus(path).all_tokens(tokenizer, EOS).column("all")


def _peer() -> tuple[str, Callable[[Path, Tokenizer, Path], Column]]:
    if importlib.util.find_spec("datasets") is None:
        return "tokenizers by hand, encode_batch of 1,000 lines (datasets is not installed)", _with_tokenizers
    return f"datasets and tokenizers by hand, load_dataset and map in {PROCESSES} processes", _with_datasets


def _with_tokenizers(path: Path, tokenizer: Tokenizer, folder: Path) -> Column:
    folder.mkdir(exist_ok=True)
    count = 0
    with path.open(encoding="utf-8") as file, (folder / "ids").open("wb") as output:
        while lines := [line for line, _ in zip(file, range(1_000), strict=False)]:
            for encoding in tokenizer.encode_batch(lines, add_special_tokens=False):
                output.write(numpy.array(encoding.ids, dtype=numpy.uint16).tobytes())
                count += len(encoding)
    return Column(folder / "ids", numpy.uint16, count)


def _with_datasets(path: Path, tokenizer: Tokenizer, folder: Path) -> Column:
    """Lines of a file, tokenized by `map`, then written end to end: what tutorials for language models do."""
    import datasets

    datasets.disable_progress_bars()
    lines = datasets.load_dataset(
        "text", data_files=str(path), split="train", cache_dir=str(folder), keep_linebreaks=True
    )

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {"ids": [encoding.ids for encoding in tokenizer.encode_batch(batch["text"], add_special_tokens=False)]}

    encoded = lines.map(encode, batched=True, num_proc=PROCESSES, remove_columns=["text"])
    count = 0
    with (folder / "ids").open("wb") as output:
        for batch in encoded.with_format("numpy").iter(1_000):
            ids = numpy.concatenate(list(batch["ids"])).astype(numpy.uint16)
            output.write(ids.tobytes())
            count += len(ids)
    return Column(folder / "ids", numpy.uint16, count)


def _memory(folder: Path, small: int, large: int) -> Row:
    """Each in a process of its own."""
    peaks = [peak_memory_alone(partial(_preparation, str(folder), size)) for size in (small, large)]
    more, work = peaks[1] - peaks[0], "memory to train a tokenizer and tokenize 500 MB of text"
    against, shown = "the same with 100 MB", (f"{peaks[0]:.0f} MB", f"{peaks[1]:.0f} MB", f"{more:.0f} MB more")
    return Row(work, against, *shown, "≤ 20 MB more", more <= 20)


def _preparation(folder: str, size: int) -> Work:
    path = write_text(Path(folder) / f"{size}.txt", size, seed=size)

    def work() -> Any:
        corpus = open_corpus(path)
        tokenizer = train_tokenizer(corpus.sample(), "bpe", VOCABULARY, append_eos=False, sentences=False)
        return prepare(path, tokenizer, Path(folder) / "prepared")

    return work
