"""Claim 36: f(x) outputs a probability distribution."""

from types import SimpleNamespace

import torch

import regard
from regard.data import curve
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Bars, Chart, Line, Mark, Panel

PLAIN = """
values = y_i  # what was measured: any numbers
scores = -((x[:, None] - x_i) ** 2) / 2
attention = torch.softmax(scores, -1)  # (101 queries, 50 samples): normalised
f = attention @ values  # (101,): one number for each query, a weighted average of the values

row_sums = attention.sum(-1)  # is each row a distribution?
lowest_weight, lowest_f = attention.min(), f.min()
"""

SHORT = """
import regard

ours, weights_of_regard = regard.attend(
    x[:, None], x_i[:, None], values[:, None], score=regard.Kernel("gaussian"), need_weights=True
)
torch.testing.assert_close(ours[:, 0], f)
torch.testing.assert_close(weights_of_regard, attention)
"""


def measure(shift: float = 0.0, classes: bool = False) -> Measured:
    """The weights and the output, for the notes' samples moved by `shift`, or for values that are themselves
    distributions: one of two classes, above and below the mean."""
    sums, lows, outputs = [], [], []
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)
        high = (y > y.mean()).double()
        values = torch.cat([high, 1 - high], 1) if classes else y + shift  # (50, 2) or (50, 1)
        output, weights = regard.attend(curve.GRID, x, values, score=regard.Kernel("gaussian"), need_weights=True)
        sums.append((weights.sum(-1) - 1).abs().max())
        lows.append(weights.min())
        outputs.append(output)  # (101, 1 or 2)
    output = torch.stack(outputs)
    return Numbers(
        off_one=torch.stack(sums).max(),
        smallest=torch.stack(lows).min(),
        lowest=output.min(),
        highest=output.max(),
        output_off_one=(output.sum(-1) - 1).abs().max(),
        seeds=len(outputs),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """The weights are a distribution; whether the output is one, the output shows."""
    yield numbers.identity(
        numbers.smallest >= 0 and numbers.off_one <= 1e-12,
        "For each query the weights must be ≥ 0 and sum to 1, to 10⁻¹²: the smallest is {smallest}, sums are off by "
        "{off_one} at most.",
        "对每个查询，权重都应非负且总和为 1，误差不超过 10⁻¹²：最小的为 {smallest}，总和最多偏离 {off_one}。",
    )
    yield numbers.correction(
        numbers.lowest < 0 or numbers.output_off_one > 1e-6,
        "A distribution is ≥ 0 and sums to 1. Over {seeds} draws what f(x) returns for a query lies between {lowest} "
        "and {highest}, and its sum is off 1 by up to {output_off_one}. By definition it is the mean of the values "
        "under the weights: the weights are what the claim may be said of.",
        "概率分布应非负且总和为 1。{seeds} 次抽样中，f(x) 对一个查询只输出一个数，在 {lowest} 与 {highest} 之间，与 1 "
        "最多"
        "相差 {output_off_one}。按定义它是值在这些权重下的均值：能说是概率分布的是权重。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """One row of weights, and f."""
    weights: list[Mark] = [
        Bars([""] * 50, cell.attention[50], Text("weights for x = 2.5", "x = 2.5 的权重"), "attention")
    ]
    output: list[Mark] = [
        Line(cell.x, cell.f, "f(x)", "truth"),
        Line([0, 5], [1, 1], Text("the sum of a distribution", "概率分布的总和"), "ink", style="dotted"),
    ]
    caption = Text(
        "The weights of the fifty samples for one query, and the output for all queries.",
        "一个查询对五十个样本的权重，以及所有查询的输出。",
    )
    return Chart([Panel(weights, x=Text("sample", "样本")), Panel(output, x="x", y="f(x)")], caption)


SECTION = Section(
    number=36,
    notes=(Passage("000", 59, 59),),
    title=Text("f(x) as a probability distribution", "f(x) 与概率分布"),
    claim=Text(
        "f(x) amounts to a normalisation of every output, and in the end outputs a probability distribution.",
        "f(x) 等于把各个输出都归一化，结果是一个概率分布。",
    ),
    idea=Text(
        "Two steps are in f(x): the kernels are divided by their sum, which makes weights, and the weights average "
        "the values, which makes a number. What is not negative and sums to 1 is the first of them. The second "
        "inherits the values' units and sign, whatever they are; only where the values are themselves distributions, "
        "as the classes of a classifier, is their mean one.",
        "f(x) 分两步：核除以它们的总和，得到权重；权重再对值求平均，得到一个数。非负且总和为 1 的是第一步的结果。第二"
        "步的结果带着值的单位和正负号；只有当值本身就是分布时（例如类别的 one-hot 向量），它们的均值才是分布。",
    ),
    formula=r"\alpha_i(x) = \frac{K(x - x_i)}{\sum_j K(x - x_j)}, \quad \sum_i \alpha_i(x) = 1; \qquad "
    r"f(x) = \sum_i \alpha_i(x)\, y_i",
    plain=PLAIN,
    short=SHORT,
    uses=(3,),
    show=draw,
    exercises=(
        Exercise(
            ("values = y_i", "values = y_i - 3"),
            Text(
                "The same samples, 3 lower: how low does f get, and how low a weight?",
                "同样的样本都减去 3：f 最低是多少？权重最低是多少？",
            ),
            Text(
                "f gets down to {now.lowest_f:.2f} (before {was.lowest_f:.2f}), the weights to "
                "{now.lowest_weight:.1e} (before {was.lowest_weight:.1e}).",
                "f 最低为 {now.lowest_f:.2f}（原来为 {was.lowest_f:.2f}），权重最低为 {now.lowest_weight:.1e}（原来为 "
                "{was.lowest_weight:.1e}）。",
            ),
        ),
        Exercise(
            ("values = y_i", "values = (y_i > 2).float()"),
            Text(
                "Values that are 1 for y > 2, else 0: what does f say at x = 2?",
                "y > 2 时值为 1，否则为 0：f 在 x = 2 处是多少？",
            ),
            Text(
                "{now.f[40]:.3f}: the weight of all samples with y > 2, which is the probability of that class. "
                "Before it was {was.f[40]:.3f}.",
                "{now.f[40]:.3f}：所有 y > 2 的样本的权重之和，即该类别的概率。原来为 {was.f[40]:.3f}。",
            ),
        ),
    ),
    meanings={
        "off_one": Text("largest |sum of the weights − 1|", "|权重之和 − 1| 的最大值"),
        "smallest": Text("smallest weight", "最小的权重"),
        "lowest": Text("smallest f(x)", "最小的 f(x)"),
        "highest": Text("largest f(x)", "最大的 f(x)"),
        "output_off_one": Text("largest |sum of f(x) − 1| for a query", "对一个查询，|f(x) − 1| 的最大值"),
        "seeds": Text("draws of the samples", "抽样次数"),
    },
    deciding="output_off_one",
    run=measure,
    judge=judge,
)
