"""Claim 8: learning w narrows the window and concentrates the weights."""

from types import SimpleNamespace

import torch
from torch import Tensor

from regard import Kernel, KernelRegressor, attend, drop
from regard.data import curve
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Dots, Heat, Line, Mark, Panel

PLAIN = """
x = torch.sort(5 * torch.rand(50)).values  # 50 samples of 2 sin x + x^0.8, with noise
y = 2 * torch.sin(x) + x**0.8 + 0.5 * torch.randn(50)


def weights_for(w):
    scores = -(((x[:, None] - x) * w) ** 2) / 2  # (50 queries, 50 keys)
    return torch.softmax(scores.masked_fill(torch.eye(50) > 0, -torch.inf), -1)  # nobody looks at itself


w = torch.tensor(1.0, requires_grad=True)
optimizer = torch.optim.Adam([w], lr=0.1)
for step in range(200):
    loss = ((weights_for(w) @ y - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
before, after = weights_for(1.0), weights_for(w.detach())
"""

SHORT = """
import regard

others = regard.drop(torch.eye(50) > 0)
learned = regard.weights(x[:, None], x[:, None], score=regard.Kernel("gaussian", 1 / w.item()), mask=others)
torch.testing.assert_close(learned, after, rtol=1e-4, atol=1e-6)
"""


STARTS = (1.0, 30.0)  # of w


def learned_width(x: Tensor, y: Tensor, start: float) -> float:
    """Where the gradient leads from there, as in the plain cell; but by factors, so that it gets far."""
    kernel, others = Kernel("gaussian", start, learnable=True).double(), drop(torch.eye(len(x)) > 0)
    optimizer = torch.optim.Adam(kernel.parameters(), lr=0.05)
    for _ in range(200):
        loss = (attend(x, x, y, score=kernel, mask=others) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return kernel.width.item()


def run() -> Measured:
    """Let the gradient find w from 1 and from 30, and look at the window and at the error on new samples."""
    measured = torch.zeros(len(curve.SEEDS), len(STARTS), 2, 4).double()  # (seeds, from, before or after, quantities)
    for seed in curve.SEEDS:
        x, y = curve.samples(50, seed)
        new_x, new_y = curve.samples(1000, 100 + seed)
        for index, start in enumerate(STARTS):
            fixed = KernelRegressor(bandwidth=1 / start).fit(x, y)
            learned = KernelRegressor(bandwidth=learned_width(x, y, 1 / start)).fit(x, y)
            for time, model in enumerate((fixed, learned)):
                effective, low, high = model.window(x)
                new = torch.from_numpy(model.predict(new_x)) - new_y
                found = (1 / model.bandwidth_[0], (high - low).mean(), effective.mean(), new.square().mean())
                measured[seed, index, time] = torch.tensor([float(number) for number in found])
    mean = measured.mean(0)
    return Numbers(
        w_from_1=mean[0, 1, 0],
        w_from_30=mean[1, 1, 0],
        w_spread=measured[:, 0, 1, 0].std(),
        window_from_1=mean[0, :, 1],
        window_from_30=mean[1, :, 1],
        effective_from_1=mean[0, :, 2],
        error_from_1=mean[0, :, 3],
        error_from_30=mean[1, :, 3],
        narrower=(measured[:, 0, 1, 1] < measured[:, 0, 0, 1]).sum(),
        wider=(measured[:, 1, 1, 1] > measured[:, 1, 0, 1]).sum(),
        seeds=len(curve.SEEDS),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """From w = 1 the window must get narrower in every seed; what happens from 30 corrects the claim."""
    yield numbers.criterion(
        numbers.narrower == numbers.seeds and numbers.effective_from_1[1] < numbers.effective_from_1[0],
        "From w = 1 the window must get narrower in each of {seeds} seeds, and the weights more concentrated: it does "
        "in "
        "{narrower}; 90 % of the weight lie within {window_from_1[0]} before and {window_from_1[1]} after, and the "
        "effective number of samples goes from {effective_from_1[0]} to {effective_from_1[1]}.",
        "从 w = 1 出发，{seeds} 个种子中每一个的窗口都应变窄、权重更集中：实际有 {narrower} 个；含 90% 权重的区间由 "
        "{window_from_1[0]} 变为 {window_from_1[1]}，有效样本数由 {effective_from_1[0]} 变为 {effective_from_1[1]}。",
    )
    yield numbers.correction(
        numbers.wider == numbers.seeds,
        "If what is learned is the width that predicts, narrower or wider, the window must get wider from w = 30: it "
        "does "
        "in {wider} of {seeds} seeds, {window_from_30[0]} before and {window_from_30[1]} after. w ends at {w_from_1} "
        "and at {w_from_30}; the error "
        "on new samples at {error_from_1[1]} and {error_from_30[1]}. The notes compare with w = 1, where the window "
        "is {window_from_1[0]}.",
        "如果学到的是适合预测的带宽，可窄可宽，那么从 w = 30 出发窗口应变宽：{seeds} 个种子中有 {wider} 个如此，由 "
        "{window_from_30[0]} 变为 {window_from_30[1]}。w 最终为 {w_from_1} 和 {w_from_30}；新样本上的误差为 "
        "{error_from_1[1]} 和 {error_from_30[1]}。笔记比较的对象是 w = 1，其窗口为 {window_from_1[0]}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The map before and after, and the two curves."""
    sample, query = Text("sample j", "样本 j"), Text("query i", "查询 i")
    maps = ((cell.before, "w = 1"), (cell.after, f"w = {cell.w.item():.2f}"))
    largest = float(max(cell.before.max(), cell.after.max()))
    panels = [Panel([Heat(weights, largest=largest)], x=sample, y=query, title=title) for weights, title in maps]
    curves: list[Mark] = [
        Dots(cell.x, cell.y, Text("50 noisy samples", "50 个带噪样本"), "samples"),
        Line(cell.x, cell.before @ cell.y, "w = 1", "pooled", style="dashed"),
        Line(cell.x, cell.after @ cell.y, Text("learned w", "学到的 w"), "attention"),
    ]
    return Chart(
        [*panels, Panel(curves, x="x", y="y", share=1.4)],
        caption=Text(
            "The weights of fifty queries over fifty samples, with w = 1 and with the learned w, in the same shades; "
            "and the "
            "curve that each of them gives.",
            "五十个查询对五十个样本的权重：w = 1 时与学习之后，用同样的深浅；以及两者给出的曲线。",
        ),
    )


SECTION = Section(
    number=8,
    notes=(Passage("000", 132, 132), Passage("003", 42, 44)),
    title=Text("Learning w narrows the window", "学习 w 使窗口变窄"),
    claim=Text(
        "With a learnable parameter w the window becomes smaller, and nearly all the weight is concentrated on the "
        "samples "
        "around the query.",
        "引入可学习的参数 w 之后，窗口变小，权重几乎都集中到查询周围的样本上。",
    ),
    idea=Text(
        "w multiplies the distance: the larger it is, the nearer a sample has to be in order to count, so w is "
        "1/width. It "
        "goes down the gradient of the squared error with which every sample is predicted from the others. From the "
        "others, "
        "because a sample that may look at itself would learn an endless w, and repeat its own noise.",
        "w 乘在距离上：w 越大，样本必须离得越近才算数，所以 w 就是 1/带宽。它沿着平方误差的梯度下降，误差来自用其余样"
        "本预测"
        "每一个样本。必须是其余样本：如果样本可以看自己，学到的 w 会趋于无穷，只会重复自身的噪声。",
    ),
    formula=r"f(x) = \sum_i \mathrm{softmax}_i\!\left(-\tfrac12 \left((x - x_i)\,w\right)^2\right) y_i",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    exercises=(
        Exercise(
            ("w = torch.tensor(1.0, requires_grad=True)", "w = torch.tensor(30.0, requires_grad=True)"),
            Text("Start w at 30: what happens to the window?", "让 w 从 30 开始：窗口会怎样？"),
            Text(
                "w ends at {now.w:.2f}; from 1 it ended at {was.w:.2f}.",
                "w 最终为 {now.w:.2f}；从 1 开始时为 {was.w:.2f}。",
            ),
        ),
        Exercise(
            (
                "y = 2 * torch.sin(x) + x**0.8 + 0.5 * torch.randn(50)",
                "y = 2 * torch.sin(x) + x**0.8 + 2.0 * torch.randn(50)",
            ),
            Text("Four times the noise: does w grow or shrink?", "噪声变为四倍：w 变大还是变小？"),
            Text("w ends at {now.w:.2f} instead of {was.w:.2f}.", "w 最终为 {now.w:.2f}，原来为 {was.w:.2f}。"),
        ),
    ),
    meanings={
        "w_from_1": Text(
            "learned w = 1/width, from w = 1, mean over seeds", "学到的 w = 1/带宽，从 w = 1 出发，种子均值"
        ),
        "w_from_30": Text("the same from w = 30", "同上，从 w = 30 出发"),
        "w_spread": Text("standard deviation of the first over the seeds", "前者在种子间的标准差"),
        "window_from_1": Text(
            "length of the interval with 90 % of the weight, before and after, from w = 1",
            "含 90% 权重的区间长度，学习前后，从 w = 1 出发",
        ),
        "window_from_30": Text("the same from w = 30", "同上，从 w = 30 出发"),
        "effective_from_1": Text("effective number of samples, before and after", "有效样本数，学习前后"),
        "error_from_1": Text(
            "mean squared error on 1,000 new samples, before and after", "1000 个新样本上的均方误差，学习前后"
        ),
        "error_from_30": Text("the same from w = 30", "同上，从 w = 30 出发"),
        "narrower": Text("seeds in which the window gets narrower, from w = 1", "窗口变窄的种子数，从 w = 1 出发"),
        "wider": Text("seeds in which it gets wider, from w = 30", "窗口变宽的种子数，从 w = 30 出发"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="window_from_1",
    run=run,
    judge=judge,
    laboratory="#/curve?kernel=gaussian&bandwidth=1",
)
