"""JoeyNMT 2.3.0 on the same pairs in the same pieces of words: an RNN with additive attention of the same size.

It has an environment of its own, and as many updates as fit into the time.
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
from regard.training.options import Translate
from regard.training.tasks.translate import TranslateTask, prepare

PACKAGES = ("torch==2.13.0", "joeynmt==2.3.0", "importlib_metadata")
PACE = 60  # updates that are timed, after as many that are not
LINE = re.compile(r"^(\S+ \S+) - INFO - joeynmt\.training - Epoch +\d+, Step: +(\d+),", re.MULTILINE)
PARAMETERS = re.compile(r"Total params: ([\d,]+)")


@dataclass(frozen=True)
class Material:
    """The pairs as files, and what a batch of them holds."""

    home: Path
    task: TranslateTask
    rows: int  # pairs in a batch, as many as ours have on average
    tokens: float  # of both sides in a pair


def work(folder: Path, data: str, options: dict[str, Any], minutes: float) -> Figures:
    """Train for the time, translate the test part."""
    python = environment()
    material = prepared(folder / "data", Translate(data=data, **options))
    seconds = pace(python, folder, material)
    updates = int(60 * minutes / seconds)
    began = time.monotonic()
    log = run(python, folder / "run", material, updates, validations=10)
    whole = time.monotonic() - began
    parameters = PARAMETERS.search(log)
    if parameters is None:
        raise SystemExit("experiments: JoeyNMT did not say how many parameters its model has")
    texts = translated(python, folder / "run", material)
    score = bleu(texts, [pair.target for pair in material.task.parts.test])
    return {
        "command": "python -m joeynmt train config.yaml",
        "parameters": int(parameters[1].replace(",", "")),
        "steps": updates,
        "seconds": round(updates * seconds, 1),
        "wall_seconds": round(whole, 1),
        "tokens_per_second": round(material.rows * material.tokens / seconds, 1),
        "rows": material.rows,
        "padding": round(padding(material), 4),
        "test": {"bleu": score.score, "signature": score.signature},
    }


def environment() -> Path:
    """The Python that has JoeyNMT; made once."""
    home = cache() / "experiments" / "joeynmt"
    python, made = home / "bin" / "python", home / "made"
    if not made.exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        for package in PACKAGES:  # torch first, so that nothing else chooses its build
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", package], check=True)
        made.touch()
    return python


def prepared(home: Path, options: Translate) -> Material:
    """The parts as lines of pieces, with spaces between them, and the vocabulary."""
    task = prepare(options, None)
    tokenizer = task.model.need_tokenizer()
    home.mkdir(parents=True, exist_ok=True)
    test = [(pair.source, pair.target) for pair in task.parts.test]
    sides = [tokenizer.encode_batch([pair[side] for pair in test]) for side in (0, 1)]
    parts: dict[str, list[tuple[list[int], list[int]]]] = {
        "train": [(own.source, own.target) for own in task.train],
        "dev": [(own.source, own.target) for own in task.validation[: task.options.evaluate_pairs]],
        "test": [(source.ids, target.ids) for source, target in zip(*sides, strict=True)],
    }
    for name, pairs in parts.items():
        for side, language in enumerate(("en", "fr")):
            lines = [" ".join(tokenizer.id_to_token(own) for own in pair[side]) for pair in pairs]
            (home / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = sorted(tokenizer.get_vocab().items(), key=lambda own: own[1])
    (home / "pieces.txt").write_text("\n".join(word for word, _ in words) + "\n", encoding="utf-8")
    lengths = task.batches.lengths  # (pairs, sides)
    rows = round(len(lengths) / len(task.batches.epoch(0)))
    return Material(home, task, rows, float(lengths.sum(1).double().mean()))


def padding(material: Material) -> float:
    """The share of its batches that is padding: it takes pairs as they come."""
    lengths = material.task.batches.lengths  # (pairs, sides)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(0))
    batches = lengths[order].split(material.rows)
    cells = sum(len(own) * int(own.amax(0).sum()) for own in batches)
    return 1 - int(lengths.sum()) / cells


def pace(python: Path, folder: Path, material: Material) -> float:
    """Seconds for an update, from the times in its log; measured once."""
    path = folder / "pace.txt"
    if not path.exists():
        log = run(python, folder / "pace", material, 2 * PACE, validations=0)
        times = {int(step): datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f") for at, step in LINE.findall(log)}
        path.write_text(str((times[2 * PACE] - times[PACE]).total_seconds() / PACE))
    return float(path.read_text())


def run(python: Path, folder: Path, material: Material, updates: int, validations: int) -> str:
    """Train anew, and take what it wrote into its log."""
    path = material.home / f"{folder.name}.yaml"
    # It wants a multiple of the steps between two lines of its log.
    every = max(1, updates // (validations * PACE)) * PACE if validations else 1_000 * updates * PACE
    path.write_text(yaml.safe_dump(described(folder, material, updates, every)), encoding="utf-8")
    _call(python, "train", str(path), "--skip-test")
    return (folder / "train.log").read_text(encoding="utf-8")


def translated(python: Path, folder: Path, material: Material) -> list[str]:
    """What the best checkpoint makes of the test part, as text."""
    out = folder / "translated"
    _call(python, "test", str(material.home / f"{folder.name}.yaml"), "--output-path", str(out))
    tokenizer = material.task.model.need_tokenizer()
    lines = out.with_name("translated.test").read_text(encoding="utf-8").splitlines()
    found = [[tokenizer.token_to_id(piece) for piece in line.split(" ")] for line in lines]
    return [tokenizer.decode([own for own in ids if own is not None]) for ids in found]


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


def described(folder: Path, material: Material, updates: int, validate: int) -> dict[str, Any]:
    """Its configuration: our sizes, rates and dropout; its own attention, bridge, input feeding and schedule."""
    options, home = material.task.options, material.home
    side = {"level": "word", "voc_file": str(home / "pieces.txt"), "max_length": options.max_length}
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
            "label_smoothing": options.smoothing,
            "batch_size": material.rows,
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
                "hidden_size": options.hidden // 2,
                "bidirectional": True,
                **cell,
                **words,
            },
            "decoder": {
                "type": "recurrent",
                "hidden_size": options.hidden,
                "attention": "bahdanau",
                "init_hidden": "bridge",
                "input_feeding": True,
                "hidden_dropout": options.dropout,
                **cell,
                **words,
            },
        },
    }


def _decoding(options: Translate) -> dict[str, Any]:
    """The likeliest word each time, as ours."""
    taken = {"batch_size": 64, "batch_type": "sentence", "max_output_length": options.max_length}
    return {"beam_size": 1, "eval_metrics": ["bleu"], **taken}
