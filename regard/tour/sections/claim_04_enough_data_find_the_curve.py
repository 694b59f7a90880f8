"""Claim 4: the non-parametric curve is too smooth; with enough data it finds the curve."""

from functools import partial

import numpy
import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard import KernelRegressor
from regard.data import curve
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

COUNTS = (50, 500, 5_000, 50_000)
SEEDS = curve.SEEDS[:3]  # three, because most of the time goes into the largest count
WIDTHS = numpy.geomspace(0.025, 0.4, 9).tolist()  # a factor of √2 from one to the next


def rough(curves: Tensor) -> Tensor:
    """How much curves (…, grid, 1) bend: the mean square of their second differences."""
    return curves.diff(n=2, dim=-2).square().mean((-2, -1))


def run() -> Measured:
    """Ten, a hundred, a thousand times as many samples, width fixed and chosen."""
    truth = curve.truth(curve.GRID)
    curves = torch.zeros(2, 4, 3, 101, 1).double()  # (fixed or chosen, counts, seeds, …)
    widths = torch.zeros(4, 3)
    for row, count in enumerate(COUNTS):
        for seed in SEEDS:
            x, y = curve.samples(count, seed)
            fixed = KernelRegressor(bandwidth=1.0).fit(x, y)
            candidates = [KernelRegressor(bandwidth=width).fit(x, y) for width in WIDTHS]
            chosen = min(candidates, key=lambda model: model.loo_error_)
            widths[row, seed] = float(chosen.bandwidth_[0])
            for rule, model in enumerate((fixed, chosen)):
                curves[rule, row, seed] = torch.from_numpy(model.predict(curve.GRID))

    errors = (curves - truth).square().mean((-2, -1))  # (fixed or chosen, counts, seeds)
    numbers = Numbers(
        counts=COUNTS,
        errors=errors[1].mean(-1),
        spreads=errors[1].std(-1),
        widths=widths.mean(-1),
        fixed_errors=errors[0].mean(-1),
        roughness=(rough(curves[0]) / rough(truth)).mean(-1).max(),
        distance=errors[1, -1].mean().sqrt(),
    )
    return numbers, partial(draw, curves[:, -1, 0], errors)


def judge(numbers: Numbers) -> Criteria:
    """Too smooth at a fixed width; ever nearer to the truth at a width that the data choose."""
    yield numbers.criterion(
        numbers.roughness <= 0.5,
        "At width 1, however many samples, the curve must be too smooth, at most half as rough as the truth: it has "
        "{roughness:.1%} of the truth's roughness at most.",
        "带宽为 1 时，无论样本多少，曲线都应过于平滑，粗糙度不超过真实曲线的一半：至多为真实曲线的 {roughness:.1%}。",
    )
    yield numbers.criterion(
        all(more < fewer for fewer, more in zip(numbers.errors, numbers.errors[1:], strict=False)),
        "With the width chosen by leave-one-out, the error must fall from each of {counts} samples to the next: it is "
        "{errors}.",
        "用留一法选带宽时，样本数按 {counts} 增加，误差应逐级下降：测得 {errors}。",
    )
    yield numbers.criterion(
        numbers.distance <= 0.05,
        "With 50,000 samples it must find the curve, to a tenth of the noise, 0.05: it is off by {distance} (root "
        "mean square).",
        "有 50000 个样本时应能找到真实曲线，偏差不超过噪声的十分之一，即 0.05：均方根误差为 {distance}。",
    )


def draw(curves: Tensor, errors: Tensor) -> Figure:
    """The curves from most samples, and the errors on the way there."""
    figure = pictures.figure()
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    left.plot(curve.GRID, curve.truth(curve.GRID), color=pictures.TRUTH, linewidth=4.5, alpha=0.45, label="truth")
    styles = {"width 1": ("--", pictures.ATTENTION), "width by leave-one-out": ("-", pictures.OTHER)}
    for (name, (line, colour)), values, error in zip(styles.items(), curves, errors, strict=True):
        left.plot(curve.GRID, values, line, color=colour, linewidth=1.6, label=name)
        right.plot(COUNTS, error.mean(-1), line, color=colour)
        right.plot(COUNTS, error, "o", color=colour, markersize=3.5, alpha=0.6)
    left.set(xlabel="x", ylabel="y", xlim=(-0.08, 5.08), title="from 50,000 samples")
    right.set(
        xlabel="number of samples",
        ylabel="mean squared error",
        xscale="log",
        yscale="log",
        title="with more and more samples",
    )
    right.set_xticks(COUNTS, [f"{count:,}" for count in COUNTS])
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=4,
    notes=("000",),
    title=Text("Too smooth, until enough data choose the width", "曲线过于平滑；数据足够时能找到真实曲线"),
    claim=Text(
        "Attention without parameters gives a curve that is too smooth. Given enough data it finds the true curve; in "
        "life there are rarely that many.",
        "非参数化的注意力得到的曲线过于平滑。给定足够的数据，可以把真实曲线找出来，但现实中往往没有那么多数据。",
    ),
    idea=Text(
        "The width decides how far a query looks. At width 1 each answer mixes most of the data, and a thousand "
        "times as many samples do not help: the curve stays as smooth as it was. More data help because they allow a "
        "narrower window. How narrow, leave-one-out says: predict every sample from all the others, and take the width "
        "with the least error. So it needs no truth and no second set of data.",
        "带宽决定一个查询能看多远。带宽为 1 时，每个回答都混合了大半的数据，样本再多一千倍也无济于事：曲线依旧"
        "同样平滑。数据多之所以有用，是因为窗口可以更窄。窄到多少由留一法决定：用其余所有样本预测每一个样本，取误差最"
        "小的带宽。这既不需要真值，也不需要另一份数据。",
    ),
    formula=Text(
        "width = argminₕ Σᵢ (yᵢ − f₋ᵢ(xᵢ; h))²,     f₋ᵢ: the curve from all samples but the i-th",
        "带宽 = argminₕ Σᵢ (yᵢ − f₋ᵢ(xᵢ; h))²,     f₋ᵢ: 除第 i 个样本外所有样本给出的曲线",
    ),
    caption=Text(
        "Left: from 50,000 samples, the curve of width 1 is far flatter than the truth; the one whose width is chosen "
        "by leave-one-out lies on it. Right: its error falls with every tenfold of the data, on logarithmic axes, "
        "while that of width 1 stays (lines: means; dots: three seeds).",
        "左：用 50000 个样本时，带宽为 1 的曲线仍比真实曲线平缓得多，而留一法选带宽的曲线与真实曲线重合。右：双对数坐"
        "标下，数据每增加十倍，后者的误差都下降，而带宽为 1 的误差几乎不变（线为均值，点为三个种子）。",
    ),
    meanings={
        "counts": Text("numbers of samples", "样本数"),
        "errors": Text(
            "mean squared errors, width by leave-one-out, mean of 3 seeds", "留一法选带宽的均方误差，3 个种子的均值"
        ),
        "spreads": Text("their standard deviations over the seeds", "各误差在种子间的标准差"),
        "widths": Text("widths chosen, mean of the seeds", "选出的带宽，种子均值"),
        "fixed_errors": Text("mean squared errors, width 1, mean of the seeds", "带宽固定为 1 的均方误差，种子均值"),
        "roughness": Text(
            "roughness of the curve of width 1 ÷ the truth's, the largest of the four means",
            "带宽为 1 的曲线粗糙度 ÷ 真实曲线粗糙度，四种样本数的均值中最大者",
        ),
        "distance": Text(
            "root mean squared error at 50,000 samples, width by leave-one-out",
            "50000 个样本、留一法选带宽的均方根误差",
        ),
    },
    deciding="distance",
    run=run,
    judge=judge,
)
