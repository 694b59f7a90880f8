"""Claim 6: for any query the weights are a probability distribution."""

from types import SimpleNamespace

import torch
from torch import Tensor

import regard
from regard.attention.kernels import KERNELS
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Chart, Line, Note, Panel

PLAIN = """
query = 2.5
width = 1.0

u = (query - x_i) / width  # (50 samples)
weights_of, sum_of, smallest = {}, {}, 1.0
for name, K in kernels.items():
    weights_of[name] = torch.softmax(torch.log(K(u)), -1)
    sum_of[name] = weights_of[name].sum().item()
    smallest = min(smallest, weights_of[name].min().item())
proper = [name for name, total in sum_of.items() if abs(total - 1) < 1e-5]  # 0/0 is nan, which is near nothing
"""

SHORT = """
import regard

for name, plain in weights_of.items():
    ours = regard.weights(torch.tensor([[query]]), x_i[:, None], score=regard.Kernel(name, width))[0]
    torch.testing.assert_close(ours, plain.nan_to_num(0.0))  # regard has zeros where nothing is in reach
"""

SEEDS = 5


def sums(name: str, query: Tensor, key: Tensor, normalizer: regard.Normalizer) -> tuple[float, float]:
    """The smallest weight, and how far the sum of a row is from 1 at most."""
    weights = regard.weights(query, key, score=regard.Kernel(name, width=0.3), normalizer=normalizer)
    return float(weights.min()), float((weights.sum(-1) - 1).abs().max())


def measure(far: float = 100.0, normalizer: regard.Normalizer | None = None) -> Measured:
    """All kernels, for queries among the samples and for some far away from all of them."""
    normalizer = normalizer or regard.Softmax()
    endless = [name for name, kernel in KERNELS.items() if not kernel.compact]
    compact = [name for name, kernel in KERNELS.items() if kernel.compact]
    inside, outside, ended = [], [], []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        key = torch.rand(200, 2, generator=generator, dtype=torch.float64)  # in the unit square
        near = torch.rand(50, 2, generator=generator, dtype=torch.float64)
        inside += [sums(name, near, key, normalizer) for name in KERNELS]
        outside += [sums(name, near + far, key, normalizer) for name in endless]
        ended += [sums(name, near + far, key, normalizer) for name in compact]
    return Numbers(
        kernels=len(KERNELS),
        endless=len(endless),
        compact=len(compact),
        far=far,
        smallest=min(low for low, _ in inside + outside + ended),
        off_inside=max(off for _, off in inside),
        off_outside=max(off for _, off in outside),
        off_compact=max(off for _, off in ended),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """Not negative, and summing to 1: near the samples, far from them, and where a kernel has ended."""
    yield numbers.criterion(
        numbers.smallest >= 0 and numbers.off_inside <= 1e-12,
        "For queries among the samples, the weights of all {kernels} kernels must be ≥ 0 and sum to 1, to 10⁻¹²: the "
        "smallest weight is {smallest}, and sums are off by {off_inside} at most.",
        "查询在样本之间时，全部 {kernels} 种核的权重都应非负且总和为 1，误差不超过 10⁻¹²：最小的权重为 {smallest}，总"
        "和最多偏离 {off_inside}。",
    )
    yield numbers.criterion(
        numbers.off_outside <= 1e-12,
        "For any query, so for queries {far} away from the samples too: with the {endless} kernels that have no end, "
        "sums are off by {off_outside} at most.",
        "对任何查询都应如此，查询与样本相距 {far} 时也不例外：没有尽头的 {endless} 种核，总和最多偏离 {off_outside}。",
    )
    yield numbers.criterion(
        numbers.off_compact <= 1e-12,
        "The same with the {compact} kernels that end at one width: sums are off by {off_compact} at most. Where none "
        "of the samples is in reach, the formula says 0/0, and regard gives weights of 0.",
        "在一个带宽处终止的 {compact} 种核也应如此：总和最多偏离 {off_compact}。当一个样本也够不到时，公式为 0/0，"
        "regard 给出的权重为 0。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights of each kernel for this query, with their sum."""
    top = 1.25 * max(float(weights.nan_to_num(0.0).max()) for weights in cell.weights_of.values())
    panels = []
    for name, weights in cell.weights_of.items():
        total = Note(2.5, 0.9 * top, f"Σ = {cell.sum_of[name]:.3f}".replace("nan", "0/0"))
        line = Line(cell.x_i, weights, colour="attention", dots=True)
        panels.append(Panel([line, total], title=name, x_limits=(0, 5), y_limits=(0, top)))
    caption = Text(
        f"Weights of fifty samples for x = {cell.query:g}, by six kernels of width {cell.width:g}; Σ: their sum.",
        f"六种带宽为 {cell.width:g} 的核在查询 x = {cell.query:g} 时分给五十个样本的权重及其总和。",
    )
    return Chart(panels, caption, height=150, columns=3)


SECTION = Section(
    number=6,
    notes=(Passage("003", 28, 31),),
    title=Text("The weights are a distribution", "权重是一个概率分布"),
    claim=Text(
        "For any query the attention weights over all key–value pairs are a valid probability distribution: not "
        "negative, and with sum 1.",
        "无论查询是什么，分给各键值对的权重都构成概率分布：没有负数，加起来等于 1。",
    ),
    idea=Text(
        "What is not negative and is divided by its sum sums to 1, as long as the sum is not 0. A Gaussian never "
        "ends, so on paper its sum is positive for any query; in floating point exp(−½u²) becomes 0 some way out, and "
        "only a softmax of the exponent itself keeps it true. A kernel that ends can have nothing in reach: then "
        "there is nothing to share out.",
        "非负的数除以总和，总和就是 1，只要原来的总和不为 0。高斯核没有尽头，所以数学上对任何查询总和都为正；而在浮点"
        "数中，exp(−½u²) 到远处会变成 0，只有直接对幂指数做 softmax 才能保持成立。有尽头的核可能一个样本也够不到：那时"
        "就"
        "没有什么可分的。",
    ),
    formula=r"\alpha_i = \frac{K(x - x_i)}{\sum_j K(x - x_j)} \ge 0, \qquad \sum_i \alpha_i = 1 \quad "
    r"\left(\sum_j K(x - x_j) > 0\right)",
    plain=PLAIN,
    short=SHORT,
    uses=(3, 39),
    show=draw,
    controls=(
        Control("query = 2.5", Text("query", "查询"), Slider(-5, 10, 0.1)),
        Control("width = 1.0", Text("width", "带宽"), Slider(0.02, 5, log=True)),
    ),
    exercises=(
        Exercise(
            ("query = 2.5", "query = 50.0"),
            Text(
                "Ask far outside: which kernels still have weights that sum to 1?",
                "在远处查询：哪些核的权重之和仍为 1？",
            ),
            Text("{now.proper}; before: {was.proper}.", "{now.proper}；原来：{was.proper}。"),
        ),
        Exercise(
            (
                "weights_of[name] = torch.softmax(torch.log(K(u)), -1)",
                "weights_of[name] = torch.sigmoid(torch.log(K(u)))",
            ),
            Text(
                "Sigmoid instead of softmax: what do the weights of the Gaussian sum to?",
                "用 sigmoid 代替 softmax：高斯核的权重之和是多少？",
            ),
            Text(
                "To {now.sum_of[gaussian]:.3f}; before to {was.sum_of[gaussian]:.3f}.",
                "{now.sum_of[gaussian]:.3f}；原来为 {was.sum_of[gaussian]:.3f}。",
            ),
        ),
    ),
    meanings={
        "kernels": Text("kernels tried", "试过的核"),
        "endless": Text("kernels without an end", "没有尽头的核"),
        "compact": Text("kernels that end", "有尽头的核"),
        "far": Text("how far away the far queries are, in each feature", "远处的查询在每个特征上的距离"),
        "smallest": Text("smallest of all weights", "所有权重中最小的"),
        "off_inside": Text("largest |sum − 1|, queries among the samples", "|总和 − 1| 的最大值，查询在样本之间"),
        "off_outside": Text(
            "largest |sum − 1|, queries far away, kernels without an end", "|总和 − 1| 的最大值，查询在远处，核没有尽头"
        ),
        "off_compact": Text(
            "largest |sum − 1|, queries far away, kernels that end", "|总和 − 1| 的最大值，查询在远处，核有尽头"
        ),
    },
    deciding="off_compact",
    run=measure,
    judge=judge,
    laboratory="#/curve?kernel=epanechnikov&bandwidth=0.3",
)
