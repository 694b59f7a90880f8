"""Verses in Greek and English whose words were linked by hand: what attention links, and IBM's model 2 beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import regard
from experiments.ibm2 import DiagonalModel, Links, grow_diagonal
from experiments.trial import Experiment, Figures, Trial, spread, table, train
from regard.data.fetching import fetch
from regard.data.pairs import Pair, read_aligned_pairs
from regard.data.split import Parts, split
from regard.data.words import split as split_words
from regard.models.translator import Translator, align_heads
from regard.training.metrics import alignment_error_rate

SET = "bible-alignments"
MINUTES = 15  # for each model
SEEDS = (0, 1, 2)
MODELS = {"RNN": {"model": "rnn"}, "Transformer": {"model": "transformer"}}
BATCH = 32  # pairs that are aligned at once
MEAN = "all heads"


def read_parts() -> Parts[Pair]:
    """The pairs with their links, in the parts of `regard train`."""
    return split(read_aligned_pairs(fetch(SET)), lambda pair: pair.source)


def learn(folder: Path, model: str, seed: int, tiny: bool) -> Figures:
    """Train a translator, which sees no links; the validation part decides which of its heads links words."""
    data = str(fetch(SET) / "pairs.tsv")
    results = train(folder, "translate", data, tiny=tiny, **MODELS[model], minutes=MINUTES, seed=seed)
    trained, parts = regard.load(folder), read_parts()
    assert isinstance(trained, Translator)
    on_validation, on_test = (error_rates(trained, part) for part in (parts.validation, parts.test))
    chosen = min(on_validation, key=on_validation.__getitem__)
    return {**results, "error_rate": on_test[chosen], "head": chosen, "mean_error_rate": on_test[MEAN]}


def error_rates(model: Translator, pairs: Sequence[Pair]) -> dict[str, float]:
    """The alignment error rate by the mean of all heads, and by each head of each layer."""
    links: dict[str, list[Links]] = {}
    for start in range(0, len(pairs), BATCH):
        chunk = pairs[start : start + BATCH]
        for heads in align_heads(model, [pair.source for pair in chunk], [pair.target for pair in chunk]):
            for head, alignment in heads.items():
                name = f"layer {head[0] + 1}, head {head[1] + 1}" if head else MEAN
                links.setdefault(name, []).append(alignment.links)
    return {name: alignment_error_rate(predicted, _gold(pairs)) for name, predicted in links.items()}


def count(pairs: Sequence[Pair], test: Sequence[Pair]) -> Figures:
    """Fit IBM's model 2 to the pairs in both directions; the error rates of the test part."""
    sources, targets = _words(pairs)
    forward, backward = DiagonalModel(sources, targets), DiagonalModel(targets, sources)
    test_words = list(zip(*_words(test), strict=True))
    links = [forward.links(source, target) for source, target in test_words]
    reverse = [frozenset((s, t) for t, s in backward.links(target, source)) for source, target in test_words]
    both = [grow_diagonal(*directions) for directions in zip(links, reverse, strict=True)]
    return {"pairs": len(pairs), **{
        name: alignment_error_rate(predicted, _gold(test))
        for name, predicted in (("error_rate", both), ("forward_error_rate", links))
    }}  # fmt: skip


def _gold(pairs: Sequence[Pair]) -> list[Links]:
    return [pair.alignment or frozenset() for pair in pairs]


def _words(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[list[str]]]:
    """Words that begin a sentence are those within it."""
    return [split_words(pair.source.lower()) for pair in pairs], [split_words(pair.target.lower()) for pair in pairs]


def count_training(folder: Path, tiny: bool) -> Figures:
    """The pairs that the translators learn from."""
    parts = read_parts()
    return count(parts.train, parts.test)


def count_all(folder: Path, tiny: bool) -> Figures:
    """The pairs of the test as well, without their links: so aligners are used."""
    parts = read_parts()
    return count([*parts.train, *parts.validation, *parts.test], parts.test)


def render(done: Mapping[str, Figures]) -> str:
    """A row for each model, and one for each way to use the statistical one."""
    rows = []
    for model in MODELS:
        runs = [figures for name, figures in done.items() if name.startswith(model)]
        if runs:
            heads = " · ".join(sorted({run["head"] for run in runs}))
            rates = [spread([run[rate] for run in runs], ".3f") for rate in ("error_rate", "mean_error_rate")]
            bleu = spread([run["test"]["bleu"] for run in runs])
            rows.append([f"{model}, attention", len(runs), *rates, heads, bleu, f"`{runs[0]['command']}`"])
    for name, figures in done.items():
        if "forward_error_rate" in figures:
            forward = f"forward alone {figures['forward_error_rate']:.3f}"
            rows.append([name, "", f"{figures['error_rate']:.3f}", "", forward, "", ""])
    head = [
        "links by",
        "seeds",
        "alignment error rate",
        "mean of all heads",
        "head, chosen on the validation part",
        "BLEU",
        "command",
    ]
    return table(head, rows)


def experiment() -> Experiment:
    """Both translators, three seeds each; the statistical model twice."""
    trials = [
        Trial("IBM 2, both directions, of the training part", 1, count_training),
        Trial("IBM 2, both directions, of all pairs", 1, count_all),
    ]
    for model in MODELS:
        for seed in SEEDS:
            trials.append(
                Trial(
                    f"{model}, seed {seed}",
                    MINUTES + 2,
                    lambda folder, tiny, model=model, seed=seed: learn(folder, model, seed, tiny),
                )
            )
    return Experiment(
        "Greek and English verses: words linked by hand",
        f"The alignment error rate of attention after {MINUTES} minutes of training on 7,000 pairs, without links, "
        "beside that of IBM's model 2 with fast_align's prior; reported.",
        trials,
        render,
    )
