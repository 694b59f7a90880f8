"""Claim 9: w can be a vector, one number for each feature."""

from functools import partial

import numpy
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from torch import Tensor

from regard import KernelRegressor
from regard.data import curve
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

WIDTHS = numpy.geomspace(0.1, 1.6, 17).tolist()


def run() -> Measured:
    """Two features, of which the first alone decides y: learn a width for each."""
    widths = torch.zeros(5, 3)  # (seeds, relevant and irrelevant and common)
    errors = torch.zeros(5, 2)  # (seeds, a width per feature and common)
    shown = []
    for seed in curve.SEEDS:
        torch.manual_seed(seed)
        points = 5 * torch.rand(1200, 2, dtype=torch.float64)
        noise = 0.5 * torch.randn(1200, 1, dtype=torch.float64)
        x, new_x = points.split([200, 1000])
        y, new_y = (curve.truth(points[:, :1]) + noise).split([200, 1000])
        vector = KernelRegressor(bandwidth="gradient").fit(x, y)
        candidates = [KernelRegressor(bandwidth=width).fit(x, y) for width in WIDTHS]
        common = min(candidates, key=lambda model: model.loo_error_)
        widths[seed] = torch.tensor([*vector.bandwidth_, common.bandwidth_[0]])
        for column, model in enumerate((vector, common)):
            residual = torch.from_numpy(model.predict(new_x)) - new_y
            errors[seed, column] = residual.square().mean()
        shown.append((x, common, vector))

    relevant, irrelevant, _ = widths.T
    numbers = Numbers(
        ratio=(irrelevant / relevant).median(),
        least_ratio=(irrelevant / relevant).min(),
        relevant=relevant.median(),
        irrelevant=irrelevant.median(),
        common=widths[:, 2].median(),
        vector_error=errors[:, 0].mean(),
        vector_spread=errors[:, 0].std(),
        common_error=errors[:, 1].mean(),
        common_spread=errors[:, 1].std(),
    )
    return numbers, partial(draw, *shown[0])


def judge(numbers: Numbers) -> Criteria:
    """The feature that does not matter is told apart, and that pays."""
    yield numbers.criterion(
        numbers.ratio >= 5,
        "The irrelevant feature must get a width several times the relevant one's, 5 times or more: it is {ratio} "
        "times (median of the seeds).",
        "无关特征的带宽应是相关特征的若干倍，至少 5 倍：实际为 {ratio} 倍（种子中位数）。",
    )
    yield numbers.criterion(
        numbers.least_ratio >= 2,
        "In every seed it must be at least twice as wide: {least_ratio} times is the least.",
        "每个种子中都应至少宽一倍，即比值不小于 2：最小为 {least_ratio}。",
    )
    yield numbers.criterion(
        numbers.vector_error < numbers.common_error,
        "On new samples the error with a width for each feature, {vector_error} ± {vector_spread}, must be below that "
        "of the best common width, {common_error} ± {common_spread} (noise alone makes 0.25).",
        "在新样本上，每个特征各有带宽的误差 {vector_error} ± {vector_spread} 应低于最佳公共带宽的 {common_error} ± "
        "{common_spread}（仅噪声就有 0.25）。",
    )


def draw(x: Tensor, common: KernelRegressor, vector: KernelRegressor) -> Figure:
    """Which samples one query looks at, with one width and with two."""
    figure = pictures.figure(height=3.3)
    query = torch.tensor([[2.5, 2.5]], dtype=torch.float64)
    titles = {
        f"one common width: {common.bandwidth_[0]:.2g}": common,
        "a width for each feature: {:.2g} and {:.2g}".format(*vector.bandwidth_): vector,
    }
    for axes, (title, model) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        weights = torch.from_numpy(model.weights(query))[0]
        axes.plot(*x.T, "o", color=pictures.SAMPLES, markersize=2.5)
        axes.scatter(*x.T, s=1000 * weights, color=pictures.ATTENTION, alpha=0.75, linewidth=0, zorder=3)
        across, along = 2 * model.bandwidth_
        axes.add_patch(
            Ellipse((2.5, 2.5), across, along, facecolor=pictures.TRUTH, edgecolor=pictures.TRUTH, alpha=0.18)
        )
        axes.plot(*query.T, "+", color=pictures.TRUTH, markersize=11, markeredgewidth=2, zorder=4)
        axes.set(xlabel="x₁, which decides y", xlim=(-0.1, 5.1), ylim=(-0.1, 5.1), title=title)
    figure.axes[0].set_ylabel("x₂, which does not")
    return figure


SECTION = Section(
    number=9,
    notes=("000",),
    title=Text("w can be a vector", "w 可以是向量"),
    claim=Text(
        "The learnable w, a single number so far, can be extended to a vector.",
        "可学习的 w 目前是一个标量，也可以拓展到多维，让 w 变成一个向量。",
    ),
    idea=Text(
        "With two features, one width draws a circle around the query, and a sample outside hardly counts. But here y "
        "depends on the first feature alone: a sample far away in the second is as good as any. Give each feature a w "
        "of its own and let the gradient decide. It shrinks the w of the second feature, that is, it stretches its "
        "width until the circle has become a strip: more samples to average, and so less noise. Nobody told it which "
        "of the features matters.",
        "有两个特征时，一个带宽等于在查询周围画一个圆，圆外的样本几乎不算数。但这里的 y 只取决于第一个特征：在第二个特"
        "征上离得远的样本同样有用。让每个特征都有自己的 w，由梯度来决定。梯度会缩小第二个特征的 w，也就是放宽它的带宽，"
        "直到圆变成一条竖带：可平均的样本更多，噪声更小。并没有人告诉它哪个特征重要。",
    ),
    formula=Text(
        "f(x) = Σᵢ softmaxᵢ(−½ ‖w ⊙ (x − xᵢ)‖²) yᵢ,     w = (w₁, w₂), one for each feature",
        "f(x) = Σᵢ softmaxᵢ(−½ ‖w ⊙ (x − xᵢ)‖²) yᵢ,     w = (w₁, w₂)，每个特征一个",
    ),
    caption=Text(
        "Two hundred samples by their two features, and one query (cross); the larger the red dot, the larger the "
        "weight; shaded, one width around the query. Left, one common width: a few samples in a circle. Right, a "
        "learned width for each feature: all samples in a narrow strip along the second feature.",
        "两百个样本按两个特征排布，十字为查询；红点越大权重越大，阴影为查询周围一个带宽的范围。左：公共带宽，只看圆内"
        "的少数样本。右：每个特征学到各自的带宽，看的是沿第二个特征方向的一条窄带内的所有样本。",
    ),
    meanings={
        "ratio": Text(
            "width of the irrelevant feature ÷ the relevant one's, median of 5 seeds",
            "无关特征带宽 ÷ 相关特征带宽，5 个种子的中位数",
        ),
        "least_ratio": Text("the least such ratio of a seed", "各种子中该比值的最小值"),
        "relevant": Text("width of the relevant feature, median of the seeds", "相关特征的带宽，种子中位数"),
        "irrelevant": Text("width of the irrelevant feature, median of the seeds", "无关特征的带宽，种子中位数"),
        "common": Text("best common width, median of the seeds", "最佳公共带宽，种子中位数"),
        "vector_error": Text(
            "mean squared error on new samples, a width per feature", "新样本上的均方误差，每个特征各一个带宽"
        ),
        "vector_spread": Text("its standard deviation over the seeds", "该误差在种子间的标准差"),
        "common_error": Text("mean squared error on new samples, one common width", "新样本上的均方误差，公共带宽"),
        "common_spread": Text("standard deviation of this one", "公共带宽误差在种子间的标准差"),
    },
    deciding="ratio",
    run=run,
    judge=judge,
)
