"""Claim 12: masked softmax gives exactly 0 beyond the valid length."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product

import torch
from torch import Tensor

import regard
from regard.tour.cells import run_plain
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, maps, section
from regard.view.chart import Chart

say = Content(__file__)

Weigh = Callable[[Tensor, Tensor], Tensor]  # rows (batch, n, d), lengths → weights (batch, n, m)


def by_score(score: torch.nn.Module, rows: Tensor, lengths: Tensor) -> Tensor:
    """The weights of a batch that looks at itself."""
    return regard.weights(rows, rows, score=score.to(rows), mask=regard.lengths(lengths)).detach()


def by_output(rows: Tensor, lengths: Tensor) -> Tensor:
    """The weights as outputs: every key has a value that is 1 in its own place."""
    identity = torch.eye(rows.shape[1], dtype=rows.dtype).expand(len(rows), -1, -1)
    return regard.attend(rows, rows, identity, mask=regard.lengths(lengths))


def by_softmax(softmax: Callable[[Tensor, Tensor], Tensor], rows: Tensor, lengths: Tensor) -> Tensor:
    """A masked softmax of the scaled dot products; those of padding are NaN, so that anything that leaks shows."""
    scores = rows @ rows.transpose(1, 2) / rows.shape[-1] ** 0.5
    length = lengths.reshape(len(rows), -1, 1)
    return softmax(scores.masked_fill(torch.arange(rows.shape[1]) >= length, torch.nan), lengths)


def paths() -> dict[str, Weigh]:
    """All ways to masked weights."""
    return {
        "cell": partial(by_softmax, run_plain(SECTION)["masked_softmax"]),
        "masked_softmax": partial(by_softmax, lambda scores, n: regard.masked_softmax(scores, regard.lengths(n))),
        "attend": by_output,
        "dot": partial(by_score, regard.Dot()),
        "cosine": partial(by_score, regard.Cosine()),
        "kernel": partial(by_score, regard.Kernel()),
        "additive": partial(by_score, regard.Additive(5, 5, 7)),
        "bilinear": partial(by_score, regard.Bilinear(5, 5)),
    }


def measure(ways: Mapping[str, Weigh] | None = None) -> Measured:
    """Every way, in two precisions, with scores small and large, with both kinds of lengths. ways: instead of all."""
    ways = ways or paths()
    rounds, beyond, off_one, empty_rows = 0, [], [], 0
    lengths = (torch.tensor([2, 6, 0]), torch.randint(9, (3, 8)))  # (batch,), (batch, n)
    for weigh, dtype, size in product(ways.values(), (torch.float32, torch.float64), (1.0, 1e3)):
        rows = (size * torch.randn(3, 8, 5)).to(dtype)
        for valid in lengths:
            length = valid.reshape(3, -1, 1).expand(3, 8, 1)
            weights, empty = weigh(rows, valid), length[..., 0] == 0
            beyond.append(weights[torch.arange(8) >= length].abs().max().double())
            off_one.append((weights.sum(-1)[~empty] - 1).abs().max().double())
            rounds, empty_rows = rounds + 1, empty_rows + int(empty.sum())
    largest, off = torch.stack(beyond).max(), torch.stack(off_one).max()  # NaN stays NaN
    return Numbers(paths=len(ways), rounds=rounds, beyond=largest, off_one=off, empty_rows=empty_rows), None


def judge(numbers: Numbers) -> Criteria:
    """Exactly 0 outside, a distribution inside."""
    yield numbers.criterion(numbers.beyond == 0, say("exactly 0"))
    yield numbers.criterion(numbers.off_one <= 1e-5, say("distribution"))


def draw(cell: Cell) -> Chart:
    """Two rows of heat maps: one length for each sequence, one for each query."""
    lengths = map(str, [*cell.per_sequence.tolist(), *cell.per_query.tolist()])
    titles = [say("valid length {shown}", shown=length.strip("[]")) for length in lengths]
    weights = dict(zip(titles, [*cell.weights, *cell.weights_per_query], strict=True))
    return Chart(maps(weights, say("key"), say("query"), largest=1.0), say("cell"), columns=3)


SECTION = section(say, draw, judge, measure)
