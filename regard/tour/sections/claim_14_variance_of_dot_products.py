"""Claim 14: dot products of random vectors have mean 0 and variance d, scaled ones variance 1."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from regard import Dot
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Chart, Line, Panel

say = Content(__file__)

SIZES = (4, 16, 64, 256, 1024)
SEEDS = 3


# Entries with mean 0 and variance 1, of different shapes: the notes ask for nothing else.
ENTRIES: dict[str, Callable[..., Tensor]] = {
    "normal": torch.randn,
    "uniform": lambda *shape: (torch.rand(*shape) - 0.5) * math.sqrt(12),
    "sign": lambda *shape: torch.randint(2, shape) * 2.0 - 1,
    "exponential": lambda *shape: torch.empty(*shape).exponential_() - 1,
}


def measure(entries: Mapping[str, Callable[..., Tensor]] = ENTRIES, count: int = 400_000) -> Measured:
    """Means and variances of independent pairs, about so many numbers for each size, or more."""
    plain, scaled = torch.zeros(2, SEEDS, len(entries), len(SIZES)), torch.zeros(SEEDS, len(entries), len(SIZES))
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        for row, make in enumerate(entries.values()):
            for column, size in enumerate(SIZES):
                pairs = max(count // size, count // 80)
                query, key = make(pairs, 1, size), make(pairs, 1, size)
                products = Dot(scale=1.0)(query, key)
                plain[:, seed, row, column] = torch.stack([products.mean(), products.var()])
                scaled[seed, row, column] = Dot()(query, key).var()  # its scale is 1/√d
    means, variances = plain.mean(1)  # (entries, sizes) each
    length = torch.tensor(SIZES)
    numbers = Numbers(
        sizes=SIZES,
        variances=variances.mean(0),
        scaled=scaled.mean((0, 1)),
        spread=scaled.mean(1).std(0),
        off_zero=(means / length.sqrt()).abs().max(),
        off_size=(variances / length - 1).abs().max(),
        off_one=(scaled.mean(0) - 1).abs().max(),
        kinds=len(entries),
    )
    marks = [
        Line(SIZES, SIZES, say("d"), "truth", style="dotted"),
        Line(SIZES, numbers.variances, "q·k", "attention", dots=True),
        Line(SIZES, numbers.scaled, "q·k / √d", "other", dots=True),
    ]
    panel = Panel(marks, x=say("size d"), y=say("variance"), x_log=True, y_log=True)
    return numbers, Chart([panel], caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Within 5 %, which is four times the chance error of 15,000 pairs or more."""
    yield numbers.criterion(numbers.off_size <= 0.05 and numbers.off_zero <= 0.05, say("variance d"))
    yield numbers.criterion(numbers.off_one <= 0.05, say("variance 1"))


def draw(cell: Cell) -> Chart:
    """How the products are distributed, with and without the scale."""
    deviation, bins = math.sqrt(cell.size), 41
    edge = 3.5 * deviation
    kinds = ((cell.products, "q·k", "attention"), (cell.products / deviation, "q·k / √d", "other"))
    marks = []
    for products, name, colour in kinds:
        share = torch.histc(products, bins, -edge, edge) / products.numel()
        marks.append(Line(torch.linspace(-edge, edge, bins), share, name, colour))
    return Chart([Panel(marks, x=say("score"), y=say("share"))], height=220, caption=say("cell"))


SECTION = Section(**say.fields, show=draw, run=measure, rehearsal=partial(measure, count=20_000), judge=judge)
