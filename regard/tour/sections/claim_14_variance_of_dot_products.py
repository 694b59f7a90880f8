"""Claim 14: dot products of random vectors have variance d, scaled ones 1."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

PAIRS = 5_000
SEEDS = range(3)


def run() -> Measured:
    """Measure the variance of dot products, with and without the scale."""
    sizes = (4, 16, 64, 256, 1024)
    plain, scaled = torch.zeros(3, 5), torch.zeros(3, 5)  # (seeds, sizes)
    for seed in SEEDS:
        torch.manual_seed(seed)
        for column, size in enumerate(sizes):
            query = torch.randn(PAIRS, 1, size)  # as many pairs of one query and one key
            key = torch.randn(PAIRS, 1, size)
            plain[seed, column] = regard.Dot(scale=1.0)(query, key).var()
            scaled[seed, column] = regard.Dot()(query, key).var()  # its scale is 1/√d

    numbers = Numbers(
        sizes=sizes,
        plain=plain.mean(0),
        scaled=scaled.mean(0),
        spread=scaled.std(0),
        off_size=(plain.mean(0) / torch.tensor(sizes) - 1).abs().max(),
        off_one=(scaled.mean(0) - 1).abs().max(),
    )
    return numbers, partial(draw, sizes, plain, scaled)


def judge(numbers: Numbers) -> Criteria:
    """Within 5 %, which is four times the chance error of 3 × 5,000 pairs."""
    yield numbers.criterion(
        numbers.off_size <= 0.05,
        "Unscaled, the variance must be d within 5 % at every size: it is off by {off_size:.1%} at most.",
        "不缩放时，各长度下方差应为 d，误差 5% 以内：最大偏差 {off_size:.1%}。",
    )
    yield numbers.criterion(
        numbers.off_one <= 0.05,
        "Divided by √d, it must be 1 within 5 %: it is off by {off_one:.1%} at most.",
        "除以 √d 后，方差应为 1，误差 5% 以内：最大偏差 {off_one:.1%}。",
    )


def draw(sizes: tuple[int, ...], plain: Tensor, scaled: Tensor) -> Figure:
    """Both variances against d, on logarithmic axes."""
    figure = pictures.figure()
    axes = figure.subplots()
    series = {"q·k": (plain, sizes, pictures.ATTENTION), "q·k / √d": (scaled, (1,) * len(sizes), pictures.OTHER)}
    for name, (measured, expected, colour) in series.items():
        axes.plot(sizes, expected, "-", color=colour, alpha=0.35, linewidth=5)
        axes.plot(sizes * len(measured), measured.flatten(), "o", color=colour, markersize=5)
        axes.text(sizes[-1] * 1.2, expected[-1], name, color=colour, va="center", fontsize=10)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(sizes, map(str, sizes))
    axes.set_yticks([1, *sizes], map(str, [1, *sizes]))
    axes.set(xlabel="size d of the vectors", ylabel="variance of the score", xlim=(3.4, 2600), ylim=(0.6, 1800))
    return figure


SECTION = Section(
    number=14,
    notes=("003",),
    title=Text("Dot products grow with size; scaling stops it", "点积随长度增大，缩放使其稳定"),
    claim=Text(
        "If the entries of two vectors of length d are independent with mean 0 and variance 1, their dot product has "
        "variance d; divided by √d it has variance 1 at any length.",
        "若两个长度为 d 的向量各元素相互独立，均值为 0、方差为 1，则点积的方差为 d；除以 √d 之后，无论长度多少方差都"
        "是 1。",
    ),
    idea=Text(
        "Each of the d products has variance 1, and independent variances add up. Without the scale, the scores of "
        "long vectors are large, and softmax puts almost everything on one key.",
        "d 个乘积的方差各为 1，独立变量的方差相加。若不缩放，长向量的评分会很大，softmax 几乎把全部权重给了同一个键。",
    ),
    formula="Var(q·k) = Σᵢ Var(qᵢ kᵢ) = d,     Var(q·k / √d) = 1",
    caption=Text(
        "Measured variances (dots, three seeds on top of each other) against the size d, both axes logarithmic: "
        "unscaled they lie on the line d, scaled on the line 1.",
        "方差的测量值（圆点，三个种子重叠在一起）随长度 d 的变化，双对数坐标：未缩放的落在直线 d 上，缩放后的落在直线"
        " 1 上。",
    ),
    meanings={
        "sizes": Text("sizes d", "向量长度 d"),
        "plain": Text("variance of q·k, mean of 3 seeds", "q·k 的方差，3 个种子的均值"),
        "scaled": Text("variance of q·k/√d, mean of 3 seeds", "q·k/√d 的方差，3 个种子的均值"),
        "spread": Text("its standard deviation over the seeds", "该方差在种子间的标准差"),
        "off_size": Text("largest |variance/d − 1|, unscaled", "未缩放时 |方差/d − 1| 的最大值"),
        "off_one": Text("largest |variance − 1|, scaled", "缩放后 |方差 − 1| 的最大值"),
    },
    deciding="off_size",
    run=run,
    judge=judge,
)
