"""Claim 16: where sizes agree, dot scoring is computationally cheaper than additive scoring."""

from functools import partial

import torch
from torch import Tensor

import regard
from regard.measure import Work, least_seconds, peak_memory
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Bars, Chart, Panel

say = Content(__file__)

REPEATS = 3
NAMES = (say("dot"), say("additive"), say("textbook"), say("dot, 2 matrices"))


def textbook(query: Tensor, key: Tensor, value: Tensor, score: regard.Additive) -> Tensor:
    """Additive attention as textbooks write it, with a tensor (batch, n, m, hidden)."""
    query, key = query @ score.query_weight.T, key @ score.key_weight.T
    hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
    return torch.softmax(hidden @ score.value_weight, -1) @ value


def projected(query: Tensor, key: Tensor, value: Tensor, score: regard.Additive) -> Tensor:
    """Dot attention after the same two matrices."""
    return regard.attend(query @ score.query_weight.T, key @ score.key_weight.T, value)


def ways(n: int, size: int, hidden: int) -> dict[str, Work]:
    """Ways to attend with the same queries, keys and values."""
    query, key, value = torch.randn(3, 1, n, size)
    additive = regard.Additive(size, size, hidden)
    return {
        "dot": partial(regard.attend, query, key, value),
        "additive": partial(regard.attend, query, key, value, score=additive),
        "textbook": partial(textbook, query, key, value, additive),
        "projected": partial(projected, query, key, value, additive),
    }


@torch.no_grad()
def measure(n: int = 384, size: int = 64, hidden: int = 64) -> Measured:
    """Time and memory of each."""
    works = ways(n, size, hidden)
    times = torch.tensor([least_seconds(*works.values(), rounds=5) for _ in range(REPEATS)])  # (repeats, ways)
    ratios = times / times[:, :1]
    numbers = Numbers(
        additive_time=ratios[:, 1].mean(),
        additive_least=ratios[:, 1].min(),
        textbook_time=ratios[:, 2].mean(),
        textbook_least=ratios[:, 2].min(),
        projected_time=ratios[:, 3].mean(),
        milliseconds=1e3 * times.median(0).values,
        megabytes=[peak_memory(work) for work in works.values()],
        repeats=REPEATS,
    )
    panels = [
        Panel([Bars(NAMES, numbers.milliseconds, colour="attention")], title=say("milliseconds"), y_log=True),
        Panel([Bars(NAMES, numbers.megabytes, colour="truth")], title=say("megabytes"), y_log=True),
    ]
    return numbers, Chart(panels, height=230, caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Dot has to be faster than either way to compute additive attention, every time."""
    yield numbers.criterion(numbers.additive_least > 1, say("slower"))
    yield numbers.criterion(numbers.textbook_least > 1, say("slower in textbooks"))


def draw(cell: Cell) -> Chart:
    """The two times of the cell."""
    bars = Bars(NAMES[:2], [cell.dot_time, cell.additive_time], colour="attention")
    return Chart([Panel([bars], y=say("milliseconds"), y_log=True)], height=200, caption=say("cell"))


SECTION = Section(**say.fields, show=draw, run=measure, rehearsal=partial(measure, n=64), judge=judge)
