"""Claim 9: w can be a vector, with the inner product in place of the product."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, maps, section, with_spread
from regard.view.chart import Bars, Chart, Panel

say = Content(__file__)

Surface = Callable[[Tensor], Tensor]  # (…, 2) → (…)
Score = Callable[[Tensor, Tensor], Tensor]  # differences (…, 2), w (…, 2) → (…)

SCORES: dict[str, Score] = {
    "one w": lambda apart, w: -(apart.square().sum(-1) * w[..., 0].square()) / 2,
    "inner product": lambda apart, w: -(apart * w).sum(-1).square() / 2,
    "each feature": lambda apart, w: -(apart * w).square().sum(-1) / 2,
}
STARTS = torch.tensor([[1.0, 0.2], [0.5, 0.9], [-0.2, 1.0], [0.9, -0.5]])  # directions from which w sets out


def one_direction(points: Tensor) -> Tensor:
    """Depends on x₁ + x₂ alone."""
    return 2 * (points[..., 0] + points[..., 1]).sin()


def both_features(points: Tensor) -> Tensor:
    """Depends on each of the features, and on neither through one direction."""
    return 2 * points[..., 0].sin() + 2 * points[..., 1].cos()


def fit(score: Score, points: Tensor, heights: Tensor, steps: int) -> Tensor:
    """The w (seeds, 2) that predicts every sample best from the others, by gradient from several starts."""
    apart = points[:, :, None] - points[:, None]  # (seeds, n, n, 2)
    hidden = torch.eye(points.shape[1]) > 0
    w = nn.Parameter(STARTS[:, None].repeat(1, len(points), 1))  # (starts, seeds, 2)

    def loss() -> Tensor:
        weights = torch.softmax(score(apart, w[:, :, None, None]).masked_fill(hidden, -torch.inf), -1)
        return ((weights @ heights[..., None])[..., 0] - heights).square().mean(-1)  # (starts, seeds)

    *_, last = descend([w], loss, steps, 0.05)
    return w.detach()[last.argmin(0), torch.arange(len(points))]


def errors(surface: Surface, seeds: int, steps: int) -> Tensor:
    """Mean squared errors on new samples (scores, seeds), against the surface without noise."""
    points, new = 5 * torch.rand(seeds, 100, 2), 5 * torch.rand(seeds, 300, 2)
    heights = surface(points) + 0.3 * torch.randn(seeds, 100)
    measured = []
    for score in SCORES.values():
        w = fit(score, points, heights, steps)
        weights = torch.softmax(score(new[:, :, None] - points[:, None], w[:, None, None]), -1)  # (seeds, 300, 100)
        measured.append(((weights @ heights[..., None])[..., 0] - surface(new)).square().mean(-1))
    return torch.stack(measured)


def measure(
    direction: Surface = one_direction, both: Surface = both_features, seeds: int = 3, steps: int = 150
) -> Measured:
    """Three scores, fitted to data that depend on one direction, and to data that depend on both features."""
    torch.manual_seed(0)
    first, second = errors(direction, seeds, steps), errors(both, seeds, steps)
    numbers = Numbers(
        **with_spread(direction=first, both=second),
        **with_spread(direction_gain=first[0] - first[1], both_loss=second[1] - second[2]),
        seeds=seeds,
    )
    names = list(map(say, SCORES))
    panels = [
        Panel([Bars(names, error.mean(1), spread=error.std(1), colour="attention")], title=say(title))
        for error, title in ((first, "y depends on x₁ + x₂"), (second, "y depends on x₁ and on x₂"))
    ]
    return numbers, Chart(panels, say("measurement"), height=220)


def judge(numbers: Numbers) -> Criteria:
    """The extension pays where one direction counts; an inner product has no other direction."""
    yield numbers.criterion(numbers.direction_gain > numbers.direction_gain_spread, say("pays"))
    yield numbers.correction(numbers.both_loss > numbers.both_loss_spread, say("blind across w"))


def draw(cell: Cell) -> Chart:
    """How much a sample counts by its place, for a query in the middle, with the learned w."""
    side = torch.linspace(0, 5, 26)
    away = torch.stack(torch.meshgrid(side.flip(0), side, indexing="ij"), -1).flip(-1) - 2.5  # (26, 26, 2): x₁, x₂
    across = [str(index // 5) if index % 5 == 0 else "" for index in range(26)]
    names = ("inner product", "each feature")
    kernels = {say(name): SCORES[name](away, cell.learned[name.replace(" ", "_")]).exp() for name in names}
    return Chart(maps(kernels, "x₁", "x₂", rows=across[::-1], columns=across, largest=1.0), say("cell"))


SECTION = section(say, draw, judge, measure, rehearsal=(one_direction, both_features, 2, 10))
