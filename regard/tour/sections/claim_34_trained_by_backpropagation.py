"""Claim 34: attention is trained with the network, by ordinary backpropagation."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.nn import functional

from regard.data.tokens import PAD
from regard.models.seq2seq import Seq2Seq
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.tour.translators import encoded, seen, untrained
from regard.view.chart import Bars, Chart, Line, Panel

PLAIN = """
attention, output = AdditiveAttention(6, 4, 8).double(), nn.Linear(4, 3).double()
queries, keys, answers = torch.randn(64, 1, 6).double(), torch.randn(64, 5, 4).double(), torch.randint(3, (64,))
lengths = torch.randint(1, 6, (64,))
named = {"W_q": attention.W_q.weight, "W_k": attention.W_k.weight, "w_v": attention.w_v.weight, "output": output.weight}


def loss():
    context, _ = attention(queries, keys, keys, lengths)  # (64, 1, 4)
    return F.cross_entropy(output(context[:, 0]), answers)


def slope(weight, direction, step=1e-5):  # by finite differences: the loss a little ahead and a little behind
    with torch.no_grad():
        weight += step * direction
        ahead = loss()
        weight -= 2 * step * direction
        behind = loss()
        weight += step * direction
    return ((ahead - behind) / (2 * step)).item()


gradients = dict(zip(named, torch.autograd.grad(loss(), list(named.values()))))
directions = {name: torch.randn_like(weight) for name, weight in named.items()}
by_backpropagation = {name: (gradients[name] * directions[name]).sum().item() for name in named}
by_differences = {name: slope(named[name], directions[name]) for name in named}
"""

SHORT = """
import regard

score = regard.Additive(6, 4, 8).double()
score.query_weight.data, score.key_weight.data = attention.W_q.weight.data, attention.W_k.weight.data
score.value_weight.data = attention.w_v.weight.data[0]
context = regard.attend(queries, keys, keys, score=score, mask=regard.lengths(lengths))
F.cross_entropy(output(context[:, 0]), answers).backward()
torch.testing.assert_close(score.query_weight.grad, gradients["W_q"])
torch.testing.assert_close(score.key_weight.grad, gradients["W_k"])
"""

SEEDS, STEP = 3, 1e-5


def loss_of(model: Seq2Seq, count: int) -> Tensor:
    """What a translator is trained on, for some sentences."""
    source, lengths, given, expected = encoded(model, seen()[:count])
    logits = model(source, given, lengths)
    return functional.cross_entropy(logits.flatten(0, 1), expected.flatten(), ignore_index=PAD)


def slopes(model: Seq2Seq, count: int) -> tuple[list[float], list[float]]:
    """The slope of the loss along a random direction of each parameter: by its gradient, and by differences."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    directions = [torch.randn_like(parameter) / parameter.numel() ** 0.5 for parameter in parameters]
    found = torch.autograd.grad(loss_of(model, count), parameters, allow_unused=True)
    by_gradient = [0.0 if g is None else float((g * d).sum()) for g, d in zip(found, directions, strict=True)]
    by_difference = []
    with torch.no_grad():
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.add_(direction, alpha=STEP)
            ahead = loss_of(model, count)
            parameter.sub_(direction, alpha=2 * STEP)
            by_difference.append(float(ahead - loss_of(model, count)) / (2 * STEP))
            parameter.add_(direction, alpha=STEP)
    return by_gradient, by_difference


def learn(model: Seq2Seq, steps: int, count: int = 64) -> list[float]:
    """The loss after each step of one optimiser over the parameters that are not frozen."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, count)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def measure(seeds: int = SEEDS, count: int = 16, steps: int = 40, broken: bool = False) -> Measured:
    """Slopes of an untrained translator in float64, and one that learns. broken: no gradient reaches the score."""
    gradients: list[float] = []
    differences: list[float] = []
    curves, moved = [], []
    for seed in range(seeds):
        model = untrained("additive", seed).double()
        by_gradient, by_difference = slopes(model, count)
        if broken:
            names = [name for name, _ in model.named_parameters()]
            by_gradient = [0.0 if "score" in n else g for n, g in zip(names, by_gradient, strict=True)]
        gradients, differences = [*gradients, *by_gradient], [*differences, *by_difference]
        learner = untrained("additive", seed)
        assert learner.score is not None
        before = [parameter.detach().clone() for parameter in learner.score.parameters()]
        if broken:
            learner.score.requires_grad_(False)
        curves.append(learn(learner, steps))
        after = [parameter.detach() for parameter in learner.score.parameters()]
        moved.append(min(float((a - b).abs().max()) for a, b in zip(after, before, strict=True)))
    off = [abs(g - d) / max(abs(d), 1e-3) for g, d in zip(gradients, differences, strict=True)]
    numbers = Numbers(
        reached=sum(gradient != 0 for gradient in gradients),
        parameters=len(gradients),
        off=max(off),
        moved=min(moved),
        loss_before=sum(curve[0] for curve in curves) / seeds,
        loss_after=sum(curve[-1] for curve in curves) / seeds,
        seeds=seeds,
    )
    return numbers, draw_curves(curves)


def run() -> Measured:
    """Three translators with additive attention."""
    return measure()


def judge(numbers: Numbers) -> Criteria:
    """Gradients reach everything, are right, and change the attention too."""
    yield numbers.criterion(
        numbers.reached == numbers.parameters and numbers.off <= 1e-4,
        "The gradient must reach each of the {parameters} parameter tensors of {seeds} translators, attention's "
        "included, "
        "and be the slope that finite differences give, to 10⁻⁴: it reaches {reached} and is off by {off} at most.",
        "梯度应到达 {seeds} 个翻译模型的全部 {parameters} 个参数张量（包括注意力的参数），并与有限差分给出的斜率相差不"
        "超过 "
        "10⁻⁴：实际到达 {reached} 个，最多相差 {off}。",
    )
    yield numbers.criterion(
        numbers.moved > 0 and numbers.loss_after < numbers.loss_before,
        "One optimiser over the whole network must change each matrix of the attention, and the loss must fall: they "
        "change by {moved} at least, and the loss goes from {loss_before} to {loss_after}.",
        "同一个优化器训练整个网络，注意力的每个矩阵都应改变，损失应下降：改变至少为 {moved}，损失由 {loss_before} 变为 "
        "{loss_after}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The two slopes, side by side."""
    names = list(cell.named)
    bars = [
        Bars(names, list(cell.by_backpropagation.values()), Text("backpropagation", "反向传播")),
        Bars(names, list(cell.by_differences.values()), Text("finite differences", "有限差分")),
    ]
    caption = Text(
        "The slope of the loss along a random direction of each matrix, computed in two ways.",
        "损失沿每个矩阵的一个随机方向的斜率，用两种方法计算。",
    )
    return Chart([Panel(bars, y=Text("slope of the loss", "损失的斜率"))], caption=caption)


def draw_curves(curves: Sequence[Sequence[float]]) -> Chart:
    """How the translators learn."""
    label = Text("a translator with attention", "带注意力的翻译模型")
    lines = [Line(range(len(curve)), curve, label, "attention") for curve in curves]
    caption = Text(
        "The loss on 64 sentences while everything is trained together; a line for each seed.",
        "整个网络一起训练时在 64 个句子上的损失；每个种子一条线。",
    )
    return Chart([Panel(lines, x=Text("step", "步"), y=Text("loss", "损失"))], caption=caption, height=220)


SECTION = Section(
    number=34,
    notes=(Passage("001", 57, 57),),
    title=Text("Trained with the network, by backpropagation", "与网络一起由反向传播训练"),
    claim=Text(
        "Once attention is part of a network, its parameters are updated together with the network's, by the usual "
        "forward pass and backpropagation.",
        "把注意力放进网络之后，它的参数和网络的其余参数一起，照常通过前向计算与反向传播来更新。",
    ),
    idea=Text(
        "Softmax, products and tanh all have derivatives, so the chain rule goes through attention as through any "
        "other "
        "layer. Whether the gradients are right can be seen without trusting them: move a matrix a little along a "
        "random "
        "direction, ahead and behind, and compare the change of the loss. That is done for each parameter of an "
        "encoder–decoder, and then one optimiser trains them all.",
        "softmax、乘积和 tanh 都有导数，链式法则穿过注意力与穿过其他层没有区别。梯度对不对，不必相信它也能看出来：把一"
        "个矩阵"
        "沿随机方向前后各移动一点，比较损失的变化。对编码器–解码器的每个参数都这样做，然后用同一个优化器训练全部参数。",
    ),
    formula=r"\frac{\partial L}{\partial W} \cdot D \approx \frac{L(W + \epsilon D) - L(W - \epsilon D)}{2 \epsilon}",
    plain=PLAIN,
    short=SHORT,
    uses=(13,),
    show=draw,
    exercises=(
        Exercise(
            (
                "def slope(weight, direction, step=1e-5):",
                "def slope(weight, direction, step=1.0):",
            ),
            Text("Steps of 1: are the differences still slopes?", "步长取 1：差分还是斜率吗？"),
            Text(
                "For W_q the difference quotient is {now.by_differences[W_q]:.4f}, and the gradient says "
                "{now.by_backpropagation[W_q]:.4f}.",
                "对 W_q，差商为 {now.by_differences[W_q]:.4f}，梯度为 {now.by_backpropagation[W_q]:.4f}。",
            ),
        ),
        Exercise(
            ("lengths = torch.randint(1, 6, (64,))", "lengths = torch.ones(64)"),
            Text("With one key for each query, what does W_q still learn?", "每个查询只有一个键时，W_q 还能学到什么？"),
            Text(
                "The slope for W_q is {now.by_backpropagation[W_q]:.4f}; it was {was.by_backpropagation[W_q]:.4f}.",
                "W_q 的斜率为 {now.by_backpropagation[W_q]:.4f}，原来为 {was.by_backpropagation[W_q]:.4f}。",
            ),
        ),
    ),
    meanings={
        "reached": Text("parameter tensors that a gradient reaches", "梯度到达的参数张量数"),
        "parameters": Text("parameter tensors, of all seeds", "参数张量总数，所有种子"),
        "off": Text(
            "largest relative difference between gradient and finite difference", "梯度与有限差分的最大相对误差"
        ),
        "moved": Text("least change of a matrix of the attention in training", "训练中注意力各矩阵改变量的最小者"),
        "loss_before": Text("loss at the first step", "第一步的损失"),
        "loss_after": Text("loss at the last step", "最后一步的损失"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="off",
    run=run,
    judge=judge,
    rehearsal=lambda: measure(seeds=1, count=3, steps=3),
)
