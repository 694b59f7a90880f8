"""JoeyNMT 2.3.0 on the same pairs in the same subwords: an RNN with additive attention of the same size.

It is installed in a virtual environment, and trains as many updates as fit into the time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
import yaml

from experiments.trial import Figures
from regard.data.fetching import cache
from regard.training.metrics import bleu
from regard.training.options import TranslateOptions
from regard.training.task import Tokenizers
from regard.training.tasks.translate import TranslateTask, prepare

PACKAGES = ("torch==2.13.0", "joeynmt==2.3.0", "importlib_metadata")
PACE = 60  # updates that are timed, after as many that are not
LINE = re.compile(r"^(\S+ \S+) - INFO - joeynmt\.training - Epoch +\d+, Step: +(\d+),", re.MULTILINE)
PARAMETERS = re.compile(r"Total params: ([\d,]+)")


@dataclass(frozen=True)
class Corpus:
    """The pairs as files, and how many are in a batch."""

    home: Path
    task: TranslateTask
    rows: int  # pairs in a batch, as many as ours have on average
    tokens: float  # of both sides in a pair, on average


def work(folder: Path, data: str, options: dict[str, Any], minutes: float) -> Figures:
    """Train for a time, translate the test part."""
    python = environment()
    corpus = write_corpus(folder / "data", TranslateOptions(data=data, **options))
    seconds = pace(python, folder, corpus)
    updates = int(60 * minutes / seconds)
    start = time.monotonic()
    log = run(python, folder / "run", corpus, updates, validations=10)
    wall = time.monotonic() - start
    parameters = PARAMETERS.search(log)
    if parameters is None:
        raise SystemExit("experiments: JoeyNMT did not say how many parameters its model has")
    texts = translate_test(python, folder / "run", corpus)
    score = bleu(texts, [pair.target for pair in corpus.task.parts.test])
    return {
        "command": "python -m joeynmt train config.yaml",
        "parameters": int(parameters[1].replace(",", "")),
        "steps": updates,
        "seconds": round(updates * seconds, 1),
        "wall_seconds": round(wall, 1),
        "tokens_per_second": round(corpus.rows * corpus.tokens / seconds, 1),
        "rows": corpus.rows,
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


def write_corpus(home: Path, options: TranslateOptions) -> Corpus:
    """Write the parts as lines of subwords, with spaces between them, and the vocabulary."""
    task = prepare(options, Tokenizers())
    tokenizer = task.model.need_tokenizer()
    home.mkdir(parents=True, exist_ok=True)
    test = [(pair.source, pair.target) for pair in task.parts.test]
    sides = [tokenizer.encode_batch([pair[side] for pair in test]) for side in (0, 1)]
    parts: dict[str, list[tuple[list[int], list[int]]]] = {
        "train": [(pair.source, pair.target) for pair in task.train],
        "dev": [(pair.source, pair.target) for pair in task.validation[: task.options.evaluate_pairs]],
        "test": [(source.ids, target.ids) for source, target in zip(*sides, strict=True)],
    }
    for name, pairs in parts.items():
        for side, language in enumerate(("en", "fr")):
            lines = [" ".join(map(tokenizer.id_to_token, pair[side])) for pair in pairs]
            (home / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    vocabulary = tokenizer.get_vocab()
    (home / "subwords.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n", encoding="utf-8")
    lengths = task.batches.lengths  # (pairs, sides)
    rows = round(len(lengths) / len(task.batches.epoch(0)))
    return Corpus(home, task, rows, float(lengths.sum(1).double().mean()))


def padding(corpus: Corpus) -> float:
    """The share of its batches that is padding: it draws pairs whatever their length."""
    lengths = corpus.task.batches.lengths  # (pairs, sides)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(0))
    batches = lengths[order].split(corpus.rows)
    cells = sum(len(batch) * int(batch.amax(0).sum()) for batch in batches)
    return 1 - int(lengths.sum()) / cells


def pace(python: Path, folder: Path, corpus: Corpus) -> float:
    """Seconds for an update, from the times in its log; measured once."""
    path = folder / "pace.txt"
    if not path.exists():
        log = run(python, folder / "pace", corpus, 2 * PACE, validations=0)
        times = {int(step): datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f") for at, step in LINE.findall(log)}
        path.write_text(str((times[2 * PACE] - times[PACE]).total_seconds() / PACE))
    return float(path.read_text())


def run(python: Path, folder: Path, corpus: Corpus, updates: int, validations: int) -> str:
    """Train from scratch; return its log."""
    path = corpus.home / f"{folder.name}.yaml"
    # JoeyNMT expects a multiple of the steps between two lines of its log.
    every = max(1, updates // (validations * PACE)) * PACE if validations else 1_000 * updates * PACE
    path.write_text(yaml.safe_dump(configuration(folder, corpus, updates, every)), encoding="utf-8")
    _call(python, "train", str(path), "--skip-test")
    return (folder / "train.log").read_text(encoding="utf-8")


def translate_test(python: Path, folder: Path, corpus: Corpus) -> list[str]:
    """The translations of the test part by the best checkpoint."""
    out = folder / "translated"
    _call(python, "test", str(corpus.home / f"{folder.name}.yaml"), "--output-path", str(out))
    tokenizer = corpus.task.model.need_tokenizer()
    lines = out.with_name("translated.test").read_text(encoding="utf-8").splitlines()
    rows = [[tokenizer.token_to_id(subword) for subword in line.split(" ")] for line in lines]
    return [tokenizer.decode([number for number in ids if number is not None]) for ids in rows]


def _call(python: Path, *words: str) -> None:
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(python), "-m", "joeynmt", *words],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"experiments: JoeyNMT failed with exit code {done.returncode}:\n{done.stderr[-2_000:]}")


def configuration(folder: Path, corpus: Corpus, updates: int, validate: int) -> dict[str, Any]:
    """JoeyNMT's configuration: our sizes, rates and dropout; its attention, bridge, input feeding and schedule."""
    options, home = corpus.task.options, corpus.home
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
            "learning_rate_warmup": max(1, updates // 5),  # then as 1 / √step, which is its schedule nearest to ours
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": options.clip,
            "weight_decay": options.weight_decay,
            "label_smoothing": options.label_smoothing,
            "batch_size": corpus.rows,
            "batch_type": "sentence",
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
            "tied_embeddings": False,
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
    """The likeliest word each time, as in ours."""
    batches = {"batch_size": 64, "batch_type": "sentence", "max_output_length": options.max_length}
    return {"beam_size": 1, "eval_metrics": ["bleu"], **batches}
