"""Claim 23: self-attention is permutation equivariant; positional encoding breaks that."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.models.positions import sinusoidal
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Bars, Chart, Heat, Panel

say = Content(__file__)

SEEDS, KINDS, LENGTH, SIZE = 3, 8, 10, 32


@torch.no_grad()
def differences(mask: regard.Mask | None, seed: int) -> tuple[float, float, float]:
    """How far shuffled inputs lead from shuffled outputs, without and with positions; and the size of an output."""
    torch.manual_seed(seed)
    layer = regard.MultiHead(size=24, heads=3).double()
    rows, order = torch.randn(1, 13, 24).double(), torch.randperm(13)
    positions = sinusoidal(torch.arange(13), 24).double()
    plain = layer(rows, mask=mask)
    without = layer(rows[:, order], mask=mask) - plain[:, order]
    placed = layer(rows[:, order] + positions, mask=mask) - layer(rows + positions, mask=mask)[:, order]
    return float(without.abs().max()), float(placed.abs().max()), float(plain.square().mean().sqrt())


class Reader(nn.Module):
    """Self-attention over tokens; every token has to say which one came first."""

    def __init__(self, placed: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(KINDS, SIZE)
        self.attention = regard.MultiHead(SIZE, heads=1)
        self.classify = nn.Linear(SIZE, KINDS)
        self.placed = placed

    def forward(self, tokens: Tensor) -> Tensor:
        rows = self.embedding(tokens)  # (batch, n, size)
        if self.placed:
            rows = rows + sinusoidal(torch.arange(LENGTH), SIZE)
        logits: Tensor = self.classify(self.attention(rows))
        return logits


def accuracy(placed: bool, seed: int, steps: int) -> float:
    """Of naming the first token of new sequences."""
    torch.manual_seed(seed)
    model = Reader(placed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens = torch.randint(KINDS, (64, LENGTH))
        loss = functional.cross_entropy(model(tokens).mT, tokens[:, :1].expand(-1, LENGTH))
        descend(optimizer, loss)
    with torch.no_grad():
        tokens = torch.randint(KINDS, (500, LENGTH))
        return float((model(tokens).argmax(-1) == tokens[:, :1]).double().mean())


def measure(steps: int = 200, mask: regard.Mask | None = None) -> Measured:
    """Shuffle, and learn what needs order. mask: with which self-attention looks."""
    without, placed, size = torch.tensor([differences(mask, seed) for seed in range(SEEDS)]).T
    learned = torch.tensor([[accuracy(kind, seed, steps) for seed in range(SEEDS)] for kind in (False, True)])
    # How often the most frequent token of a sequence is its first one: the best that a set can tell.
    tokens = torch.randint(KINDS, (10_000, LENGTH), generator=torch.Generator().manual_seed(0))
    numbers = Numbers(
        without=without.max(),
        placed=placed.min(),
        size=size.mean(),
        right_without=learned[0].mean(),
        right_placed=learned[1].mean(),
        spreads=learned.std(1),
        chance=functional.one_hot(tokens, KINDS).sum(1).amax(-1).double().mean() / LENGTH,
    )
    names = [say("positions"), say("none"), say("most frequent token")]
    heights = [numbers.right_placed, numbers.right_without, numbers.chance]
    bars = Bars(names, heights, spread=[numbers.spreads[1], numbers.spreads[0], 0.0], colour="attention")
    return numbers, Chart([Panel([bars], y=say("share right"))], height=200, caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Equal to rounding without positions; with them not, and order can be used."""
    yield numbers.identity(numbers.without <= 1e-12, say("equivariant"))
    yield numbers.criterion(numbers.placed > 0.1 * numbers.size, say("positions differ"))
    yield numbers.criterion(
        numbers.right_placed - numbers.right_without > 2 * max(numbers.spreads)
        and numbers.right_without <= numbers.chance + 0.05,
        say("which came first"),
    )


def draw(cell: Cell) -> Chart:
    """The pattern of positions, and what is left of the outputs when the shuffled ones are taken away."""
    feature, place = say("feature"), say("position")
    largest = float(max(cell.without, cell.placed))
    panels = [
        Panel([Heat((1 + cell.positions) / 2, colour="truth")], x=feature, y=place, title=say("encoding")),
        Panel([Heat(cell.equivariance.abs(), largest=largest)], x=feature, title=say("difference, no positions")),
        Panel([Heat(cell.with_positions.abs(), largest=largest)], x=feature, title=say("difference, with them")),
    ]
    return Chart(panels, caption=say("cell"))


SECTION = Section(**say.fields, show=draw, run=measure, rehearsal=partial(measure, 10), judge=judge)
