"""Claim 15: unscaled, one large score saturates softmax and the gradient vanishes."""

from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

QUERIES, KEYS = 1_000, 16


def run(seeds: Sequence[int] = range(3)) -> Measured:
    """Send a gradient back through the softmax of random scores, scaled and not."""
    sizes = (4, 16, 64, 256, 1024)
    norms = torch.zeros(len(seeds), 2, len(sizes))  # (seeds, plain or scaled, sizes)
    largest = torch.zeros_like(norms)
    for row, seed in enumerate(seeds):
        torch.manual_seed(seed)
        for column, size in enumerate(sizes):
            query, key = torch.randn(QUERIES, 1, size), torch.randn(QUERIES, KEYS, size)
            upstream = torch.randn(QUERIES, 1, KEYS)  # of a loss by the weights
            for kind, score in enumerate((regard.Dot(scale=1.0), regard.Dot())):
                scores = score(query, key).requires_grad_()
                weights = regard.masked_softmax(scores)
                (gradient,) = torch.autograd.grad(weights, scores, upstream)
                norms[row, kind, column] = gradient.norm(dim=-1).mean()
                largest[row, kind, column] = weights.detach().amax(-1).mean()

    plain, scaled = norms.mean(0).tolist()
    numbers = Numbers(
        sizes=sizes,
        plain=plain,
        scaled=scaled,
        largest_plain=largest.mean(0)[0],
        largest_scaled=largest.mean(0)[1],
        left=plain[-1] / scaled[-1],
        kept=scaled[-1] / scaled[0],
    )
    return numbers, partial(draw, sizes, norms, largest)


def judge(numbers: Numbers) -> Criteria:
    """A fifth of the gradient or less without the scale, and nearly all of it with it."""
    falling = all(later < earlier for earlier, later in zip(numbers.plain, numbers.plain[1:], strict=False))
    yield numbers.criterion(
        numbers.left <= 0.2,
        "At d = {sizes[-1]} at most a fifth of the gradient may be left without the scale: {left} of it is.",
        "d = {sizes[-1]} 时，不缩放所剩的梯度至多五分之一：实际为 {left}。",
    )
    yield numbers.criterion(
        falling,
        "It must get smaller with every larger d: {plain}.",
        "d 每增大一次，梯度都应变小：{plain}。",
    )
    yield numbers.criterion(
        numbers.kept >= 0.8,
        "With the scale it must not depend on d: at the largest it is {kept} of that at the smallest.",
        "缩放后梯度不应随 d 变化：d 最大时是最小时的 {kept}。",
    )


def draw(sizes: tuple[int, ...], norms: Tensor, largest: Tensor) -> Figure:
    """Gradients on the left, the largest weight on the right."""
    figure = pictures.figure()
    left, right = figure.subplots(1, 2)
    styles = (("q·k", pictures.ATTENTION), ("q·k / √d", pictures.OTHER))
    for kind, (name, colour) in enumerate(styles):
        for axes, measured in ((left, norms), (right, largest)):
            label = name if axes is left else None
            axes.plot(sizes, measured.mean(0)[kind], "o-", color=colour, markersize=5, label=label)
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, map(str, sizes))
            axes.set(xlabel="size d of the vectors", ylim=(0, None))
    left.set_title("norm of the gradient")
    right.set_title("largest of 16 weights")
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=15,
    notes=("004",),
    title=Text("Large scores stop the gradient", "过大的评分使梯度消失"),
    claim=Text(
        "With plain dot products, one very large score pushes all other weights to nearly 0 after softmax, and the "
        "gradient vanishes; scaled dot products prevent that.",
        "只用点积作相似度时，若有一个值非常大，其余的值经过 softmax 后都非常接近 0，会引发梯度消失；缩放点积可以防止这"
        "一问题。",
    ),
    idea=Text(
        "The slope of softmax at a weight α is at most α (1 − α): where one weight is nearly 1 and the others nearly "
        "0, moving a score moves nothing. Scores of random vectors spread like √d, so the longer the vectors, the more "
        "often one score is far above the rest. What is measured is the norm of the gradient that comes through "
        "softmax to the scores, averaged over 1,000 queries with 16 keys each.",
        "softmax 在权重 α 处的斜率至多为 α (1 − α)：当一个权重接近 1、其余接近 0 时，移动评分几乎什么都不会改变。随机"
        "向量的评分以 √d 的幅度散开，所以向量越长，越常有一个评分远高于其余。这里测量的是经 softmax 传回评分的梯度的范"
        "数，对 1000 个查询（各 16 个键）取平均。",
    ),
    formula=Text(
        "∂αᵢ/∂sⱼ = αᵢ (δᵢⱼ − αⱼ) → 0 where one α → 1",
        "∂αᵢ/∂sⱼ = αᵢ (δᵢⱼ − αⱼ) → 0，当某个 α → 1",
    ),
    caption=Text(
        "Left, the norm of the gradient against the size d: without the scale it falls towards 0, with it it stays. "
        "Right, the largest weight: without the scale it goes to 1.",
        "左图：梯度的范数随长度 d 的变化，不缩放时趋于 0，缩放后保持不变。右图：最大的权重，不缩放时趋于 1。",
    ),
    meanings={
        "sizes": Text("sizes d", "向量长度 d"),
        "plain": Text("norm of the gradient, q·k", "梯度的范数，q·k"),
        "scaled": Text("norm of the gradient, q·k/√d", "梯度的范数，q·k/√d"),
        "largest_plain": Text("largest of 16 weights on average, q·k", "16 个权重中最大者的均值，q·k"),
        "largest_scaled": Text("largest of 16 weights on average, q·k/√d", "16 个权重中最大者的均值，q·k/√d"),
        "left": Text("share of the gradient that is left unscaled, at the largest d", "d 最大时，不缩放所剩的梯度比例"),
        "kept": Text(
            "scaled: gradient at the largest d, of that at the smallest", "缩放后：d 最大时与最小时的梯度之比"
        ),
    },
    deciding="left",
    run=run,
    full=partial(run, range(10)),
    judge=judge,
)
