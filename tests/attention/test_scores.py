"""Scores by themselves: their values, their parameters, keys projected once, and scores that users bring."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from regard.attention import Additive, Bilinear, Cosine, Dot, Kernel, Score, attend, bias, causal, lengths, weights
from tests.attention import reference
from tests.attention.cases import (
    CUTS,
    FEATURES,
    MASKS,
    SCORES,
    SHAPES,
    assert_near,
    cut,
    expected,
    gradients,
    tensors,
)

OWN = [name for name in SCORES if name != "custom"]


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64).requires_grad_(grad)


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("score", OWN)
def test_called_by_itself_it_gives_the_scores(score):
    case = SCORES[score]
    module = case.build()
    query, key, _ = tensors(case, SHAPES["more-keys"], grad=True)
    own, plain = module(query, key), case.scores(module, query, key)
    assert own.shape == (3, 2, 7, 11)
    outside = plain == -torch.inf
    assert torch.equal(own == -torch.inf, outside)
    assert_near(own.masked_fill(outside, 0), plain.masked_fill(outside, 0), 1e-12)


@pytest.mark.parametrize("score", OWN)
def test_called_by_itself_it_broadcasts_and_shares_heads(score):
    case = SCORES[score]
    module = case.build()
    query, key = random(3, 6, 7, FEATURES), random(2, 11, case.key_size)
    own, plain = module(query, key), case.scores(module, query, reference.shared_heads(key, 6))
    assert torch.equal(own.isfinite(), plain.isfinite())
    assert_near(own.nan_to_num(neginf=0), plain.nan_to_num(neginf=0), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("score", OWN)
def test_called_by_itself_in_lower_precision(score, dtype):
    case = SCORES[score]
    module, (query, key, _) = case.build(), tensors(case, SHAPES["more-keys"], dtype)
    # Parameters are rounded as the inputs are, so that only the computation is compared.
    plain = case.scores(module.to(dtype).double(), query.double(), key.double())
    own = module.to(dtype)(query, key)
    assert own.dtype == dtype
    near_edge = case.kernel and score.removeprefix("kernel-").split("-")[0] not in ("gaussian", "laplace", "constant")
    both = own.isfinite() & plain.isfinite()
    assert float((own.isfinite() != plain.isfinite()).double().mean()) <= (0.02 if near_edge else 0)
    error = (own.double() - plain).detach().abs()[both & (plain > -3)]
    assert float(error.max()) < 8 * torch.finfo(dtype).eps * (8 if near_edge else 1)


def test_softcap_bends_before_bias_and_mask():
    """scale → softcap → bias → mask."""
    query, key, value, added = random(7, 5) * 30, random(11, 5), random(11, 3), random(7, 11) * 10
    scores = 2.0 * torch.tanh(0.7 * (query @ key.T) / 2.0)
    assert_near(Dot(0.7, 2.0)(query, key), scores, 1e-12)
    assert float(Dot(0.7, 2.0)(query, key).abs().max()) <= 2
    wanted = torch.softmax((scores + added).masked_fill(torch.ones(7, 11).triu(5) > 0, -torch.inf), -1) @ value
    assert_near(attend(query, key, value, score=Dot(0.7, 2.0), mask=bias(added) & causal(align="end")), wanted, 1e-12)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1e3, 1e30])
def test_cosine_does_not_depend_on_lengths(size):
    query, key = torch.randn(7, 5), torch.randn(11, 5)
    wanted = Cosine(0.5)(query, key)
    assert_near(Cosine(0.5)(query * size, key / size), wanted, 1e-6)
    assert_near(Cosine(0.5)(query, key * size), wanted, 1e-6)


def test_cosine_of_a_zero_vector_is_zero():
    query, key, value = random(7, 5), random(11, 5), random(11, 3)
    query[2], key[4] = 0, 0
    for tensor in (query, key, value):
        tensor.requires_grad_()
    scores = Cosine()(query, key)
    assert (scores[2] == 0).all()
    assert (scores[:, 4] == 0).all()
    output = attend(query, key, value, score=Cosine())
    assert_near(output[2], value.mean(0), 1e-12)
    assert all(slope.isfinite().all() for slope in gradients(output, [query, key, value]))


@pytest.mark.parametrize("factor", [1.0, 30.0])
@pytest.mark.parametrize("score", SCORES)
def test_large_scores_do_no_harm(score, factor):
    """Queries and keys × 30 (FAULTS 3): no NaN, no inf, forward and backward, with float32's range."""
    case, shape = SCORES[score], SHAPES["more-keys"]
    module, inputs = case.build(torch.float32), tensors(case, shape, torch.float32)
    inputs = [(tensor * factor).requires_grad_() for tensor in inputs]
    for mask in ("none", "lengths", "keep", "bias-learned"):
        meaning = MASKS[mask](shape)
        for need_weights in (False, True):
            output = attend(*inputs, score=module, mask=meaning.mask, need_weights=need_weights)
            output = output[0] if need_weights else output
            assert output.isfinite().all()
            assert all(slope.isfinite().all() for slope in gradients(output, [*inputs, *module.parameters()]))


# --------------------------------------------------------------------------------------------------------- parameters


def test_parameters_have_the_names_and_sizes_that_files_will_hold():
    shapes = {name: tuple(tensor.shape) for name, tensor in Additive(3, 5, 7).named_parameters()}
    assert shapes == {"query_weight": (7, 3), "key_weight": (7, 5), "value_weight": (7,)}
    assert {name: tuple(tensor.shape) for name, tensor in Bilinear(3, 5).named_parameters()} == {"weight": (3, 5)}
    assert not list(Dot().parameters())
    assert not list(Cosine().parameters())
    assert len(list(Cosine(learnable=True).parameters())) == 1
    assert len(list(Kernel(learnable=True).parameters())) == 1


@pytest.mark.parametrize("score", OWN)
def test_saved_and_loaded_copied_and_pickled(score):
    case = SCORES[score]
    module, twin = case.build(), case.make().double()
    twin.load_state_dict(module.state_dict())
    query, key, _ = tensors(case, SHAPES["more-keys"])
    for other in (twin, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(query, key), module(query, key))


@pytest.mark.parametrize("score", OWN)
def test_scores_show_themselves(score):
    module = SCORES[score].build()
    assert repr(module).startswith(type(module).__name__ + "(")


def test_scores_start_with_the_spread_of_a_scaled_dot_product():
    query, key = torch.randn(200, 64), torch.randn(300, 48)
    for score in (Dot(), Bilinear(64, 48)):
        other = torch.randn(300, 64) if isinstance(score, Dot) else key
        assert 0.8 < score(query, other).std().item() < 1.25
    assert 0.2 < Additive(64, 48, 128)(query, key).std().item() < 1.25


@pytest.mark.parametrize("step", [-1e4, -10.0, 0.0, 10.0, 1e4])
def test_a_learned_temperature_stays_positive(step):
    score = Cosine(0.3, learnable=True)
    with torch.no_grad():
        for parameter in score.parameters():
            parameter += step
    assert score.temperature.item() >= 0
    if abs(step) <= 10:
        assert math.isclose(score.temperature.item(), 0.3 * math.exp(step), rel_tol=1e-5)


def test_a_fixed_temperature_is_exactly_what_was_given():
    assert Cosine(0.3).temperature.item() == 0.3
    assert Kernel(width=0.3).width.item() == 0.3
    assert Kernel(width=[0.3, 0.7]).width.tolist() == [0.3, 0.7]


# -------------------------------------------------------------------------------------------------- keys projected once


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", OWN)
def test_projected_keys_give_the_same(monkeypatch, score, size):
    """What a decoder does: keys go through project_key once, and every step uses score.projected."""
    cut(monkeypatch, size)
    case, shape = SCORES[score], SHAPES["more-keys"]
    module, meaning = case.build(), MASKS["lengths"](shape)
    query, key, value = tensors(case, shape, grad=True)
    wanted = [query, key, value, *module.parameters()]
    output, found = expected(case, module, query, key, value, meaning)
    slopes = gradients(output, wanted)

    keys, after = module.project_key(key), module.projected
    options = {"score": after, "mask": meaning.mask}
    assert_near(weights(query, keys, **options), found, 1e-12)
    assert_near(weights(query, keys, **options, rows=[3, 5], heads=[1]), found[:, [1]][:, :, [3, 5]], 1e-12)
    for need_weights in (False, True):
        keys = module.project_key(key)
        own = attend(query, keys, value, **options, need_weights=need_weights)
        own = own[0] if need_weights else own
        assert_near(own, output, 1e-12)
        for slope, right in zip(gradients(own, wanted), slopes, strict=True):
            assert_near(slope, right, 1e-11)
    keys = module.project_key(key)
    rows = torch.cat([attend(query[:, :, [i]], keys, value, **options) for i in range(shape.n)], -2)
    assert_near(rows, output, 1e-12)


@pytest.mark.parametrize("score", OWN)
def test_projected_keys_have_no_hidden_state(score):
    case = SCORES[score]
    module = case.build()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.project_key(tensors(case, SHAPES["more-keys"])[1])
    module.projected  # noqa: B018  a property, without effect
    assert list(module.state_dict()) == list(before)
    assert [id(each) for each in module.projected.parameters()] == [id(each) for each in module.parameters()]


# ------------------------------------------------------------------------------------------------ scores of one's own


class Euclidean(Score):
    """As the guide for contributors says: a subclass with `pairs`."""

    def pairs(self, query, key):
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


class Nearby(Score):
    """Gives −inf to pairs of its own choice, so that rows end up empty without any mask."""

    def pairs(self, query, key):
        scores = query @ key.transpose(-2, -1)
        return scores.masked_fill(scores < 1, -torch.inf)


@pytest.mark.parametrize("size", CUTS)
def test_a_subclass_needs_only_pairs(monkeypatch, size):
    cut(monkeypatch, size)
    query, key, value = random(3, 7, 5, grad=True), random(3, 11, 5, grad=True), random(3, 11, 2, grad=True)
    evidence = reference.evidence(reference.squared_difference(query, key))
    allowed = reference.dense((3, 7, 11), lambda b, i, j: j < [4, 0, 11][b])
    output, found = reference.attend(evidence, value, allowed)
    own, own_weights = attend(query, key, value, score=Euclidean(), mask=lengths([4, 0, 11]), need_weights=True)
    assert_near(own, output, 1e-12)
    assert_near(own_weights, found, 1e-12)
    own = attend(query, key, value, score=Euclidean(), mask=lengths([4, 0, 11]))
    assert_near(own, output, 1e-12)
    for slope, right in zip(gradients(own, [query, key]), gradients(output, [query, key]), strict=True):
        assert_near(slope, right, 1e-11)


@pytest.mark.parametrize("size", CUTS)
def test_a_score_may_exclude_pairs(monkeypatch, size):
    cut(monkeypatch, size)
    query, key, value = random(7, 5), random(11, 5), random(11, 2)
    query[3] = 0  # scores 0 with everything: nothing to attend to
    for tensor in (query, key, value):
        tensor.requires_grad_()
    scores = query @ key.T
    output, found = reference.attend(reference.evidence(scores), value, scores.detach() >= 1)
    own, own_weights = attend(query, key, value, score=Nearby(), need_weights=True)
    assert_near(own, output, 1e-12)
    assert_near(own_weights, found, 1e-12)
    own = attend(query, key, value, score=Nearby())
    assert_near(own, output, 1e-12)
    assert (own[3] == 0).all()
    slopes = gradients(own, [query, key, value])
    for slope, right in zip(slopes, gradients(output, [query, key, value]), strict=True):
        assert_near(slope, right, 1e-11)


def test_a_subclass_without_pairs_says_so():
    class Nothing(Score):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing must define pairs"):
        attend(random(7, 5), random(11, 5), random(11, 2), score=Nothing())


class Scorer(nn.Module):
    """A small network over pairs, with a linear layer as most users' scores have."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, query, key):
        return self.layer(query) @ key.transpose(-2, -1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_module_in_any_precision(dtype):
    module = Scorer().to(dtype)
    query, key, value = (torch.randn(shape).to(dtype) for shape in ((7, 5), (11, 5), (11, 2)))
    own = attend(query, key, value, score=module)
    layer = copy.deepcopy(module).double().layer
    wanted = torch.softmax(layer(query.double()) @ key.double().T, -1) @ value.double()
    assert own.dtype == dtype
    assert (own.double() - wanted).abs().max().item() < 30 * torch.finfo(dtype).eps
