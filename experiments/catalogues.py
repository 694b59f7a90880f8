"""Catalogues of Wesnoth and other programs, English to French: RNNs, a Transformer, and JoeyNMT beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments import joeynmt
from experiments.trial import TINY, Experiment, Figures, Trial, steps_within, table, train
from regard.data.fetching import fetch

MINUTES = 30  # for each, on one thread
ATTENTIVE, PEER = "RNN, additive attention", "JoeyNMT 2.3.0, RNN, additive attention"
SAME = {"threads": 1, "vocab_size": 4_000, "size": 256, "batch": 4_096, "evaluate_every": 500, "save_every": 500}
MODELS = {
    "RNN, no attention": {"model": "rnn", "attention": None, "hidden_size": 256},
    ATTENTIVE: {"model": "rnn", "attention": "additive", "hidden_size": 256},
    "Transformer": {"model": "transformer", "layers": 3, "heads": 4},
}


def work(folder: Path, shape: dict[str, object], tiny: bool) -> Figures:
    """Half an hour each."""
    data = str(fetch("catalogues-fr") / "pairs.tsv")
    pace = folder.with_name(f"pace-of-{folder.name}")
    pace.mkdir(exist_ok=True)
    steps = steps_within(MINUTES, pace, "translate", data, tiny=tiny, **SAME, **shape)
    return train(folder, "translate", data, tiny=tiny, **SAME, **shape, steps=steps)


def peer(folder: Path, tiny: bool) -> Figures:
    """The same pairs, subwords, sizes and time."""
    data = str(fetch("catalogues-fr") / "pairs.tsv")
    options = {**SAME, **MODELS[ATTENTIVE]}
    if tiny:
        options = {name: TINY.get(name, value) for name, value in options.items()}
    return joeynmt.work(folder, data, options, MINUTES)


def render(done: Mapping[str, Figures]) -> str:
    """A row for each model."""
    rows = [
        [
            name,
            f"{figures['parameters']:,}",
            f"{figures['test']['bleu']:.1f}",
            f"{figures['tokens_per_second']:,.0f}",
            f"{figures['seconds'] / 60:.0f}",
            f"{figures['padding']:.1%}",
            f"`{figures['command']}`",
        ]
        for name, figures in done.items()
    ]
    signature = next(iter(done.values()))["test"]["signature"]
    head = ["model", "parameters", "BLEU", "tokens/s", "minutes", "padding", "command"]
    lines = [table(head, rows), "", f"Tokens are those of both sides, without padding. sacreBLEU: `{signature}`."]
    if ATTENTIVE in done and PEER in done:
        ours, theirs = done[ATTENTIVE], done[PEER]
        faster = ours["tokens_per_second"] / theirs["tokens_per_second"]
        more = ours["test"]["bleu"] - theirs["test"]["bleu"]
        lines += [
            "",
            f"Beside JoeyNMT, with the same pairs, subwords, sizes, dropout, label smoothing and peak learning rate, "
            f"{theirs['rows']} pairs in a batch as ours have on average: {faster:.1f} × its tokens/s, "
            f"{more:+.1f} BLEU. In its time it changes its weights {theirs['steps']:,} times and ours "
            f"{ours['steps']:,} times, because {theirs['padding']:.0%} of its batches is padding: it draws sentences "
            "whatever their length.",
        ]
    return "\n".join(lines)


def experiment() -> Experiment:
    """Every model for the same time."""
    trials = [
        Trial(name, MINUTES + 3, lambda folder, tiny, shape=shape: work(folder, shape, tiny))
        for name, shape in MODELS.items()
    ]
    trials.append(Trial(PEER, MINUTES + 5, peer))
    return Experiment(
        "Wesnoth and other catalogues, English to French",
        "In 30 minutes each: an RNN without attention below one with it; the Transformer reported; beside JoeyNMT at "
        "least equal BLEU and 1.5 × the tokens/s.",
        trials,
        render,
    )
