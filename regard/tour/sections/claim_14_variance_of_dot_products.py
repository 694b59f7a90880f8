"""Claim 14: dot products of random vectors have mean 0 and variance d, scaled ones variance 1."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from regard import Dot
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section, seeded, single
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

    def moments(make: Callable[..., Tensor], size: int) -> list[Tensor]:
        pairs = max(count // size, count // 80)
        query, key = make(pairs, 1, size), make(pairs, 1, size)
        products = Dot(scale=1.0)(query, key)
        return [products.mean(), products.var(), Dot()(query, key).var()]  # its scale is 1/√d

    measured = seeded(lambda: grid(moments, entries.values(), SIZES), range(SEEDS))  # (seeds, entries, sizes, 3)
    (means, variances, _), scaled = measured.mean(0).unbind(-1), measured[..., 2]
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
    expected = Line(SIZES, SIZES, say("d"), "truth", style="dotted")
    plain = Line(SIZES, numbers.variances, "q·k", "attention", dots=True)
    divided = Line(SIZES, numbers.scaled, "q·k / √d", "other", dots=True)
    panel = Panel([expected, plain, divided], say("size d"), say("variance"), x_log=True, y_log=True)
    return numbers, Chart([panel], say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Within 5 %, which is four times the chance error of 15,000 pairs or more."""
    yield numbers.criterion(numbers.off_size <= 0.05 and numbers.off_zero <= 0.05, say("variance d"))
    yield numbers.criterion(numbers.off_one <= 0.05, say("variance 1"))


def draw(cell: Cell) -> Chart:
    """How the products are distributed, with and without the scale."""
    deviation, bins = math.sqrt(cell.size), 41
    edge = 3.5 * deviation
    kinds = ((cell.products, "q·k", "attention"), (cell.products / deviation, "q·k / √d", "other"))
    marks = [
        Line(torch.linspace(-edge, edge, bins), torch.histc(values, bins, -edge, edge) / values.numel(), name, colour)
        for values, name, colour in kinds
    ]
    return single(say("cell"), *marks, x=say("score"), y=say("share"), height=220)


SECTION = section(say, draw, judge, measure, rehearsal=(ENTRIES, 20_000))
