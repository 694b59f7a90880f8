"""Claim 10: K measures a distance, and there are several kernels to choose from."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

import regard
from regard import KernelRegressor
from regard.attention.kernels import KERNELS
from regard.data import curve
from regard.tour.section import Choice, Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Bars, Chart, Dots, Line, Mark, Panel

PLAIN = """
kernel = "gaussian"
width = 0.5

K = kernels[kernel]
u = torch.linspace(0, 2, 101)
rising = (K(u).diff() > 0).sum()  # a distance would rise with u
falling = (K(u).diff() < 0).sum()

weights_by_kernel = torch.softmax(torch.log(K((x[:, None] - x_i) / width)), -1)  # (101 queries, 50 samples)
curve_by_kernel = weights_by_kernel @ y_i
error_by_kernel = ((curve_by_kernel - truth) ** 2).nanmean()  # nan: a query that reaches no sample
"""

SHORT = """
import regard

score = regard.Kernel(kernel, width)
ours = regard.attend(x[:, None], x_i[:, None], y_i[:, None], score=score)[:, 0]
torch.testing.assert_close(ours, curve_by_kernel)
"""

LOCAL = tuple(name for name in KERNELS if name != "constant")
SEEDS = 5


def falls(name: str) -> tuple[int, int]:
    """In how many steps away from the query K rises, and in how many it falls."""
    distance = torch.linspace(0, 2, 201, dtype=torch.float64)[:, None]
    steps = regard.Kernel(name)(distance[:1], distance)[0].exp().diff()
    return int((steps > 0).sum()), int((steps < 0).sum())


def errors(names: Sequence[str], noise: float) -> Tensor:
    """Mean squared errors (kernels, seeds) against the truth, each kernel at its own leave-one-out width."""
    truth, measured = curve.truth(curve.GRID), torch.zeros(len(names), SEEDS).double()
    for seed in range(SEEDS):
        x, y = curve.samples(50, seed, noise)
        for row, name in enumerate(names):
            model = KernelRegressor(name, bandwidth="loo").fit(x, y)
            measured[row, seed] = (torch.from_numpy(model.predict(curve.GRID)) - truth).square().mean()
    return measured


def measure(names: Sequence[str] = LOCAL, noise: float = 0.5) -> Measured:
    """Which way each kernel goes with distance, and how well each of them serves."""
    measured, constant = errors(names, noise), errors(["constant"], noise)[0]
    steps = [falls(name) for name in names]
    means, spreads = measured.mean(1), measured.std(1)
    numbers = Numbers(
        kernels=len(names),
        rising=sum(up for up, _ in steps),
        falling=sum(down > 0 for _, down in steps),
        best=means.min(),
        worst=means.max(),
        spread=spreads.max(),
        average=constant.mean(),
        average_spread=constant.std(),
        wins=(measured < constant).sum(),
        pairs=measured.numel(),
    )
    bars = Bars(
        [*names, "constant"],
        [*means.tolist(), float(constant.mean())],
        colour="attention",
        spread=[*spreads.tolist(), float(constant.std())],
    )
    caption = Text(
        f"The error of each kernel at its leave-one-out width, {SEEDS} seeds; the constant one is average pooling.",
        f"各核在留一法所选带宽下的误差，{SEEDS} 个种子的均值与波动；常数核即平均汇聚。",
    )
    return numbers, Chart([Panel([bars], y=Text("mean squared error", "均方误差"))], caption)


def judge(numbers: Numbers) -> Criteria:
    """There is a choice: each kernel serves. And K goes down with distance."""
    yield numbers.criterion(
        numbers.wins == numbers.pairs and numbers.worst + numbers.spread < numbers.average,
        "Each of {kernels} kernels must be fit to be chosen: with less error than average pooling in every seed, and "
        "beyond the spread. They have in {wins} of {pairs} pairs of kernel and seed; their mean errors lie between "
        "{best} and {worst} (spread up to {spread}), average pooling's is {average} ± {average_spread}.",
        "{kernels} 种核都应可供选择：每个种子中误差都低于平均汇聚，且超出波动。{pairs} 个（核，种子）组合中有 {wins} "
        "个如此；平均误差在 {best} 与 {worst} 之间（波动至多 {spread}），平均汇聚为 {average} ± {average_spread}。",
    )
    yield numbers.correction(
        numbers.rising == 0 and numbers.falling == numbers.kernels,
        "A distance would rise from the query outwards; a similarity, which is computed from the distance and is the "
        "larger the closer, never rises, and falls somewhere. Of {kernels} kernels {falling} fall somewhere, and K "
        "rises in {rising} steps.",
        "距离应随远离查询而增大；相似度由距离算出，越近越大，所以从不增大，且会在某处减小。{kernels} 种核中有 "
        "{falling} 种会减小，K 增大的步数为 {rising}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The shape of the chosen kernel, and the curve that it gives."""
    away = torch.linspace(-2, 2, 201)
    shape: list[Mark] = [Line(away, cell.K(away), cell.kernel, "attention")]
    marks: list[Mark] = [
        Dots(cell.x_i, cell.y_i, Text("noisy samples", "带噪样本"), "samples"),
        Line(cell.x, cell.truth, Text("truth", "真实曲线"), "truth"),
        Line(cell.x, cell.curve_by_kernel, cell.kernel, "attention"),
    ]
    caption = Text(
        "The kernel by the distance in widths, and the curve that it makes of the samples.",
        "核随距离（以带宽为单位）的形状，以及由它得到的曲线。",
    )
    return Chart([Panel(shape, x="u", y="K(u)", y_limits=(0, 1.1)), Panel(marks, x="x", y="y", share=1.6)], caption)


SECTION = Section(
    number=10,
    notes=(Passage("000", 37, 41), Passage("000", 49, 55), Passage("002", 10, 10)),
    title=Text("The kernel is a choice", "核函数可以选择"),
    claim=Text(
        "The kernel K measures the distance between x and xᵢ, and so the importance of each sample; there are several "
        "functions to choose from, of which the Gaussian is one.",
        "核 K 衡量 x 与 xᵢ 之间的距离，从而给出每个样本的重要性；这样的函数有多种可以选择，高斯核是其中之一。",
    ),
    idea=Text(
        "A kernel takes the distance and returns how much the sample counts. Some fade out, some end at one width, "
        "one is flat up to its edge. All are given the same samples, and each the width at which it predicts left-out "
        "samples best.",
        "核由距离得出样本该占多少份量。有的逐渐衰减，有的到一个带宽处为止，有的到边缘前一直是平的。给它们同样的样本，"
        "各自取能把留出的样本预测得最好的带宽。",
    ),
    formula=r"f(x) = \sum_i \frac{K\left(\frac{x - x_i}{h}\right)}{\sum_j K\left(\frac{x - x_j}{h}\right)}\, y_i, "
    r"\qquad |u| < |v| \Rightarrow K(u) \ge K(v)",
    plain=PLAIN,
    short=SHORT,
    uses=(3, 39),
    show=draw,
    controls=(
        Control(
            'kernel = "gaussian"',
            Text("kernel", "核"),
            Choice(("gaussian", "laplace", "constant", "boxcar", "triangular", "epanechnikov")),
        ),
        Control("width = 0.5", Text("width", "带宽"), Slider(0.05, 5, log=True)),
    ),
    exercises=(
        Exercise(
            ('kernel = "gaussian"', 'kernel = "boxcar"'),
            Text("A window with hard edges: what becomes of the error?", "窗口边缘是硬的：误差如何？"),
            Text(
                "It is {now.error_by_kernel:.3f}; the Gaussian's was {was.error_by_kernel:.3f}.",
                "误差为 {now.error_by_kernel:.3f}，高斯核为 {was.error_by_kernel:.3f}。",
            ),
        ),
        Exercise(
            ("K = kernels[kernel]", "K = torch.abs"),
            Text(
                "Take the distance itself as K: which way does it go, and does the curve still fit?",
                "直接以距离作为 K：它随距离怎样变化？曲线还合适吗？",
            ),
            Text(
                "It rises in {now.rising} of 100 steps, the Gaussian in {was.rising}; the error is "
                "{now.error_by_kernel:.3f} instead of {was.error_by_kernel:.3f}.",
                "100 步中有 {now.rising} 步增大，高斯核为 {was.rising} 步；误差为 {now.error_by_kernel:.3f}，原来为 "
                "{was.error_by_kernel:.3f}。",
            ),
        ),
    ),
    meanings={
        "kernels": Text("kernels tried, without the constant one", "试过的核，不含常数核"),
        "rising": Text("steps away from the query in which some K rises", "远离查询时 K 增大的步数"),
        "falling": Text("kernels that fall somewhere", "随距离减小的核的个数"),
        "best": Text("smallest mean error of a kernel", "各核平均误差中最小的"),
        "worst": Text("largest mean error of a kernel", "各核平均误差中最大的"),
        "spread": Text("largest standard deviation of a kernel over the seeds", "各核在种子间的标准差中最大的"),
        "average": Text("mean error of average pooling", "平均汇聚的平均误差"),
        "average_spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "wins": Text(
            "pairs of kernel and seed with less error than average pooling", "误差低于平均汇聚的（核，种子）组合数"
        ),
        "pairs": Text("such pairs tried", "组合总数"),
    },
    deciding="worst",
    run=measure,
    judge=judge,
    laboratory="#/curve?kernel=boxcar&bandwidth=0.5",
)
