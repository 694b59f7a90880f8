"""Claim 38: the query size D_Q and the number of heads H are hyperparameters."""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from regard import MultiHead
from regard.tour.section import Choice, Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.tour.sections.claim_25_several_heads import SIZE, trained_loss, words
from regard.view.chart import Chart, Heat, Line, Panel

PLAIN = """
heads = 4  # H
query_size = 8  # D_Q
size = 16
x = 2 * torch.randn(1, 7, size)  # 7 vectors

W_q, W_k, W_v = (torch.randn(heads, size, query_size) / math.sqrt(size) for _ in range(3))
W_o = torch.randn(heads * query_size, size) / math.sqrt(heads * query_size)

queries, keys, values = (x[:, None] @ W for W in (W_q, W_k, W_v))  # (1, heads, 7, query_size) each
scores = queries @ keys.transpose(-2, -1) / math.sqrt(query_size)  # (1, heads, 7, 7)
maps = torch.softmax(scores, -1)
output = (maps @ values).transpose(1, 2).flatten(2) @ W_o  # (1, 7, size), whatever H and D_Q are

parameters = sum(W.numel() for W in (W_q, W_k, W_v, W_o))
multiplications = 7 * parameters + 2 * heads * 7 * 7 * query_size  # projections, scores and averages
"""

SHORT = """
import regard

ours = regard.MultiHead(size, heads, head_size=query_size, bias=False)
ours.in_proj[0].weight.data = torch.cat([W.transpose(1, 2).flatten(0, 1) for W in (W_q, W_k, W_v)])
ours.out_proj.weight.data = W_o.T
torch.testing.assert_close(ours(x), output)
"""

HEADS, QUERY_SIZES = (1, 2, 4, 8), (2, 4, 8, 16)


def shapes_differ(heads: Sequence[int], query_sizes: Sequence[int]) -> int:
    """Layers of the grid that do not give 7 vectors of the same size, or have not 4 · SIZE · H · D_Q parameters."""
    count = 0
    for number in heads:
        for query_size in query_sizes:
            layer = MultiHead(SIZE, number, head_size=query_size, bias=False)
            parameters = sum(matrix.numel() for matrix in layer.parameters())
            shape = layer(torch.randn(1, 7, SIZE)).shape
            count += shape != (1, 7, SIZE) or parameters != 4 * SIZE * number * query_size
    return count


def run(
    seeds: Sequence[int] = range(3),
    steps: int = 100,
    heads: Sequence[int] = HEADS,
    query_sizes: Sequence[int] = QUERY_SIZES,
) -> Measured:
    """The next word of sentences, learned with each H and each D_Q."""
    # Loss (heads, query sizes, seeds), mean of the two kinds of positions of claim 25.
    losses = torch.stack(
        [
            torch.stack([trained_loss(words, number, seeds, steps, query_size).mean(0) for query_size in query_sizes])
            for number in heads
        ]
    )
    by_query_size, by_heads = losses[:, 0] - losses[:, -1], losses[0] - losses[-1]  # between the ends of the grid
    equal = losses.flip(1).diagonal().T  # H · D_Q is the same: (splits, seeds)
    mean, spread = equal.mean(1), equal.std(1)
    worst, best = int(mean.argmax()), int(mean.argmin())
    numbers = Numbers(
        query_gain=by_query_size.mean(),
        query_spread=by_query_size.mean(0).std(),
        head_gain=by_heads.mean(),
        head_spread=by_heads.mean(0).std(),
        splits=mean,
        split_spreads=spread,
        split_gain=mean[worst] - mean[best],
        split_noise=spread[worst] + spread[best],
        heads=heads,
        query_sizes=query_sizes,
        differ=shapes_differ(heads, query_sizes),
        seeds=len(seeds),
    )
    return numbers, draw_surface(heads, query_sizes, losses.mean(-1))


def judge(numbers: Numbers) -> Criteria:
    """Both can be chosen freely, and each makes a difference."""
    yield numbers.criterion(
        abs(numbers.query_gain) > numbers.query_spread,
        "D_Q: the loss must depend on it, by more than the spread over {seeds} seeds. From {query_sizes[0]} to "
        "{query_sizes[-1]} it falls by {query_gain} ± {query_spread}, mean over the numbers of heads.",
        "D_Q：损失应取决于它，差距超过 {seeds} 个种子间的波动。由 {query_sizes[0]} 到 {query_sizes[-1]} 损失下降 "
        "{query_gain} ± {query_spread}，为各头数的均值。",
    )
    yield numbers.criterion(
        abs(numbers.head_gain) > numbers.head_spread,
        "H: the loss must depend on it too. From {heads[0]} to {heads[-1]} it falls by {head_gain} ± {head_spread}, "
        "mean over the query sizes.",
        "H：损失也应取决于它。由 {heads[0]} 到 {heads[-1]} 损失下降 {head_gain} ± {head_spread}，为各查询维度的均值。",
    )
    yield numbers.criterion(
        numbers.split_gain > numbers.split_noise,
        "Two choices, not one: at equal compute, where H · D_Q is the same, it must matter how it is split. Between "
        "the worst and the best split lies {split_gain}, and the spreads of both add up to {split_noise}.",
        "两个选择而不是一个：计算量相同，即 H · D_Q 相同时，如何分配应有影响。最差与最好的分配相差 {split_gain}，两者"
        "的波动之和为 {split_noise}。",
    )
    yield numbers.identity(
        numbers.differ == 0,
        "Every H goes with every D_Q: the layer must give vectors of the same size, with 4 · D · H · D_Q parameters; "
        "{differ} of the layers differ.",
        "任何 H 都可与任何 D_Q 搭配：层应给出同样大小的向量，参数为 4 · D · H · D_Q 个；有 {differ} 个层不符。",
    )


def draw_surface(heads: Sequence[int], query_sizes: Sequence[int], losses: Tensor) -> Chart:
    """Losses (heads, query sizes) as a surface, and by query size."""
    colours = ("truth", "pooled", "other", "attention", "samples", "ink")
    lines = [
        Line(query_sizes, by_size, f"H = {number}", colour, dots=True)
        for number, by_size, colour in zip(heads, losses, colours, strict=False)
    ]
    equal = [(row, len(query_sizes) - 1 - row) for row in range(min(losses.shape))]
    surface = Heat(losses - losses.min(), [f"H = {h}" for h in heads], [str(q) for q in query_sizes], marked=equal)
    return Chart(
        [
            Panel([surface], x="D_Q", title=Text("loss above the best", "高出最好者的损失")),
            Panel(lines, x="D_Q", y=Text("loss", "损失"), share=1.4),
        ],
        caption=Text(
            "Loss on sentences set aside, for each H and D_Q, mean of the seeds. Framed: layers of equal compute.",
            "留出句子上的损失，按 H 与 D_Q，种子均值。加框者计算量相同。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The maps of the first heads."""
    shown = cell.maps[0, :4]
    return Chart(
        [
            Panel([Heat(weights, largest=1.0)], title=Text(f"head {number}", f"第 {number} 个头"))
            for number, weights in enumerate(shown, 1)
        ],
        columns=4,
        caption=Text(
            f"The first of {cell.heads} heads with D_Q = {cell.query_size}: {cell.parameters} parameters, "
            f"{cell.multiplications} multiplications. The matrices are not trained.",
            f"{cell.heads} 个头中的前几个，D_Q = {cell.query_size}：{cell.parameters} 个参数，{cell.multiplications} "
            "次乘法。矩阵未经训练。",
        ),
    )


SECTION = Section(
    number=38,
    notes=(Passage("004", 89, 91),),
    title=Text("Query size and number of heads", "查询维度与头数"),
    claim=Text(
        "A multi-head layer needs two hyperparameters: the dimension of the queries, D_Q, and the number of heads, H.",
        "多头自注意力层要用到两个超参数：查询的维度 D_Q 和头的个数 H。",
    ),
    idea=Text(
        "A hyperparameter is what is chosen before training and makes a difference to what is learned. Each head has "
        "queries and keys of D_Q numbers, so H · D_Q columns of W_q; often D_Q is taken as size / H, and only one "
        "choice is left. So learn the same with each H and each D_Q, and look along both axes, and along the diagonal "
        "on which compute is equal.",
        "超参数是训练之前选定、并影响学习结果的量。每个头的查询和键有 D_Q 维，所以 W_q 有 H · D_Q 列；常取 D_Q = 维度 "
        "/ H，于是只剩一个选择。因此用每个 H 和每个 D_Q 学同样的内容，沿两个轴看，也沿计算量相同的对角线看。",
    ),
    formula=r"W_q^h \in R^{D \times D_Q}, \quad h = 1 \ldots H, \qquad \mathrm{parameters} = 4 \, D \, H \, D_Q",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    controls=(
        Control("heads = 4", Text("heads H", "头数 H"), Choice((1, 2, 4, 8))),
        Control("query_size = 8", Text("query size D_Q", "查询维度 D_Q"), Choice((1, 2, 4, 8, 16))),
    ),
    exercises=(
        Exercise(
            ("query_size = 8", "query_size = 4"),
            Text(
                "With half of D_Q, what becomes of parameters and multiplications?",
                "D_Q 减半时，参数量和乘法次数如何变化？",
            ),
            Text(
                "{now.parameters} parameters instead of {was.parameters}, {now.multiplications} multiplications "
                "instead of {was.multiplications}.",
                "参数 {now.parameters} 个，原来 {was.parameters} 个；乘法 {now.multiplications} 次，原来 "
                "{was.multiplications} 次。",
            ),
        ),
        Exercise(
            ("heads = 4", "heads = 32"),
            Text(
                "With 32 heads of 8 numbers in vectors of 16, what shape has the output?",
                "16 维的向量用 32 个 8 维的头，输出的形状是什么？",
            ),
            Text(
                "{now.output.shape}, with 4 heads {was.output.shape}; {now.parameters} parameters instead of "
                "{was.parameters}.",
                "{now.output.shape}，4 个头时为 {was.output.shape}；参数 {now.parameters} 个，原来 {was.parameters} "
                "个。",
            ),
        ),
    ),
    meanings={
        "query_gain": Text(
            "loss of the smallest − loss of the largest D_Q, mean over H", "最小与最大 D_Q 的损失之差，各 H 的均值"
        ),
        "query_spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "head_gain": Text(
            "loss of the smallest − loss of the largest H, mean over D_Q", "最小与最大 H 的损失之差，各 D_Q 的均值"
        ),
        "head_spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "splits": Text(
            "loss at equal compute, from few wide heads to many narrow ones", "计算量相同时的损失，由少而宽到多而窄"
        ),
        "split_spreads": Text("their standard deviations over the seeds", "其在种子间的标准差"),
        "split_gain": Text(
            "loss of the worst split − of the best, at equal compute", "计算量相同时，最差与最好的损失之差"
        ),
        "split_noise": Text("sum of the standard deviations of these two", "两者的标准差之和"),
        "heads": Text("heads tried", "试过的头数"),
        "query_sizes": Text("query sizes tried", "试过的查询维度"),
        "differ": Text("layers of another shape or size than expected", "形状或参数量不符的层数"),
        "seeds": Text("seeds", "种子数"),
    },
    deciding="split_gain",
    run=run,
    full=partial(run, range(5), 600),
    rehearsal=partial(run, range(2), 2),
    judge=judge,
)
