"""Claim 8: learning w narrows the window and concentrates the weights."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from regard import Kernel, KernelRegressor, attend, drop
from regard.data import curve
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, maps, section
from regard.view.chart import Chart, Dots, Line, Panel

say = Content(__file__)


def measure(
    seeds: Sequence[int] = curve.SEEDS, steps: int = 200, starts: tuple[float, float] = (1.0, 30.0)
) -> Measured:
    """Let the gradient find w from 1 and from 30, and look at the window and at the error on new samples."""

    def of_one(seed: int, start: float, learns: bool) -> Tensor:
        x, y = curve.samples(50, seed)
        new_x, new_y = curve.samples(1000, 100 + seed)
        width = 1 / start
        if learns:  # by the gradient, as in the plain cell; but by factors, so that it gets far
            kernel, others = Kernel("gaussian", width, learnable=True).double(), drop(torch.eye(50) > 0)
            output = partial(attend, x, x, y, score=kernel, mask=others)
            descend(kernel.parameters(), lambda: (output() - y).square().mean(), steps, 0.05)
            width = kernel.width.item()
        model = KernelRegressor(bandwidth=width).fit(x, y)
        effective, low, high = model.window(x)
        error = (torch.from_numpy(model.predict(new_x)) - new_y).square().mean()
        return torch.tensor([float(x) for x in (1 / model.bandwidth_[0], (high - low).mean(), effective.mean(), error)])

    measured = grid(of_one, seeds, starts, (False, True)).double()  # (seeds, from, before or after, quantities)
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
    weights = {"w = 1": cell.before, f"w = {cell.w.item():.2f}": cell.after}
    largest = float(max(cell.before.max(), cell.after.max()))
    panels = maps(weights, say("sample j"), say("query i"), largest=largest)
    samples = Dots(cell.x, cell.y, say("50 noisy samples"), "samples")
    before = Line(cell.x, cell.before @ cell.y, "w = 1", "pooled", style="dashed")
    after = Line(cell.x, cell.after @ cell.y, say("learned w"), "attention")
    return Chart([*panels, Panel([samples, before, after], "x", "y", share=1.4)], say("cell"))


SECTION = section(say, draw, judge, measure, rehearsal=(range(2), 10))
