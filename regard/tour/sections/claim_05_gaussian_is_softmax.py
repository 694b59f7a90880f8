"""Claim 5: Nadaraya–Watson regression with a Gaussian kernel is softmax attention with score −½(x − x_i)²."""

import math
from types import SimpleNamespace

import torch
from torch import Tensor

import regard
from regard.data import curve
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Dots, Line, Mark, Panel

PLAIN = """
def nadaraya_watson(x, x_i, y_i, width=1.0):
    scores = -(((x[:, None] - x_i) / width) ** 2) / 2  # (queries, samples)
    return torch.softmax(scores, -1) @ y_i


queries = torch.linspace(0, 5, 101)
kernel = torch.exp(-((queries[:, None] - x_i) ** 2) / 2)  # the Gaussian itself, K(x - x_i)
kernel = kernel / math.sqrt(2 * math.pi)
as_ratio = (kernel * y_i).sum(-1) / kernel.sum(-1)  # a sum over a sum, as Nadaraya and Watson wrote it
as_softmax = nadaraya_watson(queries, x_i, y_i)
difference = (as_ratio - as_softmax).abs().max()
lost = as_ratio.isnan().sum()  # queries for which the ratio is 0/0
"""

SHORT = """
import regard

ours = regard.attend(queries[:, None], x_i[:, None], y_i[:, None], score=regard.Kernel("gaussian"))[:, 0]
torch.testing.assert_close(ours, as_softmax)
"""


def ratio_of_sums(query: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The estimate as Nadaraya and Watson wrote it."""
    kernel = torch.exp(-(query - x.T).square() / 2) / math.sqrt(2 * math.pi)  # (queries, samples)
    return (kernel @ y) / kernel.sum(-1, keepdim=True)


def run() -> Measured:
    """The same estimate in three ways, in float64, for five draws of the samples."""
    softmax, attended = [], []
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)
        ratio = ratio_of_sums(curve.GRID, x, y)
        softmax.append((torch.softmax(-(curve.GRID - x.T).square() / 2, -1) @ y - ratio).abs().max())
        attended.append((regard.attend(curve.GRID, x, y, score=regard.Kernel("gaussian")) - ratio).abs().max())
    return Numbers(softmax=torch.stack(softmax).max(), attend=torch.stack(attended).max(), seeds=len(softmax)), None


def judge(numbers: Numbers) -> Criteria:
    """The same to rounding."""
    yield numbers.identity(
        numbers.softmax <= 1e-12,
        "exp(log K) = K, and the constant 1/√(2π) cancels: ratio of sums and softmax must agree to 10⁻¹². Over "
        "{seeds} draws they differ by {softmax} at most.",
        "exp(log K) = K，常数 1/√(2π) 被约去：核之和的比与 softmax 应一致到 10⁻¹²。{seeds} 次抽样中最大相差 "
        "{softmax}。",
    )
    yield numbers.identity(
        numbers.attend <= 1e-12,
        "So must `attend`, whose score is the kernel's logarithm: it differs from the ratio by {attend} at most.",
        "以核的对数为评分的 `attend` 也应如此：与该比值最大相差 {attend}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """Both ways on top of each other, and what is left between them."""
    both: list[Mark] = [
        Line(cell.queries, cell.as_ratio, Text("ratio of kernel sums", "核之和的比"), "truth"),
        Dots(cell.queries[::5], cell.as_softmax[::5], "softmax", "attention"),
    ]
    gap = [
        Dots(cell.queries, (cell.as_ratio - cell.as_softmax).abs(), Text("their difference", "两者之差"), "other", 2)
    ]
    return Chart(
        [Panel(both, x="x", y="f(x)"), Panel(gap, x="x", y="|Δ|", y_log=True)],
        Text(
            "The curve as a ratio of sums and as a softmax, and how far the two are apart in float32; where they do "
            "not differ at all there is no dot.",
            "写成核之和的比与写成 softmax 所得的曲线，以及两者在 float32 下的差；完全相同之处没有点。",
        ),
    )


SECTION = Section(
    number=5,
    notes=(Passage("003", 25, 37),),
    title=Text("Gaussian kernel regression is a softmax", "高斯核回归就是 softmax"),
    claim=Text(
        "With a Gaussian kernel, the Nadaraya–Watson estimator is attention pooling whose weights are the softmax of "
        "−½(x − xᵢ)².",
        "取高斯核时，Nadaraya–Watson 估计就是注意力汇聚，其权重为 −½(x − xᵢ)² 的 softmax。",
    ),
    idea=Text(
        "A kernel over the sum of kernels, an exponential over the sum of exponentials: with K = exp(log K) it is one "
        "fraction. So −½(x − xᵢ)², the exponent, is the first scoring function of the course, and every later one "
        "takes its place. On paper the two are the same everywhere; in floating point softmax subtracts the largest "
        "score first, so that not all exponentials can become 0.",
        "核除以核之和，exp 除以 exp 之和：写成 K = exp(log K)，就是同一个分式。所以幂指数 −½(x − xᵢ)² 是本课程的第一个"
        "评"
        "分函数，后面的评分函数都是换掉它。数学上两者处处相同；在浮点数中，softmax 先减去最大的评分，各项 exp 就不会全"
        "部变"
        "成 0。",
    ),
    formula=r"\frac{K(x - x_i)}{\sum_j K(x - x_j)} = \frac{\exp(\log K(x - x_i))}{\sum_j \exp(\log K(x - x_j))} = "
    r"\mathrm{softmax}_i\left(-\frac12 (x - x_i)^2\right)",
    plain=PLAIN,
    short=SHORT,
    uses=(3,),
    show=draw,
    exercises=(
        Exercise(
            ("kernel = kernel / math.sqrt(2 * math.pi)", "kernel = kernel * 1000"),
            Text("Another constant in front of the kernel: does the curve change?", "核前换一个常数：曲线会变吗？"),
            Text(
                "Ratio and softmax are {now.difference:.1e} apart; they were {was.difference:.1e}.",
                "比值与 softmax 相差 {now.difference:.1e}，原来为 {was.difference:.1e}。",
            ),
        ),
        Exercise(
            ("queries = torch.linspace(0, 5, 101)", "queries = torch.linspace(0, 50, 101)"),
            Text(
                "Ask far away from all samples: for how many queries does the ratio become 0/0?",
                "在远离所有样本处查询：有多少个查询的比值成了 0/0？",
            ),
            Text(
                "For {now.lost} of 101; before, for {was.lost}. The softmax at x = 50 is {now.as_softmax[100]:.3f}, "
                "and the sample with the largest x has y = {now.y_i[49]:.3f}.",
                "101 个中有 {now.lost} 个，之前为 {was.lost} 个。x = 50 处的 softmax 结果为 "
                "{now.as_softmax[100]:.3f}，x 最大的样本 y = {now.y_i[49]:.3f}。",
            ),
        ),
        Exercise(
            ("def nadaraya_watson(x, x_i, y_i, width=1.0):", "def nadaraya_watson(x, x_i, y_i, width=0.5):"),
            Text(
                "Half the width on one side only: how far do the curves part?", "只有一边的带宽减半：两条曲线相差多少？"
            ),
            Text("By up to {now.difference:.3f}.", "最多相差 {now.difference:.3f}。"),
        ),
    ),
    meanings={
        "softmax": Text(
            "largest |ratio of sums − softmax(−½(x−xᵢ)²)·y|", "|核之和的比 − softmax(−½(x−xᵢ)²)·y| 的最大值"
        ),
        "attend": Text("largest |ratio of sums − attend|", "|核之和的比 − attend| 的最大值"),
        "seeds": Text("draws of the samples", "抽样次数"),
    },
    deciding="softmax",
    run=run,
    judge=judge,
)
