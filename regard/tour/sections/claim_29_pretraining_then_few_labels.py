"""Claim 29: pretraining on much text, then fine-tuning to a task."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor
from torch.nn import functional

from regard import LanguageModel
from regard.data.grammar import corpus
from regard.data.grammar.lexicon import NOUNS
from regard.data.words import split
from regard.tour.learning import ADAMW, descend, share_right
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, by_seed, grid, maps, points, section, single
from regard.view.chart import Chart

say = Content(__file__)

KINDS = ("animal", "person", "place", "thing")  # of the first noun of a sentence: the task
WORDS, LABELS = 8, (16, 48, 144)


def sentences() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The first WORDS words (count, WORDS) of the embedded grammar's sentences that are long enough, and their classes,
    −1 where they have none; and those to be tested with, which all have one."""
    whole_texts = [split(pair.source) for pair in corpus("fr", 7_000).train]
    texts = list(dict.fromkeys(tuple(text[:WORDS]) for text in whole_texts if len(text) >= WORDS))  # each once
    numbers = {word: number for number, word in enumerate(sorted({word for text in texts for word in text}))}
    kinds = {form: noun.kinds.split()[0] for noun in NOUNS for form in (noun.english, noun.english_plural)}
    first = [next((kinds[word] for word in text if word in kinds), "") for text in texts]
    classes = torch.tensor([KINDS.index(kind) if kind in KINDS else -1 for kind in first])
    words = torch.tensor([[numbers[word] for word in text] for text in texts])
    held_out = torch.arange(len(texts)) >= len(texts) * 5 // 6
    tested = held_out & (classes >= 0)
    return (words[~held_out], classes[~held_out]), (words[tested], classes[tested])


def run(seeds: Sequence[int] = range(3), pretrain_steps: int = 300, tune_steps: int = 40) -> Measured:
    """A language model that has read and one that has not, fine-tuned on the same few labels."""
    (text, classes), (test, test_classes) = sentences()
    labelled = (classes >= 0).nonzero()[:, 0]

    def of_seed(seed: int) -> Tensor:
        torch.manual_seed(seed)
        scratch = LanguageModel(int(text.max()) + 1, 32, 1, 4, max_positions=WORDS, classes=len(KINDS))
        pretrained = deepcopy(scratch)

        def next_word() -> Tensor:
            words = text[torch.randint(len(text), (32,))]
            return functional.cross_entropy(pretrained(words)[:, :-1].flatten(0, 1), words[:, 1:].flatten())

        descend(pretrained.parameters(), next_word, pretrain_steps, 5e-3, **ADAMW)
        order = torch.randperm(len(labelled))

        def tuned(start: LanguageModel, count: int) -> float:
            torch.manual_seed(seed)
            model, few = deepcopy(start), labelled[order[:count]]

            def loss() -> Tensor:
                rows = few[torch.randint(len(few), (32,))]
                return functional.cross_entropy(model.class_logits(text[rows]), classes[rows])

            descend(model.parameters(), loss, tune_steps, 3e-3, **ADAMW)
            with torch.no_grad():
                return share_right(model.class_logits(test), test_classes)

        return grid(tuned, (pretrained, scratch), LABELS)

    accuracies = grid(of_seed, seeds).transpose(0, 1)  # (pretrained or not, seeds, label counts)
    gaps = accuracies[0] - accuracies[1]
    numbers = Numbers(
        gap=gaps.mean(),
        spread=gaps.mean(1).std(),
        labels=LABELS,
        pretrained=accuracies[0].mean(0),
        scratch=accuracies[1].mean(0),
        gaps=gaps.mean(0),
        spreads=gaps.std(0),
        read=len(text),
        tested=len(test),
        seeds=len(seeds),
    )
    kinds = ((say("pretrained"), "attention"), (say("from scratch"), "pooled"))
    marks = [mark for shares, kind in zip(accuracies, kinds, strict=True) for mark in by_seed(LABELS, shares.T, *kind)]
    return numbers, single(say("measurement"), *marks, x=say("labelled sentences"), y=say("accuracy"), y_limits=(0, 1))


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
    weights = cell.gpt.blocks[0].attention.weights(x, cell.causal_mask(24))[0]
    names = [chr(letter) if letter != 32 else "␣" for letter in ids[0].tolist()]
    heads = {say("head {h}", h=h): head for h, head in enumerate(weights[:2], 1)}
    return Chart(maps(heads, rows=names, columns=names), say("cell", written=cell.written))


SECTION = section(say, draw, judge, run, full=(range(5), 3_000, 100), rehearsal=(range(2), 2, 2))
