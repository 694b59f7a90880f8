"""Claim 39: a softmax-like normalisation of any kernel gives attention weights."""

from collections.abc import Callable

import torch
from torch import Tensor

import regard
from regard.attention.kernels import KERNELS
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section
from regard.view.chart import Chart, Line, Panel

say = Content(__file__)

# K itself, written without logarithms, beside regard's table of log K.
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": lambda u: torch.exp(-u.square() / 2),
    "laplace": lambda u: torch.exp(-u),
    "constant": torch.ones_like,
    "boxcar": lambda u: (u <= 1).to(u),
    "triangular": lambda u: (1 - u).clamp(min=0),
    "epanechnikov": lambda u: (1 - u.square()).clamp(min=0),
    "biweight": lambda u: (1 - u.square()).clamp(min=0) ** 2,
    "triweight": lambda u: (1 - u.square()).clamp(min=0) ** 3,
    "tricube": lambda u: (1 - u**3).clamp(min=0) ** 3,
    "cosine": lambda u: torch.cos(torch.pi / 2 * u.clamp(max=1)) * (u < 1),
}


def measure(scored: Callable[[Tensor], Tensor] = torch.log) -> Measured:
    """Every kernel normalised, as softmax(log K) and by `weights`, in float64, for five draws."""

    def differences(seed: int, name: str) -> list[Tensor]:
        x, _ = curve.samples(50, seed)
        kernel = SHAPES[name]((curve.GRID - x.T).abs())  # (101 queries, 50 samples)
        normalised = kernel / kernel.sum(-1, keepdim=True)
        others = torch.softmax(scored(kernel), -1), regard.weights(curve.GRID, x, score=regard.Kernel(name))
        return [(other - normalised).abs().max() for other in others]

    softmax, attended = grid(differences, curve.SEEDS, KERNELS).amax((0, 1))
    return Numbers(kernels=len(KERNELS), softmax=softmax, attended=attended, seeds=len(curve.SEEDS)), None


def judge(numbers: Numbers) -> Criteria:
    """K over the sum of K is the softmax of log K."""
    yield numbers.identity(numbers.softmax <= 1e-12, say("softmax of log K"))
    yield numbers.identity(numbers.attended <= 1e-12, say("regard"))


def draw(cell: Cell) -> Chart:
    """What each kernel gives to the samples for one query."""
    panels = [
        Panel([Line(cell.x_i, row, colour="attention", dots=True)], title=name, x_limits=(0, 5), y_limits=(0, 0.12))
        for name, row in cell.rows.items()
    ]
    return Chart(panels, say("cell"), height=150, columns=3)


SECTION = section(say, draw, judge, measure)
