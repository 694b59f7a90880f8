"""Claim 36: f(x) outputs a probability distribution."""

import torch
from torch import Tensor

import regard
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section
from regard.view.chart import Bars, Chart, Line, Panel

say = Content(__file__)


def measure(shift: float = 0.0, classes: bool = False) -> Measured:
    """The weights and the output, for the notes' samples moved by `shift`, or for values that are themselves
    distributions: one of two classes, above and below the mean."""

    def of_seed(seed: int) -> list[Tensor]:
        x, y = curve.samples(50, seed)
        high = (y > y.mean()).double()
        values = torch.cat([high, 1 - high], 1) if classes else y + shift  # (50, 2) or (50, 1)
        output, weights = regard.attend(curve.GRID, x, values, score=regard.Kernel("gaussian"), need_weights=True)
        off, output_off = ((part.sum(-1) - 1).abs().max() for part in (weights, output))
        return [off, output_off, output.max(), output.min(), weights.min()]

    measured = grid(of_seed, curve.SEEDS)
    largest = dict(zip(("off_one", "output_off_one", "highest"), measured[:, :3].amax(0), strict=True))
    least = dict(zip(("lowest", "smallest"), measured[:, 3:].amin(0), strict=True))
    return Numbers(**largest, **least, seeds=len(curve.SEEDS)), None


def judge(numbers: Numbers) -> Criteria:
    """The weights are a distribution; whether the output is one, the output shows."""
    yield numbers.identity(numbers.smallest >= 0 and numbers.off_one <= 1e-12, say("weights"))
    yield numbers.correction(numbers.lowest < 0 or numbers.output_off_one > 1e-6, say("output"))


def draw(cell: Cell) -> Chart:
    """One row of weights, and f."""
    weights = Bars([""] * 50, cell.attention[50], say("weights for x = 2.5"), "attention")
    output = Line(cell.x, cell.f, "f(x)", "truth")
    whole = Line([0, 5], [1, 1], say("the sum of a distribution"), "ink", style="dotted")
    return Chart([Panel([weights], say("sample")), Panel([output, whole], "x", "f(x)")], say("cell"))


SECTION = section(say, draw, judge, measure)
