"""Separable scores: linear attention equals the quadratic formula, forward and backward, and costs what it should."""

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard import Separable, attend, causal, lengths, segments, weights
from tests.attention import reference
from tests.attention.cases import assert_near, gradients

FEATURES, SIZE = 5, 13


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64).requires_grad_(grad)


MAPS = {
    "elu": Separable,
    "relu": lambda: Separable(torch.relu),
    "exp": lambda: Separable(torch.exp),
    "learned": lambda: Separable(nn.Sequential(nn.Linear(FEATURES, 7), nn.Softplus())).double(),
}


# ------------------------------------------------------------------------------------------ without visiting the pairs


@pytest.mark.parametrize(("n", "m"), [(7, 11), (11, 7), (64, 64), (129, 67), (67, 193)])
@pytest.mark.parametrize("restriction", ["none", "visible", "causal", "both"])
@pytest.mark.parametrize("name", MAPS)
def test_the_average_is_that_of_the_formula(name, restriction, n, m):
    score = MAPS[name]()
    query, key, value = (
        random(3, 2, rows, size, grad=True) for rows, size in ((n, FEATURES), (m, FEATURES), (m, SIZE))
    )
    visible = torch.rand(3, 1, 1, m) < 0.7 if restriction in ("visible", "both") else None
    by_row = torch.arange(n)[:, None] >= torch.arange(m) if restriction in ("causal", "both") else torch.ones(n, m) > 0
    output = score.average(
        score.project_query(query),
        score.project_key(key),
        value,
        causal=restriction in ("causal", "both"),
        visible=visible,
    )
    right, _ = reference.attend(
        reference.separable(score, query, key), value, by_row if visible is None else by_row & visible
    )
    assert_near(output, right, 1e-10)
    leaves = [query, key, value, *score.parameters()]
    for slope, other in zip(gradients(output, leaves), gradients(right, leaves), strict=True):
        assert_near(slope, other, 1e-10)


def test_heads_that_share_keys():
    query, key, value = random(3, 4, 67, FEATURES), random(3, 1, 71, FEATURES), random(3, 1, 71, SIZE)
    score, visible = Separable(), torch.rand(3, 4, 1, 71) < 0.6
    shared = (score.project_key(key).expand(-1, 4, -1, -1), value.expand(-1, 4, -1, -1))
    for options in ({}, {"causal": True}, {"visible": visible}, {"visible": visible, "causal": True}):
        output = score.average(score.project_query(query), *shared, **options)
        copied = score.average(score.project_query(query), *(rows.contiguous() for rows in shared), **options)
        assert_near(output, copied, 1e-13)


def test_rows_without_anything_to_attend_to():
    score, query, key, value = Separable(torch.relu), random(1, 1, 67, 3), random(1, 1, 71, 3), random(1, 1, 71, SIZE)
    query[..., 4, :] = -1  # no features
    query[..., 5, :], key[..., 0] = torch.tensor([1.0, -1, -1]), -1  # a feature that no key has
    visible = torch.arange(71).view(1, 1, 1, 71) >= 9  # hides all that the first nine rows may see
    leaves = [rows.requires_grad_() for rows in (query, key, value)]
    for options in ({}, {"causal": True, "visible": visible}):
        output = score.average(score.project_query(query), score.project_key(key), value, **options)
        assert (output[..., 4:6, :] == 0).all()
        assert options == {} or (output[..., :9, :] == 0).all()
        slopes = gradients(output, leaves)
        assert all(slope.isfinite().all() for slope in slopes)
        assert (slopes[0][..., 4:6, :] == 0).all()


@pytest.mark.parametrize("place", ["query", "key", "value"])
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e308])
def test_numbers_that_the_sums_cannot_hold_are_left_to_the_scores(place, poison):
    rows = {"query": random(1, 1, 67, 3).abs(), "key": random(1, 1, 71, 3).abs(), "value": random(1, 1, 71, SIZE)}
    score = Separable(torch.relu)
    assert score.average(**rows) is not None
    rows[place][0, 0, 2, 1] = poison
    rows["key"][0, 0, 3] = 1e10
    assert score.average(**rows) is None
    assert place == "query" or score.average(**rows, visible=torch.arange(71).view(1, 1, 1, 71) > 3) is not None


def test_products_that_underflow_are_left_to_the_scores():
    """All the same to the weights, which are ratios."""
    score, query, key, value = Separable(torch.relu), random(67, 3).abs(), random(71, 3).abs(), random(71, SIZE)
    small = [rows.float()[None, None] for rows in (query * 1e-20, key * 1e-17, value)]
    assert score.average(*small) is None
    assert_near(attend(*small, score=score)[0, 0], attend(query, key, value, score=score), 1e-5)


def test_few_queries_are_left_to_the_scores():
    """To sum up 64 × 64 numbers per key for one query costs more than its scores."""
    key, value = random(1, 1, 1031, 64).exp(), random(1, 1, 1031, 64)
    assert Separable().average(random(1, 1, 1, 64).exp(), key, value) is None
    assert Separable().average(random(1, 1, 1031, 64).exp(), key, value) is not None


# ------------------------------------------------------------------------------------------------------------ the cost


@pytest.mark.parametrize("options", [{}, {"causal": True}])
def test_work_and_memory_grow_with_the_rows_and_not_with_the_pairs(options):
    def costs(n):
        score, kept = Separable(), []
        query, key, value = (rows.requires_grad_() for rows in torch.rand(3, 1, 2, n, 16))

        def keep(tensor):
            kept.append(tensor.numel())
            return tensor

        with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            score.average(query, key, value, **options).sum().backward()
        return counter.get_total_flops(), sum(kept)

    for small, large in zip(costs(1024), costs(4096), strict=True):
        assert large < 4.2 * small


# --------------------------------------------------------------------------------------------------- through the engine


@pytest.mark.parametrize(
    "mask",
    [
        None,
        lengths([67, 0, 31]),
        segments([30, 37], [30, 37]),
        causal(),
        segments([30, 37], [30, 37]) & causal(),
        lengths([67, 0, 31]) & causal(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attend_is_the_weights_times_the_values(mask, groups):
    query, key, value = random(3, 4, 67, 3, grad=True), random(3, groups, 67, 3, grad=True), random(3, groups, 67, 2)
    score = Separable()
    output = attend(query, key, value, score=score, mask=mask)
    right = weights(query, key, score=score, mask=mask) @ value.repeat_interleave(4 // groups, 1)
    assert_near(output, right, 1e-10)
    for slope, other in zip(gradients(output, [query, key]), gradients(right, [query, key]), strict=True):
        assert_near(slope, other, 1e-10)
    with torch.no_grad():
        assert_near(attend(query, key, value, score=score, mask=mask), right, 1e-10)


# --------------------------------------------------------------------------------------------------------- feature maps


def test_the_default_is_elu_plus_one():
    query, key = random(7, FEATURES), random(11, FEATURES)
    left, right = (torch.where(rows > 0, rows + 1, rows.exp()) for rows in (query, key))
    assert_near(Separable()(query, key).exp(), left @ right.T, 1e-13)


def test_signed_features_of_a_kernel_that_is_not_negative():
    """(1 + q k)² = φ(q)·φ(k) with φ(x) = (1, √2 x, x²): no pair is negative, though features are."""

    def square(x):
        return torch.cat([torch.ones_like(x), math.sqrt(2) * x, x.square()], -1)

    query, key, value = random(67, 1), random(71, 1), random(71, 2)
    kernel = (1 + query @ key.T).square()
    output = attend(query, key, value, score=Separable(square))
    assert_near(output, kernel / kernel.sum(-1, keepdim=True) @ value, 1e-10)


def test_a_negative_product_is_refused():
    query, key, value = random(67, 3), random(71, 3), random(71, 2)
    with pytest.raises(
        ValueError, match=r"feature_map: expected φ\(query\)·φ\(key\) ≥ 0 for every pair, got a negative"
    ):
        attend(query, key, value, score=Separable(lambda rows: rows))


def test_gradients_beside_products_of_nothing_are_finite():
    query, key = random(7, 3).float(), random(11, 3).float()
    query[2], key[4] = -1, 1e-40  # no feature at all, and one whose products are below the normal numbers
    leaves = [query.requires_grad_(), key.requires_grad_()]
    output = weights(query, key, score=Separable(torch.relu))
    assert (output[2] == 0).all()
    assert all(slope.isfinite().all() for slope in gradients(output, leaves))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_module_in_half_precision(dtype):
    score = MAPS["learned"]().to(dtype)
    query, key, value = (rows.to(dtype) for rows in (random(7, FEATURES), random(11, FEATURES), random(11, 2)))
    right = attend(query.double(), key.double(), value.double(), score=Separable(score.feature_map.double()))
    score.to(dtype)
    assert_near(attend(query, key, value, score=score).double(), right, 30 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("feature_map", "error", "message"),
    [
        ("relu", TypeError, "feature_map: expected an nn.Module or a function, got str"),
        (
            lambda rows: rows.sum(-1),
            ValueError,
            r"feature_map: expected features \(…, f\) for rows \(7, 3\), got \(7,\)",
        ),
        (lambda rows: None, ValueError, r"feature_map: expected features .* got NoneType"),
    ],
)
def test_messages(feature_map, error, message):
    with pytest.raises(error, match=message):
        weights(random(7, 3), random(11, 3), score=Separable(feature_map))


def test_queries_and_keys_of_different_sizes():
    with pytest.raises(ValueError, match=r"key: expected last dimension 3 \(the query's.*got shape \(11, 2\)"):
        weights(random(7, 3), random(11, 2), score=Separable())


# -------------------------------------------------------------------------------------------------------------- traced


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")  # torch.func.jvp calls it
def test_compiled_mapped_and_differentiated():
    torch.compiler.reset()
    query, key, score = random(2, 7, FEATURES), random(2, 11, FEATURES), Separable(torch.relu)
    right = score.pairs(query.relu(), key.relu())
    compiled = torch.compile(score.pairs, fullgraph=True, dynamic=True, backend="aot_eager")(query.relu(), key.relu())
    assert torch.equal(compiled, right)
    assert torch.equal(torch.vmap(score.pairs)(query.relu(), key.relu()), right)
    shares = torch.func.jvp(lambda q: score.pairs(q, key.exp()).exp(), (query.exp(),), (query,))[1]
    assert_near(shares, query @ key.exp().mT, 1e-12)
    assert score.pairs(query.to("meta"), key.to("meta")).shape == (2, 7, 11)
    mapped = torch.vmap(score.pairs)(query, key)  # negative products: NaN, not a number that looks right
    assert torch.equal(mapped.isnan(), query @ key.mT < 0)
