"""Claim 29: pretraining, then fine-tuning."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.data.split import part
from regard.tour.kept import place
from regard.tour.section import Criterion, Drawing, Need, Numbers, Section, Text
from regard.training.folder import RESULTS, has_run
from regard.view import pictures

CLASSES = ("compound", "debugger", "specialnames", "string-methods")  # topics of Python's manual
SIZES = (12, 40, 120)  # labelled paragraphs
SEEDS = range(3)
READING: dict[str, Any] = {
    "size": 64,
    "layers": 2,
    "heads": 4,
    "context": 64,
    "vocabulary": 1_500,
    "threads": 1,
    "batch": 1_024,
}
LEARNING: dict[str, Any] = {
    "learning_rate": 5e-4,
    "warmup": 10,
    "evaluate_every": 25,
    "longest": 64,
    "batch": 1_024,
    "dropout": 0.0,
}
READ, STEPS = 1_500, 100  # of reading, where 1 is as good as none; of learning from labels


@dataclass(frozen=True)
class Seen(Numbers):
    """Accuracy by the number of labels."""

    labels: Annotated[tuple[int, ...], Text("labelled paragraphs", "有标签的段落数")]
    pretrained: Annotated[
        tuple[float, ...], Text("accuracy after pretraining, mean of the seeds", "预训练后的准确率，种子均值")
    ]
    scratch: Annotated[
        tuple[float, ...], Text("accuracy from scratch, mean of the seeds", "从零开始的准确率，种子均值")
    ]
    spreads: Annotated[tuple[float, ...], Text("standard deviation of the gap over the seeds", "差距在种子间的标准差")]
    gap: Annotated[float, Text("gap, mean of all sizes", "差距，各规模的均值")]
    least: Annotated[float, Text("the smallest gap of any size", "各规模中最小的差距")]
    tested: Annotated[int, Text("paragraphs set aside", "留出的段落数")]


def run(
    sizes: Sequence[int] = SIZES, seeds: Sequence[int] = SEEDS, read: int = READ, steps: int = STEPS
) -> tuple[Seen, Drawing]:
    """Fine-tune a language model that has read the manual, and one that has not, on a few labels."""
    found = torch.zeros(2, len(seeds), len(sizes))  # (pretrained or not, seeds, sizes)
    with TemporaryDirectory() as folder:
        learn, test = labelled(Path(folder, "paragraphs.csv"))
        for kind, begun in enumerate((reader(read), reader(1))):
            for row, seed in enumerate(seeds):
                for column, size in enumerate(sizes):
                    out = Path(folder, f"{kind}-{seed}-{size}")
                    given = {"init_from": str(begun), "examples": size, "seed": seed, "steps": steps, **LEARNING}
                    model = regard.train("text", learn, out=out, **given).model
                    assert isinstance(model, regard.LanguageModel)
                    named = model.classify([text for text, _ in test])
                    found[kind, row, column] = sum(map(eq, named, [topic for _, topic in test])) / len(test)

    pretrained, scratch = found.mean(1).tolist()
    gaps = found[0] - found[1]
    seen = Seen(
        labels=tuple(sizes),
        pretrained=tuple(pretrained),
        scratch=tuple(scratch),
        spreads=tuple(gaps.std(0).tolist()),
        gap=float(gaps.mean()),
        least=float(gaps.mean(0).min()),
        tested=len(test),
    )
    return seen, partial(draw, sizes, found)


def paragraphs() -> dict[str, str]:
    """Paragraphs of the manual that are in one topic only, and the topic."""
    from pydoc_data.topics import topics

    found: dict[str, list[str]] = {}
    for name, text in topics.items():
        for own in {" ".join(block.split()) for block in text.split("\n\n") if len(block.split()) >= 15}:
            found.setdefault(own, []).append(name)
    return {own: names[0] for own, names in sorted(found.items()) if len(names) == 1}


def labelled(path: Path) -> tuple[Path, list[tuple[str, str]]]:
    """Paragraphs of four topics: those to learn from in a CSV file, and those of the test."""
    rows = [(text, topic) for text, topic in paragraphs().items() if topic in CLASSES]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(row for row in rows if _side(row[0]) == "train")
    return path, [row for row in rows if _side(row[0]) == "test"]


def _side(text: str) -> str:
    """Four of ten paragraphs are for the test; training hashes the text alone for its own split."""
    return part(f"tour {text}", 0, 0.4)


def reader(steps: int) -> Path:
    """A language model that has read the manual for so many steps, but for the paragraphs of the test."""
    folder = place(f"reader-{steps}")
    if not (folder / RESULTS).exists():
        with TemporaryDirectory() as home:
            text = Path(home, "manual.txt")
            lines = [own for own, topic in paragraphs().items() if topic not in CLASSES or _side(own) == "train"]
            text.write_text("\n".join(lines), encoding="utf-8")
            pace: dict[str, Any] = {
                "steps": steps,
                "learning_rate": 3e-3 if steps > 1 else 1e-12,
                "warmup": min(40, steps - 1),
            }
            regard.train("language", text, out=folder, resume=has_run(folder), **READING, **pace)
    return folder


def judge(seen: Seen) -> list[Criterion]:
    """Ahead on average, and at every size."""
    return [
        Criterion(
            seen.gap > 0,
            Text(
                f"Pretraining must be ahead: by {seen.gap:.1%} on average over all sizes.",
                f"预训练应领先：各规模平均领先 {seen.gap:.1%}。",
            ),
        ),
        Criterion(
            seen.least > 0,
            Text(
                f"It must be so at every size: the smallest gap is {seen.least:.1%}.",
                f"每种规模都应如此：最小的差距为 {seen.least:.1%}。",
            ),
        ),
    ]


def draw(sizes: Sequence[int], found: Tensor) -> Figure:
    """Accuracy against the number of labels."""
    figure = pictures.figure()
    axes = figure.subplots()
    styles = (("pretrained on the manual", pictures.ATTENTION), ("from scratch", pictures.POOLED))
    for own, (name, colour) in zip(found, styles, strict=True):
        axes.plot(sizes, own.mean(0), "o-", color=colour, label=name)
        axes.fill_between(sizes, own.amin(0), own.amax(0), color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(sizes, map(str, sizes))
    axes.minorticks_off()
    axes.axhline(1 / len(CLASSES), color=pictures.SAMPLES, linestyle=":", linewidth=1.2, label="guessing")
    axes.set(xlabel="labelled paragraphs", ylabel="accuracy", ylim=(0, 1))
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
        "Text is plentiful and labels are not. A language model learns from text alone which words go together; given "
        "a new last layer, it needs fewer labels. Here it reads Python's manual for some seconds, and then learns to "
        "tell from which of four chapters a paragraph is. The test's paragraphs it has not read. The same model "
        "without the reading is what it is compared with: same tokens, same steps, same seeds.",
        "文本多，标签少。语言模型只从文本就能学到哪些词常在一起；换上新的最后一层，所需的标签就更少。这里它先读几秒钟 "
        "Python 手册，再学习判断一个段落出自四章中的哪一章；测试用的段落它没有读过。对照的是没有读过手册的同一个模型："
        "词元、步数、种子都相同。",
    ),
    formula="text → language model → + new head, few labels → classifier",
    caption=Text(
        "Accuracy on paragraphs set aside against the number of labels, pretrained and from scratch. Shades: from the "
        "worst to the best seed.",
        "留出段落上的准确率随标签数的变化：预训练与从零开始。阴影：从最差到最好的种子。",
    ),
    deciding="gap",
    run=run,
    full=partial(run, (12, 40, 120, 240), range(5), 3_000),
    rehearsal=partial(run, (12, 40), range(2), 2, 2),
    judge=judge,
    needs=(Need(reader, (READ,)), Need(reader, (1,))),
)
