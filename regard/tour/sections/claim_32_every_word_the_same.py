"""Claim 32: without attention every word of the input counts the same."""

from itertools import islice

import torch
from torch import Tensor

from regard.data.pairs import Pair
from regard.models.seq2seq import Seq2Seq
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section, single
from regard.tour.translators import SHORT, Training, held_out_pairs, influence, stages
from regard.view.chart import Chart, Line

say = Content(__file__)

KINDS = ("none", "additive")
PARTS = 5  # of a sentence
WORDS = 60  # sentences whose gradients are taken


def describe(pair: Pair, norms: Tensor) -> tuple[Tensor, Tensor]:
    """What a sentence's gradients (target, source) say. First: largest ÷ smallest share of a word, and focus: the share
    of the words that belong together ÷ that by chance. Then the shares along the sentence, relative to equal ones."""
    n, m = len(pair.target.split()), len(pair.source.split())
    table = norms[:n, :m] / norms[:n, :m].sum(-1, keepdim=True).clamp(min=1e-12)  # in shares of 1
    overall, links = table.mean(0), torch.zeros_like(table)
    for source, target in pair.alignment or ():
        if target < n and source < m:
            links[target, source] = 1
    rows = links.sum(-1) > 0
    focus = ((table * links).sum(-1)[rows] / links.mean(-1)[rows]).mean()
    places = (torch.arange(m) * PARTS / m).long()
    by_part = torch.stack([(overall * m)[places == part].mean() for part in range(PARTS)])
    return torch.stack([overall.max() / overall.min().clamp(min=1e-12), focus]), by_part


def run(training: Training = SHORT, kinds: tuple[str, str] = KINDS) -> Measured:
    """Take the gradient of each word that is written with respect to each word that was read.

    kinds: the translator without attention, and one to compare it with
    """
    long = (pair for pair in held_out_pairs(4 * WORDS) if len(pair.source.split()) >= 8 and "'" not in pair.target)
    pairs = list(islice(long, WORDS))

    def of_model(model: Seq2Seq) -> Tensor:
        described, parts = zip(*map(describe, pairs, influence(model, pairs)), strict=True)
        return torch.cat([torch.stack(described).median(0).values, torch.stack(parts).mean(0)])

    models = zip(*map(training.translators, kinds), strict=True)  # of each seed
    measured = torch.stack([grid(of_model, both) for both in models])  # (seeds, kinds, ratio and focus and parts)
    parts = measured[..., 2:]
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
    return numbers, single(say("measurement"), *lines, equal, x=axis, y=say("influence ÷ equal share"))


def judge(numbers: Numbers) -> Criteria:
    """Equal weight would be a ratio of 1, and no focus a factor of 1."""
    yield numbers.criterion(max(numbers.ratios) < 1.5, say("every word the same"))
    yield numbers.criterion(max(numbers.focus) < 1.1, say("no focus"))


def draw(cell: Cell) -> Chart:
    """The shares of the words in an untrained encoder's last state."""
    share = Line(range(1, cell.words + 1), cell.share, say("share of the influence on c"), "pooled", dots=True)
    equal = Line([1, cell.words], [1 / cell.words] * 2, say("equal weight"), "ink", style="dashed")
    return single(say("cell"), share, equal, x=say("word of the sentence"), y=say("share"))


SECTION = section(say, draw, judge, run, **stages(KINDS))
