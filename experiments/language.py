"""Language models of tiny Shakespeare and of Python's manual, and nanoGPT's settings beside them in the same time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from experiments import nanogpt
from experiments.trial import Experiment, Figures, Trial, spread, table, train
from regard.data.corpus import topics
from regard.data.fetching import fetch
from regard.data.store import cache
from regard.training.run import evaluate

MINUTES = 5  # for each run; nanoGPT's 2,000 steps take less
SEEDS = (0, 1, 2)
TEXTS = {"tiny Shakespeare": "shakespeare", "Python's manual": "pydoc"}
PEER = "nanoGPT's settings in plain torch"
MODELS = {
    "characters, nanoGPT's shape": {"tokenizer": "character", "size": 128, "layers": 4, "heads": 4, "context": 64},
    "no other options": {},
}
SHARE = 0.9  # of a text to train on, its beginning: as nanoGPT cuts it


def cut(name: str) -> tuple[Path, Path]:
    """The beginning of a text to train on, and its end to evaluate on."""
    home = cache() / "experiments" / "language" / "data"
    paths = home / f"{name}-train.txt", home / f"{name}-end.txt"
    if not paths[1].exists():
        home.mkdir(parents=True, exist_ok=True)
        text = "\n".join(topics()) if name == "pydoc" else (fetch(name) / "input.txt").read_text(encoding="utf-8")
        place = int(SHARE * len(text))
        for path, part in zip(paths, (text[:place], text[place:]), strict=True):
            path.write_text(part, encoding="utf-8")
    return paths


def learn(folder: Path, name: str, model: str, seed: int, tiny: bool) -> Figures:
    """Train by the command, and evaluate on the end of the text."""
    beginning, end = cut(name)
    results = train(folder, "language", str(beginning), tiny=tiny, **MODELS[model], minutes=MINUTES, seed=seed)
    metrics = evaluate(folder, end)
    return {**results, "loss": math.log(metrics["perplexity"]), "bits_per_byte": metrics["bits_per_byte"]}


def peer(folder: Path, name: str, seed: int, tiny: bool) -> Figures:
    return nanogpt.work(*cut(name), MINUTES, seed, tiny)


def render(done: Mapping[str, Figures]) -> str:
    """A row for each text and model."""
    rows = []
    for text in TEXTS:
        for model in (PEER, *MODELS):
            runs = [figures for name, figures in done.items() if name.startswith(f"{text}: {model}, seed")]
            if not runs:
                continue
            words = model == "no other options"
            rows.append(
                [
                    text,
                    model if model == PEER else f"regard, {model}",
                    len(runs),
                    f"{runs[0]['parameters']:,}",
                    spread([run["bits_per_byte"] for run in runs], ".3f"),
                    spread([run["loss"] for run in runs], ".3f") + (" per token" if words else ""),
                    spread([run["steps"] for run in runs], ",.0f"),
                    spread([run["tokens_per_second"] for run in runs], ",.0f"),
                    f"`{runs[0]['command'].rpartition(' --seed')[0]}`" if "command" in runs[0] else "",
                ]
            )
    head = [
        "text",
        "model",
        "seeds",
        "parameters",
        "bits per byte",
        "loss per character",
        "steps",
        "tokens/s",
        "command",
    ]
    note = (
        "Losses are of the last tenth of each text. Of the rest regard keeps a tenth for its own validation and test, "
        "the peer trains on all of it and keeps the weights that are best on the last tenth, as nanoGPT does."
    )
    return "\n".join([table(head, rows), "", note])


def experiment() -> Experiment:
    """Both texts with each model, three seeds each."""
    trials = []
    for text, name in TEXTS.items():
        for seed in SEEDS:
            trials.append(
                Trial(
                    f"{text}: {PEER}, seed {seed}",
                    MINUTES,
                    lambda folder, tiny, way=(name, seed): peer(folder, *way, tiny),
                )
            )
            for model in MODELS:
                trials.append(
                    Trial(
                        f"{text}: {model}, seed {seed}",
                        MINUTES + 0.5,
                        lambda folder, tiny, way=(name, model, seed): learn(folder, *way, tiny),
                    )
                )
    return Experiment(
        "Language: tiny Shakespeare and Python's manual",
        f"In {MINUTES} minutes each: bits per byte of held-out text no higher than those of nanoGPT's settings in "
        "plain torch, on the same texts.",
        trials,
        render,
    )
