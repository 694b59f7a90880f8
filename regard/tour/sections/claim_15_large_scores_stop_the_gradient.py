"""Claim 15: unscaled, one large score saturates softmax and gradients vanish; scaling stabilises them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard import Dot
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section, seeded, show
from regard.view.chart import Chart, Line, Panel

say = Content(__file__)

SIZES = (4, 16, 64, 256, 1024)
QUERIES, KEYS = 500, 16
WHERE = [say(f"at the {place}, {kind}") for place in ("scores", "queries") for kind in ("median", "mean")]


def gradients(score: Dot, query: Tensor, key: Tensor) -> list[Tensor]:
    """Gradients at the scores and at the queries, median and mean; and what the largest weight leaves to the others."""
    value, upstream = torch.randn(*key.shape[:2], 8), torch.randn(len(query), 1, 8)
    query.requires_grad_()
    pairs = score(query, key)
    weights = torch.softmax(pairs, -1)
    norms = [grad.norm(dim=-1) for grad in torch.autograd.grad(weights @ value, (pairs, query), upstream)]
    others = 1 - weights.detach().amax(-1)
    return [*(value for norm in norms for value in (norm.median(), norm.mean())), others.median()]


def measure(seeds: Sequence[int] = range(3), length: float = 1.0) -> Measured:
    """Gradients for growing d. length: of the entries of queries and keys."""

    def of_size(size: int) -> Tensor:
        query, key = length * torch.randn(QUERIES, 1, size), length * torch.randn(QUERIES, KEYS, size)
        return grid(lambda score: gradients(score, query.clone(), key), (Dot(scale=1.0), Dot()))

    measured = seeded(lambda: grid(of_size, SIZES), seeds).permute(0, 3, 2, 1)  # (seeds, quantities, kinds, sizes)
    mean = measured.mean(0)
    kept = mean[..., -1] / mean[..., 0]  # (quantities, unscaled or scaled)
    numbers = Numbers(
        sizes=SIZES,
        others_unscaled=mean[4, 0],
        others_scaled=mean[4, 1],
        **dict(zip(("median_scores", "mean_scores", "median_query", "mean_query"), mean[:4, 0], strict=True)),
        kept_unscaled=kept[:4, 0],
        kept_scaled=kept[:4, 1],
        spread=(measured[..., -1] / measured[..., 0]).std(0)[:4, 0],
    )
    panels = []
    for where, (unscaled, scaled) in zip(WHERE, mean, strict=False):
        left = Line(SIZES, unscaled.clamp(min=1e-12), "q·k", "attention", dots=True)
        right = Line(SIZES, scaled, "q·k / √d", "other", dots=True)
        panels.append(Panel([left, right], say("size d"), title=where, x_log=True, y_log=True))
    return numbers, Chart(panels, say("measurement"), height=210, columns=2)


def judge(numbers: Numbers) -> Criteria:
    """A quarter of the gradient or less without the scale, and at least half with it; four times."""
    for index, where in enumerate(WHERE):
        unscaled, scaled = numbers.kept_unscaled[index], numbers.kept_scaled[index]
        met = unscaled <= 0.25 and 0.5 <= scaled <= 2
        yield numbers.criterion(met, say("gradient"), where=where, unscaled=show(unscaled), scaled=show(scaled))
    yield numbers.criterion(
        numbers.others_unscaled[-1] <= 0.01 and numbers.others_scaled[-1] > 0.1, say("others vanish")
    )


def draw(cell: Cell) -> Chart:
    """How the norms of the gradients are distributed."""
    at_scores, at_query = (cell.unscaled_scores, cell.scaled_scores), (cell.unscaled_query, cell.scaled_query)
    panels = []
    for title, norms in ((say("gradient at the scores"), at_scores), (say("gradient at the query"), at_query)):
        marks = []
        for name, colour, norm in zip(("q·k", "q·k / √d"), ("attention", "other"), norms, strict=True):
            share = torch.histc(norm.clamp(min=1e-6).log10(), 24, -6, 4) / norm.numel()
            marks.append(Line(10 ** torch.linspace(-6, 4, 24), share, name, colour))
        panels.append(Panel(marks, x=say("norm"), y=say("share"), title=title, x_log=True))
    return Chart(panels, height=220, caption=say("cell"))


SECTION = section(say, draw, judge, measure, full=[range(10)], rehearsal=[range(2)])
