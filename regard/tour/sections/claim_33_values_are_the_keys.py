"""Claim 33: VALUE is in general the same as KEY."""

from collections.abc import Sequence

import torch

from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.tour.translators import SHORT, Training, held_out_pairs, quality, stages, translator
from regard.view.chart import Bars, Chart, Heat, Panel

say = Content(__file__)

KINDS = ("additive", "separate")


def run(training: Training = SHORT, kinds: Sequence[str] = KINDS) -> Measured:
    """The same encoder–decoder with VALUE = KEY, and with values from a matrix of their own."""
    pairs = held_out_pairs(training.pairs)
    scores = torch.tensor([[quality(translator(k, s, training.steps), pairs) for s in training.seeds] for k in kinds])
    shared, separate = scores  # (seeds,) each
    numbers = Numbers(
        shared=shared,
        separate=separate,
        gain=(separate - shared).mean(),
        spread=scores.std(1).max(),
        worst=shared.min(),
        seeds=len(training.seeds),
    )
    names = [say("seed {seed}", seed=seed) for seed in range(scores.shape[1])]
    labels = (say("VALUE = KEY"), say("a matrix for the values"))
    bars = [Bars(names, row, label) for row, label in zip(scores, labels, strict=True)]
    return numbers, Chart([Panel(bars, y="BLEU")], caption=say("measurement"), height=220)


def judge(numbers: Numbers) -> Criteria:
    """Sharing must do; that it costs nothing is measured, too."""
    yield numbers.criterion(numbers.worst >= 95, say("shared"))
    yield numbers.criterion(numbers.gain <= numbers.spread, say("separate brings nothing"))


def draw(cell: Cell) -> Chart:
    """The weights in both cases, and the two results."""
    rows = [say("VALUE = KEY"), say("two matrices")]
    heat = Panel([Heat(cell.both_weights, rows=rows)], x=say("state of the encoder"))
    numbers = [str(number) for number in range(16)]
    bars = [
        Bars(numbers, cell.separate[0], say("values by their own matrix")),
        Bars(numbers, cell.folded[0], say("the matrix behind the mean")),
    ]
    return Chart([heat, Panel(bars, x=say("number of the result"), share=1.5)], caption=say("cell"))


SECTION = Section(**say.fields, **stages(run, KINDS), show=draw, judge=judge)
