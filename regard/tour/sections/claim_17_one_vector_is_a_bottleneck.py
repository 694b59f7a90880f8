"""Claim 17: one context vector is a bottleneck as inputs grow; attention removes it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.pairs import Pair
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.tour.translators import PATIENCE, SHORT, Training, held_out_pairs, quality, stages, translator
from regard.view.chart import Chart, Heat, Line, Panel

say = Content(__file__)

LENGTHS = ((5, 6), (7, 8), (9, 10), (11, 12), (13, 14))  # English words
MIDDLES = [(low + high) / 2 for low, high in LENGTHS]
KINDS = ("none", "additive")
LEARNED = 95.0  # BLEU


def run(training: Training = SHORT, kinds: tuple[str, str] = KINDS) -> Measured:
    """The same encoder–decoder without and with attention; without, it is trained longer."""
    pairs = held_out_pairs(training.pairs)
    groups = [*by_length(pairs), pairs]
    scores = torch.zeros(len(training.seeds), len(kinds), len(groups))  # the last group has all lengths
    for row, seed in enumerate(training.seeds):
        for column, kind in enumerate(kinds):
            model = translator(kind, seed, training.steps)
            scores[row, column] = torch.tensor([quality(model, group) for group in groups])
    slopes = slope(scores[..., :-1])  # (seeds, kinds)
    flatter = slopes[:, 1] - slopes[:, 0]
    numbers = Numbers(
        slopes_without=slopes[:, 0],
        slopes_attention=slopes[:, 1],
        flatter=flatter.mean(),
        spread=flatter.std(),
        without=scores[:, 0, :-1].mean(0),
        attention=scores[:, 1, :-1].mean(0),
        overall_without=scores[:, 0, -1],
        overall_attention=scores[:, 1, -1],
        shortest=scores[..., 0].min(),
        words_from=[low for low, _ in LENGTHS],
        patience=PATIENCE,
    )
    names = ((say("one vector for all"), "pooled"), (say("additive attention"), "attention"))
    lines = [
        Line(MIDDLES, by_length, name, colour, dots=True)
        for kind, (name, colour) in enumerate(names)
        for by_length in scores[:, kind, :-1]
    ]
    panel = Panel(lines, x=say("words of the English sentence"), y="BLEU", y_limits=(0, 105))
    return numbers, Chart([panel], caption=say("measurement"))


def by_length(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Those whose English sentence has as many words."""
    return [[pair for pair in pairs if low <= len(pair.source.split()) <= high] for low, high in LENGTHS]


def slope(scores: Tensor) -> Tensor:
    """BLEU for each word more: the straight line through scores (…, lengths) by least squares."""
    away = torch.tensor(MIDDLES) - sum(MIDDLES) / len(MIDDLES)
    return (scores * away).sum(-1) / away.square().sum()


def judge(numbers: Numbers) -> Criteria:
    """Without attention quality must fall with length, though short sentences are learned; with it the fall is gone."""
    yield numbers.criterion(
        max(numbers.slopes_without) < 0 and numbers.flatter > numbers.spread and numbers.shortest >= LEARNED,
        say("falls with length"),
    )
    yield numbers.criterion(
        min(numbers.overall_attention) >= LEARNED and numbers.attention[-1] >= LEARNED, say("attention removes it")
    )


def draw(cell: Cell) -> Chart:
    """Where the decoder looks while it translates two strings."""
    panels = []
    for row in range(2):
        target, source = (list(map(str, digits[row].tolist())) for digits in (cell.target, cell.source))
        heat = Heat(cell.maps[row].detach(), rows=target, columns=source)
        panels.append(Panel([heat], x=say("digit that was read"), y=say("digit that is written")))
    return Chart(panels, caption=say("cell", accuracy=cell.accuracy))


SECTION = Section(**say.fields, **stages(run, KINDS), show=draw, judge=judge)
