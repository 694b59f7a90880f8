"""Claim 17: one context vector is a bottleneck as inputs grow; attention removes it."""

import torch

from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, single
from regard.tour.translators import PATIENCE, SHORT, Training, held_out_pairs, quality, stages
from regard.view.chart import Chart, Heat, Line, Panel

say = Content(__file__)

LENGTHS = ((5, 6), (7, 8), (9, 10), (11, 12), (13, 14))  # English words
MIDDLES = [(low + high) / 2 for low, high in LENGTHS]
KINDS = ("none", "additive")
LEARNED = 95.0  # BLEU


def run(training: Training = SHORT, kinds: tuple[str, str] = KINDS) -> Measured:
    """The same encoder–decoder without and with attention; without, it is trained longer."""
    pairs = held_out_pairs(training.pairs)
    groups = [[pair for pair in pairs if low <= len(pair.source.split()) <= high] for low, high in LENGTHS]
    models = zip(*map(training.translators, kinds), strict=True)  # of each seed
    # (seeds, kinds, lengths and all of them)
    scores = torch.tensor(
        [[[quality(model, group) for group in (*groups, pairs)] for model in both] for both in models]
    )
    # BLEU for each word more, (seeds, kinds): the straight line through the scores by least squares
    away = torch.tensor(MIDDLES) - sum(MIDDLES) / len(MIDDLES)
    slopes = (scores[..., :-1] * away).sum(-1) / away.square().sum()
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
        Line(MIDDLES, row, name, colour, dots=True)
        for rows, (name, colour) in zip(scores[..., :-1].unbind(1), names, strict=True)
        for row in rows
    ]
    words = say("words of the English sentence")
    return numbers, single(say("measurement"), *lines, x=words, y="BLEU", y_limits=(0, 105))


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
    for target, source, weights in zip(cell.target[:2].tolist(), cell.source.tolist(), cell.maps, strict=False):
        heat = Heat(weights.detach(), rows=list(map(str, target)), columns=list(map(str, source)))
        panels.append(Panel([heat], say("digit that was read"), say("digit that is written")))
    return Chart(panels, say("cell", accuracy=cell.accuracy))


SECTION = section(say, draw, judge, run, **stages(KINDS))
