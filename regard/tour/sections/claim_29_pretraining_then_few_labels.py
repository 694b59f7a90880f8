"""Claim 29: pretraining on much text, then fine-tuning to a task."""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from regard import LanguageModel
from regard.data.grammar import corpus
from regard.data.grammar.lexicon import NOUNS
from regard.data.words import split
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section, by_seed, points
from regard.view.chart import Chart, Heat, Panel

say = Content(__file__)

KINDS = ("animal", "person", "place", "thing")  # of the first noun of a sentence: the task
WORDS, LABELS = 8, (16, 48, 144)


class Sentences(NamedTuple):
    """The first WORDS words of each, (count, WORDS), and its class, −1 where it has none."""

    words: Tensor
    classes: Tensor

    def choose(self, rows: Tensor) -> "Sentences":
        """Some of them."""
        return Sentences(self.words[rows], self.classes[rows])


@cache
def sentences() -> tuple[Sentences, Sentences]:
    """The embedded grammar's that are long enough, to learn from and to be tested with."""
    whole_texts = [split(pair.source) for pair in corpus("fr", 7_000).train]
    texts = list(dict.fromkeys(tuple(text[:WORDS]) for text in whole_texts if len(text) >= WORDS))  # each once
    numbers = {word: number for number, word in enumerate(sorted({word for text in texts for word in text}))}
    kinds = {form: noun.kinds.split()[0] for noun in NOUNS for form in (noun.english, noun.english_plural)}
    first = [next((kinds[word] for word in text if word in kinds), "") for text in texts]
    classes = torch.tensor([KINDS.index(kind) if kind in KINDS else -1 for kind in first])
    whole = Sentences(torch.tensor([[numbers[word] for word in text] for text in texts]), classes)
    held_out = torch.arange(len(texts)) >= len(texts) * 5 // 6
    return whole.choose(~held_out), whole.choose(held_out & (classes >= 0))


def pretrain(model: LanguageModel, steps: int) -> LanguageModel:
    """Let it predict the next word of sentences, whose classes it does not get."""
    text, _ = sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, fused=True)
    for _ in range(steps):
        batch = text.choose(torch.randint(len(text.words), (32,)))
        loss = functional.cross_entropy(model(batch.words)[:, :-1].flatten(0, 1), batch.words[:, 1:].flatten())
        descend(optimizer, loss)
    return model


def tuned_accuracy(model: LanguageModel, labelled: Sentences, steps: int) -> float:
    """Fine-tune a copy on these labels; the share of the test's sentences that it then gets right."""
    model, (_, test) = deepcopy(model), sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for _ in range(steps):
        batch = labelled.choose(torch.randint(len(labelled.words), (32,)))
        loss = functional.cross_entropy(model.class_logits(batch.words), batch.classes)
        descend(optimizer, loss)
    with torch.no_grad():
        return float((model.class_logits(test.words).argmax(-1) == test.classes).float().mean())


def run(seeds: Sequence[int] = range(3), pretrain_steps: int = 300, tune_steps: int = 40) -> Measured:
    """A language model that has read and one that has not, fine-tuned on the same few labels."""
    text, test = sentences()
    labelled = text.choose(text.classes >= 0)
    accuracies = torch.zeros(2, len(seeds), len(LABELS))  # (pretrained or not, seeds, label counts)
    for row, seed in enumerate(seeds):
        torch.manual_seed(seed)
        scratch = LanguageModel(int(text.words.max()) + 1, 32, 1, 4, max_positions=WORDS, classes=len(KINDS))
        pretrained = pretrain(deepcopy(scratch), pretrain_steps)
        order = torch.randperm(len(labelled.words))
        for column, count in enumerate(LABELS):
            for kind, model in enumerate((pretrained, scratch)):
                torch.manual_seed(seed)
                accuracies[kind, row, column] = tuned_accuracy(model, labelled.choose(order[:count]), tune_steps)
    gaps = accuracies[0] - accuracies[1]
    numbers = Numbers(
        gap=gaps.mean(),
        spread=gaps.mean(1).std(),
        labels=LABELS,
        pretrained=accuracies[0].mean(0),
        scratch=accuracies[1].mean(0),
        gaps=gaps.mean(0),
        spreads=gaps.std(0),
        read=len(text.words),
        tested=len(test.words),
        seeds=len(seeds),
    )
    kinds = ((say("pretrained"), "attention"), (say("from scratch"), "pooled"))
    marks = [mark for shares, kind in zip(accuracies, kinds, strict=True) for mark in by_seed(LABELS, shares.T, *kind)]
    panel = Panel(marks, x=say("labelled sentences"), y=say("accuracy"), y_limits=(0, 1))
    return numbers, Chart([panel], caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """The pretrained model must be ahead by more than the spread."""
    rows = [points(gap, spread) for gap, spread in zip(numbers.gaps, numbers.spreads, strict=True)]
    difference = points(numbers.gap, numbers.spread)
    yield numbers.criterion(numbers.gap > numbers.spread, say("ahead"), difference=difference, by_count=rows)


@torch.no_grad()
def draw(cell: Cell) -> Chart:
    """What the tiny GPT looks at while it writes."""
    ids = torch.tensor([list(cell.written.encode()[:24])])
    x = cell.gpt.letters(ids) + cell.positional_encoding(24, 32)
    maps = cell.gpt.blocks[0].attention.weights(x, cell.causal_mask(24))[0]
    names = [chr(letter) if letter != 32 else "␣" for letter in ids[0].tolist()]
    return Chart(
        [Panel([Heat(weights, names, names)], title=say("head {h}", h=h)) for h, weights in enumerate(maps[:2], 1)],
        caption=say("cell", written=cell.written),
    )


SECTION = Section(
    **say.fields,
    show=draw,
    run=run,
    full=partial(run, range(5), 3_000, 100),
    rehearsal=partial(run, range(2), 2, 2),
    judge=judge,
)
