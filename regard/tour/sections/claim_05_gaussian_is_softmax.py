"""Claim 5: Nadaraya–Watson regression with a Gaussian kernel is softmax attention with score −½(x − x_i)²."""

import torch
from torch import Tensor

import regard
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section
from regard.view.chart import Chart, Dots, Line, Panel

say = Content(__file__)


def run() -> Measured:
    """The same estimate in three ways, in float64, for five draws of the samples."""

    def differences(seed: int) -> list[Tensor]:
        x, y = curve.samples(50, seed)
        scores = -(curve.GRID - x.T).square() / 2  # (queries, samples)
        kernel = torch.exp(scores) / (2 * torch.pi) ** 0.5
        ratio = (kernel @ y) / kernel.sum(-1, keepdim=True)  # as Nadaraya and Watson wrote it
        attended = regard.attend(curve.GRID, x, y, score=regard.Kernel("gaussian"))
        return [(other - ratio).abs().max() for other in (torch.softmax(scores, -1) @ y, attended)]

    softmax, attended = grid(differences, curve.SEEDS).amax(0)
    return Numbers(softmax=softmax, attend=attended, seeds=len(curve.SEEDS)), None


def judge(numbers: Numbers) -> Criteria:
    """The same to rounding."""
    yield numbers.identity(numbers.softmax <= 1e-12, say("ratio and softmax"))
    yield numbers.identity(numbers.attend <= 1e-12, say("attend"))


def draw(cell: Cell) -> Chart:
    """Both ways on top of each other, and what is left between them."""
    ratio = Line(cell.queries, cell.as_ratio, say("ratio of kernel sums"), "truth")
    softmax = Dots(cell.queries[::5], cell.as_softmax[::5], "softmax", "attention")
    gap = Dots(cell.queries, (cell.as_ratio - cell.as_softmax).abs(), say("their difference"), "other", 2)
    return Chart([Panel([ratio, softmax], x="x", y="f(x)"), Panel([gap], x="x", y="|Δ|", y_log=True)], say("cell"))


SECTION = section(say, draw, judge, run)
