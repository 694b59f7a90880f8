"""Claim 2: averaging all y gives a flat line without any trend."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.data import curve
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Average 50 noisy samples, and compare with the curve they are from."""
    truth = curve.truth(curve.GRID)
    average = regard.Kernel("constant")  # every sample scores the same
    lines = []
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)
        lines.append(regard.attend(curve.GRID, x, y, score=average))
    line = torch.stack(lines)  # (seeds, queries, 1)
    errors = (line - truth).square().mean((1, 2))
    numbers = Numbers(
        variance=line.var(1, correction=0).max(),
        truth_variance=truth.var(correction=0),
        error=errors.mean(),
        spread=errors.std(),
    )
    return numbers, partial(draw, *curve.samples(50), lines[0])


def judge(numbers: Numbers) -> Criteria:
    """Flat, and therefore blind to all that the curve does."""
    yield numbers.criterion(
        numbers.variance <= 1e-24,
        "The line's variance over x must be 0 (10⁻²⁴ for rounding): it is {variance}.",
        "直线沿 x 的方差应为 0（舍入误差容许 10⁻²⁴）：测得 {variance}。",
    )
    yield numbers.criterion(
        numbers.error >= numbers.truth_variance > 0,
        "A line without trend leaves at least the whole variance of the truth, {truth_variance}, as error: it is "
        "{error} ± {spread}.",
        "没有趋势的直线，误差至少等于真实曲线的全部方差 {truth_variance}：测得 {error} ± {spread}。",
    )


def draw(x: Tensor, y: Tensor, line: Tensor) -> Figure:
    """Samples, truth and the flat line."""
    figure = pictures.figure()
    axes = figure.subplots()
    axes.plot(curve.GRID, curve.truth(curve.GRID), color=pictures.TRUTH, label="truth, 2 sin x + x$^{0.8}$")
    axes.plot(x, y, "o", color=pictures.SAMPLES, markersize=5, label="50 noisy samples")
    axes.plot(curve.GRID, line, color=pictures.POOLED, label="average pooling")
    axes.set(xlabel="x", ylabel="y", xlim=(-0.08, 5.08))
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=2,
    notes=("000",),
    title=Text("The average of all y is a flat line", "对所有 y 取平均只得到一条水平线"),
    claim=Text(
        "Averaging all yᵢ, whatever x is asked for, gives a horizontal line without any trend.",
        "无论查询的 x 是什么都对所有 yᵢ 取平均，得到的是一条水平的直线，没有任何趋势。",
    ),
    idea=Text(
        "Regression is a question too: the query is a new x, the keys are the xᵢ that were seen, the values are "
        "their yᵢ. Average pooling is the simplest answer. It does not look at x, so it cannot know where on the "
        "curve it is.",
        "回归也是一种查询：查询是新的 x，键是见过的 xᵢ，值是对应的 yᵢ。平均池化是最简单的回答。它不看 x，也就无从知道"
        "自己在曲线的哪个位置。",
    ),
    formula="f(x) = (1/n) Σᵢ yᵢ",
    caption=Text(
        "Fifty noisy samples of a curve that rises and falls, the curve itself, and average pooling: a horizontal line "
        "through the middle of the samples.",
        "一条先升后降的曲线、它的五十个带噪声样本，以及平均池化的结果：穿过样本中间的一条水平线。",
    ),
    meanings={
        "variance": Text("variance of the line over x", "直线沿 x 的方差"),
        "truth_variance": Text("variance of the true curve over x", "真实曲线沿 x 的方差"),
        "error": Text("mean squared error against the truth, mean of 5 seeds", "相对真值的均方误差，5 个种子的均值"),
        "spread": Text("its standard deviation over the seeds", "该误差在种子间的标准差"),
    },
    deciding="variance",
    run=run,
    judge=judge,
)
