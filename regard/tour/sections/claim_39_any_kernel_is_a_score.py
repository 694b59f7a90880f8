"""Claim 39: a softmax-like normalisation of any kernel gives attention weights."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor

import regard
from regard.attention.kernels import KERNELS
from regard.data import curve
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Line, Panel

PLAIN = """
kernels = {  # K(u): how much a sample counts that is u widths away
    "gaussian": lambda u: torch.exp(-(u**2) / 2),
    "laplace": lambda u: torch.exp(-u.abs()),
    "constant": lambda u: torch.ones_like(u),
    "boxcar": lambda u: (u.abs() <= 1).float(),
    "triangular": lambda u: (1 - u.abs()).clamp(min=0),
    "epanechnikov": lambda u: (1 - u**2).clamp(min=0),
}
u = x[:, None] - x_i  # (101 queries, 50 samples), at width 1
differences, rows = {}, {}
for name, K in kernels.items():
    normalised = K(u) / K(u).sum(-1, keepdim=True)  # every kernel divided by the sum of its row
    scores = torch.log(K(u))  # log 0 = -inf: such a sample gets the weight 0
    differences[name] = (torch.softmax(scores, -1) - normalised).abs().max().item()
    rows[name] = torch.softmax(scores, -1)[50]  # the weights for x = 2.5
largest = max(differences.values())
"""

SHORT = """
import regard

for name in kernels:
    ours = regard.weights(x[50:51, None], x_i[:, None], score=regard.Kernel(name))[0]
    torch.testing.assert_close(ours, rows[name])
"""

# K itself, written without logarithms, beside regard's table of log K.
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": lambda u: torch.exp(-u.square() / 2),
    "laplace": lambda u: torch.exp(-u),
    "constant": torch.ones_like,
    "boxcar": lambda u: (u <= 1).to(u),
    "triangular": lambda u: (1 - u).clamp(min=0),
    "epanechnikov": lambda u: (1 - u.square()).clamp(min=0),
    "biweight": lambda u: (1 - u.square()).clamp(min=0) ** 2,
    "triweight": lambda u: (1 - u.square()).clamp(min=0) ** 3,
    "tricube": lambda u: (1 - u**3).clamp(min=0) ** 3,
    "cosine": lambda u: torch.cos(torch.pi / 2 * u.clamp(max=1)) * (u < 1),
}


def measure(scored: Callable[[Tensor], Tensor] = torch.log) -> Measured:
    """Every kernel normalised, as softmax(log K) and by `weights`, in float64, for five draws."""
    softmax, attended = [], []
    for seed in curve.SEEDS:
        x, _ = curve.samples(50, seed)
        for name in KERNELS:
            kernel = SHAPES[name]((curve.GRID - x.T).abs())  # (101 queries, 50 samples)
            normalised = kernel / kernel.sum(-1, keepdim=True)
            softmax.append((torch.softmax(scored(kernel), -1) - normalised).abs().max())
            attended.append((regard.weights(curve.GRID, x, score=regard.Kernel(name)) - normalised).abs().max())
    return Numbers(
        kernels=len(KERNELS), softmax=torch.stack(softmax).max(), attended=torch.stack(attended).max(), seeds=5
    ), None


def judge(numbers: Numbers) -> Criteria:
    """K over the sum of K is the softmax of log K."""
    yield numbers.identity(
        numbers.softmax <= 1e-12,
        "K = exp(log K), so the softmax of log K must be K over the sum of K, to 10⁻¹²: for {kernels} kernels and "
        "{seeds} draws of the samples they differ by {softmax} at most.",
        "K = exp(log K)，所以 log K 的 softmax 应等于 K 除以 K 之和，误差不超过 10⁻¹²：{kernels} 种核、{seeds} 次抽样"
        "中最多相差 {softmax}。",
    )
    yield numbers.identity(
        numbers.attended <= 1e-12,
        "The weights of `regard`, which takes log K as a score, must be the same: they differ by {attended} at most.",
        "`regard` 以 log K 为评分，其权重也应相同：最多相差 {attended}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """What each kernel gives to the samples for one query."""
    panels = [
        Panel([Line(cell.x_i, row, colour="attention", dots=True)], title=name, x_limits=(0, 5), y_limits=(0, 0.12))
        for name, row in cell.rows.items()
    ]
    caption = Text(
        "The weights of fifty samples for the query x = 2.5, by six kernels of width 1.",
        "六种带宽为 1 的核在查询 x = 2.5 时分给五十个样本的权重。",
    )
    return Chart(panels, caption, height=150, columns=3)


SECTION = Section(
    number=39,
    notes=(Passage("000", 37, 41), Passage("000", 55, 59)),
    title=Text("Any kernel, normalised, gives attention weights", "任何核归一化后都是注意力权重"),
    claim=Text(
        "How importance is measured is up to the choice of K. Dividing K by its sum over all samples normalises it "
        "into probabilities; as a computation that amounts to a softmax.",
        "重要性如何衡量，取决于 K 的选择。K 除以它对所有样本之和，就归一化成了概率；从计算上看，这就是一次 softmax。",
    ),
    idea=Text(
        "A softmax exponentiates scores and divides by the sum; a kernel regression divides kernels by their sum. So "
        "each kernel is a score, the logarithm of K, and each score is a kernel, its exponential. Where K is 0 the "
        "logarithm is −∞, and the weight is exactly 0: that is how a mask works, too.",
        "softmax 先对评分取指数，再除以总和；核回归则是核除以核之和。所以每个核都是一个评分，即 K 的对数；每个评分也都"
        "是一个核，即它的指数。K 为 0 处对数为 −∞，权重恰好为 0：掩蔽也是这样工作的。",
    ),
    formula=r"\frac{K(x - x_i)}{\sum_j K(x - x_j)} = \mathrm{softmax}_i\left(\log K(x - x_i)\right)",
    plain=PLAIN,
    short=SHORT,
    uses=(3,),
    show=draw,
    exercises=(
        Exercise(
            ("scores = torch.log(K(u))", "scores = K(u)"),
            Text(
                "Softmax of K itself instead of log K: are these the same weights?",
                "对 K 本身而不是 log K 做 softmax：权重还一样吗？",
            ),
            Text(
                "They differ by up to {now.largest:.3f}; with the logarithm by {was.largest:.1e}.",
                "最多相差 {now.largest:.3f}；取对数时为 {was.largest:.1e}。",
            ),
        ),
        Exercise(
            ("scores = torch.log(K(u))", "scores = torch.log(5 * K(u))"),
            Text("Five times the kernel: what becomes of the weights?", "核乘以五：权重会怎样？"),
            Text(
                "They differ from the normalised kernel by {now.largest:.1e}, before by {was.largest:.1e}.",
                "与归一化的核相差 {now.largest:.1e}，原来为 {was.largest:.1e}。",
            ),
        ),
    ),
    meanings={
        "kernels": Text("kernels tried", "试过的核"),
        "softmax": Text("largest |K / sum of K − softmax(log K)|", "|K / K 之和 − softmax(log K)| 的最大值"),
        "attended": Text("largest |K / sum of K − regard's weights|", "|K / K 之和 − regard 的权重| 的最大值"),
        "seeds": Text("draws of the samples", "抽样次数"),
    },
    deciding="softmax",
    run=measure,
    judge=judge,
)
