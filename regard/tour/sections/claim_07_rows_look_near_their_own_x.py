"""Claim 7: row i of the map holds the weights for query i, dark near its own x."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard import KernelRegressor
from regard.data import curve
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

ROW = 30  # the row that the picture shows in full


def run() -> Measured:
    """Ask for the x of every sample, and look where the weights lie."""
    near, average_near, at_itself, off, maps = [], [], [], [], []
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)  # sorted by x
        model = KernelRegressor(bandwidth="loo").fit(x, y)
        weights = torch.from_numpy(model.weights(x))  # (50 queries, 50 samples)
        within = (x - x.T).abs() <= float(model.bandwidth_[0])
        near.append((weights * within).sum(1).mean())
        average_near.append(within.double().mean())
        at_itself.append((weights.argmax(1) == torch.arange(50)).double().mean())
        off.append((weights @ y - torch.from_numpy(model.predict(x))).abs().max())
        maps.append((x[:, 0], weights, float(model.bandwidth_[0])))

    numbers = Numbers(
        near=torch.stack(near).mean(),
        spread=torch.stack(near).std(),
        average_near=torch.stack(average_near).mean(),
        own=torch.stack(at_itself).mean(),
        off_prediction=torch.stack(off).max(),
    )
    return numbers, partial(draw, *maps[0])


def judge(numbers: Numbers) -> Criteria:
    """Near its own x, more than chance would have it, and really the weights of that query."""
    yield numbers.criterion(
        numbers.near >= 0.6 and numbers.near >= 2 * numbers.average_near,
        "Within one width of its own x must lie 60 % of a row's weight (a Gaussian on even data has 68 %), and twice "
        "what equal weights would have there, {average_near:.1%}: it is {near:.1%} ± {spread:.1%}.",
        "每行权重应有 60% 落在自身 x 的一个带宽之内（均匀数据上的高斯核为 68%），并且至少是权重相等时（"
        "{average_near:.1%}）的两倍：测得 {near:.1%} ± {spread:.1%}。",
    )
    yield numbers.criterion(
        numbers.own >= 0.95,
        "The largest weight of a row must be at its own sample, in 95 % of the rows (samples at the same x would "
        "share it): it is in {own:.1%}.",
        "每行的最大权重应在自身样本上，至少 95% 的行如此（x 相同的样本会并列）：实际为 {own:.1%}。",
    )
    yield numbers.criterion(
        numbers.off_prediction <= 1e-12,
        "Row i must be what the prediction at xᵢ is made of, to 10⁻¹²: row · y differs from it by {off_prediction}.",
        "第 i 行应正是 xᵢ 处的预测所用的权重，误差不超过 10⁻¹²：该行与 y 的加权和同预测相差 {off_prediction}。",
    )


def draw(x: Tensor, weights: Tensor, width: float) -> Figure:
    """The map, and one of its rows against x."""
    figure = pictures.figure()
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    image = pictures.heat(left, weights, largest=0.2)
    left.hlines([ROW - 0.5, ROW + 0.5], -0.5, 49.5, color=pictures.TRUTH, linewidth=1)
    left.set_xticks(range(0, 50, 10))
    left.set_yticks(range(0, 50, 10))
    left.set(xlabel="sample j, sorted by x", ylabel="query i, the x of sample i", title="weights")
    bar = figure.colorbar(image, ax=left, extend="max", fraction=0.05, pad=0.03, ticks=(0, 0.1, 0.2))
    bar.outline.set_visible(False)
    query = float(x[ROW])
    right.axvspan(query - width, query + width, color=pictures.TRUTH, alpha=0.13, linewidth=0)
    right.axvline(query, color=pictures.TRUTH, linewidth=1.2)
    right.vlines(x, 0, weights[ROW], color=pictures.ATTENTION, linewidth=1.2)
    right.plot(x, weights[ROW], "o", color=pictures.ATTENTION, markersize=4)
    right.set(
        xlabel="x of the samples", ylabel="weight", ylim=(0, None), title=f"row {ROW}, and one width around its x"
    )
    return figure


SECTION = Section(
    number=7,
    notes=("000",),
    title=Text("Each row looks near its own x", "每一行的权重集中在自身 x 附近"),
    claim=Text(
        "Row i of the map holds the weights that the query xᵢ gives to all samples, column j those that sample j "
        "receives. The darker, the larger: a row is dark near its own x.",
        "权重图的第 i 行是查询 x = xᵢ 分给每个样本的权重，第 j 列是第 j 个样本得到的权重。颜色越深权重越大：每一行都在"
        "自身的 x 附近最深。",
    ),
    idea=Text(
        "Sort the samples by x and ask for the x of each: the weights become a square with a strong diagonal. The "
        "width of the band in a row is the window, which is what the query looks at. The band is not equally broad in "
        "all rows, because where samples lie close together more of them share the weight.",
        "把样本按 x 排序，再逐个查询它们的 x：权重排成一个正方形，对角线最为醒目。一行中这条带的宽度就是窗口，即该查询"
        "所看的范围。各行的带宽窄不一，因为样本密集处有更多样本来分权重。",
    ),
    formula="mapᵢⱼ = K(xᵢ − xⱼ) / Σₖ K(xᵢ − xₖ),     f(xᵢ) = Σⱼ mapᵢⱼ yⱼ",
    caption=Text(
        "Left: the weights of fifty queries (rows) over the fifty samples (columns), a strong band along the diagonal. "
        "Right: the marked row on its own, against x: a bell around the query's x, most of it in the shaded strip of "
        "one width to either side.",
        "左：五十个查询（行）对五十个样本（列）的权重，沿对角线有一条醒目的带。右：左图标出的一行，横轴为 x：以查询的 x"
        " 为中心的钟形，大部分落在左右各一个带宽的阴影之内。",
    ),
    meanings={
        "near": Text(
            "share of a row's weight within one width of its x, mean of all rows",
            "每行权重落在自身 x 一个带宽内的比例，均值",
        ),
        "spread": Text("its standard deviation over the 5 seeds", "该比例在 5 个种子间的标准差"),
        "average_near": Text(
            "the same share if all weights were equal, mean of all rows", "若权重全部相等时的同一比例，均值"
        ),
        "own": Text(
            "share of the rows whose largest weight is at their own sample", "最大权重落在自身样本上的行所占比例"
        ),
        "off_prediction": Text("largest |row i · y − prediction at xᵢ|", "|第 i 行 · y − xᵢ 处的预测| 的最大值"),
    },
    deciding="near",
    run=run,
    judge=judge,
)
