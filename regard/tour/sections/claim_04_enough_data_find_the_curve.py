"""Claim 4: the curve without parameters is too smooth; enough data would bring out the true one."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy
import torch
from torch import Tensor

from regard import KernelRegressor
from regard.data import curve
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Line, Mark, Panel

PLAIN = """
fixed = 1.0  # the width of the notes


def draw_samples(n):
    places = torch.sort(5 * torch.rand(n)).values
    return places, 2 * torch.sin(places) + places**0.8 + 0.5 * torch.randn(n)


def leave_one_out(width, x_i, y_i):  # how well is every sample predicted by all the others?
    scores = -(((x_i[:, None] - x_i) / width) ** 2) / 2  # (n, n)
    scores.fill_diagonal_(-torch.inf)  # nobody looks at itself
    return ((torch.softmax(scores, -1) @ y_i - y_i) ** 2).mean()


counts, widths, errors, chosen_errors = [50, 150, 500, 1500], [0.05, 0.1, 0.2, 0.4, 0.8], [], []
for n in counts:
    places, measured = draw_samples(n)
    chosen = min(widths, key=lambda width: leave_one_out(width, places, measured))
    for width, kept in ((fixed, errors), (chosen, chosen_errors)):
        weights = torch.softmax(-(((x[:, None] - places) / width) ** 2) / 2, -1)  # (101 queries, n)
        kept.append(((weights @ measured - truth) ** 2).mean().item())
"""

SHORT = """
import regard

model = regard.KernelRegressor(bandwidth=chosen).fit(places[:, None], measured)
ours = torch.from_numpy(model.predict(x[:, None])).float()
torch.testing.assert_close(ours, weights @ measured, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(model.loo_error_, leave_one_out(chosen, places, measured).item(), rtol=1e-4, atol=1e-4)
"""

COUNTS = (50, 500, 5_000, 50_000)
WIDTHS = numpy.geomspace(0.025, 0.4, 9).tolist()  # a factor of √2 from one to the next
SEEDS = 3


def roughness(curves: Tensor) -> Tensor:
    """How much curves (…, grid, 1) bend: the mean square of their second differences."""
    return curves.diff(n=2, dim=-2).square().mean((-2, -1))


def chosen_by_leaving_out(x: Tensor, y: Tensor) -> KernelRegressor:
    """The candidate that predicts every sample best from the others."""
    return min((KernelRegressor(bandwidth=width).fit(x, y) for width in WIDTHS), key=lambda model: model.loo_error_)


def measure(width: float = 1.0, counts: Sequence[int] = COUNTS) -> Measured:
    """Ten, a hundred, a thousand times as many samples, at the fixed width and at one chosen by leave-one-out."""
    truth = curve.truth(curve.GRID)
    curves = torch.zeros(2, len(counts), SEEDS, len(truth), 1).double()  # (fixed or chosen, counts, seeds, 101, 1)
    widths = torch.zeros(len(counts), SEEDS)
    for row, count in enumerate(counts):
        for seed in range(SEEDS):
            x, y = curve.samples(count, seed)
            models = KernelRegressor(bandwidth=width).fit(x, y), chosen_by_leaving_out(x, y)
            widths[row, seed] = float(models[1].bandwidth_[0])
            for rule, model in enumerate(models):
                curves[rule, row, seed] = torch.from_numpy(model.predict(curve.GRID))
    errors = (curves - truth).square().mean((-2, -1))  # (fixed or chosen, counts, seeds)
    numbers = Numbers(
        counts=counts,
        bent=(roughness(curves[0, 0]) / roughness(truth)).mean(),
        bent_spread=(roughness(curves[0, 0]) / roughness(truth)).std(),
        fixed_errors=errors[0].mean(-1),
        chosen_errors=errors[1].mean(-1),
        chosen_spreads=errors[1].std(-1),
        widths=widths.mean(-1),
        fixed_distance=errors[0, -1].mean().sqrt(),
        chosen_distance=errors[1, -1].mean().sqrt(),
        width=width,
        seeds=SEEDS,
    )
    return numbers, picture(counts, curves[:, -1, 0], errors, width)


def picture(counts: Sequence[int], curves: Tensor, errors: Tensor, width: float) -> Chart:
    """The curves of the most samples, and the errors on the way there."""
    names = Text(f"width {width:g}", f"带宽 {width:g}"), Text("width by leave-one-out", "留一法选带宽")
    left: list[Mark] = [Line(curve.GRID, curve.truth(curve.GRID), Text("truth", "真实曲线"), "truth")]
    right: list[Mark] = []
    for name, colour, line, error in zip(names, ("pooled", "attention"), curves, errors, strict=True):
        left.append(Line(curve.GRID, line, name, colour, style="dashed"))
        right.append(Line(counts, error.mean(-1), name, colour, dots=True))
    count, samples = f"{counts[-1]:,}", Text("number of samples", "样本数")
    error_name = Text("mean squared error", "均方误差")
    return Chart(
        [
            Panel(left, x="x", y="y", title=Text(f"from {count} samples", f"{count} 个样本")),
            Panel(right, x=samples, y=error_name, x_log=True, y_log=True),
        ],
        Text(
            "The curves from the most samples, and the error by the number of samples, mean over the seeds.",
            "样本最多时的曲线，以及误差随样本数的变化（种子均值）。",
        ),
    )


def judge(numbers: Numbers) -> Criteria:
    """Too smooth first; then whether data cure it, at the width that the notes have and at one that may change."""
    yield numbers.criterion(
        numbers.bent + numbers.bent_spread <= 0.5,
        "Too smooth: with {counts[0]} samples the curve of width {width} must bend at most half as much as the truth, "
        "beyond the spread (mean square of the second differences). It has {bent:.1%} ± {bent_spread:.1%} of the "
        "truth's.",
        "过于平滑：有 {counts[0]} 个样本时，带宽 {width} 的曲线弯曲程度（二阶差分的均方）应不超过真实曲线的一半，且超"
        "出波动：测得为真实曲线的 {bent:.1%} ± {bent_spread:.1%}。",
    )
    yield numbers.criterion(
        numbers.fixed_distance <= 0.05,
        "Enough data at the notes' fixed width (whether it may change they do not say): with {counts[-1]} samples the "
        "curve must be within "
        "a tenth of the noise, 0.05, of the truth. At width {width} it is {fixed_distance} away (root mean square); "
        "errors by samples: {fixed_errors}.",
        "只增加数据、其余不变：有 {counts[-1]} 个样本时，曲线与真实曲线的偏差应不超过噪声的十分之一，即 0.05。带宽 "
        "{width} 时偏差为 {fixed_distance}（均方根）；误差随样本数依次为 {fixed_errors}。",
    )
    yield numbers.criterion(
        numbers.chosen_distance <= 0.05,
        "The same where the width may shrink as data come in, chosen by leave-one-out: it is {chosen_distance} away; "
        "errors by samples: {chosen_errors}, at widths {widths}.",
        "若带宽可以随数据增多而变窄，由留一法选定，同样的要求：偏差为 {chosen_distance}；误差随样本数依次为 "
        "{chosen_errors}，带宽依次为 {widths}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The errors of the cell."""
    marks: list[Mark] = [
        Line(cell.counts, cell.errors, Text("fixed width", "固定带宽"), "pooled", dots=True),
        Line(cell.counts, cell.chosen_errors, Text("width by leave-one-out", "留一法选带宽"), "attention", dots=True),
    ]
    caption = Text(
        "The error of the cell's two curves by the number of samples.", "代码中两条曲线的误差随样本数的变化。"
    )
    error = Text("mean squared error", "均方误差")
    return Chart([Panel(marks, x=Text("number of samples", "样本数"), y=error, x_log=True, y_log=True)], caption, 220)


SECTION = Section(
    number=4,
    notes=(Passage("000", 93, 97),),
    title=Text("Too smooth, until there are enough data", "曲线过于平滑，数据足够时才能还原"),
    claim=Text(
        "Attention without parameters gives a curve that is too smooth. Given enough data the curve could be brought "
        "out, but in life there are not that many.",
        "非参数化的注意力得到的曲线过于平滑。给定足够的数据可以还原出这条曲线，但现实中没有那么多数据。",
    ),
    idea=Text(
        "The width decides over how much of the curve a query averages, and a fixed width averages over as much of "
        "it, however many samples lie there. More data allow a narrower window, because enough samples are left in "
        "it. How narrow, leave-one-out tells without knowing the truth: it takes the width at which every sample is "
        "predicted best by all the others.",
        "带宽决定一个查询对曲线的多长一段取平均；带宽固定时，无论其中有多少样本，平均的都是同样长的一段。数据多了，窗"
        "口就可以更窄，因为其中仍有足够的样本。窄到多少，不必知道真实曲线，由留一法决定：取能让其余样本把每个样本预测"
        "得最好的带宽。",
    ),
    formula=r"h = \mathrm{argmin}_h \sum_i \left(y_i - f_{-i}(x_i; h)\right)^2, \qquad f_{-i}(x; h) = "
    r"\sum_{j \ne i} \mathrm{softmax}_j\left(-\frac{(x - x_j)^2}{2 h^2}\right) y_j",
    plain=PLAIN,
    short=SHORT,
    uses=(3,),
    show=draw,
    exercises=(
        Exercise(
            ("fixed = 1.0", "fixed = 0.1"),
            Text(
                "A fixed width of 0.1: does it gain from more data, and does it do well with few?",
                "固定带宽取 0.1：数据增多有好处吗？数据少时好吗？",
            ),
            Text(
                "Its error goes from {now.errors[0]:.4f} to {now.errors[3]:.4f}; at width 1 it went from "
                "{was.errors[0]:.4f} to {was.errors[3]:.4f}.",
                "误差由 {now.errors[0]:.4f} 变为 {now.errors[3]:.4f}；带宽为 1 时由 {was.errors[0]:.4f} 变为 "
                "{was.errors[3]:.4f}。",
            ),
        ),
        Exercise(
            ("scores.fill_diagonal_(-torch.inf)", "scores.fill_diagonal_(0.0)"),
            Text(
                "Let every sample look at itself: which width is chosen in the end?",
                "让每个样本可以看自己：最后选出的带宽是多少？",
            ),
            Text("{now.chosen}; before it was {was.chosen}.", "{now.chosen}；原来为 {was.chosen}。"),
        ),
    ),
    meanings={
        "counts": Text("numbers of samples", "样本数"),
        "bent": Text(
            "bending of the curve ÷ the truth's, at the fixed width and fewest samples",
            "固定带宽、样本最少时，曲线弯曲程度 ÷ 真实曲线的",
        ),
        "bent_spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "fixed_errors": Text("mean squared errors at the fixed width, by samples", "固定带宽的均方误差，按样本数"),
        "chosen_errors": Text("the same with the width by leave-one-out", "留一法选带宽的均方误差"),
        "chosen_spreads": Text("their standard deviations over the seeds", "其在种子间的标准差"),
        "widths": Text("widths chosen, mean over the seeds", "选出的带宽，种子均值"),
        "fixed_distance": Text(
            "root mean squared error at the fixed width, most samples", "样本最多时，固定带宽的均方根误差"
        ),
        "chosen_distance": Text("the same with the width by leave-one-out", "样本最多时，留一法选带宽的均方根误差"),
        "width": Text("the fixed width", "固定的带宽"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="fixed_distance",
    run=measure,
    rehearsal=lambda: measure(counts=(50, 200)),
    judge=judge,
    laboratory="#/curve?kernel=gaussian&bandwidth=1",
)
