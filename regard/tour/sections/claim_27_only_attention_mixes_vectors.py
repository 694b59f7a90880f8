"""Claim 27: in a block only attention mixes vectors; layer norm and MLP act on each alone."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import regard
from regard.models.packing import SequenceInfo
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

COUNT, CHANGED, SIZE = 11, 4, 24


class Cut(nn.Module):
    """Takes the place of attention, and adds nothing to any vector."""

    def mix(self, rows: Tensor, info: SequenceInfo, past: object) -> tuple[Tensor, None]:
        """Zeros, and nothing to remember."""
        return torch.zeros_like(rows), None


def run() -> Measured:
    """Change one vector, once with attention and once with attention cut."""
    rows = torch.randn(1, COUNT, SIZE)
    changed = rows.clone()
    changed[:, CHANGED] = torch.randn(SIZE)

    differs = []
    for mixer in (Cut(), regard.MultiHead(SIZE, heads=3)):
        block = regard.Block(mixer, regard.FeedForward(SIZE, 4 * SIZE))
        differs.append((block(rows) != block(changed))[0])  # (vectors, features)

    cut, whole = differs
    others = torch.arange(COUNT) != CHANGED
    numbers = Numbers(
        others_cut=cut[others].sum(),
        itself=cut[CHANGED].float().mean(),
        others=whole[others].float().mean(),
    )
    return numbers, partial(draw, cut, whole)


def judge(numbers: Numbers) -> Criteria:
    """Without attention nothing reaches another vector; with it everything does."""
    yield numbers.criterion(
        numbers.others_cut == 0,
        "With attention cut, no other vector may change, not in a bit: {others_cut} numbers do.",
        "切断注意力后，其他向量一位都不应改变：实际有 {others_cut} 个数改变。",
    )
    yield numbers.criterion(
        numbers.itself > 0.99 and numbers.others > 0.99,
        "The test must be able to tell: of the vector itself {itself:.1%} of the numbers change, and with attention "
        "{others:.1%} of all the others'.",
        "这一检验应当有分辨力：该向量自身有 {itself:.1%} 的数改变；有注意力时，其他向量有 {others:.1%} 改变。",
    )


def draw(cut: Tensor, whole: Tensor) -> Figure:
    """Which numbers changed."""
    figure = pictures.figure(2.5)
    titles = ("attention cut", "with attention")
    for axes, differs, title in zip(figure.subplots(1, 2), (cut, whole), titles, strict=True):
        pictures.heat(axes, differs.double())
        axes.set(title=title, xlabel="feature", ylabel="vector", xticks=[])
        axes.set_yticks([0, CHANGED, COUNT - 1])
    return figure


SECTION = Section(
    number=27,
    notes=("004",),
    title=Text("In a block only attention mixes vectors", "块中只有注意力让向量交互"),
    claim=Text(
        "The self-attention layer is the only place where vectors interact; layer normalisation and the MLP act on "
        "each vector independently.",
        "自注意力层是向量之间交互的唯一的地方，层归一化和 MLP 对每个向量独立进行。",
    ),
    idea=Text(
        "A Transformer block adds two things to each vector: what attention brings from the others, and what an MLP "
        "makes of the vector itself. Put something in the place of attention that brings nothing, change one vector, "
        "and see whether any other one notices.",
        "Transformer 块给每个向量加上两样东西：注意力从其他向量带来的，和 MLP 由该向量自身算出的。在注意力的位置上换成"
        "什么也不带来的东西，改动一个向量，看其他向量是否有所察觉。",
    ),
    formula="x ← x + attention(norm(x)),     x ← x + MLP(norm(x))",
    caption=Text(
        "Which numbers of eleven vectors change when vector 4 does. With attention cut, its own row alone; with "
        "attention, every row.",
        "第 4 个向量改变时，十一个向量中哪些数改变。切断注意力时只有它自己那一行；有注意力时每一行都变。",
    ),
    meanings={
        "others_cut": Text(
            "numbers of other vectors that differ in any bit, attention cut",
            "切断注意力：其他向量中有任何一位不同的个数",
        ),
        "itself": Text("share of its own numbers that differ", "该向量自身改变的比例"),
        "others": Text("share of other vectors' numbers that differ, with attention", "有注意力：其他向量改变的比例"),
    },
    deciding="others_cut",
    run=run,
    judge=judge,
)
