"""Claim 13: additive attention joins queries and keys of different sizes: an MLP on the two put together."""

import torch
from torch import nn

import regard
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, single
from regard.view.chart import Chart, Heat

say = Content(__file__)


@torch.no_grad()
def run(score: nn.Module | None = None) -> Measured:
    """Score with the notes' shapes, and with the MLP that has the same weights. score: instead of additive scores."""
    mlp = regard.Additive(query_size=20, key_size=2, hidden_size=8)
    score = mlp if score is None else score
    query, key, value = torch.randn(2, 1, 20), 5 * torch.randn(2, 10, 2), torch.randn(2, 10, 4)
    # An MLP with one hidden layer, without biases, on the query beside each key.
    pairs = torch.cat([query[:, :, None].expand(-1, -1, 10, -1), key[:, None]], -1)
    hidden = torch.tanh(pairs @ torch.cat([mlp.query_weight, mlp.key_weight], 1).T)  # (batch, n, m, hidden)
    scores = hidden @ mlp.value_weight
    try:
        regard.Dot()(query, key)
        dot_refused = False
    except (ValueError, RuntimeError):
        dot_refused = True
    output, weights = regard.attend(query, key, value, score=score, mask=regard.lengths([2, 6]), need_weights=True)
    numbers = Numbers(
        output_shape=tuple(output.shape),
        weights_shape=tuple(weights.shape),
        apart=(score(query, key) - scores).abs().max(),
        scores=scores.abs().mean(),
        dot_refused=dot_refused,
    )
    return numbers, None


def judge(numbers: Numbers) -> Criteria:
    """The same numbers; and sizes that a dot product does not take."""
    yield numbers.identity(numbers.apart <= 1e-6, say("multilayer perceptron"))
    yield numbers.identity(
        numbers.output_shape == (2, 1, 4) and numbers.weights_shape == (2, 1, 10) and bool(numbers.dot_refused),
        say("sizes"),
    )


def draw(cell: Cell) -> Chart:
    """The weights of the one query of each sequence."""
    rows = [say("length 2"), say("length 6")]
    return single(say("cell"), Heat(cell.weights[:, 0].detach(), rows=rows, largest=1.0), x=say("key"))


SECTION = section(say, draw, judge, run)
