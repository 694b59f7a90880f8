"""Claim 22: inputs serve two purposes, so learn a matrix for keys and one for values; several queries at once."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Bars, Chart, Dots, Heat, Line, Panel

say = Content(__file__)

SEEDS, NAMES, INPUTS = 3, 8, 5


def look_ups(count: int, names_only: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (count, 5, 16) of a name and a content, queries (count, 5, 8) and the contents asked for (count, 5).

    names_only: whether a name says itself what is asked for; then keys can be values.
    """
    names = torch.rand(count, NAMES).argsort(-1)[:, :INPUTS]
    contents = names if names_only else torch.randint(NAMES, (count, INPUTS))
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


def accuracy(kind: str, seed: int, steps: int, names_only: bool) -> float:
    """On new look-ups."""
    torch.manual_seed(seed)
    model = Layer(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        x, query, contents = look_ups(64, names_only)
        loss = functional.cross_entropy(model(query, x).mT, contents)
        descend(optimizer, loss)
    with torch.no_grad():
        x, query, contents = look_ups(1000, names_only)
        return float((model(query, x).argmax(-1) == contents).double().mean())


KINDS = {"one": say("one matrix"), "two": say("two matrices"), "wide": say("one, twice as wide")}


@torch.no_grad()
def one_by_one(seed: int) -> tuple[float, float]:
    """What several queries at once differ from one at a time, and the sums of their weights from 1."""
    torch.manual_seed(seed)
    layer = regard.Attention(source_size=7, key_size=11, value_size=3).double()
    query, source = torch.randn(5, 11).double(), torch.randn(13, 7).double()
    alone = torch.cat([layer(one[None], source) for one in query])
    sums = regard.weights(query, layer.key(source)).sum(-1)
    return float((layer(query, source) - alone).abs().max()), float((sums - 1).abs().max())


def measure(steps: int = 200, names_only: bool = False) -> Measured:
    """All kinds of layers on the same task."""
    shares = torch.tensor([[accuracy(kind, seed, steps, names_only) for seed in range(SEEDS)] for kind in KINDS])
    mean, spread = shares.mean(1), shares.std(1)  # (kinds,)
    together, sums = torch.tensor([one_by_one(seed) for seed in range(SEEDS)]).max(0).values
    numbers = Numbers(one=mean[0], two=mean[1], wide=mean[2], spreads=spread, together=together, sums=sums)
    bars = Bars(list(KINDS.values()), mean, spread=spread, colour="attention")
    panel = Panel([bars], y=say("share right"), y_limits=(0.0, 1.05))
    return numbers, Chart([panel], height=240, caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Two matrices do what one does not; and every query has a distribution of its own."""
    yield numbers.criterion(
        numbers.two > 0.95 and numbers.two - numbers.one > 2 * max(numbers.spreads[:2]), say("better than one")
    )
    yield numbers.identity(numbers.together <= 1e-12 and numbers.sums <= 1e-12, say("alone or together"))


def draw(cell: Cell) -> Chart:
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
    right = Panel(curves, x=say("balance"), y=say("share right"), share=1.3)
    return Chart([*panels, right], caption=say("cell"))


SECTION = Section(**say.fields, show=draw, run=measure, rehearsal=partial(measure, 10), judge=judge)
