"""Claim 34: attention is trained with the network, by ordinary backpropagation."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from regard.data.tokens import PAD
from regard.models.seq2seq import Seq2Seq
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, single
from regard.tour.translators import encoded, training_pairs, untrained
from regard.view.chart import Bars, Chart, Line

say = Content(__file__)

SEEDS, STEP = 3, 1e-5


def loss_of(model: Seq2Seq, count: int) -> Tensor:
    """What a translator is trained on, for some sentences."""
    source, lengths, given, expected = encoded(model, training_pairs()[:count])
    logits = model(source, given, lengths)
    return functional.cross_entropy(logits.flatten(0, 1), expected.flatten(), ignore_index=PAD)


def slopes(model: Seq2Seq, count: int) -> tuple[list[float], list[float]]:
    """The slope of the loss along a random direction of each parameter: by its gradient, and by differences."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    directions = [torch.randn_like(parameter) / parameter.numel() ** 0.5 for parameter in parameters]
    gradients = torch.autograd.grad(loss_of(model, count), parameters, allow_unused=True)
    by_gradient = [0.0 if g is None else float((g * d).sum()) for g, d in zip(gradients, directions, strict=True)]
    by_difference = []
    with torch.no_grad():
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.add_(direction, alpha=STEP)
            ahead = loss_of(model, count)
            parameter.sub_(direction, alpha=2 * STEP)
            by_difference.append(float(ahead - loss_of(model, count)) / (2 * STEP))
            parameter.add_(direction, alpha=STEP)
    return by_gradient, by_difference


def measure(seeds: int = SEEDS, count: int = 16, steps: int = 40, broken: bool = False) -> Measured:
    """Slopes of an untrained translator in float64, and one that learns. broken: no gradient reaches the score."""
    pairs: list[tuple[float, float]] = []  # by gradient, by differences
    curves, moved = [], []
    for seed in range(seeds):
        model = untrained("additive", seed).double()
        names = [name for name, _ in model.named_parameters()]
        for name, by_gradient, by_difference in zip(names, *slopes(model, count), strict=True):
            pairs.append((0.0 if broken and "score" in name else by_gradient, by_difference))
        learner = untrained("additive", seed)
        assert learner.score is not None
        score = list(learner.score.parameters())
        before = [parameter.detach().clone() for parameter in score]
        learner.score.requires_grad_(not broken)
        trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
        curves.append([loss.item() for loss in descend(trained, partial(loss_of, learner, 64), steps, 1e-2)])
        moved += [float((now - then).detach().abs().max()) for now, then in zip(score, before, strict=True)]
    numbers = Numbers(
        reached=sum(gradient != 0 for gradient, _ in pairs),
        parameters=len(pairs),
        off=max(abs(gradient - slope) / max(abs(slope), 1e-3) for gradient, slope in pairs),
        moved=min(moved),
        loss_before=sum(curve[0] for curve in curves) / seeds,
        loss_after=sum(curve[-1] for curve in curves) / seeds,
        seeds=seeds,
    )
    lines = [Line(range(steps), curve, say("a translator with attention"), "attention") for curve in curves]
    return numbers, single(say("measurement"), *lines, x=say("step"), y=say("loss"), height=220)


def judge(numbers: Numbers) -> Criteria:
    """Gradients reach everything, are right, and change the attention too."""
    yield numbers.criterion(numbers.reached == numbers.parameters and numbers.off <= 1e-4, say("reaches everything"))
    yield numbers.criterion(numbers.moved > 0 and numbers.loss_after < numbers.loss_before, say("moves everything"))


def draw(cell: Cell) -> Chart:
    """The two slopes, side by side."""
    names = list(cell.named)
    bars = [
        Bars(names, list(cell.by_backpropagation.values()), say("backpropagation")),
        Bars(names, list(cell.by_differences.values()), say("finite differences")),
    ]
    return single(say("cell"), *bars, y=say("slope of the loss"))


SECTION = section(say, draw, judge, measure, rehearsal=(1, 3, 3))
