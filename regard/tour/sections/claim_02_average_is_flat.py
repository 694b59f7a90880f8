"""Claim 2: averaging all y gives a horizontal line without any trend."""

from types import SimpleNamespace

import torch

import regard
from regard.data import curve
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Dots, Line, Mark, Panel

PLAIN = """
x_i = torch.sort(5 * torch.rand(50)).values  # where 50 samples were taken: the keys
y_i = 2 * torch.sin(x_i) + x_i**0.8 + 0.5 * torch.randn(50)  # what was measured there, with noise: the values
x = torch.linspace(0, 5, 101)  # where we want to know y: the queries

scores = torch.zeros(len(x), len(x_i))  # whatever x is, every sample is as important as any other
weights = torch.softmax(scores, -1)  # (101 queries, 50 samples): 1/50 each
line = weights @ y_i  # (101,)
rise = line.max() - line.min()
"""

SHORT = """
import regard

ours = regard.attend(x[:, None], x_i[:, None], y_i[:, None], score=regard.Kernel("constant"))[:, 0]
torch.testing.assert_close(ours, line)
torch.testing.assert_close(regard.average_pool(y_i[:, None]).expand(101, 1)[:, 0], line)
"""


def measure(kernel: str = "constant") -> Measured:
    """The average of the samples as attention, at 101 places, for five draws."""
    truth = curve.truth(curve.GRID)
    drawn = [curve.samples(50, seed) for seed in curve.SEEDS]
    score = regard.Kernel(kernel)
    lines = torch.stack([regard.attend(curve.GRID, x, y, score=score) for x, y in drawn])  # (seeds, 101, 1)
    means = torch.stack([y.mean() for _, y in drawn])
    return Numbers(
        rise=(lines.amax(1) - lines.amin(1)).max(),
        off_mean=(lines[..., 0] - means[:, None]).abs().max(),
        truth_rise=truth.max() - truth.min(),
        error=(lines - truth).square().mean(),
        truth_variance=truth.var(correction=0),
        seeds=len(drawn),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """The same number for every query."""
    yield numbers.identity(
        numbers.rise <= 1e-12 and numbers.off_mean <= 1e-12,
        "An average that does not read x must be the same for every x, to 10⁻¹²: over 0 ≤ x ≤ 5, where the truth "
        "moves by {truth_rise}, the lines of {seeds} draws move by {rise} at most, and are {off_mean} away from the "
        "mean of the y.",
        "不看 x 的平均值对每个 x 都应相同，误差不超过 10⁻¹²：在 0 ≤ x ≤ 5 上真实曲线变化 {truth_rise}，而 {seeds} 次抽"
        "样的直线最多变化 {rise}，与 y 的均值最多相差 {off_mean}。",
    )
    yield numbers.identity(
        numbers.error >= numbers.truth_variance,
        "A line without trend leaves at least the variance of the truth over x, {truth_variance}, as its mean squared "
        "error: it is {error}.",
        "没有趋势的直线，均方误差至少等于真实曲线沿 x 的方差 {truth_variance}：测得 {error}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The samples and the line."""
    marks: list[Mark] = [
        Dots(cell.x_i, cell.y_i, Text("50 noisy samples", "50 个带噪样本"), "samples"),
        Line(cell.x, 2 * torch.sin(cell.x) + cell.x**0.8, Text("truth", "真实曲线"), "truth"),
        Line(cell.x, cell.line, Text("average of all y", "所有 y 的平均"), "pooled"),
    ]
    caption = Text(
        "Fifty noisy samples of a curve, the curve, and the average of all the samples at each x.",
        "一条曲线的五十个带噪样本、曲线本身，以及每个 x 处所有样本的平均值。",
    )
    return Chart([Panel(marks, x="x", y="y", x_limits=(-0.08, 5.08))], caption)


SECTION = Section(
    number=2,
    notes=(Passage("000", 36, 39), Passage("000", 89, 89)),
    title=Text("The average of all y is a flat line", "对所有 y 取平均只得到一条水平线"),
    claim=Text(
        "Average pooling returns the average of all data, whatever x is given: a straight, horizontal line that has "
        "no trend at all.",
        "无论查询哪个 x，平均汇聚的回答都是全部 y 的均值：画出来是一条水平线，看不出趋势。",
    ),
    idea=Text(
        "Average pooling is attention that does not listen: every key gets the same score, so every value gets the "
        "weight 1/n. The query appears in no score, so it cannot appear in the answer. It is the baseline that every "
        "kernel has to beat.",
        "平均汇聚是不理会查询的注意力：每个键的评分都一样，于是每个值的权重都是 1/n。查询不出现在任何评分里，也就不可能"
        "出现在结果里。它是每个核函数都要超过的基准。",
    ),
    formula=r"f(x) = \sum_{i=1}^{n} \mathrm{softmax}_i(0)\, y_i = \frac{1}{n} \sum_{i=1}^{n} y_i",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    exercises=(
        Exercise(
            ("scores = torch.zeros(len(x), len(x_i))", "scores = 7.0 * torch.ones(len(x), len(x_i))"),
            Text("Every score is 7 instead of 0: which line comes out?", "每个评分都是 7 而不是 0：得到哪条线？"),
            Text(
                "At y = {now.line[0]:.4f}; with 0 it was at {was.line[0]:.4f}.",
                "y = {now.line[0]:.4f}；评分为 0 时为 {was.line[0]:.4f}。",
            ),
        ),
        Exercise(
            ("scores = torch.zeros(len(x), len(x_i))", "scores = x_i.expand(len(x), len(x_i))"),
            Text(
                "Samples differ in importance, but not by the query: is the line still flat?",
                "样本的重要性不同，但与查询无关：还是水平线吗？",
            ),
            Text(
                "It rises by {now.rise:.1e} (before by {was.rise:.1e}) and lies at {now.line[0]:.3f} instead of "
                "{was.line[0]:.3f}.",
                "起伏为 {now.rise:.1e}（原来为 {was.rise:.1e}），位于 {now.line[0]:.3f}，原来为 {was.line[0]:.3f}。",
            ),
        ),
        Exercise(
            ("scores = torch.zeros(len(x), len(x_i))", "scores = -(((x[:, None] - x_i) / 10) ** 2) / 2"),
            Text("Let the query in, very weakly: how much does the line rise?", "让查询稍微起一点作用：线有多大起伏？"),
            Text("By {now.rise:.3f}; before it was {was.rise:.1e}.", "起伏为 {now.rise:.3f}，原来为 {was.rise:.1e}。"),
        ),
    ),
    meanings={
        "rise": Text(
            "largest − smallest value of the line over x, the most of all draws",
            "直线沿 x 的最大值 − 最小值，各次抽样中最大者",
        ),
        "off_mean": Text("largest |line − mean of the y|", "|直线 − y 的均值| 的最大值"),
        "truth_rise": Text("the same range of the truth", "真实曲线的同一范围"),
        "error": Text("mean squared error against the truth", "相对真实曲线的均方误差"),
        "truth_variance": Text("variance of the truth over x", "真实曲线沿 x 的方差"),
        "seeds": Text("draws of the samples", "抽样次数"),
    },
    deciding="rise",
    run=measure,
    judge=judge,
)
