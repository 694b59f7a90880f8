"""Claim 2: averaging all y gives a horizontal line without any trend."""

import torch

import regard
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, single
from regard.view.chart import Chart, Dots, Line

say = Content(__file__)


def measure(kernel: str = "constant") -> Measured:
    """The average of the samples as attention, at 101 places, for five draws."""
    truth = curve.truth(curve.GRID)
    drawn = [curve.samples(50, seed) for seed in curve.SEEDS]
    score = regard.Kernel(kernel)
    lines = torch.stack([regard.attend(curve.GRID, x, y, score=score) for x, y in drawn])  # (seeds, 101, 1)
    means = torch.stack([y.mean() for _, y in drawn])
    return Numbers(
        rise=(lines.amax(1) - lines.amin(1)).max(),
        off_mean=(lines[..., 0] - means[:, None]).abs().max(),
        truth_rise=truth.max() - truth.min(),
        error=(lines - truth).square().mean(),
        truth_variance=truth.var(correction=0),
        seeds=len(drawn),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """The same number for every query."""
    yield numbers.identity(numbers.rise <= 1e-12 and numbers.off_mean <= 1e-12, say("flat"))
    yield numbers.identity(numbers.error >= numbers.truth_variance, say("no trend"))


def draw(cell: Cell) -> Chart:
    """The samples and the line."""
    samples = Dots(cell.x_i, cell.y_i, say("50 noisy samples"), "samples")
    truth = Line(cell.x, 2 * torch.sin(cell.x) + cell.x**0.8, say("truth"), "truth")
    average = Line(cell.x, cell.line, say("average of all y"), "pooled")
    return single(say("cell"), samples, truth, average, x="x", y="y", x_limits=(-0.08, 5.08))


SECTION = section(say, draw, judge, measure)
