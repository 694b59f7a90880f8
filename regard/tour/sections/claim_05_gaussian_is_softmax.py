"""Claim 5: Nadaraya–Watson regression with a Gaussian kernel is softmax attention with score −½(x − x_i)²."""

import math

import torch
from torch import Tensor

import regard
from regard.data import curve
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Chart, Dots, Line, Mark, Panel

say = Content(__file__)


def ratio_of_sums(query: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The estimate as Nadaraya and Watson wrote it."""
    kernel = torch.exp(-(query - x.T).square() / 2) / math.sqrt(2 * math.pi)  # (queries, samples)
    return (kernel @ y) / kernel.sum(-1, keepdim=True)


def run() -> Measured:
    """The same estimate in three ways, in float64, for five draws of the samples."""
    softmax, attended = [], []
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)
        ratio = ratio_of_sums(curve.GRID, x, y)
        softmax.append((torch.softmax(-(curve.GRID - x.T).square() / 2, -1) @ y - ratio).abs().max())
        attended.append((regard.attend(curve.GRID, x, y, score=regard.Kernel("gaussian")) - ratio).abs().max())
    return Numbers(softmax=torch.stack(softmax).max(), attend=torch.stack(attended).max(), seeds=len(softmax)), None


def judge(numbers: Numbers) -> Criteria:
    """The same to rounding."""
    yield numbers.identity(numbers.softmax <= 1e-12, say("ratio and softmax"))
    yield numbers.identity(numbers.attend <= 1e-12, say("attend"))


def draw(cell: Cell) -> Chart:
    """Both ways on top of each other, and what is left between them."""
    both: list[Mark] = [
        Line(cell.queries, cell.as_ratio, say("ratio of kernel sums"), "truth"),
        Dots(cell.queries[::5], cell.as_softmax[::5], "softmax", "attention"),
    ]
    gap = [Dots(cell.queries, (cell.as_ratio - cell.as_softmax).abs(), say("their difference"), "other", 2)]
    return Chart([Panel(both, x="x", y="f(x)"), Panel(gap, x="x", y="|Δ|", y_log=True)], say("cell"))


SECTION = Section(**say.fields, show=draw, run=run, judge=judge)
