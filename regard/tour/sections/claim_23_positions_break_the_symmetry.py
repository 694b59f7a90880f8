"""Claim 23: self-attention is permutation equivariant; positional encoding breaks that."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.models.positions import sinusoidal
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Bars, Chart, Heat, Panel

SEEDS, KINDS, LENGTH, SIZE = 3, 8, 10, 32

PLAIN = """
def positional_encoding(n, size):  # (n, size): sines and cosines of growing wavelength
    angles = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)  # (n, size / 2)
    return torch.stack([torch.sin(angles), torch.cos(angles)], -1).flatten(1)


n, size = 20, 24
x = torch.randn(n, size)
order = torch.randperm(n)
positions = positional_encoding(n, size)
layer = SelfAttention(size)

with torch.no_grad():
    equivariance = layer(x[order]) - layer(x)[order]  # shuffled inputs, against shuffled outputs
    with_positions = layer(x[order] + positions) - layer(x + positions)[order]
without, placed = equivariance.abs().max(), with_positions.abs().max()
"""

SHORT = """
import regard
from regard.models.positions import sinusoidal

ours = regard.MultiHead(size=size, heads=1, bias=False)
ours.in_proj[0].weight.data = torch.cat([layer.W_q.weight, layer.W_k.weight, layer.W_v.weight]).data
ours.out_proj.weight.data = torch.eye(size)
torch.testing.assert_close(sinusoidal(torch.arange(n), size), positions)
torch.testing.assert_close(ours((x + positions)[None])[0], layer(x + positions))
"""


@torch.no_grad()
def differences(mask: regard.Mask | None, seed: int) -> tuple[float, float, float]:
    """How far shuffled inputs lead from shuffled outputs, without and with positions; and the size of an output."""
    torch.manual_seed(seed)
    layer = regard.MultiHead(size=24, heads=3).double()
    rows, order = torch.randn(1, 13, 24).double(), torch.randperm(13)
    positions = sinusoidal(torch.arange(13), 24).double()
    plain = layer(rows, mask=mask)
    without = layer(rows[:, order], mask=mask) - plain[:, order]
    placed = layer(rows[:, order] + positions, mask=mask) - layer(rows + positions, mask=mask)[:, order]
    return float(without.abs().max()), float(placed.abs().max()), float(plain.square().mean().sqrt())


class Reader(nn.Module):
    """Self-attention over tokens; every token has to say which one came first."""

    def __init__(self, placed: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(KINDS, SIZE)
        self.attention = regard.MultiHead(SIZE, heads=1)
        self.classify = nn.Linear(SIZE, KINDS)
        self.placed = placed

    def forward(self, tokens: Tensor) -> Tensor:
        rows = self.embedding(tokens)  # (batch, n, size)
        if self.placed:
            rows = rows + sinusoidal(torch.arange(LENGTH), SIZE)
        logits: Tensor = self.classify(self.attention(rows))
        return logits


def accuracy(placed: bool, seed: int, steps: int) -> float:
    """Of naming the first token of new sequences."""
    torch.manual_seed(seed)
    model = Reader(placed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens = torch.randint(KINDS, (64, LENGTH))
        loss = functional.cross_entropy(model(tokens).mT, tokens[:, :1].expand(-1, LENGTH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        tokens = torch.randint(KINDS, (500, LENGTH))
        return float((model(tokens).argmax(-1) == tokens[:, :1]).double().mean())


def measure(steps: int = 200, mask: regard.Mask | None = None) -> Measured:
    """Shuffle, and learn what needs order. mask: with which self-attention looks."""
    without, placed, size = torch.tensor([differences(mask, seed) for seed in range(SEEDS)]).T
    learned = torch.tensor([[accuracy(kind, seed, steps) for seed in range(SEEDS)] for kind in (False, True)])
    numbers = Numbers(
        without=without.max(),
        placed=placed.min(),
        size=size.mean(),
        right_without=learned[0].mean(),
        right_placed=learned[1].mean(),
        spreads=learned.std(1),
        chance=guessing(),
    )
    return numbers, draw_accuracy(numbers)


def guessing() -> float:
    """How often the most frequent token of a sequence is its first one: the best that a set can tell."""
    tokens = torch.randint(KINDS, (10_000, LENGTH), generator=torch.Generator().manual_seed(0))
    return float(functional.one_hot(tokens, KINDS).sum(1).amax(-1).double().mean() / LENGTH)


def run() -> Measured:
    """Three seeds."""
    return measure()


def judge(numbers: Numbers) -> Criteria:
    """Equal to rounding without positions; with them not, and order can be used."""
    yield numbers.identity(
        numbers.without <= 1e-12,
        "Without positions, shuffled inputs must give the shuffled outputs, to 10⁻¹²: they differ by {without} at "
        "most.",
        "没有位置编码时，打乱输入应得到同样打乱的输出，误差 10⁻¹² 以内：最大相差 {without}。",
    )
    yield numbers.criterion(
        numbers.placed > 0.1 * numbers.size,
        "With positions they must differ by more than a tenth of the size of an output, which is {size}: in every "
        "seed by "
        "{placed} or more.",
        "有位置编码时，差异应超过输出大小（{size}）的十分之一：每个种子的差异至少为 {placed}。",
    )
    yield numbers.criterion(
        numbers.right_placed - numbers.right_without > 2 * max(numbers.spreads)
        and numbers.right_without <= numbers.chance + 0.05,
        "To say which token came first must need positions: {right_placed:.1%} are right with them and "
        "{right_without:.1%} without, where the most frequent token would be right for {chance:.1%}.",
        "回答“第一个词元是什么”应需要位置编码：有位置编码时正确 {right_placed:.1%}，没有时 {right_without:.1%}；总是回"
        "答出现最多的词元则为 {chance:.1%}。",
    )


def draw_accuracy(numbers: Numbers) -> Chart:
    """With and without."""
    names = [Text("positions", "有位置编码"), Text("none", "没有"), Text("most frequent token", "最常见的词元")]
    heights = [numbers.right_placed, numbers.right_without, numbers.chance]
    bars = Bars(names, heights, spread=[numbers.spreads[1], numbers.spreads[0], 0.0], colour="attention")
    return Chart(
        [Panel([bars], y=Text("share right", "正确率"))],
        height=200,
        caption=Text(
            "Which token came first? Answers of self-attention to new sequences of ten tokens, mean and standard "
            "deviation of three seeds.",
            "第一个词元是什么？自注意力对十个词元的新序列的回答，三个种子的均值与标准差。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The pattern of positions, and what is left of the outputs when the shuffled ones are taken away."""
    feature, place = Text("feature", "特征"), Text("position", "位置")
    largest = float(max(cell.without, cell.placed))
    panels = [
        Panel([Heat((1 + cell.positions) / 2, colour="truth")], x=feature, y=place, title=Text("encoding", "编码")),
        Panel(
            [Heat(cell.equivariance.abs(), largest=largest)],
            x=feature,
            title=Text("difference, no positions", "差，没有位置编码"),
        ),
        Panel(
            [Heat(cell.with_positions.abs(), largest=largest)],
            x=feature,
            title=Text("difference, with them", "差，有位置编码"),
        ),
    ]
    return Chart(
        panels,
        caption=Text(
            "The encoding of twenty positions, from −1 (light) to 1 (dark); and the difference between the outputs for "
            "shuffled inputs and the shuffled outputs, without positions and with them, in the same shades.",
            "二十个位置的编码，由 −1（浅）到 1（深）；以及“打乱输入的输出”与“打乱的输出”之差，没有与有位置编码，用同样"
            "的深浅。",
        ),
    )


SECTION = Section(
    number=23,
    notes=(Passage("004", 73, 73),),
    title=Text("Self-attention follows its inputs around; positions stop that", "自注意力有置换同变性，位置编码打破它"),
    claim=Text(
        "If the order of the inputs is changed, that of the outputs changes with it: self-attention is permutation "
        "equivariant and does not care about order. Where order is to matter, positional encodings have to be brought "
        "in.",
        "改变输入的顺序，输出的顺序也同步改变：自注意力层具有置换同变性，不关心顺序。如果要关心顺序，就需要引入位置编"
        "码。",
    ),
    idea=Text(
        "Every vector looks at all others in the same way, wherever they stand, so that “dog bites man” and “man "
        "bites dog” are the same set of words to it. A pattern that belongs to the position, sines and cosines of "
        "different wavelengths, is added to each vector. Then the same word in another position is another vector.",
        "每个向量以同样的方式看所有其他向量，不管它们在哪里，所以“狗咬人”和“人咬狗”在它看来是同一组词。给每个向量加上"
        "属于其位置的图案，即不同波长的正弦和余弦。于是同一个词换了位置就成了另一个向量。",
    ),
    formula=r"f(P X) = P f(X), \qquad f(P X + E) \neq P f(X + E)",
    plain=PLAIN,
    short=SHORT,
    uses=(22,),
    show=draw,
    exercises=(
        Exercise(
            (
                "with_positions = layer(x[order] + positions) - layer(x + positions)[order]",
                "with_positions = layer((x + positions)[order]) - layer(x + positions)[order]",
            ),
            Text(
                "Shuffle the inputs after the positions are added: does the encoding still tell the order?",
                "加上位置编码之后再打乱：编码还能表示顺序吗？",
            ),
            Text(
                "The outputs differ by {now.placed:.1g}; before by {was.placed:.2f}.",
                "输出相差 {now.placed:.1g}；原来相差 {was.placed:.2f}。",
            ),
        ),
        Exercise(
            ("positions = positional_encoding(n, size)", "positions = 0.01 * positional_encoding(n, size)"),
            Text(
                "A hundredth of the encoding: how much of the difference is left?", "编码缩小到百分之一：差异还剩多少？"
            ),
            Text(
                "The outputs differ by {now.placed:.2g} instead of {was.placed:.2g}.",
                "输出相差 {now.placed:.2g}，原来相差 {was.placed:.2g}。",
            ),
        ),
    ),
    meanings={
        "without": Text(
            "largest difference from the shuffled outputs, no positions", "没有位置编码时与打乱后输出的最大差"
        ),
        "placed": Text("the same with positions, least over 3 seeds", "有位置编码时的同一差值，3 个种子中最小的"),
        "size": Text("size of an output (root mean square)", "输出的大小（均方根）"),
        "right_without": Text(
            "first token named rightly, no positions, mean of 3 seeds",
            "正确说出第一个词元，没有位置编码，3 个种子的均值",
        ),
        "right_placed": Text("the same with positions", "同上，有位置编码"),
        "spreads": Text("standard deviations of the two over the seeds", "二者在种子间的标准差"),
        "chance": Text("share right for the most frequent token", "总是回答最常见的词元的正确率"),
    },
    deciding="without",
    run=run,
    rehearsal=partial(measure, 10),
    judge=judge,
)
