"""Claim 38: the query size D_Q and the number of heads H are hyperparameters."""

from collections.abc import Sequence

import torch

from regard import MultiHead
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, maps, section
from regard.tour.sections.claim_25_several_heads import SIZE, trained_loss, words
from regard.view.chart import Chart, Heat, Line, Panel

say = Content(__file__)

HEADS, QUERY_SIZES = (1, 2, 4, 8), (2, 4, 8, 16)


def differs(number: int, query_size: int) -> bool:
    """Whether a layer does not give 7 vectors of the same size, or has not 4 · SIZE · H · D_Q parameters."""
    layer = MultiHead(SIZE, number, head_size=query_size, bias=False)
    parameters = sum(matrix.numel() for matrix in layer.parameters())
    return layer(torch.randn(1, 7, SIZE)).shape != (1, 7, SIZE) or parameters != 4 * SIZE * number * query_size


def run(
    seeds: Sequence[int] = range(3),
    steps: int = 100,
    heads: Sequence[int] = HEADS,
    query_sizes: Sequence[int] = QUERY_SIZES,
) -> Measured:
    """The next word of sentences, learned with each H and each D_Q."""
    # Loss (heads, query sizes, seeds), mean of the two kinds of positions of claim 25.
    losses = grid(lambda *sizes: trained_loss(words, sizes[0], seeds, steps, sizes[1]).mean(0), heads, query_sizes)
    by_query_size, by_heads = losses[:, 0] - losses[:, -1], losses[0] - losses[-1]  # between the ends of the grid
    equal = losses.flip(1).diagonal().T  # H · D_Q is the same: (splits, seeds)
    mean, spread = equal.mean(1), equal.std(1)
    worst, best = int(mean.argmax()), int(mean.argmin())
    numbers = Numbers(
        query_gain=by_query_size.mean(),
        query_spread=by_query_size.mean(0).std(),
        head_gain=by_heads.mean(),
        head_spread=by_heads.mean(0).std(),
        splits=mean,
        split_spreads=spread,
        split_gain=mean[worst] - mean[best],
        split_noise=spread[worst] + spread[best],
        heads=heads,
        query_sizes=query_sizes,
        differ=grid(differs, heads, query_sizes).sum(),
        seeds=len(seeds),
    )
    surface = losses.mean(-1)
    colours = ("truth", "pooled", "other", "attention", "samples", "ink")
    lines = [
        Line(query_sizes, by_size, f"H = {number}", colour, dots=True)
        for number, by_size, colour in zip(heads, surface, colours, strict=False)
    ]
    diagonal = [(row, len(query_sizes) - 1 - row) for row in range(min(surface.shape))]  # H · D_Q is the same
    names = [f"H = {number}" for number in heads]
    heat = Heat(surface - surface.min(), names, list(map(str, query_sizes)), marked=diagonal)
    panels = [Panel([heat], x="D_Q", title=say("loss above the best")), Panel(lines, x="D_Q", y=say("loss"), share=1.4)]
    return numbers, Chart(panels, caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Both can be chosen freely, and each makes a difference."""
    yield numbers.criterion(abs(numbers.query_gain) > numbers.query_spread, say("query size"))
    yield numbers.criterion(abs(numbers.head_gain) > numbers.head_spread, say("heads"))
    yield numbers.criterion(numbers.split_gain > numbers.split_noise, say("split"))
    yield numbers.identity(numbers.differ == 0, say("any of both"))


def draw(cell: Cell) -> Chart:
    """The maps of the first heads."""
    heads = {say("head {number}", number=number): weights for number, weights in enumerate(cell.maps[0, :4], 1)}
    return Chart(maps(heads, largest=1.0), say("cell", **vars(cell)), columns=4)


SECTION = section(say, draw, judge, run, full=(range(5), 600), rehearsal=(range(2), 2))
