"""JoeyNMT 2.3.0 on the same pairs in the same subwords: an RNN with additive attention of the same size.

It is installed in a virtual environment, gets batches of similar length (joeynmt_buckets.py), trains as many updates
as fit into a time, and then goes on until it has had as many as ours. Its learning rate does not depend on how many
updates there will be, so the longer run begins as the shorter one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from experiments.joeynmt_buckets import buckets
from experiments.trial import Figures
from regard.data.pairs import Pair, read_pairs
from regard.data.split import split
from regard.data.store import cache
from regard.models.texts import plain
from regard.models.translator import Translator
from regard.training.metrics import bleu
from regard.training.options import TranslateOptions, resolve
from regard.training.tasks import prepare

PACKAGES = ("torch==2.13.0", "joeynmt==2.3.0", "importlib_metadata")
WARMUP = 2_000  # updates
PACE = 60  # updates that are timed, after as many that are not
LINE = re.compile(r"^(\S+ \S+) - INFO - joeynmt\.training - Epoch +\d+, Step: +(\d+),", re.MULTILINE)
PARAMETERS = re.compile(r"Total params: ([\d,]+)")
COMMAND = Path(__file__).with_name("joeynmt_buckets.py")
Lengths = list[tuple[int, int]]


@dataclass(frozen=True)
class Corpus:
    """The pairs as files, with the options of our run and its model, untrained."""

    home: Path
    options: TranslateOptions
    model: Translator
    test: list[Pair]
    lengths: Lengths  # of the pairs to train on, with the mark at the end

    @property
    def tokens(self) -> float:
        """Of both sides in an update, on average."""
        return sum(map(sum, self.lengths)) / len(buckets(self.lengths, self.options.batch))


def work(folder: Path, data: str, minutes: float) -> Figures:
    """Train for a time; translate the test part."""
    python = environment()
    corpus = write_corpus(folder / "data", data)
    seconds = pace(python, folder, corpus)
    updates = int(60 * minutes / seconds)
    return _figures(python, folder, corpus, seconds, updates, None)


def work_on(folder: Path, data: str, before: Path, updates: int) -> Figures:
    """Go on with the run of `work` in `before` until it has had so many updates; translate the test part."""
    python = environment()
    corpus = write_corpus(folder / "data", data)
    seconds = pace(python, before, corpus)
    return _figures(python, folder, corpus, seconds, updates, before / "run" / "latest.ckpt")


def _figures(
    python: Path, folder: Path, corpus: Corpus, seconds: float, updates: int, checkpoint: Path | None
) -> Figures:
    start = time.monotonic()
    log = run(python, folder / "run", corpus, updates, checkpoint, validations=10)
    wall = time.monotonic() - start
    parameters = PARAMETERS.search(log)
    if parameters is None:
        raise SystemExit("experiments: JoeyNMT did not say how many parameters its model has")
    score = bleu(translate_test(python, folder / "run", corpus), [pair.target for pair in corpus.test])
    return {
        "command": "python -m experiments catalogues --trial JoeyNMT",
        "parameters": int(parameters[1].replace(",", "")),
        "steps": updates,
        "seconds": round(updates * seconds, 1),
        **({} if checkpoint else {"wall_seconds": round(wall, 1)}),  # else it is that of the second part alone
        "tokens_per_second": round(corpus.tokens / seconds, 1),
        "padding": round(padding(corpus), 4),
        "test": {"bleu": score.score, "signature": score.signature},
    }


def environment() -> Path:
    """The Python that has JoeyNMT; installed once."""
    home = cache() / "experiments" / "joeynmt"
    python, installed = home / "bin" / "python", home / "installed"
    if not installed.exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        for package in PACKAGES:  # torch first, so that nothing else chooses its build
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", package], check=True)
        installed.touch()
    return python


def write_corpus(home: Path, data: str) -> Corpus:
    """Write the parts as lines of subwords, with spaces between them, and the vocabulary."""
    task = prepare("translate", resolve("translate", {"data": data, "attention": "additive"}))
    options, model = task.options, task.model
    assert isinstance(options, TranslateOptions)
    assert isinstance(model, Translator)
    home.mkdir(parents=True, exist_ok=True)
    parts = split(read_pairs(Path(data)), lambda pair: pair.source)
    evaluated = parts.validation[: options.evaluate_pairs or None]
    lengths: Lengths = []
    for name, pairs in (("train", parts.train), ("dev", evaluated), ("test", parts.test)):
        sides = [_subwords(model, [getattr(pair, side) for pair in pairs]) for side in ("source", "target")]
        rows = list(zip(*sides, strict=True))
        if name == "train":  # as ours: the rest is too long, or empty
            limit = options.max_length
            rows = [row for row in rows if all(0 < len(words) < limit for words in row)]
            lengths = [(len(source) + 1, len(target) + 1) for source, target in rows]
        for side, language in enumerate(("en", "fr")):
            lines = [" ".join(row[side]) for row in rows]
            (home / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    vocabulary = model.need_tokenizer().get_vocab()
    (home / "subwords.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n", encoding="utf-8")
    return Corpus(home, options, model, parts.test, lengths)


def _subwords(model: Translator, texts: list[str]) -> list[list[str]]:
    encodings = plain(model.need_tokenizer()).encode_batch(texts, add_special_tokens=False)
    return [encoding.tokens for encoding in encodings]


def padding(corpus: Corpus) -> float:
    """The share of its batches that is padding."""
    tokens = cells = 0
    for rows in buckets(corpus.lengths, corpus.options.batch):
        sides = list(zip(*(corpus.lengths[row] for row in rows), strict=True))
        tokens += sum(map(sum, sides))
        cells += len(rows) * sum(map(max, sides))
    return 1 - tokens / cells


def pace(python: Path, folder: Path, corpus: Corpus) -> float:
    """Seconds for an update, from the times in its log; measured once."""
    path = folder / "pace.txt"
    if not path.exists():
        log = run(python, folder / "pace", corpus, 2 * PACE, None, validations=0)
        times = {int(step): datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f") for at, step in LINE.findall(log)}
        path.write_text(str((times[2 * PACE] - times[PACE]).total_seconds() / PACE))
    return float(path.read_text())


def run(python: Path, folder: Path, corpus: Corpus, updates: int, checkpoint: Path | None, validations: int) -> str:
    """Train from scratch, or from a checkpoint, until there were so many updates; return its log."""
    path = corpus.home / f"{folder.name}.yaml"
    # JoeyNMT expects a multiple of the steps between two lines of its log.
    every = max(1, updates // (validations * PACE)) * PACE if validations else 1_000 * updates * PACE
    content = configuration(folder, corpus, updates, every)
    if checkpoint is not None:
        content["training"]["load_model"] = str(checkpoint)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    _call(python, "train", str(path), "--skip-test")
    return (folder / "train.log").read_text(encoding="utf-8")


def translate_test(python: Path, folder: Path, corpus: Corpus) -> list[str]:
    """The translations of the test part by the best checkpoint."""
    out = folder / "translated"
    _call(python, "test", str(corpus.home / f"{folder.name}.yaml"), "--output-path", str(out))
    tokenizer = corpus.model.need_tokenizer()
    lines = out.with_name("translated.test").read_text(encoding="utf-8").splitlines()
    rows = [[tokenizer.token_to_id(subword) for subword in line.split(" ")] for line in lines]
    return [tokenizer.decode([number for number in ids if number is not None]) for ids in rows]


def _call(python: Path, *words: str) -> None:
    # -P: beside the script is a file called joeynmt.py.
    done = subprocess.run([str(python), "-P", str(COMMAND), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"experiments: JoeyNMT failed with exit code {done.returncode}:\n{done.stderr[-2_000:]}")


def configuration(folder: Path, corpus: Corpus, updates: int, validate: int) -> dict[str, Any]:
    """JoeyNMT's configuration: our sizes, rates and dropout; its attention, bridge, input feeding and schedule."""
    options, home = corpus.options, corpus.home
    side = {"level": "word", "voc_file": str(home / "subwords.txt"), "max_length": options.max_length}
    cell = {"rnn_type": options.cell, "num_layers": options.layers, "dropout": options.dropout}
    words = {"embeddings": {"embedding_dim": options.size, "dropout": options.dropout}}
    return {
        "name": "catalogues",
        "joeynmt_version": "2.3.0",
        "model_dir": str(folder),
        "use_cuda": False,
        "random_seed": 42,
        "data": {
            **{part: str(home / part) for part in ("train", "dev", "test")},
            "dataset_type": "plain",
            "src": {"lang": "en", **side},
            "trg": {"lang": "fr", **side},
        },
        "testing": _decoding(options),
        "training": {
            "optimizer": "adamw",
            "learning_rate": options.learning_rate,
            "learning_rate_warmup": WARMUP,  # then as 1 / √step, which is its schedule nearest to ours
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": options.clip,
            "weight_decay": options.weight_decay,
            "label_smoothing": options.label_smoothing,
            "batch_size": options.batch,
            "batch_type": "token",
            "normalization": "tokens",
            "epochs": 10_000,
            "updates": updates,
            "validation_freq": validate,
            "logging_freq": PACE,
            "early_stopping_metric": "bleu",
            "overwrite": True,
            "keep_best_ckpts": 1,
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": corpus.model.config.get("share_embeddings", False),
            "tied_softmax": corpus.model.config.get("tie_embeddings", False) and options.size == options.hidden_size,
            "encoder": {
                "type": "recurrent",
                "hidden_size": options.hidden_size // 2,
                "bidirectional": True,
                **cell,
                **words,
            },
            "decoder": {
                "type": "recurrent",
                "hidden_size": options.hidden_size,
                "attention": "bahdanau",
                "init_hidden": "bridge",
                "input_feeding": True,
                "hidden_dropout": options.dropout,
                **cell,
                **words,
            },
        },
    }


def _decoding(options: TranslateOptions) -> dict[str, Any]:
    """The same beam search as ours, at the end."""
    batches = {"batch_size": 64, "batch_type": "sentence", "max_output_length": options.max_length}
    return {"beam_size": options.beam_size, "beam_alpha": 1.0, "eval_metrics": ["bleu"], **batches}
