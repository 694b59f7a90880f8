"""Dropout and other randomness: the same seed, the same mean, and the gradients of what was drawn."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from regard.attention import attend, weights
from regard.attention.dropout import dropout
from tests.attention.cases import CUTS, SOME_SCORES, assert_near, cut, gradients, table_case

FORWARD, BACKWARD = 1e-12, 1e-11


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64).requires_grad_(grad)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", SOME_SCORES)
def test_dropout_is_repeated_by_the_seed(monkeypatch, score, size):
    cut(monkeypatch, size)
    case = table_case(score, "lengths-by-row")

    def drawn(seed):
        torch.manual_seed(seed)
        return case.attend(dropout=0.5)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("score", SOME_SCORES)
def test_gradients_are_those_of_the_weights_that_were_dropped(monkeypatch, score, need_weights, size):
    """The output is linear in the values, so with values = identity it shows which weights were dropped."""
    cut(monkeypatch, size)
    case = table_case(score, "bias-learned", grad=True)
    batch, heads, _, m = case.shape
    case = replace(case, value=torch.eye(m, dtype=torch.float64).repeat(batch, heads, 1, 1).requires_grad_())
    wanted = list(case.leaves.values())

    output = case.attend(dropout=0.25, need_weights=need_weights)
    output, before_dropout = output if need_weights else (output, weights(case.query, case.key, **case.options))
    right = case.expected()[1]
    assert_near(before_dropout, right, FORWARD, "weights are those before dropout")
    kept = output.detach() != 0
    assert_near(output, right * kept / 0.75, FORWARD, "what is kept is scaled up")
    assert 0.6 < float(kept[right > 0].double().mean()) < 0.9

    slopes = gradients((right * kept / 0.75) @ case.value, wanted)
    for place, (slope, other) in enumerate(zip(gradients(output, wanted), slopes, strict=True)):
        assert_near(slope, other, BACKWARD, f"gradient {place}")


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("score", SOME_SCORES)
def test_what_is_dropped_does_not_depend_on_gradients(monkeypatch, score, need_weights, size):
    """A reentrant checkpoint runs without them, and then again with them: both have to draw the same."""
    cut(monkeypatch, size)
    case = table_case(score, "lengths-by-row", grad=True)

    def run(query):
        output = replace(case, query=query).attend(dropout=0.5, need_weights=need_weights)
        return output[0] if need_weights else output

    outputs, slopes = [], []
    for way in (run, partial(checkpoint, run, use_reentrant=True)):
        torch.manual_seed(7)
        outputs.append(way(case.query))
        case.query.grad = None
        outputs[-1].square().sum().backward()
        slopes.append(case.query.grad)
    assert_near(*outputs, FORWARD)
    assert_near(*slopes, BACKWARD)


def test_dropout_keeps_the_mean():
    query, key, value = random(1, 7, 5), random(1, 11, 5), random(1, 11, 3)
    many = attend(query.expand(5000, -1, -1), key.expand(5000, -1, -1), value.expand(5000, -1, -1), dropout=0.3)
    assert float((many.mean(0) - attend(query, key, value)[0]).abs().max()) < 0.05


def test_without_dropout_nothing_is_drawn():
    inputs = random(3, 7, 5), random(3, 11, 5), random(3, 11, 13)
    before = torch.get_rng_state()
    attend(*inputs, dropout=0)
    attend(*inputs, need_weights=True)
    assert torch.equal(before, torch.get_rng_state())


class Noisy(nn.Module):
    """A score that is random itself: what is computed again in the backward pass must be the same once more."""

    def __init__(self):
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, query, key):
        return self.strength * nn.functional.dropout(query @ key.transpose(-2, -1), 0.5)


def test_gradients_through_a_random_score():
    query, key, value = (tensor.requires_grad_() for tensor in (random(7, 5), random(11, 5), torch.eye(11).double()))
    score = Noisy()
    torch.manual_seed(3)
    output = attend(query, key, value, score=score)
    torch.manual_seed(3)
    right = torch.softmax(score(query[None, None], key[None, None])[0, 0], -1) @ value
    assert_near(output, right, FORWARD)
    wanted = [query, key, value, score.strength]
    for slope, other in zip(gradients(output, wanted), gradients(right, wanted), strict=True):
        assert_near(slope, other, BACKWARD)


@pytest.mark.parametrize("share", [1e-5, 0.001, 0.1, 0.5, 0.93, 0.9999, 0.99999])
def test_a_share_is_dropped_and_the_rest_makes_up_for_it(share):
    x = torch.ones(1009, 1999, requires_grad=True)
    torch.manual_seed(7)
    output = dropout(x, share)
    kept = output != 0
    # Five standard deviations, and the rounding of the share.
    count, slack = x.numel() * min(share, 1 - share), 1e-3 * x.numel() * min(share, 1 - share)
    assert abs(int((kept if share > 0.5 else ~kept).sum()) - count) < 5 * count**0.5 + slack
    scale = float(output.detach().max())
    assert torch.equal(output, kept * scale)
    assert abs(scale * (1 - share) - 1) < 1e-3
    output.sum().backward()
    assert torch.equal(x.grad, output.detach())  # what is dropped learns nothing
    assert not torch.equal(output, dropout(x, share))
    torch.manual_seed(7)
    assert torch.equal(output, dropout(x, share))


def test_a_generator_of_ones_own():
    x, state = torch.ones(101, 97), torch.get_rng_state()

    def drawn(share):
        return dropout(x, share, generator=torch.Generator().manual_seed(3))

    for share in (0.3, 1e-5, 0.99999):
        assert torch.equal(drawn(share), drawn(share))
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(3)
    assert torch.equal(drawn(0.3), dropout(x, 0.3))
    generator = torch.Generator().manual_seed(3)
    assert not torch.equal(dropout(x, 0.3, generator=generator), dropout(x, 0.3, generator=generator))


@pytest.mark.usefixtures("fresh_compiler")
def test_traced():
    """Compiled, mapped and without numbers it is PyTorch's, which can be drawn there."""
    x = torch.ones(101, 97)
    for drawn in (
        torch.compile(dropout, fullgraph=True, backend="aot_eager")(x, 0.3),
        torch.vmap(lambda row: dropout(row, 0.3), randomness="different")(x),
        torch.func.grad(lambda x: dropout(x, 0.3).sum())(x),
    ):
        assert abs(float((drawn == 0).double().mean()) - 0.3) < 0.03
        assert_near(drawn[drawn != 0], torch.full((int((drawn != 0).sum()),), 1 / 0.7), 1e-6)
    assert dropout(x.to("meta"), 0.3).is_meta
    mapped = torch.vmap(lambda row: dropout(row, 0.3, generator=torch.Generator().manual_seed(3)), randomness="same")(x)
    assert (mapped == mapped[0]).all()
    assert 0 < float((mapped == 0).double().mean()) < 1


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("share", [0.4, 1e-5])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (0, 5), (2, 3, 5)])
def test_any_shape(shape, share):
    assert dropout(torch.ones(shape, dtype=torch.float64), share).shape == shape
