"""Claim 20: cosine and other similarities can serve as the score."""

from collections.abc import Sequence
from functools import partial

import torch

from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.tour.translators import LONG, SHORT, Training, held_out_pairs, needed, quality, stages, translator
from regard.view.chart import Bars, Chart, Heat, Panel

say = Content(__file__)

SCORES = ("additive", "bilinear", "cosine", "dot")
ALL_SCORES = (*SCORES, "gaussian")
LEARNED = 95.0  # BLEU


def run(training: Training = SHORT, scores: Sequence[str] = SCORES) -> Measured:
    """The same translator with one score after the other, as many steps each."""
    pairs = held_out_pairs(training.pairs)
    bleu = torch.tensor(
        [[quality(translator(s, seed, training.steps), pairs) for seed in training.seeds] for s in scores]
    )
    cosine = bleu[scores.index("cosine")]
    numbers = Numbers(
        cosine=cosine,
        scores=bleu.mean(1),
        spreads=bleu.std(1),
        worst=bleu.mean(1).min(),
        below=bleu.mean(1).max() - cosine.mean(),
        spread=bleu.std(1).max(),
        seeds=len(training.seeds),
    )
    names = list(map(say, scores))
    bars = [Bars(names, row, say("seed {seed}", seed=seed)) for seed, row in enumerate(bleu.T)]
    return numbers, Chart([Panel(bars, y="BLEU")], caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Cosine must do, and so must the others."""
    yield numbers.criterion(sum(numbers.cosine) / len(numbers.cosine) >= LEARNED, say("cosine learns"))
    yield numbers.criterion(numbers.worst >= LEARNED, say("all learn"))
    yield numbers.criterion(numbers.below <= numbers.spread, say("not behind"))


def draw(cell: Cell) -> Chart:
    """The weights of the three similarities."""
    titles = {"dot": "dot product", "cosine": "cosine", "distance": "distance"}
    marked = list(enumerate(cell.asked.tolist()))
    panels = [
        Panel([Heat(weight, marked=marked)], title=say(titles[name]), x=say("key"), y=say("query"))
        for name, weight in cell.weights.items()
    ]
    return Chart(panels, caption=say("cell"))


SECTION = Section(
    **say.fields,
    **stages(run, SCORES) | {"full": partial(run, LONG, ALL_SCORES), "full_needs": needed(ALL_SCORES, LONG)},
    show=draw,
    judge=judge,
)
