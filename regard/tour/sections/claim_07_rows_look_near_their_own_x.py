"""Claim 7: row i of the map holds the weights for query i, dark near its own x."""

from itertools import pairwise

from torch import Tensor

import regard
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section
from regard.view.chart import Band, Chart, Dots, Heat, Line, Panel

say = Content(__file__)

WIDTHS = (0.1, 0.3, 1.0)
SEEDS = 5


def measure(kernel: str = "gaussian") -> Measured:
    """Where the weights of 50 queries lie, at three widths, for five draws of the samples."""

    def of_one(seed: int, width: float) -> list[Tensor]:
        x, y = curve.samples(50, seed)  # sorted by x
        score = regard.Kernel(kernel, width)
        weights = regard.weights(x, x, score=score)  # (50 queries, 50 samples)
        within = (x - x.T).abs() <= width
        return [
            (weights * within).sum(1).mean(),
            within.double().mean(),
            (1 / weights.square().sum(1)).mean(),
            weights.amax(1).mean(),
            (weights @ y - regard.attend(x, x, y, score=score)).abs().max(),
        ]

    near, share, effective, largest, off = grid(of_one, range(SEEDS), WIDTHS).unbind(-1)
    return Numbers(
        widths=WIDTHS,
        near=near.mean(0),
        share=share.mean(0),
        gain=(near - share).mean(0),
        spread=(near - share).std(0),
        effective=effective.mean(0),
        largest=largest.mean(0),
        off_prediction=off.max(),
        seeds=SEEDS,
    ), None


def judge(numbers: Numbers) -> Criteria:
    """Rows make the predictions; they are dark near their own x; and a window can be told by its colours."""
    yield numbers.identity(numbers.off_prediction <= 1e-12, say("rows predict"))
    yield numbers.criterion(
        all(gain > 2 * spread for gain, spread in zip(numbers.gain, numbers.spread, strict=True)), say("dark near x")
    )
    yield numbers.criterion(
        all(few < many for few, many in pairwise(numbers.effective))
        and all(dark > pale for dark, pale in pairwise(numbers.largest)),
        say("pale and broad"),
    )


def draw(cell: Cell) -> Chart:
    """The map, and one of its rows against x."""
    places, row = cell.x_i, cell.heat[cell.row]
    low, high = float(places[cell.row] - cell.width), float(places[cell.row] + cell.width)
    band = Band([low, high], [0, 0], [float(row.max())] * 2, say("one width around its x"), "truth")
    line = Line(places, row, say("row {row}", row=cell.row), "attention")
    left = Panel([Heat(cell.heat, marked=[(cell.row, cell.row)])], say("sample j"), say("query i"))
    dots = Dots(places, row, colour="attention")
    right = Panel([band, line, dots], say("x of the samples"), say("weight"), x_limits=(-0.1, 5.1))
    return Chart([left, right], say("cell", width=cell.width, row=cell.row))


SECTION = section(say, draw, judge, measure)
