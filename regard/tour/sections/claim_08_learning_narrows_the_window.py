"""Claim 8: learning w narrows the window and concentrates the weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard import Kernel, KernelRegressor, attend, drop
from regard.data import curve
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Chart, Dots, Heat, Line, Mark, Panel

say = Content(__file__)


def learned_width(x: Tensor, y: Tensor, start: float, steps: int) -> float:
    """Where the gradient leads from there, as in the plain cell; but by factors, so that it gets far."""
    kernel, others = Kernel("gaussian", start, learnable=True).double(), drop(torch.eye(len(x)) > 0)
    optimizer = torch.optim.Adam(kernel.parameters(), lr=0.05)
    for _ in range(steps):
        loss = (attend(x, x, y, score=kernel, mask=others) - y).square().mean()
        descend(optimizer, loss)
    return kernel.width.item()


def measure(
    seeds: Sequence[int] = curve.SEEDS, steps: int = 200, starts: tuple[float, float] = (1.0, 30.0)
) -> Measured:
    """Let the gradient find w from 1 and from 30, and look at the window and at the error on new samples."""
    measured = torch.zeros(len(seeds), 2, 2, 4).double()  # (seeds, from, before or after, quantities)
    for row, seed in enumerate(seeds):
        x, y = curve.samples(50, seed)
        new_x, new_y = curve.samples(1000, 100 + seed)
        for index, start in enumerate(starts):
            fixed = KernelRegressor(bandwidth=1 / start).fit(x, y)
            learned = KernelRegressor(bandwidth=learned_width(x, y, 1 / start, steps)).fit(x, y)
            for time, model in enumerate((fixed, learned)):
                effective, low, high = model.window(x)
                new = torch.from_numpy(model.predict(new_x)) - new_y
                quantities = (1 / model.bandwidth_[0], (high - low).mean(), effective.mean(), new.square().mean())
                measured[row, index, time] = torch.tensor([float(number) for number in quantities])
    mean = measured.mean(0)
    return Numbers(
        w_from_1=mean[0, 1, 0],
        w_from_30=mean[1, 1, 0],
        w_spread=measured[:, 0, 1, 0].std(),
        window_from_1=mean[0, :, 1],
        window_from_30=mean[1, :, 1],
        effective_from_1=mean[0, :, 2],
        error_from_1=mean[0, :, 3],
        error_from_30=mean[1, :, 3],
        narrower=(measured[:, 0, 1, 1] < measured[:, 0, 0, 1]).sum(),
        wider=(measured[:, 1, 1, 1] > measured[:, 1, 0, 1]).sum(),
        seeds=len(seeds),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """From w = 1 the window must get narrower in every seed; what happens from 30 corrects the claim."""
    yield numbers.criterion(
        numbers.narrower == numbers.seeds and numbers.effective_from_1[1] < numbers.effective_from_1[0], say("narrower")
    )
    yield numbers.correction(numbers.wider == numbers.seeds, say("or wider"))


def draw(cell: Cell) -> Chart:
    """The map before and after, and the two curves."""
    sample, query = say("sample j"), say("query i")
    maps = ((cell.before, "w = 1"), (cell.after, f"w = {cell.w.item():.2f}"))
    largest = float(max(cell.before.max(), cell.after.max()))
    panels = [Panel([Heat(weights, largest=largest)], x=sample, y=query, title=title) for weights, title in maps]
    curves: list[Mark] = [
        Dots(cell.x, cell.y, say("50 noisy samples"), "samples"),
        Line(cell.x, cell.before @ cell.y, "w = 1", "pooled", style="dashed"),
        Line(cell.x, cell.after @ cell.y, say("learned w"), "attention"),
    ]
    return Chart([*panels, Panel(curves, x="x", y="y", share=1.4)], caption=say("cell"))


SECTION = Section(**say.fields, show=draw, run=measure, rehearsal=lambda: measure(range(2), 10), judge=judge)
