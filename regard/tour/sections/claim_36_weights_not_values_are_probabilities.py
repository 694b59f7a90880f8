"""Claim 36: f(x) outputs a probability distribution."""

import torch

import regard
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Bars, Chart, Line, Mark, Panel

say = Content(__file__)


def measure(shift: float = 0.0, classes: bool = False) -> Measured:
    """The weights and the output, for the notes' samples moved by `shift`, or for values that are themselves
    distributions: one of two classes, above and below the mean."""
    sums, lows, outputs = [], [], []
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)
        high = (y > y.mean()).double()
        values = torch.cat([high, 1 - high], 1) if classes else y + shift  # (50, 2) or (50, 1)
        output, weights = regard.attend(curve.GRID, x, values, score=regard.Kernel("gaussian"), need_weights=True)
        sums.append((weights.sum(-1) - 1).abs().max())
        lows.append(weights.min())
        outputs.append(output)  # (101, 1 or 2)
    output = torch.stack(outputs)
    return Numbers(
        off_one=torch.stack(sums).max(),
        smallest=torch.stack(lows).min(),
        lowest=output.min(),
        highest=output.max(),
        output_off_one=(output.sum(-1) - 1).abs().max(),
        seeds=len(outputs),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """The weights are a distribution; whether the output is one, the output shows."""
    yield numbers.identity(numbers.smallest >= 0 and numbers.off_one <= 1e-12, say("weights"))
    yield numbers.correction(numbers.lowest < 0 or numbers.output_off_one > 1e-6, say("output"))


def draw(cell: Cell) -> Chart:
    """One row of weights, and f."""
    weights: list[Mark] = [Bars([""] * 50, cell.attention[50], say("weights for x = 2.5"), "attention")]
    output: list[Mark] = [
        Line(cell.x, cell.f, "f(x)", "truth"),
        Line([0, 5], [1, 1], say("the sum of a distribution"), "ink", style="dotted"),
    ]
    return Chart([Panel(weights, x=say("sample")), Panel(output, x="x", y="f(x)")], say("cell"))


SECTION = Section(**say.fields, show=draw, run=measure, judge=judge)
