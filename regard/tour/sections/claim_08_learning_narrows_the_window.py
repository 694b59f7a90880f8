"""Claim 8: learning w narrows the window and fits more sharply."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard import KernelRegressor
from regard.data import curve
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Look at 50 samples with w = 1, then with the w that the gradient leads to."""
    measured = torch.zeros(5, 2, 5).double()  # (seeds, before or after, quantities)
    fits = []
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)
        new_x, new_y = curve.samples(1000, 100 + seed)
        fixed = KernelRegressor(bandwidth=1.0).fit(x, y)
        learned = KernelRegressor(bandwidth="gradient").fit(x, y)
        for time, model in enumerate((fixed, learned)):
            effective, low, high = model.window(x)
            training = torch.from_numpy(model.predict(x)) - y
            new = torch.from_numpy(model.predict(new_x)) - new_y
            measured[seed, time, 0] = float(1 / model.bandwidth_[0])
            measured[seed, time, 1] = float((high - low).mean())
            measured[seed, time, 2] = float(effective.mean())
            measured[seed, time, 3] = training.square().mean()
            measured[seed, time, 4] = new.square().mean()
        fits.append((x, y, [fixed, learned]))

    before, after = measured.mean(0).tolist()
    shrunk = measured[:, 1, 1:] < measured[:, 0, 1:]  # (seeds, quantities other than w)
    numbers = Numbers(
        w=after[0],
        w_spread=measured[:, 1, 0].std(),
        interval_before=before[1],
        interval_after=after[1],
        effective_before=before[2],
        effective_after=after[2],
        training_before=before[3],
        training_after=after[3],
        new_before=before[4],
        new_after=after[4],
        new_spread=measured[:, 1, 4].std(),
        agreeing=shrunk.all(1).sum(),
        seeds=len(curve.SEEDS),
    )
    return numbers, partial(draw, *fits[0])


def judge(numbers: Numbers) -> Criteria:
    """A narrower window, and smaller errors, also where nothing was learned from."""
    yield numbers.criterion(
        numbers.interval_after < numbers.interval_before and numbers.effective_after < numbers.effective_before,
        "The window must get narrower: 90 % of the weight lies within {interval_before} before and {interval_after} "
        "after, and the effective number of samples goes from {effective_before} to {effective_after}.",
        "窗口应变窄：含 90% 权重的区间长度由 {interval_before} 变为 {interval_after}，有效样本数由 {effective_before} "
        "变为 {effective_after}。",
    )
    yield numbers.criterion(
        numbers.training_after < numbers.training_before,
        "The curve must fit its samples more sharply: the error on them goes from {training_before} to "
        "{training_after}.",
        "曲线应更贴合训练样本：训练样本上的误差由 {training_before} 变为 {training_after}。",
    )
    yield numbers.criterion(
        numbers.new_after < numbers.new_before,
        "That must be more than learning by heart: on new samples, whose noise alone makes 0.25, the error goes from "
        "{new_before} to {new_after} ± {new_spread}.",
        "这不应只是死记硬背：在新样本上（仅噪声就有 0.25），误差由 {new_before} 变为 {new_after} ± {new_spread}。",
    )
    yield numbers.criterion(
        numbers.agreeing == numbers.seeds,
        "All of that must be so in every one of {seeds} seeds: it is so in {agreeing}.",
        "{seeds} 个种子中每一个都应如此：实际为 {agreeing} 个。",
    )


def draw(x: Tensor, y: Tensor, models: list[KernelRegressor]) -> Figure:
    """The map before and after, and the two curves."""
    figure = pictures.figure(height=2.9)
    first, second, last = figure.subplots(1, 3, width_ratios=(1, 1, 1.5))
    last.plot(curve.GRID, curve.truth(curve.GRID), color=pictures.TRUTH, label="truth")
    last.plot(x, y, "o", color=pictures.SAMPLES, markersize=4, label="50 noisy samples")
    styles = (("w = 1", "--", pictures.ATTENTION), ("learned w", "-", pictures.OTHER))
    for axes, model, (name, line, colour) in zip((first, second), models, styles, strict=True):
        pictures.heat(axes, torch.from_numpy(model.weights(x)), largest=0.15)
        axes.set_xticks(range(0, 50, 20))
        axes.set_yticks(range(0, 50, 20))
        axes.set(xlabel="sample j", title=f"w = {1 / float(model.bandwidth_[0]):.2g}")
        last.plot(curve.GRID, model.predict(curve.GRID), line, color=colour, linewidth=1.6, label=name)
    first.set_ylabel("query i")
    last.set(xlabel="x", ylabel="y", xlim=(-0.1, 5.1))
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=8,
    notes=("000",),
    title=Text("Learning w narrows the window", "学习 w 使窗口变窄"),
    claim=Text(
        "With a learnable parameter w the window gets smaller: nearly all the weight goes to the samples around the "
        "query, and the curve fits more sharply.",
        "引入可学习参数 w 后，窗口变得较小，权重基本上都集中给了查询周围的样本，拟合也更精细。",
    ),
    idea=Text(
        "w multiplies the distance: the larger, the nearer a sample has to be in order to count, so w is 1/width. It "
        "goes down the gradient of the squared error with which every sample is predicted from the others. From the "
        "others: a sample that may look at itself would learn an endless w, and repeat its own noise. The window is "
        "measured in two ways, by the stretch of x with 90 % of the weight and by the effective number of samples, "
        "the exponential of the weights' entropy.",
        "w 乘在距离上：w 越大，样本必须离得越近才算数，所以 w 就是 1/带宽。它沿着平方误差的梯度下降，误差来自用其余样本"
        "预测每一个样本。必须是其余样本：如果样本可以看自己，学到的 w 会趋于无穷，只会重复自身的噪声。窗口用两种方式度"
        "量：含 90% 权重的一段 x 的长度，以及有效样本数，即权重的熵的指数。",
    ),
    formula=Text(
        "f(x) = Σᵢ softmaxᵢ(−½ ((x − xᵢ) w)²) yᵢ,     effective number = exp(−Σᵢ αᵢ log αᵢ)",
        "f(x) = Σᵢ softmaxᵢ(−½ ((x − xᵢ) w)²) yᵢ,     有效样本数 = exp(−Σᵢ αᵢ log αᵢ)",
    ),
    caption=Text(
        "The weights of fifty queries over fifty samples with w = 1, a broad faint band, and with the learned w, a "
        "narrow strong one. On the right the curves: the learned one follows the bends of the truth, and w = 1 smooths "
        "them away.",
        "五十个查询对五十个样本的权重：w = 1 时是又宽又淡的一条带，学习之后又窄又浓。右图为两条曲线：学习之后的曲线跟得"
        "上真实曲线的起伏，w = 1 的曲线则把起伏抹平了。",
    ),
    meanings={
        "w": Text("learned w = 1/width, mean of 5 seeds", "学到的 w = 1/带宽，5 个种子的均值"),
        "w_spread": Text("its standard deviation over the seeds", "w 在种子间的标准差"),
        "interval_before": Text(
            "length of the interval with 90 % of the weight, w = 1", "含 90% 权重的区间长度，w = 1"
        ),
        "interval_after": Text(
            "length of the interval with 90 % of the weight, learned w", "含 90% 权重的区间长度，学到的 w"
        ),
        "effective_before": Text("effective number of samples, w = 1", "有效样本数，w = 1"),
        "effective_after": Text("effective number of samples, learned w", "有效样本数，学到的 w"),
        "training_before": Text("mean squared error on the 50 samples, w = 1", "50 个训练样本上的均方误差，w = 1"),
        "training_after": Text(
            "mean squared error on the 50 samples, learned w", "50 个训练样本上的均方误差，学到的 w"
        ),
        "new_before": Text(
            "mean squared error on 1,000 new noisy samples, w = 1", "1000 个带噪声新样本上的均方误差，w = 1"
        ),
        "new_after": Text(
            "mean squared error on 1,000 new noisy samples, learned w", "1000 个带噪声新样本上的均方误差，学到的 w"
        ),
        "new_spread": Text("standard deviation of that over the seeds, learned w", "该误差在种子间的标准差，学到的 w"),
        "agreeing": Text("seeds in which window and both errors all shrink", "窗口与两种误差都变小的种子数"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="interval_after",
    run=run,
    judge=judge,
)
