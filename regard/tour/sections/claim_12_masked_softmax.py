"""Claim 12: masked softmax gives exactly 0 beyond the valid length."""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

import regard
from regard.tour.cells import run_plain
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Heat, Panel

PLAIN = """
def masked_softmax(scores, lengths):  # (batch, n, m); lengths (batch,) or (batch, n)
    lengths = lengths.reshape(len(scores), -1, 1)  # (batch, 1 or n, 1)
    padding = torch.arange(scores.shape[-1]) >= lengths  # (batch, 1 or n, m): beyond the valid length
    weights = torch.softmax(scores.masked_fill(padding, -torch.inf), -1)
    return weights.masked_fill(padding, 0.0)  # softmax over nothing is NaN


scores = torch.randn(3, 4, 8)  # three sequences, four queries, eight keys
per_sequence = torch.tensor([2, 6, 0])  # the third sequence is empty
per_query = torch.tensor([[1, 2, 5, 8], [3, 0, 8, 4], [7, 6, 0, 1]])
weights = masked_softmax(scores, per_sequence)
weights_per_query = masked_softmax(scores, per_query)
row, empty_row = weights[0, 0], weights[2, 0]
"""

SHORT = """
import regard

torch.testing.assert_close(regard.masked_softmax(scores, regard.lengths(per_sequence)), weights)
torch.testing.assert_close(regard.masked_softmax(scores, regard.lengths(per_query)), weights_per_query)
"""

Weigh = Callable[[Tensor, Tensor], Tensor]  # rows (batch, n, d), lengths → weights (batch, n, m)


def by_score(score: torch.nn.Module, rows: Tensor, lengths: Tensor) -> Tensor:
    """The weights of a batch that looks at itself."""
    return regard.weights(rows, rows, score=score.to(rows), mask=regard.lengths(lengths)).detach()


def by_output(rows: Tensor, lengths: Tensor) -> Tensor:
    """The weights as outputs: every key has a value that is 1 in its own place."""
    own = torch.eye(rows.shape[1], dtype=rows.dtype).expand(len(rows), -1, -1)
    return regard.attend(rows, rows, own, mask=regard.lengths(lengths))


def by_softmax(softmax: Callable[[Tensor, Tensor], Tensor], rows: Tensor, lengths: Tensor) -> Tensor:
    """A masked softmax of the scaled dot products; those of padding are NaN, so that anything that leaks shows."""
    scores = rows @ rows.transpose(1, 2) / rows.shape[-1] ** 0.5
    length = lengths.reshape(len(rows), -1, 1)
    return softmax(scores.masked_fill(torch.arange(rows.shape[1]) >= length, torch.nan), lengths)


def paths() -> dict[str, Weigh]:
    """All ways to masked weights."""
    return {
        "cell": partial(by_softmax, run_plain(SECTION)["masked_softmax"]),
        "masked_softmax": partial(by_softmax, lambda scores, n: regard.masked_softmax(scores, regard.lengths(n))),
        "attend": by_output,
        "dot": partial(by_score, regard.Dot()),
        "cosine": partial(by_score, regard.Cosine()),
        "kernel": partial(by_score, regard.Kernel()),
        "additive": partial(by_score, regard.Additive(5, 5, 7)),
        "bilinear": partial(by_score, regard.Bilinear(5, 5)),
    }


def measure(ways: Mapping[str, Weigh]) -> Numbers:
    """Every way, in two precisions, with scores small and large, with both kinds of lengths."""
    rounds, beyond, off_one, empty_rows = 0, [], [], 0
    lengths = (torch.tensor([2, 6, 0]), torch.randint(9, (3, 8)))  # (batch,), (batch, n)
    for weigh in ways.values():
        for dtype in (torch.float32, torch.float64):
            for size in (1.0, 1e3):
                rows = (size * torch.randn(3, 8, 5)).to(dtype)
                for valid in lengths:
                    length = valid.reshape(3, -1, 1).expand(3, 8, 1)
                    weights, empty = weigh(rows, valid), length[..., 0] == 0
                    beyond.append(weights[torch.arange(8) >= length].abs().max())
                    off_one.append((weights.sum(-1)[~empty] - 1).abs().max())
                    rounds, empty_rows = rounds + 1, empty_rows + int(empty.sum())
    return Numbers(
        paths=len(ways),
        rounds=rounds,
        beyond=torch.stack([one.double() for one in beyond]).max(),  # NaN stays NaN
        off_one=torch.stack([one.double() for one in off_one]).max(),
        empty_rows=empty_rows,
    )


def run() -> Measured:
    """Mask on all paths, and look beyond the lengths."""
    return measure(paths()), None


def judge(numbers: Numbers) -> Criteria:
    """Exactly 0 outside, a distribution inside."""
    yield numbers.criterion(
        numbers.beyond == 0,
        "Beyond the valid length every weight must be exactly 0, on {paths} paths and in {rounds} batches with "
        "{empty_rows} rows of length 0: the largest is {beyond}.",
        "超出有效长度的权重应恰好为 0；共 {paths} 条计算路径、{rounds} 个批量，其中长度为 0 的行有 {empty_rows} 个：最"
        "大的权重为 {beyond}。",
    )
    yield numbers.criterion(
        numbers.off_one <= 1e-5,
        "The others must be a distribution, where there are any, to 10⁻⁵: the worst row is off 1 by {off_one}.",
        "其余权重（若有）应构成概率分布，容差 10⁻⁵：与 1 偏差最大的一行为 {off_one}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """Two rows of heat maps: one length for each sequence, one for each query."""
    query, key = Text("query", "查询"), Text("key", "键")
    panels = []
    for weights, lengths in ((cell.weights, cell.per_sequence), (cell.weights_per_query, cell.per_query)):
        for one, length in zip(weights, lengths.tolist(), strict=True):
            shown = ", ".join(map(str, length)) if isinstance(length, list) else str(length)
            title = Text(f"valid length {shown}", f"有效长度 {shown}")
            panels.append(Panel([Heat(one, largest=1.0)], x=key, y=query, title=title))
    return Chart(
        panels,
        columns=3,
        caption=Text(
            "The weights of three sequences with four queries and eight keys. Above: one valid length for each "
            "sequence. Below: one for each query.",
            "三个序列的权重，各有四个查询、八个键。上：每个序列一个有效长度。下：每个查询一个有效长度。",
        ),
    )


SECTION = Section(
    number=12,
    notes=(Passage("003", 68, 70),),
    title=Text("Masked softmax stops at the valid length", "掩蔽 softmax 止于有效长度"),
    claim=Text(
        "Padding must not be pooled: a valid length is given, and every position beyond it is masked and set to 0.",
        "填充的词元不应参与注意力汇聚：给定有效长度之后，凡超出它的位置都被掩蔽，权重置为 0。",
    ),
    idea=Text(
        "Sequences of a batch are padded to one length, and no query may look at padding. A score of −∞ becomes the "
        "weight exp(−∞) = 0, whatever the others are; a large negative number in its place is 0 only next to scores "
        "that are much larger. Lengths may be given one for each sequence, or one for each query.",
        "一个批量里的序列会填充到相同长度，而任何查询都不该看到填充。评分 −∞ 得到权重 exp(−∞) = 0，与其余评分无关；用"
        "绝对值很大的负数代替它，只有在其余评分大得多时才得到 0。长度可以每个序列一个，也可以每个查询一个。",
    ),
    formula=r"\alpha_{ij} = \frac{[j < \ell_i]\, \exp(s_{ij})}{\sum_{k < \ell_i} \exp(s_{ik})}",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    exercises=(
        Exercise(
            ("return weights.masked_fill(padding, 0.0)", "return weights"),
            Text("What is a row of length 0 then?", "这时长度为 0 的行是什么？"),
            Text(
                "Its first weight is {now.empty_row[0]}; before it was {was.empty_row[0]}.",
                "它的第一个权重为 {now.empty_row[0]}；原来为 {was.empty_row[0]}。",
            ),
        ),
        Exercise(
            ("per_sequence = torch.tensor([2, 6, 0])", "per_sequence = torch.tensor([1, 6, 0])"),
            Text(
                "Only one key is left to the first sequence: does its weight depend on its score?",
                "第一个序列只剩一个键：它的权重还取决于评分吗？",
            ),
            Text(
                "Its weight is {now.row[0]:.4f}; with two keys it was {was.row[0]:.4f}.",
                "它的权重为 {now.row[0]:.4f}；有两个键时为 {was.row[0]:.4f}。",
            ),
        ),
        Exercise(
            ("scores = torch.randn(3, 4, 8)", "scores = torch.randn(3, 4, 8) - 1e9"),
            Text(
                "All scores a billion lower: do the weights change?",
                "所有评分都减去十亿：权重会变吗？",
            ),
            Text(
                "The first weight is {now.row[0]:.4f} instead of {was.row[0]:.4f} (float32 rounds scores of this "
                "size), and the one beyond the length {now.row[2]:.4f}.",
                "第一个权重为 {now.row[0]:.4f}，原来为 {was.row[0]:.4f}（float32 会舍入这样大的评分）；长度之外的一个"
                "为 {now.row[2]:.4f}。",
            ),
        ),
    ),
    meanings={
        "paths": Text("paths of computation", "计算路径数"),
        "rounds": Text("batches masked", "掩蔽的批量数"),
        "beyond": Text("largest weight beyond a valid length", "有效长度之外的最大权重"),
        "off_one": Text("largest |sum of a row − 1|, rows with something to see", "各行之和与 1 的最大偏差（非空行）"),
        "empty_rows": Text("rows with valid length 0", "有效长度为 0 的行数"),
    },
    deciding="beyond",
    run=run,
    judge=judge,
)
