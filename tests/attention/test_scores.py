"""Scores by themselves: their values, their parameters, keys projected once, and scores that users bring."""

import copy
import math
import pickle
import weakref

import pytest
import torch
from torch import nn

import regard
from regard.attention import Additive, Bilinear, Cosine, Dot, Kernel, Score, attend, bias, causal, weights
from tests.attention import reference
from tests.attention.cases import (
    CUTS,
    FEATURES,
    RANDOM_SCORES,
    SCORES,
    Case,
    assert_near,
    build,
    cut,
    gradients,
    key_size,
    table_case,
)
from tests.attention.meanings import Draw, Meaning, lengths_of

OURS = [name for name in SCORES if name != "custom"]


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64).requires_grad_(grad)


def test_every_public_score_is_in_the_tables():
    """So that every promise is tested for it."""
    values = [getattr(regard, name) for name in regard.__all__]
    public = {value for value in values if isinstance(value, type) and issubclass(value, Score)} - {Score}
    drawn = {type(make(Draw(0), FEATURES, FEATURES)) for make in RANDOM_SCORES.values()}
    assert public
    for table in ({type(build(name)) for name in SCORES}, drawn, set(reference.SCORES)):
        assert public - table == set()


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("score", OURS)
def test_called_by_itself_it_gives_the_scores(score):
    """Leading dimensions broadcast, and heads are shared."""
    module = build(score)
    for query, key in (
        (random(3, 2, 7, FEATURES), random(3, 2, 11, key_size(score))),
        (random(3, 6, 7, FEATURES), random(2, 11, key_size(score))),
    ):
        result, right = module(query, key), reference.scores(module, query, key)
        assert torch.equal(result.isfinite(), right.isfinite())
        assert_near(result.nan_to_num(neginf=0), right.nan_to_num(neginf=0), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("score", OURS)
def test_called_by_itself_in_lower_precision(score, dtype):
    case = table_case(score, dtype=dtype)
    exact = case.copied(torch.float64)  # the same rounded numbers
    result, right = case.score(case.query, case.key), reference.scores(exact.score, exact.query, exact.key)
    assert result.dtype == dtype
    near_edge = score.startswith("kernel-") and score.split("-")[1] in reference.COMPACT
    both = result.isfinite() & right.isfinite()
    assert float((result.isfinite() != right.isfinite()).double().mean()) <= (0.02 if near_edge else 0)
    error = (result.double() - right).detach().abs()[both & (right > -3)]
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


# --------------------------------------------------------------------------------------------------------- parameters


def test_parameters_have_the_names_and_sizes_that_files_will_hold():
    shapes = {name: tuple(tensor.shape) for name, tensor in Additive(3, 5, 7).named_parameters()}
    assert shapes == {"query_weight": (7, 3), "key_weight": (7, 5), "value_weight": (7,)}
    assert {name: tuple(tensor.shape) for name, tensor in Bilinear(3, 5).named_parameters()} == {"weight": (3, 5)}
    assert not list(Dot().parameters())
    assert not list(Cosine().parameters())
    assert len(list(Cosine(learnable=True).parameters())) == 1
    assert len(list(Kernel(learnable=True).parameters())) == 1


def test_additive_weights_start_in_the_range_that_their_sizes_give():
    score = Additive(30, 20, 400)
    bounds = {"query_weight": (6 / 430) ** 0.5, "key_weight": (6 / 420) ** 0.5, "value_weight": 1 / 20}
    for name, weight in score.named_parameters():
        assert -bounds[name] <= weight.min() < -0.9 * bounds[name]
        assert 0.9 * bounds[name] < weight.max() <= bounds[name]


@pytest.mark.parametrize("score", OURS)
def test_saved_and_loaded_copied_and_pickled(score):
    module, twin = build(score), SCORES[score]().double()
    twin.load_state_dict(module.state_dict())
    query, key, _ = table_case(score).inputs
    for other in (twin, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(query, key), module(query, key))


@pytest.mark.parametrize("score", OURS)
def test_scores_show_themselves(score):
    module = build(score)
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
@pytest.mark.parametrize("score", OURS)
def test_projected_keys_give_the_same(monkeypatch, score, size):
    cut(monkeypatch, size)
    case = table_case(score, "lengths", grad=True)
    (query, key, value), wanted = case.inputs, list(case.leaves.values())
    output, expected_weights = case.expected()
    slopes = gradients(output, wanted)
    options = case.options | {"score": case.score.projected}

    keys = case.score.project_key(key)
    assert_near(weights(query, keys, **options), expected_weights, 1e-12)
    some = weights(query, keys, **options, rows=[3, 5], heads=[1])
    assert_near(some, expected_weights[:, [1]][:, :, [3, 5]], 1e-12)
    for need_weights in (False, True):
        result = attend(query, case.score.project_key(key), value, **options, need_weights=need_weights)
        result = result[0] if need_weights else result
        assert_near(result, output, 1e-12)
        for slope, right in zip(gradients(result, wanted), slopes, strict=True):
            assert_near(slope, right, 1e-11)
    rows = torch.cat([attend(query[:, :, [i]], keys, value, **options) for i in range(query.shape[-2])], -2)
    assert_near(rows, output, 1e-12)


@pytest.mark.parametrize("score", OURS)
def test_projected_scores_share_the_parameters(score):
    module = build(score)
    names = list(module.state_dict())
    projected = module.projected
    assert list(module.state_dict()) == names
    assert [id(parameter) for parameter in projected.parameters()] == [
        id(parameter) for parameter in module.parameters()
    ]


def test_keys_that_were_given_are_not_kept():
    score, key = Additive(5, 5, 5).double(), random(11, 5)
    keys, given = score.project_key(key), weakref.ref(key)
    attend(random(7, 5), keys, random(11, 2), score=score.projected)
    attend(random(7, 5), key.clone(), random(11, 2), score=score.projected)  # where it comes from nobody can say
    made = weakref.ref(keys)
    del key, keys
    assert (given(), made()) == (None, None)


def test_keys_that_were_projected_twice_are_still_projected():
    """As they may be for a cosine, which does not mind."""
    score, query, value = Cosine(), random(7, 5), random(11, 2)
    keys = score.project_key(random(11, 5))
    assert_near(attend(query, keys, value, score=score), attend(query, keys, value, score=score.projected), 1e-14)


class Elaborate(Score):
    """Overrides whatever there is to override."""

    may_exclude, is_dot, has_average, dot_is_exact, has_positions = False, True, True, False, True

    def project_key(self, key):
        return key * 2

    def pairs(self, query, key):
        return query @ key.mT


def test_projected_scores_are_the_score_in_everything_but_its_keys():
    """Also in what a score will have tomorrow."""
    score = Elaborate()
    about_keys = {"check", "check_key", "project_key", "forward", "projected", "modified"}
    names = {name for name in vars(Score) if not name.startswith("_")} - about_keys
    assert names >= {"may_exclude", "is_dot", "dot_is_exact", "has_positions", "pairs", "as_dot", "average"}
    for name in names:
        assert getattr(score.projected, name) == getattr(score, name), name
    key = random(11, 5)
    assert score.projected.project_key(key) is key


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


def check(case):
    output, expected_weights = case.expected()
    result, result_weights = case.attend(need_weights=True)
    assert_near(result, output, 1e-12)
    assert_near(result_weights, expected_weights, 1e-12)
    result = case.attend()
    assert_near(result, output, 1e-12)
    for slope, right in zip(gradients(result, case.inputs), gradients(output, case.inputs), strict=True):
        assert_near(slope, right, 1e-11)
    return result


@pytest.mark.parametrize("size", CUTS)
def test_a_subclass_needs_only_pairs(monkeypatch, size):
    cut(monkeypatch, size)
    query, key, value = random(3, 7, 5, grad=True), random(3, 11, 5, grad=True), random(3, 11, 2, grad=True)
    check(Case(query, key, value, Euclidean(), lengths_of([4, 0, 11], (3, 7, 11))))


@pytest.mark.parametrize("size", CUTS)
def test_a_score_may_exclude_pairs(monkeypatch, size):
    cut(monkeypatch, size)
    query, key, value = random(7, 5), random(11, 5), random(11, 2)
    query[3] = 0  # scores 0 with everything: nothing to attend to
    output = check(Case(*(tensor.requires_grad_() for tensor in (query, key, value)), Nearby(), Meaning()))
    assert (output[3] == 0).all()


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
    result = attend(query, key, value, score=module)
    layer = copy.deepcopy(module).double().layer
    wanted = torch.softmax(layer(query.double()) @ key.double().T, -1) @ value.double()
    assert result.dtype == dtype
    assert (result.double() - wanted).abs().max().item() < 30 * torch.finfo(dtype).eps
