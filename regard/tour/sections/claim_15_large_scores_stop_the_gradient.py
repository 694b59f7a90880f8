"""Claim 15: unscaled, one large score saturates softmax and gradients vanish; scaling stabilises them."""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from regard import Dot
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Chart, Line, Panel

SIZES = (4, 16, 64, 256, 1024)
QUERIES, KEYS = 500, 16

PLAIN = """
size = 256
queries, keys = torch.randn(300, 1, size), torch.randn(300, 16, size)  # 300 times one query and 16 keys
values, upstream = torch.randn(300, 16, 8), torch.randn(300, 1, 8)  # and a gradient that comes from behind


def gradients(scale):
    query = queries.clone().requires_grad_()
    scores = query @ keys.mT * scale  # (300, 1, 16)
    weights = torch.softmax(scores, -1)
    at_scores, at_query = torch.autograd.grad(weights @ values, (scores, query), upstream)
    return at_scores.norm(dim=-1), at_query.norm(dim=-1), weights.detach()


unscaled_scores, unscaled_query, unscaled_weights = gradients(1.0)
scaled_scores, scaled_query, scaled_weights = gradients(1 / math.sqrt(size))
typical = unscaled_scores.median(), scaled_scores.median()
average = unscaled_scores.mean(), scaled_scores.mean()
typical_query = unscaled_query.median(), scaled_query.median()
others = 1 - unscaled_weights.amax(-1).median(), 1 - scaled_weights.amax(-1).median()
"""

SHORT = """
import regard

query = queries.clone().requires_grad_()
regard.attend(query, keys, values).backward(upstream)
torch.testing.assert_close(query.grad.norm(dim=-1), scaled_query, rtol=1e-4, atol=1e-6)
"""


def gradients(scores: Dot, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Norms of the gradients at the scores and at the queries, and what the largest weight leaves to the others."""
    value, upstream = torch.randn(*key.shape[:2], 8), torch.randn(len(query), 1, 8)
    query.requires_grad_()
    pairs = scores(query, key)
    weights = torch.softmax(pairs, -1)
    at_scores, at_query = torch.autograd.grad(weights @ value, (pairs, query), upstream)
    return at_scores.norm(dim=-1), at_query.norm(dim=-1), 1 - weights.detach().amax(-1)


def measure(seeds: Sequence[int] = range(3), length: float = 1.0) -> Measured:
    """Gradients for growing d. length: of the entries of queries and keys."""
    found = torch.zeros(len(seeds), 5, 2, len(SIZES))  # (seeds, quantities, unscaled or scaled, sizes)
    for row, seed in enumerate(seeds):
        torch.manual_seed(seed)
        for column, size in enumerate(SIZES):
            query, key = length * torch.randn(QUERIES, 1, size), length * torch.randn(QUERIES, KEYS, size)
            for kind, score in enumerate((Dot(scale=1.0), Dot())):
                at_scores, at_query, others = gradients(score, query.clone(), key)
                quantities = (at_scores.median(), at_scores.mean(), at_query.median(), at_query.mean())
                found[row, :, kind, column] = torch.stack([*quantities, others.median()])
    mean = found.mean(0)
    kept = mean[..., -1] / mean[..., 0]  # (quantities, unscaled or scaled)
    return Numbers(
        sizes=SIZES,
        others_unscaled=mean[4, 0],
        others_scaled=mean[4, 1],
        median_scores=mean[0, 0],
        mean_scores=mean[1, 0],
        median_query=mean[2, 0],
        mean_query=mean[3, 0],
        kept_unscaled=kept[:4, 0],
        kept_scaled=kept[:4, 1],
        spread=(found[..., -1] / found[..., 0]).std(0)[:4, 0],
    ), draw_gradients(mean)


def run() -> Measured:
    """Three seeds."""
    return measure()


WHERE = (
    Text("at the scores, median", "评分处的梯度（中位数）"),
    Text("at the scores, mean", "评分处的梯度（均值）"),
    Text("at the queries, median", "查询处的梯度（中位数）"),
    Text("at the queries, mean", "查询处的梯度（均值）"),
)


def judge(numbers: Numbers) -> Criteria:
    """A quarter of the gradient or less without the scale, and at least half with it; four times."""
    for index, where in enumerate(WHERE):
        shown = f"{{kept_unscaled[{index}]}}", f"{{kept_scaled[{index}]}}"
        yield numbers.criterion(
            numbers.kept_unscaled[index] <= 0.25 and 0.5 <= numbers.kept_scaled[index] <= 2,
            f"Gradient {where.en}: from d = {{sizes[0]}} to {{sizes[-1]}} at most a quarter may be left unscaled, and "
            f"scaled it must stay within a factor of 2: it is {shown[0]} and {shown[1]} times what it was.",
            f"{where.zh}：d 由 {{sizes[0]}} 增到 {{sizes[-1]}}，不缩放时至多应剩四分之一，缩放后的变化应在两倍以内："
            f"实际分别为原来的 {shown[0]} 倍和 {shown[1]} 倍。",
        )
    yield numbers.criterion(
        numbers.others_unscaled[-1] <= 0.01 and numbers.others_scaled[-1] > 0.1,
        "Unscaled, all weights but the largest must come near 0: at d = {sizes[-1]} they sum to {others_unscaled[-1]} "
        "(median), scaled to {others_scaled[-1]}.",
        "不缩放时，除最大者外的权重都应接近 0：d = {sizes[-1]} 时它们之和（中位数）为 {others_unscaled[-1]}，缩放后为 "
        "{others_scaled[-1]}。",
    )


def draw_gradients(mean: Tensor) -> Chart:
    """The four gradients against d; mean: (quantities, unscaled or scaled, sizes)."""
    panels = [
        Panel(
            [
                Line(SIZES, mean[index, 0].clamp(min=1e-12), "q·k", "attention", dots=True),
                Line(SIZES, mean[index, 1], "q·k / √d", "other", dots=True),
            ],
            x=Text("size d", "长度 d"),
            title=where,
            x_log=True,
            y_log=True,
        )
        for index, where in enumerate(WHERE)
    ]
    return Chart(
        panels,
        columns=2,
        height=210,
        caption=Text(
            "The norm of the gradient against the size d, where it arrives and how it is averaged; both axes are "
            "logarithmic.",
            "梯度的范数随长度 d 的变化：在何处测量、如何平均；双对数坐标。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """How the norms of the gradients are distributed."""
    panels = []
    for title, norms in (
        (Text("gradient at the scores", "评分处的梯度"), (cell.unscaled_scores, cell.scaled_scores)),
        (Text("gradient at the query", "查询处的梯度"), (cell.unscaled_query, cell.scaled_query)),
    ):
        marks = []
        for name, colour, norm in zip(("q·k", "q·k / √d"), ("attention", "other"), norms, strict=True):
            share = torch.histc(norm.clamp(min=1e-6).log10(), 24, -6, 4) / norm.numel()
            marks.append(Line(10 ** torch.linspace(-6, 4, 24), share, name, colour))
        panels.append(Panel(marks, x=Text("norm", "范数"), y=Text("share", "比例"), title=title, x_log=True))
    return Chart(
        panels,
        height=220,
        caption=Text(
            "How the norms of 300 gradients are distributed, without the scale and with it; those below 10⁻⁶ are "
            "counted there.",
            "300 个梯度的范数如何分布：不缩放与缩放之后；小于 10⁻⁶ 的计在该处。",
        ),
    )


SECTION = Section(
    number=15,
    notes=(Passage("004", 50, 52), Passage("001", 46, 46)),
    title=Text("Large scores stop the gradient", "过大的评分使梯度消失"),
    claim=Text(
        "With the dot product alone, if one score is very large, softmax leaves nearly 0 to all others and the "
        "gradient vanishes; the scaled dot product prevents that; the scale is said to stabilise the gradient.",
        "只用点积作相似度时，如果有一个值非常大，其余的值经 softmax 之后都接近 0，会引发梯度消失；缩放点积用来防止它，"
        "据说是为了稳定梯度。",
    ),
    idea=Text(
        "The slope of softmax at a weight is α (1 − α): where one weight is nearly 1 and the others nearly 0, moving "
        "a score moves nothing. Scores of random vectors spread like √d, so that with longer vectors one score is "
        "more often far above the rest. But the gradient at the query is that at the scores times the keys, which get "
        "longer too: both are measured, by the median (a typical query) and by the mean.",
        "softmax 在权重 α 处的斜率为 α (1 − α)：当一个权重接近 1、其余接近 0 时，移动评分几乎什么都不改变。随机向量的"
        "评分以 √d 的幅度散开，所以向量越长，越常有一个评分远高于其余。但查询处的梯度等于评分处的梯度乘以键，而键也变"
        "长了：因此两处都测，并分别取中位数（典型的查询）和均值。",
    ),
    formula=(
        r"\frac{\partial \alpha_i}{\partial s_j} = \alpha_i (\delta_{ij} - \alpha_j), \qquad "
        r"\frac{\partial L}{\partial q} = c \sum_j \frac{\partial L}{\partial s_j} k_j, \quad c \in \{1, 1/\sqrt d\}"
    ),
    plain=PLAIN,
    short=SHORT,
    show=draw,
    controls=(
        Control("size = 256", Text("size d of the vectors", "向量长度 d"), Slider(2, 1024, log=True, whole=True)),
    ),
    exercises=(
        Exercise(
            ("size = 256", "size = 4"),
            Text("With vectors of 4 numbers, does the scale matter?", "向量只有 4 个数时，缩放重要吗？"),
            Text(
                "A typical gradient at the scores is {now.typical[0]:.2g} unscaled and {now.typical[1]:.2g} scaled; "
                "at 256 {was.typical[0]:.2g} and {was.typical[1]:.2g}.",
                "评分处典型的梯度，不缩放为 {now.typical[0]:.2g}，缩放为 {now.typical[1]:.2g}；长 256 时为 "
                "{was.typical[0]:.2g} 和 {was.typical[1]:.2g}。",
            ),
        ),
        Exercise(
            (
                "scaled_scores, scaled_query, scaled_weights = gradients(1 / math.sqrt(size))",
                "scaled_scores, scaled_query, scaled_weights = gradients(1 / size)",
            ),
            Text(
                "Divide by d instead of √d: is less always better?",
                "除以 d 而不是 √d：越小就越好吗？",
            ),
            Text(
                "A typical gradient at the query is {now.typical_query[1]:.2g}; with √d it was "
                "{was.typical_query[1]:.2g}.",
                "查询处典型的梯度为 {now.typical_query[1]:.2g}；用 √d 时为 {was.typical_query[1]:.2g}。",
            ),
        ),
        Exercise(
            (
                "queries, keys = torch.randn(300, 1, size), torch.randn(300, 16, size)",
                "queries, keys = torch.randn(300, 1, size), 0.05 * torch.randn(300, 16, size)",
            ),
            Text(
                "Keys twenty times smaller, so that no score is large: who needs the scale?",
                "键缩小到二十分之一，没有很大的评分：还需要缩放吗？",
            ),
            Text(
                "What the largest weight leaves to the others is {now.others[0]:.2g} unscaled; before "
                "{was.others[0]:.2g}.",
                "不缩放时，最大权重留给其余的为 {now.others[0]:.2g}；原来为 {was.others[0]:.2g}。",
            ),
        ),
    ),
    meanings={
        "sizes": Text("sizes d", "向量长度 d"),
        "others_unscaled": Text("weight left to all keys but one, median, q·k", "除一个键外其余权重之和，中位数，q·k"),
        "others_scaled": Text("the same, q·k/√d", "同上，q·k/√d"),
        "median_scores": Text("gradient at the scores, median, q·k, by d", "评分处的梯度，中位数，q·k，按 d"),
        "mean_scores": Text("gradient at the scores, mean, q·k, by d", "评分处的梯度，均值，q·k，按 d"),
        "median_query": Text("gradient at the queries, median, q·k, by d", "查询处的梯度，中位数，q·k，按 d"),
        "mean_query": Text("gradient at the queries, mean, q·k, by d", "查询处的梯度，均值，q·k，按 d"),
        "kept_unscaled": Text(
            "unscaled, gradient at the largest d ÷ at the smallest: at the scores median, mean, at the queries "
            "median, mean",
            "不缩放时梯度在最大 d 与最小 d 之比：评分处中位数、均值，查询处中位数、均值",
        ),
        "kept_scaled": Text("the same, q·k/√d", "同上，q·k/√d"),
        "spread": Text("standard deviation of the ratios of q·k over the seeds", "q·k 的四个比值在种子间的标准差"),
    },
    deciding="kept_unscaled",
    run=run,
    full=partial(measure, range(10)),
    rehearsal=partial(measure, range(2)),
    judge=judge,
)
