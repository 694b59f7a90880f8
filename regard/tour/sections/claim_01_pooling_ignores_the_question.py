"""Claim 1: pooling, convolution and fully connected layers know no query; attention answers it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import regard
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, maps, section, seeded, single
from regard.view.chart import Bars, Chart, Line

say = Content(__file__)

THINGS = [say(name) for name in ("newspaper", "paper", "red cup", "notebook", "book")]
QUESTIONS = [say(name) for name in ("to drink?", "to read?", "to write on?")]
NAMES = ("average pooling", "max pooling", "convolution", "fully connected", "attention")
SEEDS, ITEMS, SIZE = 5, 5, 16


@torch.no_grad()
def measure(noise: float = 0.3, tasks: int = 500) -> Measured:
    """Ask for each of five things in turn; the query is the asked one's key with noise, brightness is random."""

    def answers() -> list[list[Tensor]]:
        convolution, dense = nn.Conv1d(ITEMS, ITEMS, 3, padding=1), nn.Linear(ITEMS * ITEMS, ITEMS)
        layers: list[Callable[[Tensor, Tensor, Tensor], Tensor]] = [  # q (tasks, 1, size), k, v → (tasks, items)
            lambda q, k, v: regard.average_pool(v)[:, 0],
            lambda q, k, v: regard.max_pool(v)[:, 0],
            lambda q, k, v: convolution(v.transpose(1, 2)).amax(-1),
            lambda q, k, v: dense(v.flatten(1)),
            lambda q, k, v: regard.attend(q, k, v, score=regard.Dot(scale=1.0))[:, 0],
        ]
        keys = torch.randn(tasks, ITEMS, SIZE)
        values = torch.diag_embed(0.2 + 0.8 * torch.rand(tasks, ITEMS))
        queries = keys + noise * torch.randn(keys.shape)
        brightest = values.sum(-1).argmax(-1, keepdim=True)  # (tasks, 1)
        rows = []
        for layer in layers:
            given = torch.stack([layer(queries[:, i : i + 1], keys, values) for i in range(ITEMS)], 1)
            chosen = given.argmax(-1)  # (tasks, asked)
            shares = [(chosen == wanted).float().mean() for wanted in (torch.arange(ITEMS), brightest)]
            rows.append([*shares, (given - given[:, :1]).abs().max()])
        return rows

    right, bright, moved = seeded(answers, range(SEEDS)).unbind(-1)  # (seeds, layers) each
    mean, spread = right.mean(0), right.std(0)
    numbers = Numbers(
        moved=moved[:, :-1].max(),
        attention_moved=moved[:, -1].min(),
        right=mean[-1],
        spread=spread[-1],
        without=mean[:-1],
        brightest=bright.mean(0),
        chance=1 / ITEMS,
        tasks=SEEDS * tasks * ITEMS,
    )
    bars = Bars([say(name) for name in NAMES], mean, spread=spread, colour="attention")
    blind = Line([-0.5, 4.5], [1 / ITEMS] * 2, say("guessing"), "ink", style="dashed")
    caption = say("measurement", items=ITEMS, seeds=SEEDS)
    return numbers, single(caption, bars, blind, y=say("share"), y_limits=(0, 1.05))


def judge(numbers: Numbers) -> Criteria:
    """The four have no query; attention has to give what is asked for."""
    yield numbers.identity(numbers.moved == 0, say("no query"))
    yield numbers.identity(numbers.brightest[1] == 1, say("brightest"))
    yield numbers.criterion(numbers.right - numbers.spread >= 0.9, say("asked for"))


def draw(cell: Cell) -> Chart:
    """What each layer answers to the three questions."""
    answers = {say(name): cell.answers[name].clamp(min=0) for name in cell.layers}
    return Chart(maps(answers, rows=QUESTIONS, columns=THINGS), say("cell"), columns=3)


SECTION = section(say, draw, judge, measure)
