"""Claim 16: where sizes agree, dot scoring is computationally cheaper than additive scoring."""

from functools import partial

import torch
from torch import Tensor

import regard
from regard.measure import least_seconds, peak_memory
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, single
from regard.view.chart import Bars, Chart, Panel

say = Content(__file__)

REPEATS = 3
NAMES = (say("dot"), say("additive"), say("textbook"), say("dot, 2 matrices"))


@torch.no_grad()
def measure(n: int = 384, size: int = 64, hidden: int = 64) -> Measured:
    """Time and memory of ways to attend with the same queries, keys and values, in the order of their names."""
    query, key, value = torch.randn(3, 1, n, size)
    additive = regard.Additive(size, size, hidden)

    def projected() -> tuple[Tensor, Tensor]:
        return query @ additive.query_weight.T, key @ additive.key_weight.T

    def textbook() -> object:
        asked, looked_at = projected()
        hidden = torch.tanh(asked[..., :, None, :] + looked_at[..., None, :, :])  # (batch, n, m, hidden)
        return torch.softmax(hidden @ additive.value_weight, -1) @ value

    by_dot = partial(regard.attend, query, key, value)
    works = by_dot, partial(by_dot, score=additive), textbook, lambda: regard.attend(*projected(), value)
    times = torch.tensor([least_seconds(*works, rounds=5) for _ in range(REPEATS)])  # (repeats, ways)
    ratios = times / times[:, :1]
    numbers = Numbers(
        additive_time=ratios[:, 1].mean(),
        additive_least=ratios[:, 1].min(),
        textbook_time=ratios[:, 2].mean(),
        textbook_least=ratios[:, 2].min(),
        projected_time=ratios[:, 3].mean(),
        milliseconds=1e3 * times.median(0).values,
        megabytes=[peak_memory(work) for work in works],
        repeats=REPEATS,
    )
    bars = Bars(NAMES, numbers.milliseconds, colour="attention"), Bars(NAMES, numbers.megabytes, colour="truth")
    titles = say("milliseconds"), say("megabytes")
    panels = [Panel([mark], title=title, y_log=True) for mark, title in zip(bars, titles, strict=True)]
    return numbers, Chart(panels, say("measurement"), height=230)


def judge(numbers: Numbers) -> Criteria:
    """Dot has to be faster than either way to compute additive attention, every time."""
    yield numbers.criterion(numbers.additive_least > 1, say("slower"))
    yield numbers.criterion(numbers.textbook_least > 1, say("slower in textbooks"))


def draw(cell: Cell) -> Chart:
    """The two times of the cell."""
    bars = Bars(NAMES[:2], [cell.dot_time, cell.additive_time], colour="attention")
    return single(say("cell"), bars, y=say("milliseconds"), y_log=True, height=200)


SECTION = section(say, draw, judge, measure, rehearsal=[64])
