"""Claim 4: the curve without parameters is too smooth; enough data would bring out the true one."""

from collections.abc import Sequence

import numpy
import torch
from torch import Tensor

from regard import KernelRegressor
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Text, section, with_spread
from regard.view.chart import Chart, Line, Panel

say = Content(__file__)

COUNTS = (50, 500, 5_000, 50_000)
WIDTHS = numpy.geomspace(0.025, 0.4, 9).tolist()  # a factor of √2 from one to the next
SEEDS = 3
COLOURS = ("pooled", "attention")  # of the fixed width, and of the chosen one


def roughness(curves: Tensor) -> Tensor:
    """How much curves (…, grid, 1) bend: the mean square of their second differences."""
    return curves.diff(n=2, dim=-2).square().mean((-2, -1))


def measure(width: float = 1.0, counts: Sequence[int] = COUNTS) -> Measured:
    """Ten, a hundred, a thousand times as many samples, at the fixed width and at one chosen by leave-one-out."""
    truth = curve.truth(curve.GRID)
    curves = torch.zeros(2, len(counts), SEEDS, len(truth), 1).double()  # (fixed or chosen, counts, seeds, 101, 1)
    widths = torch.zeros(len(counts), SEEDS)
    for row, count in enumerate(counts):
        for seed in range(SEEDS):
            x, y = curve.samples(count, seed)
            candidates = (KernelRegressor(bandwidth=candidate).fit(x, y) for candidate in WIDTHS)
            chosen = min(candidates, key=lambda model: model.loo_error_)  # predicts every sample best from the others
            widths[row, seed] = float(chosen.bandwidth_[0])
            for rule, model in enumerate((KernelRegressor(bandwidth=width).fit(x, y), chosen)):
                curves[rule, row, seed] = torch.from_numpy(model.predict(curve.GRID))
    errors = (curves - truth).square().mean((-2, -1))  # (fixed or chosen, counts, seeds)
    numbers = Numbers(
        counts=counts,
        **with_spread(bent=roughness(curves[0, 0]) / roughness(truth)),
        fixed_errors=errors[0].mean(-1),
        chosen_errors=errors[1].mean(-1),
        chosen_spreads=errors[1].std(-1),
        widths=widths.mean(-1),
        fixed_distance=errors[0, -1].mean().sqrt(),
        chosen_distance=errors[1, -1].mean().sqrt(),
        width=width,
        seeds=SEEDS,
    )
    names = say("width {width:g}", width=width), say("width by leave-one-out")
    fitted = [  # from the most samples
        Line(curve.GRID, line, name, colour, style="dashed")
        for name, colour, line in zip(names, COLOURS, curves[:, -1, 0], strict=True)
    ]
    title = say("from {count} samples", count=f"{counts[-1]:,}")
    left = Panel([Line(curve.GRID, truth, say("truth"), "truth"), *fitted], x="x", y="y", title=title)
    return numbers, Chart([left, error_panel(counts, errors.mean(-1), names)], say("measurement"))


def error_panel(counts: Sequence[int], errors: Sequence[Tensor] | Tensor, names: Sequence[Text]) -> Panel:
    """Errors (fixed or chosen, counts) by the number of samples."""
    kinds = zip(errors, names, COLOURS, strict=True)
    lines = [Line(counts, error, name, colour, dots=True) for error, name, colour in kinds]
    return Panel(lines, say("number of samples"), say("mean squared error"), x_log=True, y_log=True)


def judge(numbers: Numbers) -> Criteria:
    """Too smooth first; then whether data cure it, at the width that the notes have and at one that may change."""
    yield numbers.criterion(numbers.bent + numbers.bent_spread <= 0.5, say("too smooth"))
    yield numbers.criterion(numbers.fixed_distance <= 0.05, say("more data"))
    yield numbers.criterion(numbers.chosen_distance <= 0.05, say("more data and a narrower width"))


def draw(cell: Cell) -> Chart:
    """The errors of the cell."""
    names = say("fixed width"), say("width by leave-one-out")
    return Chart([error_panel(cell.counts, (cell.errors, cell.chosen_errors), names)], say("cell"), 220)


SECTION = section(say, draw, judge, measure, rehearsal=(1.0, (50, 200)))
