"""Claim 22: inputs serve two purposes, so learn a matrix for keys and one for values; several queries at once."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Bars, Chart, Dots, Heat, Line, Panel

SEEDS, NAMES, INPUTS = 3, 8, 5

PLAIN = """
class SelfAttention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(size, size, bias=False) for _ in range(3))

    def forward(self, x, mask=None):  # (…, n, size)
        return dot_product_attention(self.W_q(x), self.W_k(x), self.W_v(x), mask)[0]


names, contents = torch.rand(500, 8).argsort(-1)[:, :5], torch.randint(8, (500, 5))
x = torch.cat([F.one_hot(names, 8), F.one_hot(contents, 8)], -1).float()  # (500, 5, 16): a name and a content
queries = x[..., :8]  # all five names are asked for, at once
keep_name, keep_content = 30 * torch.eye(16)[:, :8], 30 * torch.eye(16)[:, 8:]  # (16, 8)


def look_up(W_k, W_v):
    output, weights = dot_product_attention(queries, x @ W_k, x @ W_v)  # what is the content of that name?
    return (output.argmax(-1) == contents).float().mean(), weights


balance = 0.6
W = (1 - balance) * keep_name + balance * keep_content
one_matrix, one_weights = look_up(W, W)
two_matrices, two_weights = look_up(keep_name, keep_content)
"""

SHORT = """
import regard

layer = regard.Attention(source_size=16, key_size=8, value_size=8)
layer.key.weight.data, layer.value.weight.data = keep_name.T, keep_content.T
ours = (layer(queries, x).argmax(-1) == contents).float().mean()
torch.testing.assert_close(ours, two_matrices)
torch.testing.assert_close(regard.weights(queries, layer.key(x)).detach(), two_weights)
"""


def look_ups(count: int, own_content: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (count, 5, 16) of a name and a content, queries (count, 5, 8) and the contents asked for (count, 5).

    own_content: whether a name says itself what is asked for; then keys can be values.
    """
    names = torch.rand(count, NAMES).argsort(-1)[:, :INPUTS]
    contents = names if own_content else torch.randint(NAMES, (count, INPUTS))
    x = torch.cat([functional.one_hot(names, NAMES), functional.one_hot(contents, NAMES)], -1).float()
    return x, functional.one_hot(names, NAMES).float(), contents


class Layer(nn.Module):
    """Keys and values by one matrix, by two, or by one that is twice as wide, with matrices in front and behind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        size = 2 * NAMES if kind == "wide" else NAMES
        self.query = nn.Linear(NAMES, size, bias=False) if kind == "wide" else nn.Identity()
        self.key = nn.Linear(2 * NAMES, size, bias=False)
        self.value = nn.Linear(2 * NAMES, size, bias=False) if kind == "two" else self.key
        self.out = nn.Linear(size, NAMES, bias=False) if kind == "wide" else nn.Identity()

    def forward(self, query: Tensor, x: Tensor) -> Tensor:
        output: Tensor = self.out(regard.attend(self.query(query), self.key(x), self.value(x)))
        return output


def accuracy(kind: str, seed: int, steps: int, own_content: bool) -> float:
    """On new look-ups."""
    torch.manual_seed(seed)
    model = Layer(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        x, query, contents = look_ups(64, own_content)
        loss = functional.cross_entropy(model(query, x).mT, contents)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x, query, contents = look_ups(1000, own_content)
        return float((model(query, x).argmax(-1) == contents).double().mean())


KINDS = {
    "one": Text("one matrix", "一个矩阵"),
    "two": Text("two matrices", "两个矩阵"),
    "wide": Text("one, twice as wide", "一个，两倍宽"),
}


@torch.no_grad()
def one_by_one(seed: int) -> tuple[float, float]:
    """What several queries at once differ from one at a time, and the sums of their weights from 1."""
    torch.manual_seed(seed)
    layer = regard.Attention(source_size=7, key_size=11, value_size=3).double()
    query, source = torch.randn(5, 11).double(), torch.randn(13, 7).double()
    alone = torch.cat([layer(one[None], source) for one in query])
    sums = regard.weights(query, layer.key(source)).sum(-1)
    return float((layer(query, source) - alone).abs().max()), float((sums - 1).abs().max())


def measure(steps: int = 200, own_content: bool = False) -> Measured:
    """All kinds of layers on the same task."""
    found = torch.tensor(
        [[accuracy(kind, seed, steps, own_content) for seed in range(SEEDS)] for kind in KINDS]
    )  # (kinds, seeds)
    mean, spread = found.mean(1), found.std(1)
    together, sums = torch.tensor([one_by_one(seed) for seed in range(SEEDS)]).max(0).values
    numbers = Numbers(
        one=mean[0],
        two=mean[1],
        wide=mean[2],
        spreads=spread,
        together=together,
        sums=sums,
    )
    return numbers, draw_accuracy(mean, spread)


def run() -> Measured:
    """Three seeds."""
    return measure()


def judge(numbers: Numbers) -> Criteria:
    """Two matrices do what one does not; and every query has a distribution of its own."""
    yield numbers.criterion(
        numbers.two > 0.95 and numbers.two - numbers.one > 2 * max(numbers.spreads[:2]),
        "Where a name is compared and a content is wanted, two matrices must be right for more than 95 %, and better "
        "than one for both by more than twice the spread: {two:.1%} against {one:.1%}. (One that is twice as wide, "
        "with matrices for the queries and for the outputs besides: {wide:.1%}.)",
        "比较的是名称、要的是内容时，两个矩阵的正确率应超过 95%，且比共用一个矩阵高出两倍标准差以上：{two:.1%} 对 "
        "{one:.1%}。（共用一个两倍宽的矩阵，查询和输出另有矩阵：{wide:.1%}。）",
    )
    yield numbers.identity(
        numbers.together <= 1e-12 and numbers.sums <= 1e-12,
        "Each of several queries must have a distribution of its own, as if it were alone, to 10⁻¹²: outputs differ by "
        "{together}, sums of weights from 1 by {sums}.",
        "一组查询中的每一个都应各有一个概率分布，与单独计算时一致到 10⁻¹²：输出相差 {together}，权重之和与 1 相差 "
        "{sums}。",
    )


def draw_accuracy(mean: Tensor, spread: Tensor) -> Chart:
    """The kinds side by side."""
    bars = Bars(list(KINDS.values()), mean, spread=spread, colour="attention")
    return Chart(
        [Panel([bars], y=Text("share right", "正确率"), y_limits=(0.0, 1.05))],
        height=240,
        caption=Text(
            "New look-ups answered rightly, mean and standard deviation of three seeds. Guessing gives one in eight.",
            "新的查找中回答正确的比例，三个种子的均值与标准差。猜测为八分之一。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights of five queries over five inputs, with one matrix and with two; and every balance of the one."""
    astray = (cell.one_weights.argmax(-1) != torch.arange(INPUTS)).sum(-1)
    chosen = int(astray.argmax())  # a look-up in which one matrix leads astray, where there is one
    names, contents = cell.names[chosen].tolist(), cell.contents[chosen].tolist()
    inputs = [f"{name} → {content}" for name, content in zip(names, contents, strict=True)]
    queries = [f"{name} ?" for name in names]
    panels = [
        Panel([Heat(weights[chosen], rows=queries, columns=inputs, largest=1.0)], title=title)
        for title, weights in ((KINDS["one"], cell.one_weights), (KINDS["two"], cell.two_weights))
    ]
    balances = torch.linspace(0, 1, 41).tolist()
    matrices = [(1 - balance) * cell.keep_name + balance * cell.keep_content for balance in balances]
    curves: list[Line | Dots] = [
        Line((0, 1), [cell.two_matrices] * 2, KINDS["two"], "other"),
        Line(balances, [cell.look_up(matrix, matrix)[0] for matrix in matrices], KINDS["one"], "attention"),
        Dots([cell.balance], [cell.one_matrix], colour="attention", size=5),
    ]
    right = Panel(curves, x=Text("balance", "比重"), y=Text("share right", "正确率"), share=1.3)
    return Chart(
        [*panels, right],
        caption=Text(
            "Five queries look up five names; the input that is asked for, name → content, is on the diagonal. Right: "
            "how many look-ups succeed, if one matrix keeps the name in part and the content in part.",
            "五个查询查找五个名称；所问的输入（名称 → 内容）在对角线上。右：一个矩阵同时保留一部分名称和一部分内容时，"
            "查找成功的比例。",
        ),
    )


SECTION = Section(
    number=22,
    notes=(Passage("004", 54, 60),),
    title=Text("Keys and values by two matrices", "由两个矩阵得到键和值"),
    claim=Text(
        "Input vectors are used for two purposes; so they are split into keys and values by two learnable matrices, K "
        "for the similarities and V for the output. Of several queries, each has a distribution over the inputs.",
        "输入向量有两种用途，因此用两个可学习的矩阵把它分解为键和值，用 K 计算相似度，用 V 计算输出。有一组查询时，每"
        "个查询都在输入上生成一个概率分布。",
    ),
    idea=Text(
        "What makes an input worth looking at need not be what it has to say. Here every input has a name and a "
        "content, a query asks for a name, and the answer is the content. A matrix that keeps the name finds the "
        "input, one that keeps the content answers; a single one has to do both in the same eight numbers.",
        "一个输入为什么值得看，与它要说什么，不必是一回事。这里每个输入有一个名称和一个内容，查询问的是名称，回答的是"
        "内容。保留名称的矩阵能找到输入，保留内容的矩阵能回答；只有一个矩阵时，同样的八个数要兼顾两者。",
    ),
    formula=r"K = X W_k, \qquad V = X W_v, \qquad Y = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt d}\right) V",
    plain=PLAIN,
    short=SHORT,
    uses=(14,),
    show=draw,
    controls=(
        Control(
            "balance = 0.6",
            Text("what one matrix keeps: name 0, content 1", "一个矩阵保留什么：名称 0，内容 1"),
            Slider(0, 1),
        ),
    ),
    exercises=(
        Exercise(
            (
                "two_matrices, two_weights = look_up(keep_name, keep_content)",
                "two_matrices, two_weights = look_up(keep_content, keep_name)",
            ),
            Text("Swap the two matrices: what is looked up then?", "交换两个矩阵：这时查找的是什么？"),
            Text(
                "{now.two_matrices:.1%} are right; before {was.two_matrices:.1%}.",
                "正确的占 {now.two_matrices:.1%}；原来为 {was.two_matrices:.1%}。",
            ),
        ),
        Exercise(
            (
                "names, contents = torch.rand(500, 8).argsort(-1)[:, :5], torch.randint(8, (500, 5))",
                "names = contents = torch.rand(500, 8).argsort(-1)[:, :5]",
            ),
            Text(
                "The content is the name itself, one purpose instead of two: does one matrix do?",
                "内容就是名称本身，两种用途合为一种：一个矩阵够吗？",
            ),
            Text(
                "One matrix is right for {now.one_matrix:.1%}, two for {now.two_matrices:.1%}; before "
                "{was.one_matrix:.1%} and {was.two_matrices:.1%}.",
                "一个矩阵的正确率为 {now.one_matrix:.1%}，两个为 {now.two_matrices:.1%}；原来为 {was.one_matrix:.1%} "
                "和 {was.two_matrices:.1%}。",
            ),
        ),
    ),
    meanings={
        "one": Text(
            "look-ups answered rightly, one matrix for K and V, mean of 3 seeds",
            "查找正确率，K 与 V 共用一个矩阵，3 个种子的均值",
        ),
        "two": Text("look-ups that are right, a matrix each for K and V", "查找正确率，K 与 V 各用一个矩阵"),
        "wide": Text(
            "the same, one matrix twice as wide, others for queries and outputs",
            "同上，一个两倍宽的矩阵，查询和输出另有矩阵",
        ),
        "spreads": Text("standard deviations of these three over the seeds", "以上三者在种子间的标准差"),
        "together": Text("largest |all queries at once − one by one|", "一次算所有查询与逐个计算的最大差"),
        "sums": Text("largest |sum of a query's weights − 1|", "|每个查询的权重之和 − 1| 的最大值"),
    },
    deciding="two",
    run=run,
    rehearsal=partial(measure, 10),
    judge=judge,
)
