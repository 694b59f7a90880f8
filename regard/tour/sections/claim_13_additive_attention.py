"""Claim 13: additive attention joins queries and keys of different sizes: an MLP on the two put together."""

import torch
from torch import Tensor, nn

import regard
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Chart, Heat, Panel

say = Content(__file__)


def concatenated(score: regard.Additive, query: Tensor, key: Tensor) -> Tensor:
    """The scores (batch, n, m) of an MLP with one hidden layer, without biases, on each query beside each key."""
    n, m = query.shape[-2], key.shape[-2]
    pairs = torch.cat([query[:, :, None].expand(-1, -1, m, -1), key[:, None].expand(-1, n, -1, -1)], -1)
    hidden = torch.tanh(pairs @ torch.cat([score.query_weight, score.key_weight], 1).T)  # (batch, n, m, hidden)
    return hidden @ score.value_weight


def refused(score: nn.Module, query: Tensor, key: Tensor) -> bool:
    """Whether a score cannot compare vectors of these sizes."""
    try:
        score(query, key)
    except (ValueError, RuntimeError):
        return True
    return False


@torch.no_grad()
def run(score: nn.Module | None = None) -> Measured:
    """Score with the notes' shapes, and with the MLP that has the same weights. score: instead of additive scores."""
    mlp = regard.Additive(query_size=20, key_size=2, hidden_size=8)
    score = mlp if score is None else score
    query, key, value = torch.randn(2, 1, 20), 5 * torch.randn(2, 10, 2), torch.randn(2, 10, 4)
    output, weights = regard.attend(query, key, value, score=score, mask=regard.lengths([2, 6]), need_weights=True)
    numbers = Numbers(
        output_shape=tuple(output.shape),
        weights_shape=tuple(weights.shape),
        apart=(score(query, key) - concatenated(mlp, query, key)).abs().max(),
        scores=concatenated(mlp, query, key).abs().mean(),
        dot_refused=refused(regard.Dot(), query, key),
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
    panel = Panel([Heat(cell.weights[:, 0].detach(), rows=rows, largest=1.0)], x=say("key"))
    return Chart([panel], caption=say("cell"))


SECTION = Section(**say.fields, show=draw, run=run, judge=judge)
