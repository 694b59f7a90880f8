"""Claim 32: without attention every word of the input counts the same."""

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from regard.data.pairs import Pair
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.tour.translators import SHORT, Training, held_out_pairs, influence, stages, translator
from regard.view.chart import Chart, Line, Panel

say = Content(__file__)

KINDS = ("none", "additive")
PARTS = 5  # of a sentence
WORDS = 60  # sentences whose gradients are taken


def shares(kind: str, seed: int, training: Training, pairs: list[Pair]) -> Iterator[tuple[Pair, Tensor]]:
    """For each sentence how much each target word depends on each source word, (n, m), in shares of 1."""
    norms = influence(translator(kind, seed, training.steps), pairs)
    for pair, table in zip(pairs, norms, strict=True):
        n, m = len(pair.target.split()), len(pair.source.split())
        part = table[:n, :m]
        yield pair, part / part.sum(-1, keepdim=True).clamp(min=1e-12)


def describe(pair: Pair, table: Tensor) -> Tensor:
    """Largest ÷ smallest share of a word; focus: the share of the words that belong together ÷ that by chance."""
    overall = table.mean(0)
    links = torch.zeros_like(table)
    for source, target in pair.alignment or ():
        if target < len(links) and source < links.shape[1]:
            links[target, source] = 1
    rows = links.sum(-1) > 0
    focus = ((table * links).sum(-1)[rows] / links.mean(-1)[rows]).mean()
    return torch.stack([overall.max() / overall.min().clamp(min=1e-12), focus])


def by_part(table: Tensor) -> Tensor:
    """The shares along the sentence, relative to equal ones, in PARTS parts."""
    overall = table.mean(0) * table.shape[1]
    places = (torch.arange(table.shape[1]) * PARTS / table.shape[1]).long()
    return torch.stack([overall[places == part].mean() for part in range(PARTS)])


def run(training: Training = SHORT, kinds: tuple[str, str] = KINDS) -> Measured:
    """Take the gradient of each word that is written with respect to each word that was read.

    kinds: the translator without attention, and one to compare it with
    """
    long = (pair for pair in held_out_pairs(4 * WORDS) if len(pair.source.split()) >= 8 and "'" not in pair.target)
    pairs = list(islice(long, WORDS))
    measured, parts = torch.zeros(len(training.seeds), 2, 2), torch.zeros(len(training.seeds), 2, PARTS)
    for row, seed in enumerate(training.seeds):
        for column, kind in enumerate(kinds):
            tables = list(shares(kind, seed, training, pairs))
            measured[row, column] = torch.stack([describe(*table) for table in tables]).median(0).values
            parts[row, column] = torch.stack([by_part(table) for _, table in tables]).mean(0)
    numbers = Numbers(
        ratios=measured[:, 0, 0],
        focus=measured[:, 0, 1],
        focus_attention=measured[:, 1, 1],
        by_part=parts[:, 0].mean(0),
        spread=parts[:, 0].std(0),
        sentences=len(pairs),
    )
    names = ((say("without attention"), "pooled"), (say("with attention"), "attention"))
    places = [(part + 0.5) / PARTS for part in range(PARTS)]
    lines = [
        Line(places, shares, name, colour, dots=True)
        for kind, (name, colour) in enumerate(names)
        for shares in parts[:, kind]
    ]
    equal = Line([0, 1], [1, 1], say("equal weight"), "ink", style="dashed")
    axis = say("place in the sentence: 0 = first word, 1 = last")
    panel = Panel([*lines, equal], x=axis, y=say("influence ÷ equal share"))
    return numbers, Chart([panel], caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Equal weight would be a ratio of 1, and no focus a factor of 1."""
    yield numbers.criterion(max(numbers.ratios) < 1.5, say("every word the same"))
    yield numbers.criterion(max(numbers.focus) < 1.1, say("no focus"))


def draw(cell: Cell) -> Chart:
    """The shares of the words in an untrained encoder's last state."""
    share = Line(range(1, cell.words + 1), cell.share, say("share of the influence on c"), "pooled", dots=True)
    equal = Line([1, cell.words], [1 / cell.words] * 2, say("equal weight"), "ink", style="dashed")
    return Chart([Panel([share, equal], x=say("word of the sentence"), y=say("share"))], caption=say("cell"))


SECTION = Section(**say.fields, **stages(run, KINDS), show=draw, judge=judge)
