"""Claim 13: additive attention joins queries and keys of different sizes: an MLP on the two put together."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

import regard
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Heat, Panel

PLAIN = """
class AdditiveAttention(nn.Module):
    def __init__(self, query_size, key_size, hidden_size):
        super().__init__()
        self.W_q = nn.Linear(query_size, hidden_size, bias=False)
        self.W_k = nn.Linear(key_size, hidden_size, bias=False)
        self.w_v = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, queries, keys, values, lengths):
        hidden = self.W_q(queries)[:, :, None] + self.W_k(keys)[:, None]  # (batch, n, m, hidden)
        scores = self.w_v(torch.tanh(hidden)).squeeze(-1)  # (batch, n, m)
        weights = masked_softmax(scores, lengths)
        return weights @ values, weights


queries = torch.randn(2, 1, 20)  # the notes' shapes: one query of size 20,
keys = 5 * torch.randn(2, 10, 2)  # ten keys of size 2
values = torch.arange(40.0).reshape(1, 10, 4).repeat(2, 1, 1)
attention = AdditiveAttention(query_size=20, key_size=2, hidden_size=8)
output, weights = attention(queries, keys, values, torch.tensor([2, 6]))  # (2, 1, 4), (2, 1, 10)

W = torch.cat([attention.W_q.weight, attention.W_k.weight], 1)  # (8, 22): one layer for [query; key]
pairs = torch.cat([queries.expand(2, 10, 20), keys], -1)  # (2, 10, 22)
mlp = masked_softmax(attention.w_v(torch.tanh(pairs @ W.T)).mT, torch.tensor([2, 6]))
difference, first, second = (mlp - weights).abs().max(), weights[0, 0], weights[1, 0]
"""

SHORT = """
import regard

score = regard.Additive(query_size=20, key_size=2, hidden_size=8)
score.query_weight.data = attention.W_q.weight.data
score.key_weight.data = attention.W_k.weight.data
score.value_weight.data = attention.w_v.weight.data[0]
ours = regard.attend(queries, keys, values, score=score, mask=regard.lengths([2, 6]))
torch.testing.assert_close(ours, output)
"""


def concatenated(score: regard.Additive, query: Tensor, key: Tensor) -> Tensor:
    """The scores (batch, n, m) of an MLP with one hidden layer, without biases, on each query beside each key."""
    n, m = query.shape[-2], key.shape[-2]
    pairs = torch.cat([query[:, :, None].expand(-1, -1, m, -1), key[:, None].expand(-1, n, -1, -1)], -1)
    hidden = torch.tanh(pairs @ torch.cat([score.query_weight, score.key_weight], 1).T)  # (batch, n, m, hidden)
    return hidden @ score.value_weight


def refused(score: nn.Module, query: Tensor, key: Tensor) -> bool:
    """Whether a score cannot compare vectors of these sizes."""
    try:
        score(query, key)
    except (ValueError, RuntimeError):
        return True
    return False


@torch.no_grad()
def run(score: nn.Module | None = None) -> Measured:
    """Score with the notes' shapes, and with the MLP that has the same weights. score: instead of additive scores."""
    mlp = regard.Additive(query_size=20, key_size=2, hidden_size=8)
    score = mlp if score is None else score
    query, key, value = torch.randn(2, 1, 20), 5 * torch.randn(2, 10, 2), torch.randn(2, 10, 4)
    output, weights = regard.attend(query, key, value, score=score, mask=regard.lengths([2, 6]), need_weights=True)
    numbers = Numbers(
        output_shape=tuple(output.shape),
        weights_shape=tuple(weights.shape),
        apart=(score(query, key) - concatenated(mlp, query, key)).abs().max(),
        scores=concatenated(mlp, query, key).abs().mean(),
        dot_refused=refused(regard.Dot(), query, key),
    )
    return numbers, None


def judge(numbers: Numbers) -> Criteria:
    """The same numbers; and sizes that a dot product does not take."""
    yield numbers.identity(
        numbers.apart <= 1e-6,
        "The scores must be those of an MLP with one hidden layer on [query; key], with the same weights, to 10⁻⁶: "
        "they differ by {apart} (an average score has the size {scores}).",
        "评分应与把查询和键连结后输入、参数相同的单隐藏层多层感知机一致，误差不超过 10⁻⁶：两者相差 {apart}（评分的平均"
        "大小为 {scores}）。",
    )
    yield numbers.identity(
        numbers.output_shape == (2, 1, 4) and numbers.weights_shape == (2, 1, 10) and bool(numbers.dot_refused),
        "Queries (2, 1, 20) and keys (2, 10, 2), which no dot product takes, must give weights (2, 1, 10) and, with "
        "values (2, 10, 4), outputs (2, 1, 4): the shapes are {weights_shape} and {output_shape}.",
        "点积不能处理的查询 (2, 1, 20) 与键 (2, 10, 2) 应得到权重 (2, 1, 10)，并与值 (2, 10, 4) 得到输出 (2, 1, 4)：实"
        "际形状为 {weights_shape} 和 {output_shape}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights of the one query of each sequence."""
    rows = [Text("length 2", "长度 2"), Text("length 6", "长度 6")]
    panel = Panel([Heat(cell.weights[:, 0].detach(), rows=rows, largest=1.0)], x=Text("key", "键"))
    return Chart(
        [panel],
        caption=Text(
            "The weights of the one query of each sequence over its ten keys; nothing has been trained.",
            "每个序列中唯一的查询对十个键的权重；没有经过训练。",
        ),
    )


SECTION = Section(
    number=13,
    notes=(Passage("002", 40, 68), Passage("003", 72, 79)),
    title=Text("Additive attention joins different sizes", "加性注意力连接不同大小的查询与键"),
    claim=Text(
        "Where queries and keys differ in size, additive attention can score them: queries of 20 and keys of 2 "
        "numbers meet in 8 hidden units. It is a multilayer perceptron with one hidden layer, tanh and no biases, "
        "that reads query and key put together.",
        "查询和键的长度不同时可以用加性注意力评分：20 维的查询与 2 维的键在 8 个隐藏单元中相遇。它就是把查询和键连结起"
        "来后输入的多层感知机：一个隐藏层，tanh 激活，没有偏置。",
    ),
    idea=Text(
        "A dot product needs vectors of one size; two matrices bring both to the same hidden size. There they are "
        "added, bent by tanh and weighed by a vector. A matrix times [query; key] is the sum of its left part times "
        "the query and its right part times the key, so that the perceptron need not put every query beside every key.",
        "点积要求两个向量一样长；用两个矩阵可以把它们变到同样大小的隐藏层。在那里相加，经 tanh 之后用一个向量加权。矩"
        "阵乘以[查询; 键] 等于它的左半乘查询加右半乘键，所以不必真的把每个查询与每个键连结起来。",
    ),
    formula=(
        r"a(q, k) = w_v^\top \tanh(W_q q + W_k k) "
        r"= w_v^\top \tanh\!\left([W_q\; W_k]\begin{pmatrix} q \\ k \end{pmatrix}\right)"
    ),
    plain=PLAIN,
    short=SHORT,
    uses=(12,),
    show=draw,
    exercises=(
        Exercise(
            ("keys = 5 * torch.randn(2, 10, 2)", "keys = torch.ones(2, 10, 2)"),
            Text("All keys are equal: what are the weights?", "所有的键都相同：权重是多少？"),
            Text(
                "The first key gets {now.first[0]:.3f} of 2 and {now.second[0]:.3f} of 6; before it got "
                "{was.first[0]:.3f} and {was.second[0]:.3f}.",
                "第一个键在长度 2 中得到 {now.first[0]:.3f}，在长度 6 中得到 {now.second[0]:.3f}；原来为 "
                "{was.first[0]:.3f} 和 {was.second[0]:.3f}。",
            ),
        ),
        Exercise(
            ("self.W_k = nn.Linear(key_size, hidden_size, bias=False)", "self.W_k = nn.Linear(key_size, hidden_size)"),
            Text("With a bias, is it still that perceptron?", "加上偏置之后，还是原来的感知机吗？"),
            Text(
                "The weights differ by {now.difference:.2g}; without the bias by {was.difference:.2g}.",
                "权重相差 {now.difference:.2g}；没有偏置时相差 {was.difference:.2g}。",
            ),
        ),
    ),
    meanings={
        "output_shape": Text("shape of the output", "输出的形状"),
        "weights_shape": Text("shape of the weights", "权重的形状"),
        "apart": Text("largest |additive score − score of the MLP on [q; k]|", "加性评分与 [q; k] 上的感知机的最大差"),
        "scores": Text("mean size of a score", "评分的平均大小"),
        "dot_refused": Text("whether the dot product refuses these sizes", "点积是否拒绝这样的大小"),
    },
    deciding="apart",
    run=run,
    judge=judge,
)
