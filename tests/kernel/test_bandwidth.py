"""The choice of the bandwidth: what each rule promises, on data that are easy, repeated, correlated or shuffled."""

import warnings

import numpy
import pytest
import torch
from statsmodels.nonparametric.kernel_regression import KernelReg

from regard import KernelRegressor
from regard.attention.kernels import KERNELS
from regard.kernel import BandwidthWarning, bandwidth
from regard.kernel.bandwidth import WITHOUT_SLOPE, Loss, Space, descend, round_widths, rule_of_thumb
from regard.kernel.features import Features, Rows
from regard.kernel.kernels_nd import DEVIATION
from regard.kernel.samples import Samples, Weighing
from tests.kernel.test_regressor import curve, peer_warns


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("name", [name for name in KERNELS if name not in WITHOUT_SLOPE])
def test_the_gradient_of_the_error_is_its_slope(name, features, degree):
    X, y = curve(151, features, outputs=2)
    model = KernelRegressor(name, 1.9, degree=degree).fit(X, y)
    loss = Loss(model.samples_, degree, "mean")
    widths, step = numpy.full(features, 1.9), 1e-5
    error, gradient = loss.error_and_gradient(widths)
    # Of several features, lines as they are, also where one extrapolates from few samples
    assert error == pytest.approx(model.loo_error_, rel=0.01 if degree and features > 1 else 1e-6)
    for d in range(features):
        factor = numpy.where(numpy.arange(features) == d, numpy.exp(step), 1)
        after, before = (loss.error_and_gradient(at)[0] for at in (widths * factor, widths / factor))
        slope = (after - before) / (2 * step)
        assert gradient[d] == pytest.approx(slope, rel=1e-4, abs=1e-7)


# --------------------------------------------------------------------------------------------------- the bandwidth


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_no_other_bandwidth_has_a_smaller_error(name, degree):
    X, y = curve(151)
    model = KernelRegressor(name, degree=degree).fit(X, y)
    assert model.bandwidth_.shape == (1,)
    for factor in (0.1, 0.5, 0.8, 0.95, 1.05, 1.3, 2, 10):
        other = KernelRegressor(name, model.bandwidth_ * factor, degree=degree).fit(X, y)
        # A kernel with an edge has an error that jumps as samples come into reach: many valleys, one of which is found.
        assert model.loo_error_ <= other.loo_error_ * (1.02 if name in ("boxcar", "triangular") else 1 + 1e-4)


@pytest.mark.parametrize("rule", ["loo", "aicc", "one_se", "gradient"])
@pytest.mark.parametrize(("features", "degree"), [(1, 1), (2, 0), (3, 1)])
def test_the_unit_of_y_does_not_matter(features, degree, rule):
    """As powers of two change no digit, to the last bit; AICc is a log, whose digits change."""
    X, y = curve(101, features)
    first, *others = (KernelRegressor(bandwidth=rule, degree=degree).fit(X, y * 2.0**k) for k in (0, -40, 40))
    for k, other in zip((-40, 40), others, strict=True):
        numpy.testing.assert_allclose(other.bandwidth_, first.bandwidth_, rtol=1e-2 if rule == "aicc" else 0)
        if rule != "aicc":
            assert other.loo_error_ == first.loo_error_ * 4.0**k


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_no_valley_elsewhere_is_deeper(seed, degree):
    random = numpy.random.default_rng(seed)
    X = random.normal(size=(97, 3))
    y = numpy.sin(4 * X[:, 0]) + X[:, 1] ** 2 + X[:, 0] * X[:, 2] + random.normal(0, 0.2, 97)
    model = KernelRegressor(degree=degree).fit(X, y)
    loss = Loss(model.samples_, degree, "nearest")
    start, space = rule_of_thumb(model.samples_), Space.of(model.samples_)
    elsewhere = [descend(loss, space.clip(start * numpy.exp(random.normal(size=3)))) for _ in range(4)]
    assert model.loo_error_ <= 1.001 * min(map(loss, elsewhere))


def test_a_descent_goes_no_further_where_another_has_ended():
    samples = KernelRegressor(bandwidth=1.0).fit(*curve(101, features=2)).samples_
    loss, start = Loss(samples, 0, "nearest"), 2 * rule_of_thumb(samples)
    end = descend(loss, start)
    near = descend(loss, start, known=[start, end])
    assert 0 < numpy.abs(numpy.log(near / end)).max() < bandwidth.ALIKE
    numpy.testing.assert_array_equal(descend(loss, start, known=[100 * end]), end)


@peer_warns
def test_it_finds_at_least_what_statsmodels_finds():
    X, y = curve(61)
    peer = KernelReg(y, X, "c", reg_type="lc", bw="cv_ls").bw
    assert KernelRegressor().fit(X, y).loo_error_ <= KernelRegressor(bandwidth=peer).fit(X, y).loo_error_ + 1e-6


@pytest.mark.parametrize("name", ["gaussian", "tricube"])
def test_a_feature_that_says_nothing_gets_a_wide_bandwidth(name):
    X, y = curve(307, features=1)
    X = numpy.column_stack([X, numpy.random.default_rng(6).uniform(0, 5, len(X))])
    for rule in ("loo", "gradient"):
        useful, silent = KernelRegressor(name, rule).fit(X, y).bandwidth_
        assert silent > 3 * useful


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_learning_is_never_worse_than_the_search_and_hardly_better(seed, degree):
    X, y = curve(101, features=2, seed=seed)
    y -= 2 * numpy.sin(X.sum(1)) - 2 * numpy.sin(X[:, 0])  # of the first feature alone
    searched, learned = (KernelRegressor(bandwidth=name, degree=degree).fit(X, y) for name in ("loo", "gradient"))
    assert learned.loo_error_ <= searched.loo_error_
    assert searched.loo_error_ <= learned.loo_error_ * 1.01
    assert learned.loo_score_ > 0.5


def test_learning_alone_goes_down_from_what_was_found_and_from_the_rule(monkeypatch):
    starts = []
    monkeypatch.setattr(bandwidth, "descend", lambda loss, start: starts.append(start.tolist()) or start)
    X, y = curve(101)
    found, rule = (KernelRegressor(bandwidth=name).fit(X, y).bandwidth_.tolist() for name in ("loo", "silverman"))
    assert not starts
    KernelRegressor(bandwidth="gradient").fit(X, y)
    assert starts == [found, rule]


def test_learning_goes_down_from_the_rule():
    X, y = curve(307, features=2)
    rule, learned = (KernelRegressor(bandwidth=name).fit(X, y).loo_error_ for name in ("silverman", "gradient"))
    assert learned < rule


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "constant"])
def test_deviations_are_the_kernels_own(name):
    """By numbers: kernels of width 1, as densities on the line."""
    u = numpy.linspace(-40, 40, 800_001)
    compact = KERNELS[name].compact
    distance = torch.tensor(numpy.abs(u)).clamp(max=1 if compact else numpy.inf)
    density = KERNELS[name].log(distance).exp().numpy() * (numpy.abs(u) <= (1 if compact else numpy.inf))
    assert DEVIATION[name] == pytest.approx(numpy.sqrt((density * u**2).sum() / density.sum()), rel=1e-4)


def test_bandwidths_have_four_digits():
    assert round_widths(numpy.array([0.123456, 12345.6, 1e-9])).tolist() == [0.1235, 12350.0, 1e-9]


def test_the_same_data_give_the_same_bits():
    X, y = curve(301, features=2)
    first, second = (KernelRegressor().fit(X, y) for _ in range(2))
    assert numpy.array_equal(first.bandwidth_, second.bandwidth_)
    assert numpy.array_equal(first.predict(X), second.predict(X))


@pytest.mark.filterwarnings("ignore::regard.kernel.BandwidthWarning")  # copies that are counts are what it warns of
@pytest.mark.parametrize("as_counts", [False, True])
@pytest.mark.parametrize("features", [1, 2])
def test_weights_are_repeats(features, as_counts):
    X, y = curve(71, features)
    counts = numpy.random.default_rng(7).integers(0, 4, len(X))
    weighted = KernelRegressor(counts=as_counts).fit(X, y, counts)
    repeated = KernelRegressor(counts=as_counts).fit(numpy.repeat(X, counts, axis=0), numpy.repeat(y, counts))
    assert weighted.bandwidth_.tolist() == repeated.bandwidth_.tolist()
    assert weighted.loo_error_ == pytest.approx(repeated.loo_error_)
    numpy.testing.assert_allclose(weighted.predict(X), repeated.predict(X))


@pytest.mark.parametrize("scale", [10.1, 1e-200, 1e300])
def test_other_weights_may_be_scaled(scale):
    X, y = curve(71)
    weights = numpy.random.default_rng(8).uniform(0.1, 1, len(X))
    one, ten = (KernelRegressor().fit(X, y, scale * weights) for scale in (1, scale))
    assert one.bandwidth_.tolist() == ten.bandwidth_.tolist()
    numpy.testing.assert_allclose(one.predict(X, return_std=True), ten.predict(X, return_std=True))


# ------------------------------------------------------------------------------------------------- what weights mean


def test_whole_weights_matter_as_fractions_do():
    """A weight says how much a sample matters: multiplying all by 2 changes nothing, and the window stays as wide."""
    X, y = curve(211)
    weights = numpy.random.default_rng(9).integers(1, 6, len(X))
    whole, half, none = (KernelRegressor().fit(X, y, given) for given in (weights, weights / 2, None))
    assert whole.bandwidth_.tolist() == half.bandwidth_.tolist()
    assert 0.5 < whole.bandwidth_[0] / none.bandwidth_[0] < 2
    with pytest.warns(BandwidthWarning, match="repeated"):
        counted = KernelRegressor(counts=True).fit(X, y, weights)
    assert counted.bandwidth_[0] < whole.bandwidth_[0] / 4  # of three samples at a place two predict the third


def test_counts_are_whole():
    X, y = curve(31)
    with pytest.raises(ValueError, match="sample_weight: expected whole numbers, because counts=True"):
        KernelRegressor(counts=True).fit(X, y, numpy.full(31, 0.5))


@pytest.mark.parametrize("features", [1, 2])
def test_copies_of_rows_change_nothing(features):
    X, y = curve(101, features)
    twice = KernelRegressor().fit(numpy.vstack([X, X]), numpy.concatenate([y, y]))
    assert twice.bandwidth_.tolist() == KernelRegressor().fit(X, y).bandwidth_.tolist()


def test_a_few_copies_among_many_samples_change_nothing():
    X, y = curve(20_011)
    copied = numpy.vstack([X, X[:300]]), numpy.concatenate([y, y[:300]])
    one, other = KernelRegressor().fit(X, y), KernelRegressor().fit(*copied)
    assert other.bandwidth_[0] == pytest.approx(one.bandwidth_[0], rel=0.02)


def test_many_samples_that_weigh_nothing_change_nothing(monkeypatch):
    """Samples of one weight are compressed for a search, others are not."""
    monkeypatch.setattr(bandwidth, "MANY", 100)
    X, y = curve(401)
    y[::2] = 30 * numpy.random.default_rng(3).normal(size=201)
    weighted = KernelRegressor().fit(X, y, numpy.where(numpy.arange(401) % 2, 1.0, 1e-9))
    few = KernelRegressor().fit(X[1::2], y[1::2])
    assert weighted.bandwidth_[0] == pytest.approx(few.bandwidth_[0], rel=0.02)


# ----------------------------------------------------------------------------------------------------- other rules


@pytest.mark.parametrize("features", [1, 2])
def test_aicc_is_its_formula(features):
    X, y = curve(83, features, seed=11)
    model = KernelRegressor(bandwidth=0.7, degree=1).fit(X, y)
    hat = model.weights(X)
    trace = numpy.trace(hat)
    expected = numpy.log(numpy.mean((y - hat @ y) ** 2)) + (1 + trace / 83) / (1 - (trace + 2) / 83)
    loss = Loss(model.samples_, 1, "nearest", criterion="aicc")
    assert loss(numpy.full(features, 0.7)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("features", [1, 2])
def test_the_least_aicc_is_found(features):
    X, y = curve(151, features)
    model = KernelRegressor(bandwidth="aicc").fit(X, y)
    loss = Loss(model.samples_, 0, "nearest", criterion="aicc")
    for factor in (0.5, 0.9, 1.1, 2):
        assert loss(model.bandwidth_) <= loss(model.bandwidth_ * factor) + 1e-4


@pytest.mark.parametrize("features", [1, 2])
def test_one_standard_error_is_smoother_and_hardly_worse(features):
    X, y = curve(151, features)
    least, smooth = (KernelRegressor(bandwidth=rule).fit(X, y) for rule in ("loo", "one_se"))
    squares = Loss(least.samples_, 0, "nearest").errors(least.bandwidth_)[:, 0] ** 2
    bound = least.loo_error_ + squares.std() / numpy.sqrt(len(X))
    assert (smooth.bandwidth_ > least.bandwidth_).all()
    assert smooth.loo_error_ <= bound
    assert KernelRegressor(bandwidth=smooth.bandwidth_ * 1.05).fit(X, y).loo_error_ > bound * 0.999


def correlated(n=400, seed=0):
    """A slow curve, and errors that remember the ones before."""
    random = numpy.random.default_rng(seed)
    errors = numpy.zeros(n)
    for i in range(1, n):
        errors[i] = 0.9 * errors[i - 1] + random.normal(0, 0.2)
    x = numpy.linspace(0, 5, n)
    return x[:, None], numpy.sin(x) + errors


def test_leaving_blocks_out_smooths_what_is_correlated():
    X, y = correlated()
    with pytest.warns(BandwidthWarning, match="neighbouring samples seem to be correlated"):
        narrow = KernelRegressor().fit(X, y)
    blocked = KernelRegressor(block=25).fit(X, y)
    assert blocked.bandwidth_[0] > 5 * narrow.bandwidth_[0]
    truth = numpy.sin(X[:, 0])
    assert numpy.mean((blocked.predict(X) - truth) ** 2) < numpy.mean((narrow.predict(X) - truth) ** 2)


@pytest.mark.parametrize("features", [1, 2])
def test_a_block_leaves_out_its_neighbours(features):
    X, y = curve(53, features)
    if features == 1:
        X = numpy.sort(X, axis=0)
    model = KernelRegressor(bandwidth=0.8, block=3).fit(X, y)
    errors = []
    for i in range(len(X)):
        others = numpy.abs(numpy.arange(len(X)) - i) > 3
        errors.append(y[i] - KernelRegressor(bandwidth=0.8).fit(X[others], y[others]).predict(X[i : i + 1])[0])
    assert model.loo_error_ == pytest.approx(numpy.mean(numpy.square(errors)), rel=1e-7)


def test_a_block_of_all_samples_is_refused():
    X, y = curve(20)
    assert KernelRegressor(block=18).fit(X, y).bandwidth_ > 0
    with pytest.raises(ValueError, match="block: expected less than n_samples - 1 = 19, got 19"):
        KernelRegressor(block=19).fit(X, y)


def test_good_data_raise_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(10):
            KernelRegressor().fit(*curve(151, seed=seed))
        x = numpy.linspace(0, 5, 151)
        KernelRegressor().fit(x[:, None], numpy.sin(x))  # without noise, a narrow window is right


# ---------------------------------------------------------------------------------------------- outputs, order, width


def test_outputs_that_differ_have_bandwidths_of_their_own():
    X, y = curve(211)
    noise = 1e3 * numpy.random.default_rng(12).normal(size=211)
    model = KernelRegressor().fit(X, numpy.column_stack([y, noise]))
    alone = [KernelRegressor().fit(X, values) for values in (y, noise)]
    assert model.bandwidth_.tolist() == [one.bandwidth_.tolist() for one in alone]
    numpy.testing.assert_allclose(model.predict(X), numpy.column_stack([one.predict(X) for one in alone]), rtol=1e-9)


def test_of_each_cluster_as_many_samples_are_chosen_as_its_share():
    """However small clusters are beside the range of all samples."""
    random, sizes = numpy.random.default_rng(12), numpy.array([200, 600, 1000, 800, 400])
    cluster = numpy.repeat(numpy.arange(1, 6), sizes)
    points = numpy.stack([random.uniform(0, 1e-4, 3000), 1e-3 * cluster + random.uniform(0, 1e-5, 3000)], 1)
    rows = Rows(numpy.vstack([points, [1.0, 1.0]]), numpy.empty((3001, 0)))
    features = Features(["number", "number"], numpy.full(2, numpy.inf))
    samples = Samples(rows, random.normal(size=(3001, 1)), numpy.ones(3001), features, Weighing())
    chosen = samples.rows.points[samples.choose(301), 1]
    counts = [((chosen > 1e-3 * k) & (chosen < 1e-3 * (k + 0.5))).sum() for k in range(1, 6)]
    assert (abs(counts - sizes / 10) <= 1).all()


@pytest.mark.parametrize("features", [1, 2, 4])
def test_the_order_of_rows_does_not_matter(features):
    X, y = curve(6_007 if features > 1 else 211, features)  # more than the first level of the search
    order = numpy.random.default_rng(13).permutation(len(X))
    one, other = KernelRegressor().fit(X, y), KernelRegressor().fit(X[order], y[order])
    numpy.testing.assert_allclose(other.bandwidth_, one.bandwidth_, rtol=1e-3)
    assert other.loo_error_ == pytest.approx(one.loo_error_, rel=1e-6)


def test_a_wide_bandwidth_is_a_linear_effect():
    X = numpy.random.default_rng(14).uniform(0, 3, (307, 2))
    y = numpy.sin(3 * X[:, 0]) + 3 * X[:, 1]
    for wide in (1e5, numpy.inf):
        model = KernelRegressor(bandwidth=[0.3, wide], degree=1).fit(X, y)
        numpy.testing.assert_allclose(model.derivative(X[:20])[:, 1], 3, rtol=0.05)
        assert model.predict([[1.0, 2.0]])[0] == pytest.approx(numpy.sin(3) + 6, abs=0.1)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_nothing_jumps_far_outside_or_in_a_gap(name, degree):
    """Far beyond the samples the steps of the curve shrink as the grid gets finer, and it goes over into a constant."""
    X, y = curve(71)
    X[X > 2.5] += 30
    model = KernelRegressor(name, 0.3, degree=degree).fit(X, y)
    for low, high in ((-200, 0), (2, 33), (35, 300)):
        coarse, fine = (model.predict(numpy.linspace(low, high, n)[:, None]) for n in (10_001, 40_001))
        assert numpy.abs(numpy.diff(fine)).max() < 0.5 * numpy.abs(numpy.diff(coarse)).max() + 1e-6
    average = KernelRegressor(name, 0.3).fit(X, y)
    assert model.predict([[-1e9]])[0] == pytest.approx(average.predict([[-1e9]])[0], abs=1e-3)


@pytest.mark.parametrize("name", ["epanechnikov", "tricube", "boxcar"])
def test_of_equally_good_widths_the_widest_is_gone_on_from(name):
    """Below the gap between whole numbers compact kernels of all widths reach nothing else."""
    random = numpy.random.default_rng(2)
    x = random.integers(0, 9, 101).astype(float)
    y = numpy.sin(x) / 4 + random.normal(0, 0.3, 101)
    model = KernelRegressor(name).fit(x[:, None], y)
    errors = [KernelRegressor(name, width).fit(x[:, None], y).loo_error_ for width in numpy.geomspace(0.5, 9, 60)]
    assert model.loo_error_ <= min(errors) * (1 + 1e-3)
    constant = KernelRegressor(name).fit(x[:, None], y * 0 + 3)
    assert constant.bandwidth_[0] == 32.0  # four times the range: nothing is known of a curve
