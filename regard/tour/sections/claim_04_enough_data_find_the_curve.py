"""Claim 4: the curve without parameters is too smooth; enough data would bring out the true one."""

from collections.abc import Sequence

import numpy
import torch
from torch import Tensor

from regard import KernelRegressor
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Chart, Line, Mark, Panel

say = Content(__file__)

COUNTS = (50, 500, 5_000, 50_000)
WIDTHS = numpy.geomspace(0.025, 0.4, 9).tolist()  # a factor of √2 from one to the next
SEEDS = 3


def roughness(curves: Tensor) -> Tensor:
    """How much curves (…, grid, 1) bend: the mean square of their second differences."""
    return curves.diff(n=2, dim=-2).square().mean((-2, -1))


def chosen_by_leaving_out(x: Tensor, y: Tensor) -> KernelRegressor:
    """The candidate that predicts every sample best from the others."""
    return min((KernelRegressor(bandwidth=width).fit(x, y) for width in WIDTHS), key=lambda model: model.loo_error_)


def measure(width: float = 1.0, counts: Sequence[int] = COUNTS) -> Measured:
    """Ten, a hundred, a thousand times as many samples, at the fixed width and at one chosen by leave-one-out."""
    truth = curve.truth(curve.GRID)
    curves = torch.zeros(2, len(counts), SEEDS, len(truth), 1).double()  # (fixed or chosen, counts, seeds, 101, 1)
    widths = torch.zeros(len(counts), SEEDS)
    for row, count in enumerate(counts):
        for seed in range(SEEDS):
            x, y = curve.samples(count, seed)
            models = KernelRegressor(bandwidth=width).fit(x, y), chosen_by_leaving_out(x, y)
            widths[row, seed] = float(models[1].bandwidth_[0])
            for rule, model in enumerate(models):
                curves[rule, row, seed] = torch.from_numpy(model.predict(curve.GRID))
    errors = (curves - truth).square().mean((-2, -1))  # (fixed or chosen, counts, seeds)
    numbers = Numbers(
        counts=counts,
        bent=(roughness(curves[0, 0]) / roughness(truth)).mean(),
        bent_spread=(roughness(curves[0, 0]) / roughness(truth)).std(),
        fixed_errors=errors[0].mean(-1),
        chosen_errors=errors[1].mean(-1),
        chosen_spreads=errors[1].std(-1),
        widths=widths.mean(-1),
        fixed_distance=errors[0, -1].mean().sqrt(),
        chosen_distance=errors[1, -1].mean().sqrt(),
        width=width,
        seeds=SEEDS,
    )
    # The curves of the most samples, and the errors on the way there.
    names = say("width {width:g}", width=width), say("width by leave-one-out")
    left: list[Mark] = [Line(curve.GRID, truth, say("truth"), "truth")]
    right: list[Mark] = []
    for name, colour, line, error in zip(names, ("pooled", "attention"), curves[:, -1, 0], errors, strict=True):
        left.append(Line(curve.GRID, line, name, colour, style="dashed"))
        right.append(Line(counts, error.mean(-1), name, colour, dots=True))
    title = say("from {count} samples", count=f"{counts[-1]:,}")
    return numbers, Chart([Panel(left, x="x", y="y", title=title), error_panel(right)], say("measurement"))


def error_panel(marks: list[Mark]) -> Panel:
    """Errors by the number of samples."""
    return Panel(marks, x=say("number of samples"), y=say("mean squared error"), x_log=True, y_log=True)


def judge(numbers: Numbers) -> Criteria:
    """Too smooth first; then whether data cure it, at the width that the notes have and at one that may change."""
    yield numbers.criterion(numbers.bent + numbers.bent_spread <= 0.5, say("too smooth"))
    yield numbers.criterion(numbers.fixed_distance <= 0.05, say("more data"))
    yield numbers.criterion(numbers.chosen_distance <= 0.05, say("more data and a narrower width"))


def draw(cell: Cell) -> Chart:
    """The errors of the cell."""
    marks: list[Mark] = [
        Line(cell.counts, cell.errors, say("fixed width"), "pooled", dots=True),
        Line(cell.counts, cell.chosen_errors, say("width by leave-one-out"), "attention", dots=True),
    ]
    return Chart([error_panel(marks)], say("cell"), 220)


SECTION = Section(**say.fields, show=draw, run=measure, rehearsal=lambda: measure(counts=(50, 200)), judge=judge)
