"""Claim 10: K measures a distance, and there are several kernels to choose from."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

import regard
from regard import KernelRegressor
from regard.attention.kernels import KERNELS
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section, single, with_spread
from regard.view.chart import Bars, Chart, Dots, Line, Panel

say = Content(__file__)

LOCAL = tuple(name for name in KERNELS if name != "constant")
SEEDS = 5


def error(name: str, seed: int, noise: float) -> Tensor:
    """Mean squared error of a kernel against the truth, at its own leave-one-out width."""
    model = KernelRegressor(name, bandwidth="loo").fit(*curve.samples(50, seed, noise))
    return (torch.from_numpy(model.predict(curve.GRID)) - curve.truth(curve.GRID)).square().mean()


def measure(names: Sequence[str] = LOCAL, noise: float = 0.5) -> Measured:
    """Which way each kernel goes with distance, and how well each of them serves."""
    errors = grid(partial(error, noise=noise), [*names, "constant"], range(SEEDS))  # (kernels, seeds)
    measured, constant = errors[:-1], errors[-1]
    distance = torch.linspace(0, 2, 201, dtype=torch.float64)[:, None]  # from the query
    steps = torch.stack([regard.Kernel(name)(distance[:1], distance)[0].exp().diff() for name in names])
    means, spreads = measured.mean(1), measured.std(1)
    numbers = Numbers(
        kernels=len(names),
        rising=(steps > 0).sum(),
        falling=(steps < 0).any(1).sum(),
        best=means.min(),
        worst=means.max(),
        spread=spreads.max(),
        **with_spread(average=constant),
        wins=(measured < constant).sum(),
        pairs=measured.numel(),
    )
    bars = Bars([*names, "constant"], errors.mean(1), colour="attention", spread=errors.std(1))
    return numbers, single(say("measurement", seeds=SEEDS), bars, y=say("mean squared error"))


def judge(numbers: Numbers) -> Criteria:
    """There is a choice: each kernel serves. And K goes down with distance."""
    yield numbers.criterion(
        numbers.wins == numbers.pairs and numbers.worst + numbers.spread < numbers.average, say("every kernel serves")
    )
    yield numbers.correction(numbers.rising == 0 and numbers.falling == numbers.kernels, say("similarity"))


def draw(cell: Cell) -> Chart:
    """The shape of the chosen kernel, and the curve that it gives."""
    away = torch.linspace(-2, 2, 201)
    shape = Line(away, cell.K(away), cell.kernel, "attention")
    samples = Dots(cell.x_i, cell.y_i, say("noisy samples"), "samples")
    truth = Line(cell.x, cell.truth, say("truth"), "truth")
    fitted = Line(cell.x, cell.curve_by_kernel, cell.kernel, "attention")
    right = Panel([samples, truth, fitted], "x", "y", share=1.6)
    return Chart([Panel([shape], "u", "K(u)", y_limits=(0, 1.1)), right], say("cell"))


SECTION = section(say, draw, judge, measure)
