"""Claim 12: masked softmax gives exactly 0 beyond the valid length."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Mask with both kinds of lengths, and look beyond them."""
    per_sequence = torch.tensor([2, 6, 0])  # (batch,): the third sequence is empty
    per_query = torch.tensor([[1, 2, 5, 8], [3, 0, 8, 4], [7, 6, 0, 1]])  # (batch, n)
    scores = torch.randn(3, 4, 8, dtype=torch.float64)  # (batch, n, m)

    maps, beyond, off_one, in_empty = [], [], [], []
    for valid in (per_sequence, per_query):
        length = valid.reshape(3, -1, 1).expand(3, 4, 1)
        padding = torch.arange(8) >= length  # (batch, n, m)
        # The padding holds NaN, so that anything that leaks from it shows.
        padded = scores.masked_fill(padding, torch.nan)
        weights = regard.masked_softmax(padded, regard.lengths(valid))
        empty = length[..., 0] == 0  # (batch, n)
        maps.append(weights)
        beyond.append(weights[padding])
        off_one.append(weights.sum(-1)[~empty] - 1)
        in_empty.append(weights[empty])

    numbers = Numbers(
        beyond=torch.cat(beyond).abs().max(),
        off_one=torch.cat(off_one).abs().max(),
        empty_rows=len(torch.cat(in_empty)),
        in_empty=torch.cat(in_empty).abs().max(),
    )
    return numbers, partial(draw, maps, [per_sequence, per_query])


def judge(numbers: Numbers) -> Criteria:
    """Exactly 0 outside, a distribution inside, nothing where there is nothing."""
    yield numbers.criterion(
        numbers.beyond == 0,
        "Beyond the valid length every weight must be exactly 0, even next to NaN: the largest is {beyond}.",
        "超出有效长度的权重应恰好为 0，即使那里是 NaN：最大为 {beyond}。",
    )
    yield numbers.criterion(
        numbers.off_one <= 1e-12,
        "What is left must sum to 1, to 10⁻¹²: the worst row is off by {off_one}.",
        "其余权重之和应为 1，容差 10⁻¹²：偏差最大的一行为 {off_one}。",
    )
    yield numbers.criterion(
        numbers.empty_rows > 0 and numbers.in_empty == 0,
        "A row of length 0 must be 0 throughout: the largest weight in {empty_rows} such rows is {in_empty}.",
        "长度为 0 的行应全部为 0：{empty_rows} 个这样的行中最大权重为 {in_empty}。",
    )


def draw(maps: list[Tensor], valid: list[Tensor]) -> Figure:
    """Two rows of heat maps: one length per sequence, one per query."""
    figure = pictures.figure(height=3.9)
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for row, weights, lengths in zip(panels, maps, valid, strict=True):
        for axes, weight, length in zip(row, weights, lengths.tolist(), strict=True):
            pictures.heat(axes, weight, digits=2)
            axes.set_title(f"length {length}" if isinstance(length, int) else f"lengths {', '.join(map(str, length))}")
        row[0].set_ylabel("query (looks)")
    for axes in panels[-1]:
        axes.set_xlabel("key (looked at)")
    return figure


SECTION = Section(
    number=12,
    notes=("003", "002"),
    title=Text("Masked softmax stops at the valid length", "掩码 softmax 止于有效长度"),
    claim=Text(
        "Masked softmax takes a valid length, and any position beyond it is masked and set to 0.",
        "掩码 softmax 指定一个有效长度，任何超出有效长度的位置都被掩蔽并置为 0。",
    ),
    idea=Text(
        "Sequences of a batch are padded to the same length, and nobody may look at padding. A mask must do this "
        "exactly: a score of −10⁹ in place of −∞ works until the other scores are as low, and a softmax over nothing "
        "is NaN. Lengths may be given one per sequence, (batch,), or one per query, (batch, n).",
        "一个批量里的序列会填充到相同长度，而填充不该被看到。掩码必须严格：用 −10⁹ 代替 −∞，在其他评分同样低时就会失"
        "效；而对空集做 softmax 会得到 NaN。长度可以每个序列一个，形状 (batch,)，也可以每个查询一个，形状 (batch, "
        "n)。",
    ),
    formula=Text(
        "αᵢⱼ = exp(sᵢⱼ) / Σₗ exp(sᵢₗ)  for j, l < lengthᵢ,     0 for j ≥ lengthᵢ",
        "j, l < 长度ᵢ 时 αᵢⱼ = exp(sᵢⱼ) / Σₗ exp(sᵢₗ)，     j ≥ 长度ᵢ 时为 0",
    ),
    caption=Text(
        "Weights of three sequences with four queries and eight keys. Above: lengths 2, 6 and 0, one per sequence. "
        "Below: one length per query. Left of the length the rows share out 1; beyond it every cell is 0.",
        "三个序列的权重，各有四个查询、八个键。上：每个序列一个长度，分别为 2、6、0。下：每个查询一个长度。长度以内每"
        "行之和为 1，超出长度的格子全为 0。",
    ),
    meanings={
        "beyond": Text("largest weight beyond a valid length", "有效长度之外的最大权重"),
        "off_one": Text("largest |sum of a row − 1|, rows with something to see", "各行之和与 1 的最大偏差（非空行）"),
        "empty_rows": Text("rows with valid length 0", "有效长度为 0 的行数"),
        "in_empty": Text("largest weight in them", "这些行中的最大权重"),
    },
    deciding="beyond",
    run=run,
    judge=judge,
)
