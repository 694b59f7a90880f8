"""Claim 6: for any query the weights are a probability distribution."""

import torch

import regard
from regard.attention.kernels import KERNELS
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section
from regard.view.chart import Chart, Line, Note, Panel

say = Content(__file__)

SEEDS = 5


def measure(far: float = 100.0, normalizer: regard.Normalizer | None = None) -> Measured:
    """All kernels, for queries among the samples and for some far away from all of them."""
    smallest: list[float] = []
    off: dict[str, list[float]] = {"inside": [], "outside": [], "compact": []}  # how far the sums of rows are from 1
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        key = torch.rand(200, 2, generator=generator, dtype=torch.float64)  # in the unit square
        near = torch.rand(50, 2, generator=generator, dtype=torch.float64)
        for name, kernel in KERNELS.items():
            for place, query in (("inside", near), ("compact" if kernel.compact else "outside", near + far)):
                score = regard.Kernel(name, width=0.3)
                weights = regard.weights(query, key, score=score, normalizer=normalizer or regard.Softmax())
                smallest.append(float(weights.min()))
                off[place].append(float((weights.sum(-1) - 1).abs().max()))
    compact = sum(kernel.compact for kernel in KERNELS.values())
    return Numbers(
        kernels=len(KERNELS),
        endless=len(KERNELS) - compact,
        compact=compact,
        far=far,
        smallest=min(smallest),
        **{f"off_{place}": max(values) for place, values in off.items()},
    ), None


def judge(numbers: Numbers) -> Criteria:
    """Not negative, and summing to 1: near the samples, far from them, and where a kernel has ended."""
    yield numbers.criterion(numbers.smallest >= 0 and numbers.off_inside <= 1e-12, say("among the samples"))
    yield numbers.criterion(numbers.off_outside <= 1e-12, say("far away"))
    yield numbers.criterion(numbers.off_compact <= 1e-12, say("kernels that end"))


def draw(cell: Cell) -> Chart:
    """The weights of each kernel for this query, with their sum."""
    top = 1.25 * max(float(weights.nan_to_num(0.0).max()) for weights in cell.weights_of.values())
    panels = []
    for name, weights in cell.weights_of.items():
        total = Note(2.5, 0.9 * top, f"Σ = {cell.sum_of[name]:.3f}".replace("nan", "0/0"))
        line = Line(cell.x_i, weights, colour="attention", dots=True)
        panels.append(Panel([line, total], title=name, x_limits=(0, 5), y_limits=(0, top)))
    return Chart(panels, say("cell", query=cell.query, width=cell.width), height=150, columns=3)


SECTION = section(say, draw, judge, measure)
