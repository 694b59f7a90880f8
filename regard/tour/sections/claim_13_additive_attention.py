"""Claim 13: additive attention joins queries of size 20 and keys of size 2 through 8 hidden units."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Attend with the notes' shapes, to equal keys and to different ones."""
    query = torch.randn(2, 1, 20)  # (batch, n, query size)
    score = regard.Additive(query_size=20, key_size=2, hidden_size=8)
    equal = torch.ones(2, 10, 2)  # (batch, m, key size): the notes' keys, all the same
    varied = 10 * torch.randn(2, 10, 2)
    value = torch.arange(40.0).reshape(1, 10, 4).expand(2, 10, 4)
    mask = regard.lengths([2, 6])

    with torch.no_grad():
        weights = regard.weights(query, equal, score=score, mask=mask)
        output = regard.attend(query, equal, value, score=score, mask=mask)
        other = regard.weights(query, varied, score=score, mask=mask)

    valid = torch.arange(10) < torch.tensor([[[2]], [[6]]])  # (batch, 1, m)
    even = valid / valid.sum(-1, keepdim=True)
    numbers = Numbers(
        output_shape=tuple(output.shape),
        weights_shape=tuple(weights.shape),
        uneven=(weights - even)[valid].abs().max(),
        beyond=torch.stack([weights, other])[:, ~valid].abs().max(),
        different=(other - even)[valid].abs().max(),
    )
    return numbers, partial(draw, weights, other)


def judge(numbers: Numbers) -> Criteria:
    """Sizes that differ meet; equal keys share evenly; different keys do not."""
    yield numbers.criterion(
        numbers.output_shape == (2, 1, 4) and numbers.weights_shape == (2, 1, 10),
        "Queries of size 20 and keys of size 2 must meet: the output must have the shape (2, 1, 4) and the weights "
        "(2, 1, 10); they have {output_shape} and {weights_shape}.",
        "大小为 20 的查询与大小为 2 的键应能相互评分：输出形状应为 (2, 1, 4)，权重形状应为 (2, 1, 10)；实际为 "
        "{output_shape} 和 {weights_shape}。",
    )
    yield numbers.criterion(
        numbers.uneven <= 1e-6 and numbers.beyond == 0,
        "Equal keys must share the weight evenly, 1/2 and 1/6 each, and nothing may lie beyond the lengths: they are "
        "off by {uneven}, and {beyond} lies beyond.",
        "相同的键应平分权重，即各得 1/2 和 1/6，且长度之外没有权重：偏差为 {uneven}，长度之外为 {beyond}。",
    )
    yield numbers.criterion(
        numbers.different > 0.01,
        "Keys that differ must not share evenly, by more than 0.01: they are off by {different}.",
        "不同的键不应平分，与平分之差应大于 0.01：实际为 {different}。",
    )


def draw(equal: Tensor, varied: Tensor) -> Figure:
    """The weights for equal keys and for different ones."""
    figure = pictures.figure(height=2.2)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, weights, title in zip(panels, (equal, varied), ("all keys equal", "keys that differ"), strict=True):
        pictures.heat(axes, weights[:, 0], largest=0.7, digits=2)
        axes.set_title(title)
        axes.set_yticks([0, 1], ["batch 0\nlength 2", "batch 1\nlength 6"])
        axes.set_xlabel("key (looked at)")
    return figure


SECTION = Section(
    number=13,
    notes=("002", "003"),
    title=Text("Additive attention joins different sizes", "加性注意力连接不同大小的查询与键"),
    claim=Text(
        "Additive attention scores queries of size 20 against keys of size 2 by mapping both into 8 hidden units.",
        "加性注意力通过 8 个隐藏单元，为大小为 20 的查询和大小为 2 的键计算评分。",
    ),
    idea=Text(
        "A dot product needs vectors of one size. Additive attention brings each to a hidden size of its own, adds "
        "them, bends the sum with tanh and weighs it with a vector. Nothing is trained here: with keys that are all "
        "the same, any weights W must give each valid key the same share, so the outputs are plain averages of the "
        "first 2 and the first 6 values.",
        "点积要求两个向量一样长。加性注意力把两者各自映射到隐藏层再相加，经 tanh 之后用一个向量加权。这里没有训练：键"
        "全都相同时，无论参数 W 取什么值，每个有效的键份额都一样，输出就是前 2 个和前 6 个值的平均。",
    ),
    formula="a(q, k) = w_vᵀ tanh(W_q q + W_k k),     W_q: 8 × 20,  W_k: 8 × 2",
    caption=Text(
        "Weights of the one query of each batch row over ten keys. Equal keys: 1/2 on each of the first two, 1/6 on "
        "each of the first six. Keys that differ: uneven. Beyond the length: 0.",
        "每个批量中唯一的查询在十个键上的权重。键相同：前两个各 1/2，前六个各 1/6。键不同：不再均匀。长度之外：0。",
    ),
    meanings={
        "output_shape": Text("shape of the output", "输出的形状"),
        "weights_shape": Text("shape of the weights", "权重的形状"),
        "uneven": Text("largest |weight − 1/length| for equal keys", "键相同时 |权重 − 1/长度| 的最大值"),
        "beyond": Text("largest weight beyond the lengths 2 and 6", "有效长度 2 和 6 之外的最大权重"),
        "different": Text("the same with keys that differ, |weight − 1/length|", "键不同时 |权重 − 1/长度| 的最大值"),
    },
    deciding="uneven",
    run=run,
    judge=judge,
)
