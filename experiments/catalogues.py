"""Catalogues of Wesnoth and other programs, English to French: an RNN without and with attention, and a Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.trial import Experiment, Figures, Trial, steps_within, table, train
from regard.data.fetching import fetch

MINUTES = 30
SAME = {"vocabulary": 4_000, "size": 256, "batch": 4_096, "evaluate_every": 500, "save_every": 500}
MODELS = {
    "RNN, no attention": {"model": "rnn", "attention": None, "hidden": 256},
    "RNN, additive attention": {"model": "rnn", "attention": "additive", "hidden": 256},
    "Transformer": {"model": "transformer", "layers": 3, "heads": 4},
}


def work(folder: Path, shape: dict[str, object]) -> Figures:
    """Half an hour each."""
    data = str(fetch("catalogues-fr") / "pairs.tsv")
    beside = folder.with_name(f"pace-of-{folder.name}")
    beside.mkdir(exist_ok=True)
    steps = steps_within(MINUTES, beside, "translate", data, **SAME, **shape)
    return train(folder, "translate", data, **SAME, **shape, steps=steps)


def told(done: Mapping[str, Figures]) -> str:
    """A row for each model."""
    rows = [
        [
            name,
            f"{own['parameters']:,}",
            f"{own['test']['bleu']:.1f}",
            f"{own['tokens_per_second']:,.0f}",
            f"{own['seconds'] / 60:.0f}",
            f"`{own['command']}`",
        ]
        for name, own in done.items()
    ]
    signature = next(iter(done.values()))["test"]["signature"]
    head = ["model", "parameters", "BLEU", "tokens/s", "minutes", "command"]
    return "\n".join([table(head, rows), "", f"sacreBLEU: `{signature}`."])


def experiment() -> Experiment:
    """Every model for the same time."""
    trials = [Trial(name, MINUTES + 3, lambda f, s=shape: work(f, s)) for name, shape in MODELS.items()]
    return Experiment(
        "Wesnoth and other catalogues, English to French",
        "In 30 minutes each: an RNN without attention below one with it; the Transformer reported.",
        trials,
        told,
    )
