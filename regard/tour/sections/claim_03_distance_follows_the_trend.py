"""Claim 3: weighting by distance (Nadaraya–Watson) follows the trend."""

import torch

import regard
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, single, with_spread
from regard.view.chart import Band, Chart, Dots, Line

say = Content(__file__)


def measure(width: float = 1.0, noise: float = 0.5, seeds: int = 20) -> Measured:
    """The Gaussian against average pooling, on the same samples, with a noise of its own in every seed."""
    truth = curve.truth(curve.GRID)
    gaussian = regard.Kernel("gaussian", width)
    drawn = [curve.samples(50, seed, noise) for seed in range(seeds)]
    curves = torch.stack([regard.attend(curve.GRID, x, y, score=gaussian) for x, y in drawn])  # (seeds, 101, 1)
    averages = torch.stack([regard.average_pool(y) for _, y in drawn])  # (seeds, 1, 1)
    errors, average_errors = ((lines - truth).square().mean((1, 2)) for lines in (curves, averages))
    correlations = torch.stack([torch.corrcoef(torch.cat([fitted, truth], 1).T)[0, 1] for fitted in curves])
    numbers = Numbers(
        **with_spread(correlation=correlations, error=errors),
        average_error=average_errors.mean(),
        average_spread=average_errors.std(),
        wins=(errors < average_errors).sum(),
        seeds=seeds,
    )
    low, high = curves[..., 0].quantile(torch.tensor([0.1, 0.9]).double(), 0)
    band = Band(curve.GRID, low, high, say("weighted by distance, 80 % of the seeds"), "attention")
    line = Line(curve.GRID, truth, say("truth"), "truth")
    average = Line(curve.GRID, averages.mean().expand(101), say("average of all y"), "pooled", style="dashed")
    return numbers, single(say("measurement", seeds=seeds), band, line, average, x="x", y="y")


def judge(numbers: Numbers) -> Criteria:
    """It goes up and down with the truth, and is nearer to it than the average is."""
    yield numbers.criterion(numbers.correlation - numbers.correlation_spread >= 0.5**0.5, say("follows the trend"))
    yield numbers.criterion(
        numbers.wins == numbers.seeds and numbers.error + numbers.error_spread < numbers.average_error,
        say("nearer than the average"),
    )


def draw(cell: Cell) -> Chart:
    """The notes' first picture: samples, truth, the weighted curve, and the horizontal line of claim 2."""
    samples = Dots(cell.x_i, cell.y_i, say("noisy samples"), "samples")
    truth = Line(cell.x, cell.truth, say("truth"), "truth")
    average = Line(cell.x, cell.average, say("average of all y"), "pooled", style="dotted")
    fitted = Line(cell.x, cell.fitted, say("weighted by distance"), "attention", style="dashed")
    marks = (samples, truth, average, fitted)
    return single(say("cell"), *marks, x="x", y="y", x_limits=(-0.08, 5.08), height=300)


SECTION = section(say, draw, judge, measure)
