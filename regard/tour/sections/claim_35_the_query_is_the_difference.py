"""Claim 35: what tells attention from fully connected and pooling layers is the query."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.tour.learning import descend, share_right
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, seeded, single
from regard.view.chart import Bars, Chart, Line

say = Content(__file__)

ITEMS, SIZE, COLOURS = 6, 8, 4
# A layer takes the query (count, 1, size) and the items (count, items, size + colours), and gives logits.


def make_task(count: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """As in the plain cell: the query, the items (key and colour side by side), and the colour asked for."""
    keys, colours = torch.randn(count, ITEMS, SIZE), torch.randint(COLOURS, (count, ITEMS))
    asked = torch.randint(ITEMS, (count, 1))
    query = keys.take_along_dim(asked[..., None], 1) + noise * torch.randn(count, 1, SIZE)
    return query, torch.cat([keys, F.one_hot(colours, COLOURS)], -1), colours.take_along_dim(asked, 1)[:, 0]


class Attend(nn.Module):
    """Learned projections of query and keys; without a query, one that is learned, the same for all inputs."""

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
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "average pool": lambda: Pool(31, 1, lambda features: features.mean(-1)),
    "max pool": lambda: Pool(31, 1, lambda features: features.amax(-1)),
    "convolution": lambda: Pool(13, 3, lambda features: features.amax(-1)),
    "dense": lambda: Dense(7, asks=False),
    "attention − q": lambda: Attend(57, asks=False),
    "attention": lambda: Attend(32, asks=True),
    "dense + q": lambda: Dense(6, asks=True),
}


def measure(noise: float = 0.2, seeds: int = 3, steps: int = 200) -> Measured:
    """Train all layers on the same kind of task, with about as many parameters each."""

    def trained() -> list[float]:
        layers = nn.ModuleList([make() for make in LAYERS.values()])

        def losses() -> Tensor:
            query, items, colour = make_task(64, noise)
            return torch.stack([F.cross_entropy(layer(query, items), colour) for layer in layers])

        descend(layers.parameters(), losses, steps, 0.02)
        query, items, colour = make_task(5000, noise)
        with torch.no_grad():
            return [share_right(layer(query, items), colour) for layer in layers]

    accuracies = seeded(trained, range(seeds))  # (seeds, layers)
    mean, spread = accuracies.mean(0), accuracies.std(0)
    # The share that the most frequent colour of the six would get: nothing that knows no query can do better.
    _, items, colour = make_task(50_000, 0.0)
    ceiling = float((items[..., SIZE:].sum(1).argmax(-1) == colour).float().mean())
    sizes = [sum(weights.numel() for weights in layer.parameters()) for layer in (make() for make in LAYERS.values())]
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
    bars = Bars(list(map(say, LAYERS)), mean, spread=spread, colour="attention")
    line = Line([-0.5, 6.5], [ceiling] * 2, say("best possible without a query"), "ink", style="dashed")
    return numbers, single(say("measurement"), bars, line, y=say("accuracy"), y_limits=(0, 1.05))


def judge(numbers: Numbers) -> Criteria:
    """With the query better than every layer that has none, and without it no better than they."""
    margin = numbers.spread + numbers.others_spread
    yield numbers.criterion(
        numbers.attention - max(numbers.others) > margin and numbers.attention > numbers.ceiling,
        say("beats those without"),
    )
    yield numbers.criterion(
        numbers.no_query <= numbers.ceiling + 0.02 and numbers.attention - numbers.no_query > margin,
        say("falls without"),
    )


def draw(cell: Cell) -> Chart:
    """The two layers of the cell."""
    bars = Bars([say("attention"), say("fully connected")], list(cell.accuracy.values()), colour="attention")
    return single(say("cell"), bars, y_limits=(0, 1.05), height=180)


SECTION = section(say, draw, judge, measure, rehearsal=(0.2, 2, 20))
