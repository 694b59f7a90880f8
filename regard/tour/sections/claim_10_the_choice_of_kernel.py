"""Claim 10: K measures a distance, and there are several kernels to choose from."""

from collections.abc import Sequence

import torch
from torch import Tensor

import regard
from regard import KernelRegressor
from regard.attention.kernels import KERNELS
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Bars, Chart, Dots, Line, Mark, Panel

say = Content(__file__)

LOCAL = tuple(name for name in KERNELS if name != "constant")
SEEDS = 5


def falls(name: str) -> tuple[int, int]:
    """In how many steps away from the query K rises, and in how many it falls."""
    distance = torch.linspace(0, 2, 201, dtype=torch.float64)[:, None]
    steps = regard.Kernel(name)(distance[:1], distance)[0].exp().diff()
    return int((steps > 0).sum()), int((steps < 0).sum())


def errors(names: Sequence[str], noise: float) -> Tensor:
    """Mean squared errors (kernels, seeds) against the truth, each kernel at its own leave-one-out width."""
    truth, measured = curve.truth(curve.GRID), torch.zeros(len(names), SEEDS).double()
    for seed in range(SEEDS):
        x, y = curve.samples(50, seed, noise)
        for row, name in enumerate(names):
            model = KernelRegressor(name, bandwidth="loo").fit(x, y)
            measured[row, seed] = (torch.from_numpy(model.predict(curve.GRID)) - truth).square().mean()
    return measured


def measure(names: Sequence[str] = LOCAL, noise: float = 0.5) -> Measured:
    """Which way each kernel goes with distance, and how well each of them serves."""
    measured, constant = errors(names, noise), errors(["constant"], noise)[0]
    steps = [falls(name) for name in names]
    means, spreads = measured.mean(1), measured.std(1)
    numbers = Numbers(
        kernels=len(names),
        rising=sum(up for up, _ in steps),
        falling=sum(down > 0 for _, down in steps),
        best=means.min(),
        worst=means.max(),
        spread=spreads.max(),
        average=constant.mean(),
        average_spread=constant.std(),
        wins=(measured < constant).sum(),
        pairs=measured.numel(),
    )
    bars = Bars(
        [*names, "constant"],
        [*means.tolist(), float(constant.mean())],
        colour="attention",
        spread=[*spreads.tolist(), float(constant.std())],
    )
    return numbers, Chart([Panel([bars], y=say("mean squared error"))], say("measurement", seeds=SEEDS))


def judge(numbers: Numbers) -> Criteria:
    """There is a choice: each kernel serves. And K goes down with distance."""
    yield numbers.criterion(
        numbers.wins == numbers.pairs and numbers.worst + numbers.spread < numbers.average, say("every kernel serves")
    )
    yield numbers.correction(numbers.rising == 0 and numbers.falling == numbers.kernels, say("similarity"))


def draw(cell: Cell) -> Chart:
    """The shape of the chosen kernel, and the curve that it gives."""
    away = torch.linspace(-2, 2, 201)
    shape: list[Mark] = [Line(away, cell.K(away), cell.kernel, "attention")]
    marks: list[Mark] = [
        Dots(cell.x_i, cell.y_i, say("noisy samples"), "samples"),
        Line(cell.x, cell.truth, say("truth"), "truth"),
        Line(cell.x, cell.curve_by_kernel, cell.kernel, "attention"),
    ]
    return Chart([Panel(shape, x="u", y="K(u)", y_limits=(0, 1.1)), Panel(marks, x="x", y="y", share=1.6)], say("cell"))


SECTION = Section(**say.fields, show=draw, run=measure, judge=judge)
