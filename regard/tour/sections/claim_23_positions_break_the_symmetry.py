"""Claim 23: self-attention is permutation equivariant; positional encoding breaks that."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.models.positions import sinusoidal
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


@torch.no_grad()
def run() -> Measured:
    """Shuffle the inputs of self-attention: do the outputs only change places?"""
    layer = regard.MultiHead(size=24, heads=3).double()
    rows = torch.randn(1, 13, 24).double()
    order = torch.randperm(13)
    positions = sinusoidal(torch.arange(13), 24).double()  # (13, 24): each its pattern

    plain, plain_after = layer(rows), layer(rows[:, order])
    encoded, encoded_after = layer(rows + positions), layer(rows[:, order] + positions)
    plain_difference = plain_after - plain[:, order]
    encoded_difference = encoded_after - encoded[:, order]
    numbers = Numbers(
        without=plain_difference.abs().max(),
        placed=encoded_difference.abs().max(),
        size=plain.square().mean().sqrt(),
    )
    return numbers, partial(draw, positions, plain_difference[0], encoded_difference[0])


def judge(numbers: Numbers) -> Criteria:
    """Equal to rounding without positions, and far from it with them."""
    yield numbers.criterion(
        numbers.without <= 1e-12,
        "Without positions, shuffled inputs must give shuffled outputs, to 1e-12: they differ by {without} at most.",
        "没有位置编码时，打乱输入应得到同样打乱的输出，误差 1e-12 以内：最大相差 {without}。",
    )
    yield numbers.criterion(
        numbers.placed > 0.1 * numbers.size,
        "With positions they must differ by more than a tenth of an output's size of {size}: they differ by {placed}.",
        "有位置编码时，差异应超过输出大小（{size}）的十分之一：实际为 {placed}。",
    )


def draw(positions: Tensor, plain: Tensor, encoded: Tensor) -> Figure:
    """The pattern of positions, and what is left of the outputs when the shuffled ones are taken away."""
    figure = pictures.figure(2.4)
    largest = float(encoded.abs().max())
    titles = ("positional encoding", "no positions: difference", "with positions: difference")
    panels = ((positions, 1.0), (plain, largest), (encoded, largest))
    for axes, title, (matrix, bound) in zip(figure.subplots(1, 3), titles, panels, strict=True):
        pictures.signed(axes, matrix.detach(), bound)
        axes.set(title=title, xlabel="feature", aspect="auto")
    figure.axes[0].set_ylabel("place")
    return figure


SECTION = Section(
    number=23,
    notes=("004",),
    title=Text("Self-attention follows its inputs around; positions stop that", "自注意力随输入置换，位置编码打破它"),
    claim=Text(
        "If the order of the inputs changes, the order of the outputs changes with it: self-attention is permutation "
        "equivariant and does not care about order. To care, it is given a positional encoding.",
        "改变输入的顺序，输出的顺序也同步改变：自注意力层具有置换同变性，不关心输入的顺序。如果想关心顺序，就要引入位"
        "置编码。",
    ),
    idea=Text(
        "Every vector looks at all the others in the same way, wherever they stand, so that “dog bites man” and “man "
        "bites dog” are the same set of words to it. Adding to each vector a pattern that belongs to its place, sines "
        "of different wavelengths, makes the same word at another place another vector.",
        "每个向量以同样的方式看所有其他向量，不管它们在哪里，所以“狗咬人”和“人咬狗”在它看来是同一组词。给每个向量加上"
        "属于其位置的图案（不同波长的正弦），同一个词换了位置就成了另一个向量。",
    ),
    formula=Text(
        "f(P X) = P f(X)     but     f(P X + E) ≠ P f(X + E)",
        "f(P X) = P f(X)     但     f(P X + E) ≠ P f(X + E)",
    ),
    caption=Text(
        "The encoding of thirteen places in 24 numbers, and the difference between the outputs for shuffled inputs and "
        "the shuffled outputs: none without positions, plenty with them.",
        "十三个位置的编码（各 24 个数），以及“打乱输入的输出”与“打乱的输出”之差：没有位置编码时为零，有位置编码时处处"
        "不同。",
    ),
    meanings={
        "without": Text(
            "largest difference from the shuffled outputs, no positions", "无位置编码时与打乱后输出的最大差"
        ),
        "placed": Text("the same with positions added to the inputs", "给输入加上位置编码之后的同一差值"),
        "size": Text("size of an output (root mean square)", "输出的大小（均方根）"),
    },
    deciding="without",
    run=run,
    judge=judge,
)
