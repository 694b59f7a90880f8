"""Claim 1: pooling, convolution and fully connected layers know no query; attention answers it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import regard
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Bars, Chart, Heat, Line, Panel

say = Content(__file__)

THINGS = (say("newspaper"), say("paper"), say("red cup"), say("notebook"), say("book"))
QUESTIONS = (say("to drink?"), say("to read?"), say("to write on?"))
NAMES = ("average pooling", "max pooling", "convolution", "fully connected", "attention")
SEEDS, ITEMS, SIZE = 5, 5, 16


def make_layers(seed: int) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """From queries (tasks, 1, size), keys (tasks, items, size), values (tasks, items, items) to (tasks, items)."""
    torch.manual_seed(seed)
    convolution, dense = nn.Conv1d(ITEMS, ITEMS, 3, padding=1), nn.Linear(ITEMS * ITEMS, ITEMS)
    return {
        "average pooling": lambda q, k, v: regard.average_pool(v)[:, 0],
        "max pooling": lambda q, k, v: regard.max_pool(v)[:, 0],
        "convolution": lambda q, k, v: convolution(v.transpose(1, 2)).amax(-1),
        "fully connected": lambda q, k, v: dense(v.flatten(1)),
        "attention": lambda q, k, v: regard.attend(q, k, v, score=regard.Dot(scale=1.0))[:, 0],
    }


@torch.no_grad()
def measure(noise: float = 0.3, tasks: int = 500) -> Measured:
    """Ask for each of five things in turn; the query is the asked one's key with noise, brightness is random."""
    right, bright, moved = torch.zeros(3, SEEDS, len(NAMES))
    for seed in range(SEEDS):
        layers = make_layers(seed)
        keys = torch.randn(tasks, ITEMS, SIZE)
        values = torch.diag_embed(0.2 + 0.8 * torch.rand(tasks, ITEMS))
        queries = keys + noise * torch.randn(keys.shape)
        for column, layer in enumerate(layers.values()):
            answers = torch.stack([layer(queries[:, i : i + 1], keys, values) for i in range(ITEMS)], 1)
            chosen = answers.argmax(-1)  # (tasks, asked)
            brightest = values.sum(-1).argmax(-1, keepdim=True)  # (tasks, 1)
            right[seed, column] = (chosen == torch.arange(ITEMS)).float().mean()
            bright[seed, column] = (chosen == brightest).float().mean()
            moved[seed, column] = (answers - answers[:, :1]).abs().max()
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
    return numbers, Chart(
        [Panel([bars, blind], y=say("share"), y_limits=(0, 1.05))], say("measurement", items=ITEMS, seeds=SEEDS)
    )


def judge(numbers: Numbers) -> Criteria:
    """The four have no query; attention has to give what is asked for."""
    yield numbers.identity(numbers.moved == 0, say("no query"))
    yield numbers.identity(numbers.brightest[1] == 1, say("brightest"))
    yield numbers.criterion(numbers.right - numbers.spread >= 0.9, say("asked for"))


def draw(cell: Cell) -> Chart:
    """What each layer answers to the three questions."""
    panels = [
        Panel([Heat(cell.answers[name].clamp(min=0), QUESTIONS, THINGS)], title=say(name)) for name in cell.layers
    ]
    return Chart(panels, say("cell"), columns=3)


SECTION = Section(**say.fields, show=draw, run=measure, judge=judge)
