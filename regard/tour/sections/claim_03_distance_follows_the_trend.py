"""Claim 3: weighting by distance (Nadaraya–Watson) follows the trend."""

from types import SimpleNamespace

import torch

import regard
from regard.data import curve
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Band, Chart, Dots, Line, Mark, Panel

PLAIN = """
samples = 50
noise = 0.5
width = 1.0

# What was measured: the keys are the places x_i, the values are what was read there.
x_i = torch.sort(5 * torch.rand(samples)).values
y_i = 2 * torch.sin(x_i) + x_i**0.8 + noise * torch.randn(samples)

# What is asked: a query is a place x at which we want to know y.
x = torch.linspace(0, 5, 101)
truth = 2 * torch.sin(x) + x**0.8

scores = -(((x[:, None] - x_i) / width) ** 2) / 2  # (101 queries, samples): the nearer, the higher
weights = torch.softmax(scores, -1)  # every row sums to 1
fitted = weights @ y_i  # (101,): for each query the weighted average of the values

average = y_i.mean().expand(101)  # claim 2: the same for every query
error, average_error = ((fitted - truth) ** 2).mean(), ((average - truth) ** 2).mean()
correlation = torch.corrcoef(torch.stack([fitted, truth]))[0, 1]
"""

SHORT = """
import regard

gaussian = regard.Kernel("gaussian", width)
ours = regard.attend(x[:, None], x_i[:, None], y_i[:, None], score=gaussian)[:, 0]
torch.testing.assert_close(ours, fitted)
"""

SEEDS = 20


def measure(width: float = 1.0, noise: float = 0.5, seeds: int = SEEDS) -> Measured:
    """The Gaussian against average pooling, on the same samples, with a noise of its own in every seed."""
    truth = curve.truth(curve.GRID)
    gaussian = regard.Kernel("gaussian", width)
    drawn = [curve.samples(50, seed, noise) for seed in range(seeds)]
    curves = torch.stack([regard.attend(curve.GRID, x, y, score=gaussian) for x, y in drawn])  # (seeds, 101, 1)
    averages = torch.stack([regard.average_pool(y) for _, y in drawn])  # (seeds, 1, 1)
    errors, average_errors = ((lines - truth).square().mean((1, 2)) for lines in (curves, averages))
    correlations = torch.stack([torch.corrcoef(torch.cat([fitted, truth], 1).T)[0, 1] for fitted in curves])
    numbers = Numbers(
        correlation=correlations.mean(),
        correlation_spread=correlations.std(),
        error=errors.mean(),
        error_spread=errors.std(),
        average_error=average_errors.mean(),
        average_spread=average_errors.std(),
        wins=(errors < average_errors).sum(),
        seeds=seeds,
    )
    low, high = curves[..., 0].quantile(torch.tensor([0.1, 0.9]).double(), 0)
    marks: list[Mark] = [
        Band(
            curve.GRID,
            low,
            high,
            Text("weighted by distance, 80 % of the seeds", "按距离加权，80% 的种子"),
            "attention",
        ),
        Line(curve.GRID, truth, Text("truth", "真实曲线"), "truth"),
        Line(
            curve.GRID, averages.mean().expand(101), Text("average of all y", "所有 y 的平均"), "pooled", style="dashed"
        ),
    ]
    caption = Text(
        f"Between which two curves 80 % of the curves of {seeds} draws lie, the truth and the mean of the averages.",
        f"{seeds} 次抽样所得曲线的 80% 所处的范围，以及真实曲线和各次平均值的均值。",
    )
    return numbers, Chart([Panel(marks, x="x", y="y")], caption)


def judge(numbers: Numbers) -> Criteria:
    """It goes up and down with the truth, and is nearer to it than the average is."""
    yield numbers.criterion(
        numbers.correlation - numbers.correlation_spread >= 0.5**0.5,
        "To follow the trend is to explain at least half of how the truth varies: a correlation of 0.707 or more, "
        "beyond the spread over {seeds} seeds. It is {correlation} ± {correlation_spread}.",
        "跟上趋势是指至少能解释真实曲线一半的变化，即相关系数不低于 0.707，且超出 {seeds} 个种子间的波动：测得 "
        "{correlation} ± {correlation_spread}。",
    )
    yield numbers.criterion(
        numbers.wins == numbers.seeds and numbers.error + numbers.error_spread < numbers.average_error,
        "In each of {seeds} seeds the error must be below that of the average of all y, and beyond the spread: it is "
        "so in {wins}; {error} ± {error_spread} against {average_error} ± {average_spread}.",
        "{seeds} 个种子中每一个的误差都应低于对所有 y 取平均，且超出波动：实际有 {wins} 个；{error} ± {error_spread}，"
        "平均则为 {average_error} ± {average_spread}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The notes' first picture: samples, truth, the weighted curve, and the horizontal line of claim 2."""
    marks: list[Mark] = [
        Dots(cell.x_i, cell.y_i, Text("noisy samples", "带噪样本"), "samples"),
        Line(cell.x, cell.truth, Text("truth", "真实曲线"), "truth"),
        Line(cell.x, cell.average, Text("average of all y", "所有 y 的平均"), "pooled", style="dotted"),
        Line(cell.x, cell.fitted, Text("weighted by distance", "按距离加权"), "attention", style="dashed"),
    ]
    caption = Text(
        "Samples of a curve, the curve itself, the average of all samples and their average weighted by distance.",
        "曲线的带噪样本、曲线本身、所有样本的平均值，以及按距离加权的平均值。",
    )
    return Chart([Panel(marks, x="x", y="y", x_limits=(-0.08, 5.08))], caption, height=300)


SECTION = Section(
    number=3,
    notes=(Passage("000", 37, 41), Passage("000", 87, 91), Passage("003", 25, 37)),
    title=Text("Weighting by distance follows the trend", "按距离加权能跟上趋势"),
    claim=Text(
        "The average of all y has no trend. Weighted, the importance of every sample for the queried x counts: the "
        "nearer a key is to the query, the more attention its value gets, so that the curve takes most of its value "
        "from the samples around x.",
        "对所有 y 取平均没有趋势。加权之后，每个样本对查询 x 的重要性都算在内：键离查询越近，它的值得到的注意力越多，"
        "曲线的取值主要来自 x 周围的样本。",
    ),
    idea=Text(
        "Regression is a question: the query is a new x, the keys are the places where something was measured, the "
        "values are what was measured there. A kernel turns the distance between query and key into a weight, here "
        "the Gaussian of width 1. Nothing is learned: the samples themselves are the model.",
        "回归就是提问：查询是新的 x，键是测量过的位置，值是在那里测到的数。核函数把查询与键的距离变成权重，这里用宽度"
        "为 1 的高斯核。什么也不用学习：样本本身就是模型。",
    ),
    formula=r"f(x) = \sum_i \frac{K(x - x_i)}{\sum_j K(x - x_j)}\, y_i, \qquad K(u) = \exp\left(-\frac{u^2}{2}\right)",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    controls=(
        Control("width = 1.0", Text("width", "带宽"), Slider(0.02, 10, log=True)),
        Control("samples = 50", Text("samples", "样本数"), Slider(5, 500, 1, log=True, whole=True)),
        Control("noise = 0.5", Text("noise", "噪声"), Slider(0, 3, 0.05)),
    ),
    exercises=(
        Exercise(
            ("width = 1.0", "width = 0.3"),
            Text("A narrower window: is the error smaller or larger?", "窗口变窄：误差变小还是变大？"),
            Text(
                "The error is {now.error:.3f}; it was {was.error:.3f}.",
                "误差为 {now.error:.3f}，原来为 {was.error:.3f}。",
            ),
        ),
        Exercise(
            ("width = 1.0", "width = 100.0"),
            Text(
                "An endless window: how far is the curve from the average of all y now?",
                "窗口极宽：曲线离所有 y 的平均值有多远？",
            ),
            Text(
                "The error is {now.error:.3f}, that of the average is {now.average_error:.3f}.",
                "误差为 {now.error:.3f}，平均值的误差为 {now.average_error:.3f}。",
            ),
        ),
        Exercise(
            ("samples = 50", "samples = 5"),
            Text("Five samples only: does it still beat their average?", "只有五个样本：还胜过它们的平均值吗？"),
            Text(
                "The error is {now.error:.3f}, that of the average {now.average_error:.3f}; with fifty they were "
                "{was.error:.3f} and {was.average_error:.3f}.",
                "误差为 {now.error:.3f}，平均值为 {now.average_error:.3f}；五十个样本时为 {was.error:.3f} 和 "
                "{was.average_error:.3f}。",
            ),
        ),
    ),
    meanings={
        "correlation": Text(
            "correlation of the curve with the truth, mean over seeds", "曲线与真实曲线的相关系数，种子均值"
        ),
        "correlation_spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "error": Text("mean squared error, weighted by distance", "均方误差，按距离加权"),
        "error_spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "average_error": Text("mean squared error, average of all y", "均方误差，对所有 y 取平均"),
        "average_spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "wins": Text("seeds in which the weighted curve's error is the smaller", "加权曲线误差更小的种子数"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="correlation",
    run=measure,
    judge=judge,
    laboratory="#/curve?kernel=gaussian&bandwidth=1",
)
