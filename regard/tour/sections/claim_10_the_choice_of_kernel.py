"""Claim 10: the kernel is a choice."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard import KernelRegressor
from regard.attention.kernels import KERNELS
from regard.data import curve
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

LOCAL = [name for name in KERNELS if name != "constant"]


def run() -> Measured:
    """The same samples through every kernel, each with its own best width."""
    truth = curve.truth(curve.GRID)
    errors, curves = {}, {}
    for name in KERNELS:
        fits = []
        for seed in curve.SEEDS:
            model = KernelRegressor(name, bandwidth="loo").fit(*curve.samples(50, seed))
            fits.append(torch.from_numpy(model.predict(curve.GRID)))
        errors[name] = (torch.stack(fits) - truth).square().mean((1, 2))  # (seeds,)
        curves[name] = fits[0]

    local = torch.stack([errors[name] for name in LOCAL])  # (local kernels, seeds)
    means = local.mean(1)
    numbers = Numbers(
        local=len(LOCAL),
        best=means.min(),
        worst=means.max(),
        average=errors["constant"].mean(),
        apart=means.max() / means.min(),
        spread=local.std(1).max(),
        wins=(local < errors["constant"]).sum(),
        pairs=local.numel(),
    )
    return numbers, partial(draw, errors, curves)


def judge(numbers: Numbers) -> Criteria:
    """Any kernel that looks nearby will do, and they do nearly the same."""
    yield numbers.criterion(
        numbers.worst <= numbers.average / 3,
        "Any of the {local} local kernels must do: the worst may have at most a third of average pooling's error, "
        "{average}; it has {worst}.",
        "{local} 个局部核都应可用：最差的误差也不应超过平均池化误差 {average} 的三分之一：测得 {worst}。",
    )
    yield numbers.criterion(
        numbers.wins == numbers.pairs,
        "Each must beat average pooling in each seed, {pairs} times: it happens {wins} times.",
        "每个局部核在每个种子中都应胜过平均池化，共 {pairs} 次：实际 {wins} 次。",
    )
    yield numbers.criterion(
        numbers.apart <= 1.5,
        "Among themselves they must lie close, the worst at most 1.5 times the best: it is {apart} times.",
        "它们彼此应相差不大，最差的误差不超过最好的 1.5 倍：测得 {apart} 倍。",
    )


def draw(errors: dict[str, Tensor], curves: dict[str, Tensor]) -> Figure:
    """The errors as a table of dots, and the curves of the first seed."""
    figure = pictures.figure(height=3.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    names = sorted(errors, key=lambda name: float(errors[name].mean()))
    colours = dict.fromkeys(names, pictures.ATTENTION) | {"constant": pictures.POOLED, "boxcar": pictures.OTHER}
    for row, name in enumerate(names):
        mean = float(errors[name].mean())
        left.plot(errors[name], [row] * len(errors[name]), "o", color=colours[name], markersize=4, alpha=0.4)
        left.plot(mean, row, "D", color=colours[name], markersize=6)
        left.text(1.04, row, f"{mean:.3f}", va="center_baseline", transform=left.get_yaxis_transform())
    left.set_yticks(range(len(names)), names)
    left.set_xscale("log")
    left.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    left.set(xlim=(0.01, 1.4), xlabel="mean squared error")
    left.invert_yaxis()
    right.plot(curve.GRID, curve.truth(curve.GRID), color=pictures.TRUTH, linewidth=4.5, alpha=0.45, label="truth")
    labels = {"gaussian": "the other eight", "boxcar": "boxcar", "constant": "constant"}
    for name, values in curves.items():
        right.plot(curve.GRID, values, color=colours[name], linewidth=1.1, label=labels.get(name))
    right.set(xlabel="x", ylabel="y", xlim=(-0.08, 5.08))
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=10,
    notes=("000", "002"),
    title=Text("The kernel is a choice", "核函数可以选择"),
    claim=Text(
        "K measures how far x is from xᵢ, and there are several functions to choose from.",
        "K 衡量 x 与 xᵢ 之间的距离，具体用哪种函数可以选择。",
    ),
    idea=Text(
        "Nine kernels look nearby, each in its own shape; one, the constant, does not look at all and is average "
        "pooling. On the same samples, and with a width that suits it, every one of the nine finds the curve about "
        "equally well. So what matters is that the weight falls with distance, and how fast; the exact shape matters "
        "little. It can be seen all the same: samples enter and leave the boxcar at once, which makes steps.",
        "有九种核函数只看附近，形状各异；常数核则完全不看距离，也就是平均池化。在同样的样本上，各自配上合适的带宽，九"
        "种核的结果几乎一样好。可见重要的是权重随距离下降以及下降得多快，具体形状影响不大。不过曲线上仍看得出形状：样"
        "本是突然进出矩形核窗口的，于是出现台阶。",
    ),
    formula=Text(
        "f(x) = Σᵢ  K((x − xᵢ)/h) / Σⱼ K((x − xⱼ)/h)  · yᵢ,     h by leave-one-out for each K",
        "f(x) = Σᵢ  K((x − xᵢ)/h) / Σⱼ K((x − xⱼ)/h)  · yᵢ,     每个 K 的 h 由留一法选定",
    ),
    caption=Text(
        "Left: the error of each kernel against the truth on a logarithmic axis, best first; faint dots are the five "
        "seeds, the diamond and the number are their mean. Nine lie close together, the constant is far off. "
        "Right: their curves for one seed, nearly on top of each other; the boxcar's has steps, the constant is flat.",
        "左：各核函数相对真值的误差（对数坐标），由好到差；浅色圆点是五个种子，菱形与数字为均值。九种核相差无几，常数"
        "核远远落后。右：其中一个种子的各条曲线，几乎重叠；矩形核有台阶，常数核是水平线。",
    ),
    meanings={
        "local": Text("local kernels tried", "试过的局部核函数个数"),
        "best": Text("mean squared error of the best local kernel", "最好的局部核的均方误差"),
        "worst": Text("mean squared error of the worst local kernel", "最差的局部核的均方误差"),
        "average": Text("mean squared error of the constant kernel (average pooling)", "常数核（平均池化）的均方误差"),
        "apart": Text("worst local kernel ÷ best", "最差局部核误差 ÷ 最好局部核误差"),
        "spread": Text(
            "largest standard deviation over the seeds of a local kernel's error",
            "局部核误差在种子间的标准差，取最大者",
        ),
        "wins": Text(
            "pairs of local kernel and seed with less error than the constant", "误差小于常数核的（局部核, 种子）组合数"
        ),
        "pairs": Text("such pairs tried", "组合总数"),
    },
    deciding="apart",
    run=run,
    judge=judge,
)
