"""Claim 6: for any query the weights are a probability distribution."""

import torch
from torch import Tensor

import regard
from regard.attention.kernels import KERNELS
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Chart, Line, Note, Panel

say = Content(__file__)

SEEDS = 5


def sums(name: str, query: Tensor, key: Tensor, normalizer: regard.Normalizer) -> tuple[float, float]:
    """The smallest weight, and how far the sum of a row is from 1 at most."""
    weights = regard.weights(query, key, score=regard.Kernel(name, width=0.3), normalizer=normalizer)
    return float(weights.min()), float((weights.sum(-1) - 1).abs().max())


def measure(far: float = 100.0, normalizer: regard.Normalizer | None = None) -> Measured:
    """All kernels, for queries among the samples and for some far away from all of them."""
    normalizer = normalizer or regard.Softmax()
    endless = [name for name, kernel in KERNELS.items() if not kernel.compact]
    compact = [name for name, kernel in KERNELS.items() if kernel.compact]
    inside, outside, ended = [], [], []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        key = torch.rand(200, 2, generator=generator, dtype=torch.float64)  # in the unit square
        near = torch.rand(50, 2, generator=generator, dtype=torch.float64)
        inside += [sums(name, near, key, normalizer) for name in KERNELS]
        outside += [sums(name, near + far, key, normalizer) for name in endless]
        ended += [sums(name, near + far, key, normalizer) for name in compact]
    return Numbers(
        kernels=len(KERNELS),
        endless=len(endless),
        compact=len(compact),
        far=far,
        smallest=min(low for low, _ in inside + outside + ended),
        off_inside=max(off for _, off in inside),
        off_outside=max(off for _, off in outside),
        off_compact=max(off for _, off in ended),
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


SECTION = Section(**say.fields, show=draw, run=measure, judge=judge)
