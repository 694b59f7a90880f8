"""Claim 6: the weights of every kernel are a probability distribution."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.attention.kernels import KERNELS
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Look for a weight below 0, or a row that does not sum to 1."""
    key = torch.rand(200, 2, dtype=torch.float64)  # samples in the unit square
    query = torch.rand(50, 2, dtype=torch.float64)
    far = torch.full((1, 2), 100.0, dtype=torch.float64)  # no compact kernel reaches it

    reached, unreached, shapes = [], [], {}
    distance = torch.linspace(-2, 2, 401, dtype=torch.float64)[:, None]
    for name, kernel in KERNELS.items():
        score = regard.Kernel(name, width=0.3)
        reached.append(regard.weights(query, key, score=score))
        if kernel.compact:
            unreached.append(regard.weights(far, key, score=score))
        shapes[name] = regard.Kernel(name)(distance.new_zeros(1, 1), distance)[0].exp()

    weights = torch.stack(reached)  # (kernels, queries, keys)
    numbers = Numbers(
        kernels=len(KERNELS),
        smallest=weights.min(),
        off_one=(weights.sum(-1) - 1).abs().max(),
        out_of_reach=torch.stack(unreached).sum(-1).abs().max(),
    )
    return numbers, partial(draw, distance[:, 0], shapes)


def judge(numbers: Numbers) -> Criteria:
    """Not negative, and summing to 1."""
    yield numbers.criterion(
        numbers.smallest >= 0 and numbers.off_one <= 1e-12,
        "For all {kernels} kernels no weight may be negative and every row must sum to 1, to 10⁻¹²: the smallest "
        "weight is {smallest}, the worst sum is off by {off_one}.",
        "对全部 {kernels} 个核函数，权重不得为负，每行之和应为 1（容差 10⁻¹²）：最小权重为 {smallest}，行和的最大偏差"
        "为 {off_one}。",
    )
    yield numbers.criterion(
        numbers.out_of_reach == 0,
        "A query that no compact kernel reaches has nothing to share out, and must get zeros instead of NaN: its "
        "weights sum to {out_of_reach}.",
        "紧支撑核够不到任何键时无权重可分，应得到 0 而不是 NaN：其权重之和为 {out_of_reach}。",
    )


def draw(distance: Tensor, shapes: dict[str, Tensor]) -> Figure:
    """The shape of each kernel."""
    figure = pictures.figure(height=2.9)
    panels = figure.subplots(2, 5, sharex=True, sharey=True)
    for axes, (name, shape) in zip(panels.flat, shapes.items(), strict=True):
        axes.fill_between(distance, shape, color=pictures.ATTENTION, alpha=0.2, linewidth=0)
        axes.plot(distance, shape, color=pictures.ATTENTION, linewidth=1.6)
        axes.set_title(name)
        axes.set(ylim=(0, 1.12), xlim=(-2, 2), xticks=(-1, 0, 1), yticks=(0, 1))
    figure.supxlabel("distance from the query, in widths", fontsize=9)
    return figure


SECTION = Section(
    number=6,
    notes=("003",),
    title=Text("The weights are a distribution", "权重是一个概率分布"),
    claim=Text(
        "For any query, the attention weights over all key–value pairs are a valid probability distribution: they are "
        "not negative and sum to 1.",
        "对于任何查询，所有键值对上的注意力权重都是一个有效的概率分布：非负，且总和为 1。",
    ),
    idea=Text(
        "Ten kernels, from the constant one (which is average pooling) to those that end at a distance of one width. "
        "Whatever the shape, dividing by the sum makes it a distribution. There is one exception that formulas like to "
        "skip: where a kernel that ends reaches no key at all, 0/0 would come out; regard answers with zeros.",
        "这里有十种核函数，从常数核（即平均池化）到超出一个宽度就为零的紧支撑核。无论形状如何，除以总和之后都是分布。"
        "公式常常略过一个例外：紧支撑核一个键也够不到时会出现 0/0；regard 在这种情况下返回 0。",
    ),
    formula="αᵢ = K(x − xᵢ) / Σⱼ K(x − xⱼ) ≥ 0,     Σᵢ αᵢ = 1",
    caption=Text(
        "The ten kernels by distance from the query: Gaussian and Laplace fade out, the constant never does, the other "
        "seven reach exactly one width.",
        "十种核函数随距离的形状：高斯核与拉普拉斯核逐渐衰减，常数核不衰减，其余七种恰好延伸到一个宽度处为止。",
    ),
    meanings={
        "kernels": Text("kernels tried", "试过的核函数个数"),
        "smallest": Text("smallest weight", "最小的权重"),
        "off_one": Text("largest |sum of a row − 1|", "各行之和与 1 的最大偏差"),
        "out_of_reach": Text(
            "sum of the weights of a query that no compact kernel reaches", "紧支撑核够不到任何键的查询，其权重之和"
        ),
    },
    deciding="off_one",
    run=run,
    judge=judge,
)
