"""Claim 3: weighting by distance (Nadaraya–Watson) follows the trend."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.data import curve
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Weight the samples by distance, next to their average, in five seeds."""
    truth = curve.truth(curve.GRID)
    gaussian = regard.Kernel("gaussian", width=1.0)
    curves, averages = [], []
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)
        curves.append(regard.attend(curve.GRID, x, y, score=gaussian))
        averages.append(regard.average_pool(y))
    kernel_errors = (torch.stack(curves) - truth).square().mean((1, 2))
    average_errors = (torch.stack(averages) - truth).square().mean((1, 2))
    numbers = Numbers(
        ratio=kernel_errors.mean() / average_errors.mean(),
        kernel_error=kernel_errors.mean(),
        kernel_spread=kernel_errors.std(),
        average_error=average_errors.mean(),
        average_spread=average_errors.std(),
        wins=(kernel_errors < average_errors).sum(),
        seeds=len(curve.SEEDS),
    )
    return numbers, partial(draw, *curve.samples(50), curves, float(averages[0]))


def judge(numbers: Numbers) -> Criteria:
    """Better on the mean, and in every seed."""
    yield numbers.criterion(
        numbers.kernel_error < numbers.average_error,
        "The kernel's error, {kernel_error} ± {kernel_spread}, must be below average pooling's, {average_error} ± "
        "{average_spread}: it is {ratio} of it.",
        "高斯核的误差 {kernel_error} ± {kernel_spread} 应低于平均池化的 {average_error} ± {average_spread}：前者是后者"
        "的 {ratio} 倍。",
    )
    yield numbers.criterion(
        numbers.wins == numbers.seeds,
        "That must be so in every one of {seeds} seeds: it is so in {wins}.",
        "{seeds} 个种子中每一个都应如此：实际为 {wins} 个。",
    )


def draw(x: Tensor, y: Tensor, curves: list[Tensor], average: float) -> Figure:
    """The first seed in full, the others as thin lines."""
    figure = pictures.figure()
    axes = figure.subplots()
    axes.plot(curve.GRID, curve.truth(curve.GRID), color=pictures.TRUTH, label="truth")
    axes.plot(x, y, "o", color=pictures.SAMPLES, markersize=5, label="50 noisy samples")
    axes.axhline(average, color=pictures.POOLED, label="average pooling")
    for other in curves[1:]:
        axes.plot(curve.GRID, other, color=pictures.ATTENTION, linewidth=0.8, alpha=0.5)
    axes.plot(curve.GRID, curves[0], "--", color=pictures.ATTENTION, label="Gaussian kernel")
    axes.set(xlabel="x", ylabel="y", xlim=(-0.08, 5.08))
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=3,
    notes=("000", "003"),
    title=Text("Weighting by distance follows the trend", "按距离加权能跟上趋势"),
    claim=Text(
        "Weighting each yᵢ by how near its xᵢ is to the x that is asked for (Nadaraya–Watson regression) follows the "
        "trend of the data.",
        "按 xᵢ 与查询 x 的远近给每个 yᵢ 加权（Nadaraya–Watson 核回归），得到的曲线能跟上数据的趋势。",
    ),
    idea=Text(
        "Now the query is used: a sample counts more, the nearer it lies. The score is the logarithm of a kernel, here "
        "the Gaussian with width 1. Nothing is learned. The dashed curve is smoother than the truth, but it goes where "
        "the data go.",
        "现在查询派上了用场：样本离得越近，份量越重。评分是核函数的对数，这里用宽度为 1 的高斯核，没有任何可学习的参"
        "数。虚线比真实曲线平滑，但走向与数据一致。",
    ),
    formula="f(x) = Σᵢ  K(x − xᵢ) / Σⱼ K(x − xⱼ)  · yᵢ,     K(u) = exp(−u²/2)",
    caption=Text(
        "The same samples and truth. The dashed curve of the Gaussian kernel rises and falls with the truth, more "
        "gently; thin lines show the same for four other draws of the samples. Average pooling stays flat.",
        "同样的样本与真实曲线。高斯核的虚线随真实曲线起伏，只是更平缓；细线是另外四次抽样的结果。平均池化仍是水平线。",
    ),
    meanings={
        "ratio": Text("error of the kernel ÷ error of the average", "高斯核误差 ÷ 平均池化误差"),
        "kernel_error": Text("mean squared error, Gaussian kernel, mean of the seeds", "高斯核的均方误差，种子均值"),
        "kernel_spread": Text("its standard deviation over the seeds", "该误差在种子间的标准差"),
        "average_error": Text("mean squared error, average pooling, mean of the seeds", "平均池化的均方误差，种子均值"),
        "average_spread": Text("its standard deviation over the seeds", "该误差在种子间的标准差"),
        "wins": Text("seeds in which the kernel's error is the smaller", "高斯核误差更小的种子数"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="ratio",
    run=run,
    judge=judge,
)
