"""Claim 14: dot products of random vectors have mean 0 and variance d, scaled ones variance 1."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from regard import Dot
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Chart, Line, Panel

SIZES = (4, 16, 64, 256, 1024)
SEEDS = 3

PLAIN = """
def dot_product_attention(queries, keys, values, mask=None):  # (…, n, d), (…, m, d), (…, m, v)
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])  # (…, n, m)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)  # True: may look
    weights = torch.softmax(scores, -1)
    return weights @ values, weights


size = 64
queries = torch.randn(400, size)
keys = torch.randn(50, size)
values = torch.randn(50, 3)
output, weights = dot_product_attention(queries, keys, values)  # (400, 3), (400, 50)

products = queries @ keys.T  # what the scores are without the scale
mean, variance = products.mean(), products.var()
scaled_variance = (products / math.sqrt(size)).var()
largest = weights.amax(-1).mean()  # of 50 weights
"""

SHORT = """
import regard

torch.testing.assert_close(regard.attend(queries, keys, values), output)
torch.testing.assert_close(regard.Dot(scale=1.0)(queries, keys), products, rtol=1e-4, atol=1e-4)
"""

# Entries with mean 0 and variance 1, of different shapes: the notes ask for nothing else.
ENTRIES: dict[str, Callable[..., Tensor]] = {
    "normal": torch.randn,
    "uniform": lambda *shape: (torch.rand(*shape) - 0.5) * math.sqrt(12),
    "sign": lambda *shape: torch.randint(2, shape) * 2.0 - 1,
    "exponential": lambda *shape: torch.empty(*shape).exponential_() - 1,
}


def measure(entries: Mapping[str, Callable[..., Tensor]], count: int = 400_000) -> Measured:
    """Means and variances of independent pairs, about so many numbers for each size, or more."""
    plain, scaled = torch.zeros(2, SEEDS, len(entries), len(SIZES)), torch.zeros(SEEDS, len(entries), len(SIZES))
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        for row, make in enumerate(entries.values()):
            for column, size in enumerate(SIZES):
                pairs = max(count // size, count // 80)
                query, key = make(pairs, 1, size), make(pairs, 1, size)
                products = Dot(scale=1.0)(query, key)
                plain[:, seed, row, column] = torch.stack([products.mean(), products.var()])
                scaled[seed, row, column] = Dot()(query, key).var()  # its scale is 1/√d
    means, variances = plain.mean(1)  # (entries, sizes) each
    length = torch.tensor(SIZES)
    return Numbers(
        sizes=SIZES,
        variances=variances.mean(0),
        scaled=scaled.mean((0, 1)),
        spread=scaled.mean(1).std(0),
        off_zero=(means / length.sqrt()).abs().max(),
        off_size=(variances / length - 1).abs().max(),
        off_one=(scaled.mean(0) - 1).abs().max(),
        kinds=len(entries),
    ), draw_variances(variances.mean(0), scaled.mean((0, 1)))


def run() -> Measured:
    """Measure with four kinds of entries."""
    return measure(ENTRIES)


def judge(numbers: Numbers) -> Criteria:
    """Within 5 %, which is four times the chance error of 15,000 pairs or more."""
    yield numbers.criterion(
        numbers.off_size <= 0.05 and numbers.off_zero <= 0.05,
        "With {kinds} kinds of entries and d from {sizes[0]} to {sizes[-1]} the variance must be d within 5 %, and "
        "the mean 0 within 5 % of √d: they are off by {off_size:.1%} and {off_zero:.1%} at most.",
        "取 {kinds} 种元素分布，d 由 {sizes[0]} 到 {sizes[-1]}，方差应为 d（误差 5% 以内），均值应为 0（误差在 √d 的 "
        "5% 以内）：最大偏差分别为 {off_size:.1%} 和 {off_zero:.1%}。",
    )
    yield numbers.criterion(
        numbers.off_one <= 0.05,
        "Divided by √d, the variance must be 1 within 5 % at every length: it is off by {off_one:.1%} at most.",
        "除以 √d 之后，无论长度多少方差都应为 1，误差 5% 以内：最大偏差 {off_one:.1%}。",
    )


def draw_variances(plain: Tensor, scaled: Tensor) -> Chart:
    """Both variances against d, on logarithmic axes."""
    marks = [
        Line(SIZES, SIZES, Text("d", "d"), "truth", style="dotted"),
        Line(SIZES, plain, "q·k", "attention", dots=True),
        Line(SIZES, scaled, "q·k / √d", "other", dots=True),
    ]
    panel = Panel(marks, x=Text("size d", "长度 d"), y=Text("variance", "方差"), x_log=True, y_log=True)
    return Chart(
        [panel],
        caption=Text(
            "Measured variances against the size d, mean over four kinds of entries and three seeds; both axes are "
            "logarithmic.",
            "方差的测量值随长度 d 的变化，四种元素分布、三个种子的均值；双对数坐标。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """How the products are distributed, with and without the scale."""
    marks = []
    edge = 3.5 * math.sqrt(cell.size)
    for products, name, colour in (
        (cell.products, "q·k", "attention"),
        (cell.products / math.sqrt(cell.size), "q·k / √d", "other"),
    ):
        bins = 41
        share = torch.histc(products, bins, -edge, edge) / products.numel()
        marks.append(Line(torch.linspace(-edge, edge, bins), share, name, colour))
    panel = Panel(marks, x=Text("score", "评分"), y=Text("share", "比例"))
    return Chart(
        [panel],
        height=220,
        caption=Text(
            "How the scores of 400 queries and 50 keys are distributed, without the scale and with it.",
            "400 个查询与 50 个键的评分如何分布：不缩放与缩放之后。",
        ),
    )


SECTION = Section(
    number=14,
    notes=(Passage("003", 81, 90),),
    title=Text("Dot products grow with size; scaling stops it", "点积随长度增大，缩放使其稳定"),
    claim=Text(
        "If all entries of query and key are independent with mean 0 and variance 1, the dot product has mean 0 and "
        "variance d; divided by √d, it has variance 1 whatever the length.",
        "若查询和键的所有元素相互独立，均值为 0、方差为 1，则点积的均值为 0、方差为 d；除以 √d 之后，无论长度多少方差"
        "都是 1。",
    ),
    idea=Text(
        "Each of the d products has variance 1, and the variances of independent numbers add up. So scores of long "
        "vectors spread like √d, and dividing by √d makes them of one size. Nothing is asked of the shape of the "
        "distribution, so that entries of four shapes are tried: normal, uniform, signs, and a skewed one.",
        "d 个乘积的方差各为 1，独立变量的方差相加。所以长向量的评分以 √d 的幅度散开，除以 √d 之后大小就一致了。这里对"
        "分布的形状没有要求，因此试了四种：正态、均匀、随机 ±1，以及偏斜的一种。",
    ),
    formula=(
        r"\mathrm{Var}(q^\top k) = \sum_{i=1}^{d} \mathrm{Var}(q_i k_i) = d, \qquad "
        r"\mathrm{Var}\!\left(\frac{q^\top k}{\sqrt d}\right) = 1"
    ),
    plain=PLAIN,
    short=SHORT,
    show=draw,
    controls=(
        Control("size = 64", Text("size d of the vectors", "向量长度 d"), Slider(2, 1024, log=True, whole=True)),
    ),
    exercises=(
        Exercise(
            ("size = 64", "size = 1024"),
            Text("Vectors of 1,024 numbers: what becomes of the two variances?", "向量长 1024：两个方差会怎样？"),
            Text(
                "q·k has variance {now.variance:.0f} instead of {was.variance:.0f}; scaled, {now.scaled_variance:.2f} "
                "instead of {was.scaled_variance:.2f}.",
                "q·k 的方差为 {now.variance:.0f}，原来为 {was.variance:.0f}；缩放后为 {now.scaled_variance:.2f}，原来"
                "为 {was.scaled_variance:.2f}。",
            ),
        ),
        Exercise(
            ("keys = torch.randn(50, size)", "keys = torch.randn(50, size) + queries[0]"),
            Text(
                "The first query is added to every key, whose entries then have variance 2: is the scaled variance "
                "still 1?",
                "所有的键都含有共同的一部分，因此不再独立：缩放后的方差还是 1 吗？",
            ),
            Text(
                "It is {now.scaled_variance:.2f}; before {was.scaled_variance:.2f}.",
                "现在为 {now.scaled_variance:.2f}；原来为 {was.scaled_variance:.2f}。",
            ),
        ),
        Exercise(
            (
                "scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])",
                "scores = queries @ keys.transpose(-2, -1)",
            ),
            Text("Without the scale, how large is the largest of 50 weights?", "不缩放时，50 个权重中最大的有多大？"),
            Text(
                "{now.largest:.2f} on average; scaled {was.largest:.2f}.",
                "平均 {now.largest:.2f}；缩放时为 {was.largest:.2f}。",
            ),
        ),
    ),
    meanings={
        "sizes": Text("sizes d", "向量长度 d"),
        "variances": Text("variance of q·k, mean over entries and 3 seeds", "q·k 的方差，各种元素与 3 个种子的均值"),
        "scaled": Text("variance of q·k/√d, likewise", "q·k/√d 的方差，同上"),
        "spread": Text("its standard deviation over the seeds", "该方差在种子间的标准差"),
        "off_zero": Text("largest |mean|/√d", "|均值|/√d 的最大值"),
        "off_size": Text("largest |variance/d − 1|, unscaled", "未缩放时 |方差/d − 1| 的最大值"),
        "off_one": Text("largest |variance − 1|, scaled", "缩放后 |方差 − 1| 的最大值"),
        "kinds": Text("kinds of entries", "元素分布的种数"),
    },
    deciding="off_size",
    run=run,
    rehearsal=partial(measure, ENTRIES, 20_000),
    judge=judge,
)
