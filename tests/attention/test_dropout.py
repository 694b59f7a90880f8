"""Dropout and other chance: the same seed, the same mean, and the gradients of what was drawn."""

import pytest
import torch
from torch import nn

from regard.attention import attend, weights
from regard.attention.dropout import dropout
from tests.attention.cases import (
    CUTS,
    MASKS,
    SCORES,
    SHAPES,
    SOME_SCORES,
    assert_near,
    cut,
    expected,
    gradients,
    tensors,
)

FORWARD, BACKWARD = 1e-12, 1e-11


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64).requires_grad_(grad)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", SOME_SCORES)
def test_dropout_is_repeated_by_the_seed(monkeypatch, score, size):
    cut(monkeypatch, size)
    case, shape = SCORES[score], SHAPES["more-keys"]
    module, inputs = case.build(), tensors(case, shape)
    mask = MASKS["lengths-by-row"](shape).mask

    def drawn(seed):
        torch.manual_seed(seed)
        return attend(*inputs, score=module, mask=mask, dropout=0.5)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("score", SOME_SCORES)
def test_gradients_are_those_of_the_weights_that_were_dropped(monkeypatch, score, need_weights, size):
    """The output is linear in the values, so with values = identity it shows which weights were dropped."""
    cut(monkeypatch, size)
    case, shape = SCORES[score], SHAPES["more-keys"]
    module = case.build()
    query, key, _ = tensors(case, shape, grad=True)
    value = torch.eye(shape.m, dtype=torch.float64).expand(*shape[:2], -1, -1).clone().requires_grad_()
    meaning = MASKS["bias-learned"](shape)
    wanted = [query, key, value, *module.parameters(), *meaning.learned]

    own = attend(query, key, value, score=module, mask=meaning.mask, dropout=0.25, need_weights=need_weights)
    own, found = own if need_weights else (own, weights(query, key, score=module, mask=meaning.mask))
    right = expected(case, module, query, key, value, meaning)[1]
    assert_near(found, right, FORWARD, "weights are those before dropout")
    kept = own.detach() != 0
    assert_near(own, right * kept / 0.75, FORWARD, "what is kept is scaled up")
    share = float(kept[right > 0].double().mean())
    assert 0.6 < share < 0.9

    output = (right * kept / 0.75) @ value
    for place, (slope, other) in enumerate(zip(gradients(own, wanted), gradients(output, wanted), strict=True)):
        assert_near(slope, other, BACKWARD, f"gradient {place}")


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
    own = attend(query, key, value, score=score)
    torch.manual_seed(3)
    right = torch.softmax(score(query[None, None], key[None, None])[0, 0], -1) @ value
    assert_near(own, right, FORWARD)
    wanted = [query, key, value, score.strength]
    for slope, other in zip(gradients(own, wanted), gradients(right, wanted), strict=True):
        assert_near(slope, other, BACKWARD)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.93])
def test_a_share_is_dropped_and_the_rest_makes_up_for_it(share):
    x = torch.ones(101, 997, requires_grad=True)
    found = dropout(x, share)
    kept = found != 0
    assert abs(float(kept.double().mean()) - (1 - share)) < 0.01
    assert torch.equal(found[kept], torch.full_like(found[kept], 1 / (1 - share)))
    found.sum().backward()
    assert torch.equal(x.grad, found.detach())  # what is dropped learns nothing
    torch.manual_seed(7)
    one = dropout(x, share)
    torch.manual_seed(7)
    assert torch.equal(one, dropout(x, share))
    assert not torch.equal(one, dropout(x, share))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0, 5), (2, 3, 5)])
def test_any_shape_is_thinned(shape):
    assert dropout(torch.ones(shape, dtype=torch.float64), 0.4).shape == shape
