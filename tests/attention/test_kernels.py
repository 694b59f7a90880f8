"""Kernels as scores: log K, Nadaraya–Watson regression, learnable widths, and how exact the Gaussian reduction is."""

import math

import pytest
import torch

from regard.attention import Kernel, attend, keep, lengths, weights
from regard.attention.kernels import KERNELS
from tests.attention import reference
from tests.attention.cases import CUTS, assert_near, cut, gradients
from tests.attention.reference import COMPACT


def random(*shape):
    return torch.randn(shape, dtype=torch.float64)


# log K(u) number by number, with Python's own mathematics.
LOG_KERNELS = {
    "gaussian": lambda u: -u * u / 2,
    "laplace": lambda u: -u,
    "constant": lambda u: 0.0,
    "boxcar": lambda u: 0.0 if u <= 1 else -math.inf,
    "triangular": lambda u: math.log(1 - u) if u < 1 else -math.inf,
    "epanechnikov": lambda u: math.log(1 - u * u) if u < 1 else -math.inf,
    "biweight": lambda u: 2 * math.log(1 - u * u) if u < 1 else -math.inf,
    "triweight": lambda u: 3 * math.log(1 - u * u) if u < 1 else -math.inf,
    "tricube": lambda u: 3 * math.log(1 - u**3) if u < 1 else -math.inf,
    "cosine": lambda u: math.log(math.cos(math.pi * u / 2)) if u < 1 else -math.inf,
}


def test_all_ten_are_there():
    assert list(KERNELS) == list(LOG_KERNELS) == list(reference.KERNELS)


@pytest.mark.parametrize("width", [0.37, 1.0, 5.0])
@pytest.mark.parametrize("name", LOG_KERNELS)
def test_log_kernel(name, width):
    """Distances below, at and above 1 width, as differences of numbers on both sides of 0."""
    distances = [0.0, 1e-9, 0.25, 0.5, 0.999, 1 - 1e-9, 1.0, 1 + 1e-9, 1.5, 40.0]
    query = torch.zeros(1, 1, dtype=torch.float64)
    for sign in (1, -1):
        key = torch.tensor(distances, dtype=torch.float64)[:, None] * width * sign
        scores = Kernel(name, width)(query, key)[0].tolist()
        for u, value in zip(distances, scores, strict=True):
            u = abs(u * width * sign) / width  # as rounded as the key is
            right = LOG_KERNELS[name](u)
            tolerance = 1e-6 if 0.9999 < u < 1 else 1e-12  # 1 − u has few digits left there
            assert math.isclose(value, right, rel_tol=tolerance, abs_tol=1e-15), f"log K({u}) = {value}, not {right}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", COMPACT)
def test_the_edge_of_a_compact_kernel(name, dtype):
    """At exactly 1 width the boxcar still counts, the others do not; the number before it counts for all."""
    query, edge = torch.zeros(1, 1, dtype=dtype), torch.ones(1, 1, dtype=dtype)
    before, after = torch.nextafter(edge, edge * 0), torch.nextafter(edge, edge * 2)
    at = Kernel(name)(query, edge).item()
    assert at == 0 if name == "boxcar" else at == -math.inf
    assert math.isfinite(Kernel(name)(query, before).item())
    assert Kernel(name)(query, after).item() == -math.inf


@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("name", LOG_KERNELS)
def test_several_features_are_one_distance(name, features):
    query, key, widths = random(7, features), random(11, features), torch.rand(features, dtype=torch.float64) + 1.5
    result = Kernel(name, widths)(query, key)
    for i in range(7):
        for j in range(11):
            u = math.sqrt(sum(float((query[i, f] - key[j, f]) / widths[f]) ** 2 for f in range(features)))
            right = LOG_KERNELS[name](u)
            assert math.isclose(result[i, j].item(), right, rel_tol=1e-9, abs_tol=1e-12)


# ------------------------------------------------------------------------------------------------------ Nadaraya–Watson


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("name", LOG_KERNELS)
def test_attention_is_the_ratio_of_kernel_sums(monkeypatch, name, features, size):
    """f(x) = Σ K((x − xⱼ)/h) yⱼ / Σ K((x − xⱼ)/h), summed in Python; 0 where no kernel reaches."""
    cut(monkeypatch, size)
    x, samples, y = random(13, features) * 2, random(29, features), random(29, 2)
    if name in COMPACT:
        x[4] = 100.0
    result = attend(x, samples, y, score=Kernel(name, 1.3))
    for i in range(len(x)):
        heights = [math.exp(LOG_KERNELS[name](math.dist(x[i], samples[j]) / 1.3)) for j in range(len(samples))]
        total = math.fsum(heights)
        for c in range(2):
            right = math.fsum(k * float(y[j, c]) for j, k in enumerate(heights)) / total if total else 0.0
            assert math.isclose(result[i, c].item(), right, rel_tol=1e-12, abs_tol=1e-12)
    if name in COMPACT:
        assert (result[4] == 0).all()


def test_the_constant_kernel_is_average_pooling():
    x, samples, y = random(7, 3), random(11, 3), random(11, 2)
    assert_near(attend(x, samples, y, score=Kernel("constant")), y.mean(0).expand(7, -1), 1e-12)


# ------------------------------------------------------------------------------------------------------------- widths


@pytest.mark.parametrize("name", LOG_KERNELS)
@pytest.mark.parametrize("width", [1.5, [1.5, 0.7, 2.0]])
def test_learned_widths_survive_any_step(name, width):
    """A thousand times the gradient, both ways: the width stays a positive number, and the answer finite."""
    x, samples, y = random(7, 3), random(11, 3), random(11, 2)
    for upward in (False, True):
        score = Kernel(name, width, learnable=True)
        descent = torch.optim.SGD(score.parameters(), lr=1e3, maximize=upward)
        for _ in range(2):
            descent.zero_grad()
            attend(x, samples, y, score=score).square().sum().backward()
            assert all(parameter.grad.isfinite().all() for parameter in score.parameters())
            torch.nn.utils.clip_grad_value_(score.parameters(), 0.02)  # steps of up to e²⁰
            descent.step()
            assert (score.width > 0).all()
            assert score.width.shape == torch.tensor(width).shape
        assert attend(x, samples, y, score=score).isfinite().all()


@pytest.mark.parametrize("name", ["gaussian", "laplace", "triweight"])
def test_widths_are_learned(name):
    """From a width that is much too large, gradient descent comes down to one that follows a sine."""
    x = torch.linspace(0, 10, 60)[:, None]
    y = torch.sin(x)
    score = Kernel(name, 6.0, learnable=True)
    start = score.width.item()
    adam = torch.optim.Adam(score.parameters(), lr=0.1)
    errors = []
    for _ in range(60):
        adam.zero_grad()
        error = (attend(x[::2], x[1::2], y[1::2], score=score) - y[::2]).square().mean()
        error.backward()
        adam.step()
        errors.append(error.item())
    assert score.width.item() < start / 3
    assert errors[-1] < errors[0] / 20


def test_a_width_per_feature_ignores_what_does_not_matter():
    query, key = random(7, 2), random(11, 2)
    wide = weights(query, key, score=Kernel(width=[1.0, 1e12]))
    assert_near(wide, weights(query[:, :1], key[:, :1], score=Kernel(width=1.0)), 1e-9)


def test_one_width_equals_the_same_width_for_each_feature():
    query, key = random(7, 3), random(11, 3)
    for name in LOG_KERNELS:
        one, three = (weights(query, key, score=Kernel(name, width)) for width in (1.7, [1.7, 1.7, 1.7]))
        assert_near(one, three, 1e-12)


def test_a_width_may_be_a_tensor_which_is_copied():
    width = torch.tensor([1.0, 2.0])
    score = Kernel("gaussian", width, learnable=True)
    width[0] = 100
    assert score.width.tolist() == [1.0, 2.0]


def test_gradient_is_zero_where_a_query_is_its_own_key():
    """‖q − k‖ has no slope at 0; regard takes 0, so that training on the samples themselves works."""
    for name in LOG_KERNELS:
        for features in (1, 3):
            samples = random(7, features).requires_grad_()
            slopes = gradients(attend(samples, samples, random(7, 2), score=Kernel(name, 1.5)), [samples])
            assert slopes[0].isfinite().all(), name


def test_without_features_gradients_still_have_a_way_back():
    query = torch.zeros(3, 0, requires_grad=True)
    for name in LOG_KERNELS:
        output, _ = attend(query, torch.zeros(5, 0), torch.ones(5, 2), score=Kernel(name), need_weights=True)
        assert output.requires_grad, name


# -------------------------------------------------------------------------------------------------- how exact it is


def both(x, samples, y, width):
    """attend, and the reference in float64 on the same (rounded) numbers."""
    score = Kernel("gaussian", width)
    wanted, wanted_weights = reference.attend(reference.scores(score, x.double(), samples.double()), y.double())
    beside, result_weights = attend(x, samples, y, score=score, need_weights=True)
    return (attend(x, samples, y, score=score), wanted), (beside, wanted), (result_weights, wanted_weights)


PLACES = {  # dtype, where the data lie, how wide they are spread, width, tolerance
    "float64 far from 0": (torch.float64, 1e6, 3.0, 1.0, 1e-9),
    "float64 very far from 0": (torch.float64, 1e9, 3.0, 1.0, 1e-6),
    "float32 at 0": (torch.float32, 0.0, 3.0, 1.0, 1e-5),
    "float32 far from 0": (torch.float32, 1e4, 3.0, 1.0, 1e-5),
    "float32 very far from 0": (torch.float32, 1e6, 3.0, 1.0, 1e-5),
    "float32 narrow": (torch.float32, 0.0, 3.0, 1e-2, 1e-5),
    "float32 very narrow": (torch.float32, 0.0, 3.0, 1e-4, 1e-5),
    "float32 narrow and far": (torch.float32, 1e3, 3.0, 1e-2, 1e-5),
    "float32 spread": (torch.float32, 0.0, 1e3, 1.0, 1e-5),
    "float32 wide": (torch.float32, 0.0, 3.0, 1e3, 1e-5),
    "float64 narrow": (torch.float64, 0.0, 3.0, 1e-4, 1e-9),
}


@pytest.mark.parametrize(("queries", "features"), [(97, 1), (97, 3), (3, 1), (1, 3), (3, 41)])
@pytest.mark.parametrize("place", PLACES)
def test_the_gaussian_is_exact_wherever_the_data_lie(place, queries, features):
    dtype, centre, spread, width, tolerance = PLACES[place]
    x, samples = (centre + spread * random(rows, features) for rows in (queries, 131))
    y = random(131, 2)
    for result, wanted in both(*(tensor.to(dtype) for tensor in (x, samples, y)), width):
        assert_near(result, wanted, tolerance)


@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("away", [10.0, 1e3, 1e5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_far_outside_the_data(dtype, away, features):
    """Every K underflows there, but the weights do not: the nearest sample takes all."""
    samples, y = torch.rand(31, features).to(dtype), random(31, 2).to(dtype)
    x = torch.full((5, features), away, dtype=dtype) * torch.arange(1, 6)[:, None]
    x[::2] *= -1
    for result, wanted in both(x, samples, y, 0.5):
        assert_near(result, wanted, 1e-4 if dtype == torch.float32 else 1e-7)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("away", [1e18, 1e25, 1e38])
@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("name", LOG_KERNELS)
def test_no_nan_where_squares_overflow(name, features, away, need_weights):
    x, samples, y = torch.full((2, features), away), torch.rand(5, features), torch.rand(5, 2)
    result = attend(x, samples, y, score=Kernel(name), need_weights=need_weights)
    assert (result[0] if need_weights else result).isfinite().all()


@pytest.mark.parametrize("name", ["gaussian", "laplace", "triangular", "epanechnikov", "tricube"])
def test_each_feature_far_from_zero(name):
    """One width per feature is exact far from 0, too, though it has to divide the rows and not their distance."""
    x, samples, y = ((1e4 + random(41, 2)).float(), (1e4 + random(53, 2)).float(), random(53, 2).float())
    score = Kernel(name, [0.9, 1.7])
    wanted, wanted_weights = reference.attend(reference.scores(score, x.double(), samples.double()), y.double())
    assert_near(attend(x, samples, y, score=score), wanted, 1e-5)
    assert_near(weights(x, samples, score=score), wanted_weights, 1e-5)


def test_the_gaussian_is_fused_wherever_the_data_lie():
    """Centring keeps data far from 0 in float32; float64 is for spreads that need it, differences for the widest."""
    for centre, spread, dtype in ((0.0, 1.0, torch.float32), (1e6, 1.0, torch.float32), (0.0, 1e3, torch.float64)):
        rows, keys, _ = Kernel().as_dot(*((centre + spread * random(1, 1, 50, 2)).float() for _ in range(2)))
        assert rows.dtype == keys.dtype == dtype
    assert Kernel().as_dot(1e6 * random(1, 1, 50, 2), 1e6 * random(1, 1, 50, 2)) is None


@pytest.mark.parametrize("queries", [2, 17])
def test_padding_far_from_the_data_costs_no_digits(queries):
    """Padding is full of zeros, the data lie at 10⁴: what no query sees must not move the centre of the reduction."""
    x, samples = (1e4 + random(2, queries, 1)).float(), (1e4 + random(2, 61, 1)).float()
    y = random(2, 61, 1).float()
    counts = [5, 40]
    for b, count in enumerate(counts):
        samples[b, count:] = 0
    result = attend(x, samples, y, score=Kernel(width=0.1), mask=lengths(counts))
    for b, count in enumerate(counts):
        (_, wanted), *_ = both(x[b], samples[b, :count], y[b, :count], 0.1)
        assert_near(result[b], wanted, 1e-5)


@pytest.mark.parametrize("features", [1, 3, 41])
def test_a_near_key_that_is_hidden_costs_no_digits(features):
    """One query far from all it may see, but near to what it may not: what it sees still decides to the last digit."""
    x, samples, y = torch.zeros(1, features), 100 + random(61, features), random(61, 2)
    samples[40:] = 0.01 * random(21, features)
    result = attend(x, samples.float(), y.float(), score=Kernel(), mask=keep(torch.arange(61)[None] < 40))
    wanted = reference.scores(Kernel(), x.double(), samples.float().double()[:40])
    assert_near(result, reference.attend(wanted, y[:40])[0], 1e-5)


# ------------------------------------------------------------------------------------------------- no width without end


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("name", LOG_KERNELS)
@pytest.mark.parametrize("by_feature", [False, True])
def test_the_width_learns_beside_a_query_that_reaches_nothing(name, features, by_feature, dtype):
    """Its distances are infinite, and 0 · inf must not reach the width; what it learns is what it would without it."""
    x, samples, y = (random(*shape).to(dtype) for shape in ((5, features), (11, features), (11, 2)))
    far = x.clone()
    far[2] = 1e20 if dtype == torch.float32 else 1e200

    def slopes(rows, need_weights):
        score = Kernel(name, [2.5] * features if by_feature else 2.5, learnable=True).to(dtype)
        output = attend(rows, samples, y, score=score, need_weights=need_weights)
        output = output[0] if need_weights else output
        assert output.isfinite().all()
        return torch.autograd.grad(output[[0, 1, 3, 4]].square().sum() + 0 * output.sum(), list(score.parameters()))

    for need_weights in (False, True):
        for slope, right in zip(slopes(far, need_weights), slopes(x, need_weights), strict=True):
            assert_near(slope, right, 1e-4 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("name", LOG_KERNELS)
def test_nan_is_not_mistaken_for_far_away(name):
    x, samples = random(5, 3), random(11, 3)
    x[2, 1] = math.nan
    for score in (Kernel(name, 2.5), Kernel(name, 2.5, learnable=True), Kernel(name, [2.5] * 3, learnable=True)):
        assert score.double()(x, samples)[2].isnan().all()


# -------------------------------------------------------------------------------------------------------------- traced


def test_made_without_numbers():
    """As models are made before their weights are loaded."""
    for width in (1.5, [1.5, 0.7]):
        for learnable in (False, True):
            with torch.device("meta"):
                score = Kernel("laplace", width, learnable)
                tensors = Kernel("laplace", torch.empty(2), learnable)
            assert all(tensor.is_meta for tensor in (*score.state_dict().values(), *tensors.state_dict().values()))
            assert "meta" in repr(score)
            moved = Kernel("laplace", width, learnable).to("meta")
            for module in (score, moved):
                scores = module(torch.empty(3, 2, device="meta"), torch.empty(5, 2, device="meta"))
                assert (scores.is_meta, tuple(scores.shape)) == (True, (3, 5))
            loaded = score.to_empty(device="cpu")
            loaded.load_state_dict(Kernel("laplace", width, learnable).state_dict())
            assert_near(loaded.width, torch.tensor(width), 1e-6)


@pytest.mark.parametrize("name", LOG_KERNELS)
def test_scores_can_be_traced(name):
    x, samples = random(2, 5, 3), random(2, 7, 3)
    for score in (Kernel(name, 2.5), Kernel(name, [2.5, 2.0, 3.0], learnable=True).double()):
        traced = [torch.vmap(score.pairs)(x, samples)]
        if name in ("gaussian", "tricube"):
            torch.compiler.reset()
            traced.append(torch.compile(score.pairs, fullgraph=True, dynamic=True, backend="eager")(x, samples))
        for scores in traced:
            right = score.pairs(x, samples)
            assert torch.equal(scores.isneginf(), right.isneginf())
            assert_near(scores.nan_to_num(neginf=0), right.nan_to_num(neginf=0), 1e-12)
