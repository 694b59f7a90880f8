"""Claim 33: VALUE is in general the same as KEY."""

from collections.abc import Sequence

from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, single
from regard.tour.translators import SHORT, Training, qualities, stages
from regard.view.chart import Bars, Chart, Heat, Panel

say = Content(__file__)

KINDS = ("additive", "separate")


def run(training: Training = SHORT, kinds: Sequence[str] = KINDS) -> Measured:
    """The same encoder–decoder with VALUE = KEY, and with values from a matrix of their own."""
    scores = qualities(kinds, training)
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
    return numbers, single(say("measurement"), *bars, y="BLEU", height=220)


def judge(numbers: Numbers) -> Criteria:
    """Sharing must do; that it costs nothing is measured, too."""
    yield numbers.criterion(numbers.worst >= 95, say("shared"))
    yield numbers.criterion(numbers.gain <= numbers.spread, say("separate brings nothing"))


def draw(cell: Cell) -> Chart:
    """The weights in both cases, and the two results."""
    heat = Heat(cell.both_weights, rows=[say("VALUE = KEY"), say("two matrices")])
    numbers = [str(number) for number in range(16)]
    bars = [
        Bars(numbers, cell.separate[0], say("values by their own matrix")),
        Bars(numbers, cell.folded[0], say("the matrix behind the mean")),
    ]
    panels = Panel([heat], say("state of the encoder")), Panel(bars, say("number of the result"), share=1.5)
    return Chart(panels, say("cell"))


SECTION = section(say, draw, judge, run, **stages(KINDS))
