"""A large text on its way to a language model: read, tokenized, on disk, and the first step of a training with it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.measure import RUNS, Figures, Row, peak_memory_alone, race
from benchmarks.models import cross_entropy, training
from regard import LanguageModel
from regard.data.corpus import open_corpus, topics
from regard.data.store import Column
from regard.data.tokens import EOS, train_tokenizer
from regard.measure import Work

LINE = 60  # words
VOCABULARY = 4_096
PROCESSES = 2
BATCHES = 1_000


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


def make_tokenizer() -> Tokenizer:
    """BPE, trained on Python's manual."""
    return train_tokenizer(topics(), "bpe", VOCABULARY, append_eos=False, sentences=False)


def preparing(by_hand: Callable[[Path, Tokenizer, Path], Column], size: int, runs: int, tiny: bool) -> Figures:
    """Each run with a text that neither of them has met before."""
    tokenizer = make_tokenizer()
    figures: dict[str, list[float]] = {"ours": [], "peer": []}
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        for number in range(runs):
            path = write_text(folder / f"{number}.txt", 30_000 if tiny else size, number)
            ways: dict[str, Callable[[], Column]] = {
                "ours": partial(prepare, path, tokenizer, folder / "prepared"),
                "peer": partial(by_hand, path, tokenizer, folder / f"by-hand-{number}"),
            }
            tokens = {}
            for name, way in ways.items():
                start = time.perf_counter()
                tokens[name] = way()
                first_step(tokens[name])
                figures[name].append(time.perf_counter() - start)
            # Ours begins a new token every 2,000 characters, and ends the document.
            if not 0.99 < len(tokens["ours"]) / len(tokens["peer"]) < 1.01:
                raise AssertionError(f"{len(tokens['ours'])} tokens against {len(tokens['peer'])}")
            path.unlink()
    return figures


def first_step(tokens: Column) -> None:
    """Of a training of a small model: two windows of the text, forward, backward, update."""
    model = LanguageModel(VOCABULARY, 64, 2, 4, max_positions=128)
    ids = torch.from_numpy(tokens.windows([0, 7], 129).astype(numpy.int64))  # (batch, n + 1)
    training(model, lambda: cross_entropy(model(ids[:, :-1]), ids[:, 1:]))()


def opening(size: int, tiny: bool) -> Figures:
    """What has been prepared."""
    tokenizer = make_tokenizer()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        path = write_text(folder / "text.txt", 30_000 if tiny else size, seed=0)
        return race(lambda: prepare(path, tokenizer, folder / "prepared").windows([0, 7], 129), tiny=tiny)


def prepare(path: Path, tokenizer: Tokenizer, folder: Path) -> Column:
    """The tokens of a text, as `regard train language` prepares them."""
    with patch.dict(os.environ, {"REGARD_PREPARED": str(folder)}):
        return open_corpus(path).all_tokens(tokenizer, EOS).column("all")


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

    with patch.object(os, "environ", os.environ):  # map leaves a copy of it behind, which nobody else has
        encoded = lines.map(encode, batched=True, num_proc=PROCESSES, remove_columns=["text"])
    count = 0
    with (folder / "ids").open("wb") as output:
        for batch in encoded.with_format("numpy").iter(1_000):
            ids = numpy.concatenate(list(batch["ids"])).astype(numpy.uint16)
            output.write(ids.tobytes())
            count += len(ids)
    return Column(folder / "ids", numpy.uint16, count)


def memory(size: int, runs: int, tiny: bool) -> Figures:
    """In processes of their own. Longer texts need no more: 120 MB are five times what a tokenizer is trained on."""
    with tempfile.TemporaryDirectory() as folder:
        prepare_run = partial(_preparation, folder, 50_000 if tiny else size)
        return {"ours": [peak_memory_alone(partial(prepare_run, number)) for number in range(1 if tiny else runs)]}


def _preparation(folder: str, size: int, seed: int) -> Work:
    path = write_text(Path(folder) / f"{size}-{seed}.txt", size, seed)

    def work() -> Any:
        corpus = open_corpus(path)
        tokenizer = train_tokenizer(corpus.sample(), "bpe", VOCABULARY, append_eos=False, sentences=False)
        tokens = prepare(path, tokenizer, Path(folder) / "prepared")
        generator = numpy.random.default_rng(seed)
        for _ in range(BATCHES):  # from everywhere: what is mapped and kept would count
            tokens.windows(generator.integers(0, len(tokens) - 129, 64), 129)

    return work


WITH_TOKENIZERS = "tokenizers by hand, encode_batch of 1,000 lines"
WITH_DATASETS = f"datasets and tokenizers by hand, load_dataset and map in {PROCESSES} processes"
ROWS = (
    *(
        Row(
            f"texts/{name}",
            f"{size} of text tokenized (BPE), and a first training step",
            against,
            partial(preparing, by_hand, count, runs),
            at_least=1,
            on_request=on_request,
        )
        for name, size, count, runs, against, by_hand, on_request in (
            ("prepare", "16 MB", 16_000_000, RUNS, WITH_TOKENIZERS, _with_tokenizers, False),
            ("datasets", "16 MB", 16_000_000, RUNS, WITH_DATASETS, _with_datasets, False),
            ("gigabyte", "1 GB", 1_000_000_000, 1, WITH_DATASETS, _with_datasets, True),
        )
    ),
    Row(
        "texts/open",
        "16 MB of text that has been prepared, to the first batch",
        "",
        partial(opening, 16_000_000),
        limit=2,
    ),
    *(
        Row(
            f"texts/{name}",
            f"a tokenizer trained, {shown} of text tokenized, and {BATCHES:,} batches of it: peak extra memory",
            "",
            partial(memory, size, runs),
            limit=400,
            unit="MB",
            on_request=on_request,
        )
        for name, shown, size, runs, on_request in (
            ("memory", "120 MB", 120_000_000, RUNS, False),
            ("memory-500MB", "0.5 GB", 500_000_000, 1, True),
            ("memory-1GB", "1 GB", 1_000_000_000, 1, True),
            ("memory-2GB", "2 GB", 2_000_000_000, 1, True),
        )
    ),
)
