"""Claim 23: self-attention is permutation equivariant; positional encoding breaks that."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.models.positions import sinusoidal
from regard.tour.learning import descend, share_right
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, maps, section, seeded, single
from regard.view.chart import Bars, Chart

say = Content(__file__)

SEEDS, KINDS, LENGTH, SIZE = 3, 8, 10, 32


@torch.no_grad()
def differences(mask: regard.Mask | None) -> tuple[Tensor, ...]:
    """How far shuffled inputs lead from shuffled outputs, without and with positions; and the size of an output."""
    layer = regard.MultiHead(size=24, heads=3).double()
    rows, order = torch.randn(1, 13, 24).double(), torch.randperm(13)
    positions = sinusoidal(torch.arange(13), 24).double()
    plain = layer(rows, mask=mask)
    without = layer(rows[:, order], mask=mask) - plain[:, order]
    placed = layer(rows[:, order] + positions, mask=mask) - layer(rows + positions, mask=mask)[:, order]
    return without.abs().max(), placed.abs().max(), plain.square().mean().sqrt()


def accuracy(placed: bool, seed: int, steps: int) -> float:
    """Self-attention over tokens, each of which has to say which one came first: how many are right, of new ones."""
    torch.manual_seed(seed)
    layers = nn.Embedding(KINDS, SIZE), regard.MultiHead(SIZE, heads=1), nn.Linear(SIZE, KINDS)
    embedding, attention, classify = layers
    positions = sinusoidal(torch.arange(LENGTH), SIZE) if placed else torch.zeros(LENGTH, SIZE)

    def answers(count: int) -> tuple[Tensor, Tensor]:
        tokens = torch.randint(KINDS, (count, LENGTH))
        return classify(attention(embedding(tokens) + positions)), tokens[:, :1].expand(-1, LENGTH)

    def loss() -> Tensor:
        logits, first = answers(64)
        return functional.cross_entropy(logits.mT, first)

    descend(nn.ModuleList(layers).parameters(), loss, steps, 1e-2)
    with torch.no_grad():
        return share_right(*answers(500))


def measure(steps: int = 200, mask: regard.Mask | None = None) -> Measured:
    """Shuffle, and learn what needs order. mask: with which self-attention looks."""
    without, placed, size = seeded(partial(differences, mask), range(SEEDS)).float().T
    learned = grid(partial(accuracy, steps=steps), (False, True), range(SEEDS))
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
    return numbers, single(say("measurement"), bars, y=say("share right"), height=200)


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
    left = maps({say("encoding"): (1 + cell.positions) / 2}, say("feature"), say("position"), colour="truth")
    differences = {
        say("difference, no positions"): cell.equivariance.abs(),
        say("difference, with them"): cell.with_positions.abs(),
    }
    largest = float(max(cell.without, cell.placed))
    return Chart([*left, *maps(differences, say("feature"), largest=largest)], say("cell"))


SECTION = section(say, draw, judge, measure, rehearsal=[10])
