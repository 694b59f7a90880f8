"""Claim 35: what tells attention from fully connected and pooling layers is the query."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Bars, Chart, Line, Panel

PLAIN = """
def make_task(count):  # six things with a key and one of four colours each; the query is nearly the key of one of them
    keys, colours, asked = torch.randn(count, 6, 8), torch.randint(4, (count, 6)), torch.randint(6, (count, 1))
    query = keys.take_along_dim(asked[..., None], 1) + 0.2 * torch.randn(count, 1, 8)
    return query, keys, F.one_hot(colours, 4).float(), colours.take_along_dim(asked, 1)[:, 0]


def attention(query, keys, values):
    scores = W_q(query) @ W_k(keys).transpose(1, 2)  # (count, 1, 6)
    return (torch.softmax(scores, -1) @ values)[:, 0] * 10  # (count, 4): one logit for each colour


W_q, W_k = nn.Linear(8, 16, bias=False), nn.Linear(8, 16, bias=False)
fully_connected = nn.Sequential(nn.Flatten(), nn.Linear(6 * 12, 4))  # about as many weights, and no query
answer = {"attention": attention, "fully connected": lambda q, k, v: fully_connected(torch.cat([k, v], -1))}
optimizer = torch.optim.Adam([*W_q.parameters(), *W_k.parameters(), *fully_connected.parameters()], lr=0.02)
for step in range(200):
    *inputs, colour = make_task(64)
    loss = sum(F.cross_entropy(layer(*inputs), colour) for layer in answer.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
*inputs, colour = make_task(5000)
accuracy = {name: (layer(*inputs).argmax(-1) == colour).float().mean().item() for name, layer in answer.items()}
"""

SHORT = """
import regard

query, keys, values = inputs
ours = regard.attend(W_q(query), W_k(keys), values, score=regard.Dot(scale=1.0))[:, 0] * 10
torch.testing.assert_close(ours, attention(*inputs))
"""

ITEMS, SIZE, COLOURS = 6, 8, 4
# A layer takes the query (count, 1, size) and the items (count, items, size + colours), and gives logits.


def make_task(count: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """As in the plain cell: the query, the items (key and colour side by side), and the colour asked for."""
    keys, colours = torch.randn(count, ITEMS, SIZE), torch.randint(COLOURS, (count, ITEMS))
    asked = torch.randint(ITEMS, (count, 1))
    query = keys.take_along_dim(asked[..., None], 1) + noise * torch.randn(count, 1, SIZE)
    return query, torch.cat([keys, F.one_hot(colours, COLOURS)], -1), colours.take_along_dim(asked, 1)[:, 0]


class Attend(nn.Module):
    """Learned projections of query and keys; without a query, one that is learned and always the same."""

    def __init__(self, inner: int, asks: bool) -> None:
        super().__init__()
        self.query: nn.Module = nn.Linear(SIZE, inner, bias=False) if asks else nn.Embedding(1, inner)
        self.asks, self.key, self.read = asks, nn.Linear(SIZE, inner, bias=False), nn.Linear(COLOURS, COLOURS)

    def forward(self, query: Tensor, items: Tensor) -> Tensor:
        asked = self.query(query if self.asks else torch.zeros(len(query), 1, dtype=torch.long))
        output: Tensor = self.read(regard.attend(asked, self.key(items[..., :SIZE]), items[..., SIZE:])[:, 0])
        return output


class Pool(nn.Module):
    """Features of each item, or of three neighbours (a convolution), pooled over the items."""

    def __init__(self, inner: int, reach: int, pool: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.features = nn.Conv1d(SIZE + COLOURS, inner, reach, padding=reach // 2)
        self.pool, self.read = pool, nn.Linear(inner, COLOURS)

    def forward(self, query: Tensor, items: Tensor) -> Tensor:
        output: Tensor = self.read(self.pool(self.features(items.transpose(1, 2)).relu()))
        return output


class Dense(nn.Module):
    """Fully connected, with the query as a seventh input or without it."""

    def __init__(self, inner: int, asks: bool) -> None:
        super().__init__()
        width = ITEMS * (SIZE + COLOURS) + (SIZE if asks else 0)
        self.asks, self.layers = asks, nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, COLOURS))

    def forward(self, query: Tensor, items: Tensor) -> Tensor:
        flat = torch.cat([items.flatten(1), query.flatten(1)], 1) if self.asks else items.flatten(1)
        output: Tensor = self.layers(flat)
        return output


# 530 parameters each, as nearly as whole units allow.
LAYERS: dict[Text, Callable[[], nn.Module]] = {
    Text("average pool", "平均汇聚"): lambda: Pool(31, 1, lambda features: features.mean(-1)),
    Text("max pool", "最大汇聚"): lambda: Pool(31, 1, lambda features: features.amax(-1)),
    Text("convolution", "卷积"): lambda: Pool(13, 3, lambda features: features.amax(-1)),
    Text("dense", "全连接"): lambda: Dense(7, asks=False),
    Text("attention − q", "注意力 − q"): lambda: Attend(57, asks=False),
    Text("attention", "注意力"): lambda: Attend(32, asks=True),
    Text("dense + q", "全连接 + q"): lambda: Dense(6, asks=True),
}


def train(layers: nn.ModuleList, noise: float, steps: int) -> list[float]:
    """Train all of them on the same tasks; their accuracies on new ones."""
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.02)
    for _ in range(steps):
        query, items, colour = make_task(64, noise)
        loss = torch.stack([F.cross_entropy(layer(query, items), colour) for layer in layers]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    query, items, colour = make_task(5000, noise)
    with torch.no_grad():
        return [float((layer(query, items).argmax(-1) == colour).float().mean()) for layer in layers]


def best_without(count: int = 50_000) -> float:
    """The share that the most frequent colour of the six would get: nothing that knows no query can do better."""
    _, items, colour = make_task(count, 0.0)
    return float((items[..., SIZE:].sum(1).argmax(-1) == colour).float().mean())


def measure(noise: float = 0.2, seeds: int = 3, steps: int = 200) -> Measured:
    """Train all layers on the same kind of task, with about as many parameters each."""
    accuracies = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        layers = nn.ModuleList([make() for make in LAYERS.values()])
        accuracies.append(train(layers, noise, steps))
    sizes = [sum(weights.numel() for weights in layer.parameters()) for layer in layers]
    mean, spread = torch.tensor(accuracies).mean(0), torch.tensor(accuracies).std(0)
    ceiling = best_without()
    numbers = Numbers(
        attention=mean[5],
        spread=spread[5],
        others=mean[:4],
        others_spread=spread[:4].max(),
        no_query=mean[4],
        no_query_spread=spread[4],
        dense_with_query=mean[6],
        ceiling=ceiling,
        parameters=(min(sizes), max(sizes)),
        seeds=seeds,
    )
    bars = Bars(list(LAYERS), mean, spread=spread, colour="attention")
    line = Line(
        [-0.5, 6.5], [ceiling] * 2, Text("best possible without a query", "没有查询时的上限"), "ink", style="dashed"
    )
    caption = Text(
        "Accuracy on new tasks after training, of layers with about as many parameters each; − q: without the query, "
        "+ q: with it; whiskers: spread over the seeds.",
        "训练后在新任务上的准确率，各层参数量大致相同；− q：去掉查询，+ q：加上查询；误差线为种子间的波动。",
    )
    return numbers, Chart([Panel([bars, line], y=Text("accuracy", "准确率"), y_limits=(0, 1.05))], caption)


def judge(numbers: Numbers) -> Criteria:
    """With the query better than every layer that has none, and without it no better than they."""
    margin = numbers.spread + numbers.others_spread
    yield numbers.criterion(
        numbers.attention - max(numbers.others) > margin and numbers.attention > numbers.ceiling,
        "Where the answer depends on the query, attention must beat average pooling, max pooling, convolution and a "
        "fully connected layer by more than the spread over {seeds} seeds: it is right in {attention:.1%} ± "
        "{spread:.1%}, they in {others[0]:.1%}, {others[1]:.1%}, {others[2]:.1%} and {others[3]:.1%} (± "
        "{others_spread:.1%} at most); {ceiling:.1%} is the best possible without a query.",
        "当答案取决于查询时，注意力应胜过平均汇聚、最大汇聚、卷积和全连接层，且超出 {seeds} 个种子间的波动：它答对 "
        "{attention:.1%} ± {spread:.1%}，其余为 {others[0]:.1%}、{others[1]:.1%}、{others[2]:.1%} 和 {others[3]:.1%}（"
        "至多 ± {others_spread:.1%}）；没有查询时的上限为 {ceiling:.1%}。",
    )
    yield numbers.criterion(
        numbers.no_query <= numbers.ceiling + 0.02 and numbers.attention - numbers.no_query > margin,
        "If the query makes the difference, attention without one must fall to what is possible without, "
        "{ceiling:.1%} (2 points allowed): it is right in {no_query:.1%} ± {no_query_spread:.1%}. If having the query "
        "were enough, a fully connected layer that gets it as one more input would do as well: it is right in "
        "{dense_with_query:.1%}.",
        "如果区别在于查询，那么去掉查询的注意力应降到没有查询时的上限 {ceiling:.1%}（容许 2 个百分点）：它答对 "
        "{no_query:.1%} ± {no_query_spread:.1%}。把查询作为额外输入的全连接层答对 {dense_with_query:.1%}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The two layers of the cell."""
    names = [Text("attention", "注意力"), Text("fully connected", "全连接")]
    caption = Text("Accuracy of the two layers of the cell on new tasks.", "代码中两种层在新任务上的准确率。")
    panel = Panel([Bars(names, list(cell.accuracy.values()), colour="attention")], y_limits=(0, 1.05))
    return Chart([panel], caption, height=180)


SECTION = Section(
    number=35,
    notes=(Passage("003", 9, 9), Passage("003", 14, 18)),
    title=Text("The query is what makes the difference", "区别在于查询"),
    claim=Text(
        "Whether a voluntary cue, the query, is included is what tells attention from fully connected and pooling "
        "layers.",
        "是否包含自主性提示（即查询），是注意力机制与全连接层、汇聚层的区别所在。",
    ),
    idea=Text(
        "Six things have a key and a colour each, and the question is the colour of the one whose key is nearest to "
        "the query. The same six things have another answer when something else is asked, so without the query a "
        "layer can only bet on the most frequent colour. All layers are trained, with about as many parameters; "
        "attention once with the query and once without.",
        "六样东西各有一个键和一种颜色，问的是键与查询最接近的那样东西的颜色。同样六样东西，问题不同答案就不同，所以没"
        "有查询的层只能押最常见的颜色。各层都经过训练，参数量大致相同；注意力则有查询、无查询各训练一次。",
    ),
    formula=r"\hat{y} = \sum_i \mathrm{softmax}_i\left((W_q q) \cdot (W_k k_i)\right) v_i "
    r"\qquad \hat{y} = W\,[k_1; v_1; \ldots; k_6; v_6]",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    exercises=(
        Exercise(
            (
                "query = keys.take_along_dim(asked[..., None], 1) + 0.2 * torch.randn(count, 1, 8)",
                "query = torch.randn(count, 1, 8)",
            ),
            Text(
                "A query that has nothing to do with the answer: what is left of attention?",
                "查询与答案无关：注意力还剩下什么？",
            ),
            Text(
                "It is right in {now.accuracy[attention]:.1%}, before in {was.accuracy[attention]:.1%}.",
                "它答对 {now.accuracy[attention]:.1%}，原来为 {was.accuracy[attention]:.1%}。",
            ),
        ),
        Exercise(
            (
                "query = keys.take_along_dim(asked[..., None], 1) + 0.2 * torch.randn(count, 1, 8)",
                "query = keys.take_along_dim(asked[..., None], 1) + 1.0 * torch.randn(count, 1, 8)",
            ),
            Text(
                "A query with five times the noise: how often is attention right?",
                "查询的噪声变为五倍：注意力答对多少？",
            ),
            Text(
                "In {now.accuracy[attention]:.1%}, before in {was.accuracy[attention]:.1%}; the fully connected layer "
                "in {now.accuracy[fully connected]:.1%}.",
                "{now.accuracy[attention]:.1%}，原来为 {was.accuracy[attention]:.1%}；全连接层为 "
                "{now.accuracy[fully connected]:.1%}。",
            ),
        ),
    ),
    meanings={
        "attention": Text("accuracy of attention, mean over seeds", "注意力的准确率，种子均值"),
        "spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "others": Text(
            "accuracy of average pooling, max pooling, convolution, fully connected",
            "平均汇聚、最大汇聚、卷积、全连接的准确率",
        ),
        "others_spread": Text("largest standard deviation of these", "其中最大的标准差"),
        "no_query": Text(
            "accuracy of attention with one learned query for all tasks", "所有任务共用一个学到的查询时，注意力的准确率"
        ),
        "no_query_spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "dense_with_query": Text(
            "accuracy of a fully connected layer that gets the query too", "也得到查询的全连接层的准确率"
        ),
        "ceiling": Text("best possible without the query", "没有查询时的上限"),
        "parameters": Text("fewest and most parameters of a layer", "各层参数量的最小值和最大值"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="attention",
    run=measure,
    rehearsal=lambda: measure(seeds=2, steps=20),
    judge=judge,
)
