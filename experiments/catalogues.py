"""Catalogues of Wesnoth and other programs, English to French: RNNs, a Transformer, and JoeyNMT beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments import joeynmt
from experiments.trial import Experiment, Figures, Trial, figures_of, table, train, trial_folder
from regard.data.fetching import fetch

MINUTES = 60  # for each
ATTENTIVE, PEER, UPDATES = "RNN, additive attention", "JoeyNMT 2.3.0, the same time", "JoeyNMT 2.3.0, as many updates"
MODELS = {
    "RNN, no attention": {"attention": None},
    ATTENTIVE: {"attention": "additive"},
    "Transformer": {"model": "transformer"},
}


def work(folder: Path, shape: dict[str, object], tiny: bool) -> Figures:
    """An hour each: what else there is follows from the data."""
    data = str(fetch("catalogues-fr") / "pairs.tsv")
    return train(folder, "translate", data, tiny=tiny, **shape, minutes=MINUTES)


def peer(folder: Path) -> Figures:
    """The pairs, subwords, sizes and batches of our run, for the same time."""
    return joeynmt.work(folder, str(fetch("catalogues-fr") / "pairs.tsv"), MINUTES)


def peer_on(folder: Path) -> Figures:
    """The same, until it has had as many updates as our run."""
    data, updates = str(fetch("catalogues-fr") / "pairs.tsv"), figures_of("catalogues", ATTENTIVE)["steps"]
    return joeynmt.work_on(folder, data, trial_folder("catalogues", PEER), updates)


def render(done: Mapping[str, Figures]) -> str:
    """A row for each model."""
    rows = [
        [
            name,
            f"{figures['parameters']:,}",
            f"{figures['test']['bleu']:.1f}",
            f"{figures['tokens_per_second']:,.0f}",
            f"{figures['steps']:,}",
            f"{figures['seconds'] / 60:.0f}",
            f"{figures['padding']:.1%}",
            f"`{figures['command']}`",
        ]
        for name, figures in done.items()
    ]
    signature = next(iter(done.values()))["test"]["signature"]
    head = ["model", "parameters", "BLEU", "tokens/s", "updates", "minutes of updates", "padding", "command"]
    lines = [
        table(head, rows),
        "",
        f"Tokens are those of both sides, without padding. sacreBLEU: `{signature}`. One seed each.",
    ]
    if ATTENTIVE in done and PEER in done:
        ours, theirs = done[ATTENTIVE], done[PEER]
        faster = ours["tokens_per_second"] / theirs["tokens_per_second"]
        lines += [
            "",
            "JoeyNMT has the same pairs, subwords, sizes, dropout, label smoothing, peak learning rate, beam and "
            "budget of tokens in a batch; and batches of similar length, which it lacks, from "
            "experiments/joeynmt_buckets.py. "
            f"Beside it: {faster:.1f} × its tokens/s, {ours['test']['bleu'] - theirs['test']['bleu']:+.1f} BLEU.",
        ]
    return "\n".join(lines)


def experiment() -> Experiment:
    """Every model for the same time; the peer also for the same number of updates."""
    trials = [
        Trial(name, MINUTES + 5, lambda folder, tiny, shape=shape: work(folder, shape, tiny))
        for name, shape in MODELS.items()
    ]
    trials.append(Trial(PEER, MINUTES + 5, lambda folder, tiny: peer(folder)))
    trials.append(Trial(UPDATES, 2 * MINUTES, lambda folder, tiny: peer_on(folder)))
    return Experiment(
        "Wesnoth and other catalogues, English to French",
        f"In {MINUTES} minutes each, with a beam of 5: an RNN without attention below one with it, the Transformer "
        "not below that, the best at 20 BLEU or more; JoeyNMT beside it, for the same time and for as many updates.",
        trials,
        render,
    )
