"""Claim 5: Nadaraya–Watson regression with a Gaussian kernel is softmax attention with score −½(x − xᵢ)²."""

import math
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.data import curve
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Write the same estimate in three ways."""
    x, y = curve.samples(50)  # float64
    difference = curve.GRID - x.T  # (queries, samples)

    kernel = torch.exp(-difference.square() / 2) / math.sqrt(2 * math.pi)
    ratio = (kernel @ y) / kernel.sum(-1, keepdim=True)

    softmax = regard.masked_softmax(-difference.square() / 2) @ y
    attended = regard.attend(curve.GRID, x, y, score=regard.Kernel("gaussian"))

    numbers = Numbers(
        softmax=(ratio - softmax).abs().max(),
        attend=(ratio - attended).abs().max(),
    )
    return numbers, partial(draw, ratio, attended)


def judge(numbers: Numbers) -> Criteria:
    """The same to rounding."""
    yield numbers.criterion(
        numbers.attend <= 1e-12,
        "The ratio of kernel sums and attend must agree to 10⁻¹²: they differ by {attend} at most.",
        "核函数和之比与 attend 的结果应一致到 10⁻¹²：最大相差 {attend}。",
    )
    yield numbers.criterion(
        numbers.softmax <= 1e-12,
        "So must the softmax of −½(x−xᵢ)² as the notes write it: it differs by {softmax} at most.",
        "与笔记中 softmax(−½(x−xᵢ)²) 的写法也应如此：最大相差 {softmax}。",
    )


def draw(ratio: Tensor, attended: Tensor) -> Figure:
    """Both curves on top of each other, and what is left between them."""
    figure = pictures.figure(height=2.9)
    both, left = figure.subplots(1, 2)
    both.plot(curve.GRID, ratio, color=pictures.TRUTH, linewidth=4, alpha=0.45, label="ratio of kernel sums")
    both.plot(curve.GRID[::5], attended[::5], "o", color=pictures.ATTENTION, markersize=4, label="attend")
    both.set(xlabel="x", ylabel="f(x)", title="two ways to write it", xlim=(0, 5))
    both.legend(loc="lower center")
    # A difference of exactly 0 has no place on a logarithmic axis: it is drawn at the bottom.
    gap = (ratio - attended).abs().clamp_min(3e-17)
    left.semilogy(curve.GRID, gap, "o", color=pictures.ATTENTION, markersize=3)
    left.minorticks_off()
    left.axhline(1e-12, color=pictures.OTHER, linestyle="--", linewidth=1.2)
    left.text(4.95, 1.8e-12, "allowed", color=pictures.OTHER, ha="right")
    left.set(xlabel="x", title="their difference", ylim=(1e-17, 1e-10), xlim=(0, 5))
    return figure


SECTION = Section(
    number=5,
    notes=("003",),
    title=Text("Gaussian kernel regression is a softmax", "高斯核回归就是 softmax"),
    claim=Text(
        "With a Gaussian kernel, the Nadaraya–Watson weights are softmax(−½(x − xᵢ)²).",
        "取高斯核时，Nadaraya–Watson 的权重就是 softmax(−½(x − xᵢ)²)。",
    ),
    idea=Text(
        "A kernel divided by the sum of kernels, and an exponential divided by the sum of exponentials: the same "
        "fraction, once the kernel is written as exp(log K). So every kernel is a score, score = log K, and a constant "
        "such as 1/√(2π) cancels. The two are computed separately here, in float64.",
        "核函数除以核函数之和，指数除以指数之和：只要把核写成 exp(log K)，这就是同一个分式。所以每个核都是一种评分函"
        "数，即 score = log K，而 1/√(2π) 这样的常数会被约掉。这里用 float64 分别计算两者。",
    ),
    formula="K(x − xᵢ) / Σⱼ K(x − xⱼ)  =  softmaxᵢ( log K(x − xᵢ) )  =  softmaxᵢ( −½(x − xᵢ)² )",
    caption=Text(
        "Left: the curve as a ratio of kernel sums, and attend's values on top of it. Right: their difference, around "
        "10⁻¹⁶ everywhere, far below the 10⁻¹² that is allowed.",
        "左：用核函数和之比得到的曲线，attend 的值落在其上。右：两者之差处处在 10⁻¹⁶ 左右，远低于允许的 10⁻¹²。",
    ),
    meanings={
        "softmax": Text(
            "largest |ratio of sums − softmax(−½(x−xᵢ)²)·y|", "核函数和之比与 softmax(−½(x−xᵢ)²)·y 的最大差"
        ),
        "attend": Text("largest |ratio of sums − attend|", "核函数和之比与 attend 的最大差"),
    },
    deciding="attend",
    run=run,
    judge=judge,
)
