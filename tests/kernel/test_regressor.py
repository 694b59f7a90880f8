"""KernelRegressor: the same thing as `attend`, the errors it promises, and scikit-learn's own checks."""

import pickle

import numpy
import pandas
import polars
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from statsmodels.nonparametric.kernel_regression import KernelReg

from regard import Kernel, KernelRegressor, attend, bias
from regard.attention.kernels import KERNELS
from regard.kernel import regressor
from regard.kernel.bandwidth import DEVIATION, WITHOUT_SLOPE, LeaveOneOut, round_widths

# statsmodels announces a change of its random numbers, which it does not need here.
peer_warns = pytest.mark.filterwarnings("ignore::FutureWarning")
COMPACT = [name for name in KERNELS if KERNELS[name].compact]


def curve(n=211, features=1, outputs=1, seed=0):
    random = numpy.random.default_rng(seed)
    X = random.uniform(0, 5, (n, features))
    y = 2 * numpy.sin(X.sum(1, keepdims=True)) + X[:, :1] ** 0.8 + random.normal(0, 0.5, (n, outputs))
    return X, y[:, 0] if outputs == 1 else y


def by_attention(model, X, y, queries, weights=None):
    mask = None if weights is None else bias(torch.tensor(weights).log()[None])
    score = Kernel(model.kernel, model.bandwidth_.tolist())
    query, key, value = (torch.tensor(rows, dtype=torch.float64) for rows in (queries, X, y.reshape(len(y), -1)))
    return attend(query, key, value, score=score, mask=mask).numpy()


# ------------------------------------------------------------------------------------------------ what it computes


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("features", "width"), [(1, 0.31), (3, 1.7), (2, [0.9, 2.3])])
@pytest.mark.parametrize("name", KERNELS)
def test_predict_is_attend(name, features, width, weighted):
    X, y = curve(features=features, outputs=2)
    weights = numpy.random.default_rng(1).uniform(0.1, 3, len(X)) if weighted else None
    model = KernelRegressor(name, width).fit(X, y, weights)
    queries = numpy.random.default_rng(2).uniform(0.5, 4.5, (97, features))
    expected = by_attention(model, X, y, queries, weights)
    reached = model.weights(queries).max(1) < 1  # a query with nothing in reach has all weight on its nearest
    assert reached.sum() > 50
    numpy.testing.assert_allclose(model.predict(queries)[reached], expected[reached], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_weights_make_the_prediction(name, features, degree):
    X, y = curve(features=features)
    counts = numpy.random.default_rng(3).integers(0, 3, len(X))
    model = KernelRegressor(name, 0.9, degree=degree).fit(X, y, counts)
    queries = X[:31] + (50 if degree == 0 else 0) * (numpy.arange(31) > 28)[:, None]
    weights = model.weights(queries)
    assert weights.shape == (31, len(X))
    assert (weights[:, counts == 0] == 0).all()
    numpy.testing.assert_allclose(weights.sum(1), 1, atol=1e-7)
    numpy.testing.assert_allclose(weights @ y, model.predict(queries), rtol=1e-6, atol=1e-6)


@peer_warns
@pytest.mark.parametrize("kind", ["lc", "ll"])
@pytest.mark.parametrize("features", [1, 2])
def test_statsmodels_says_the_same(kind, features):
    X, y = curve(101, features)
    width = [0.4, 0.7][:features]
    model = KernelRegressor("gaussian", width, degree=int(kind == "ll")).fit(X, y)
    queries = numpy.random.default_rng(4).uniform(0, 5, (47, features))
    peer = KernelReg(y, X, "c" * features, reg_type=kind, bw=width)
    numpy.testing.assert_allclose(model.predict(queries), peer.fit(queries)[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_the_leave_one_out_error_is_that_of_n_fits(name, features, degree):
    X, y = curve(43, features, seed=5)
    X[7] = X[8]  # two at the same place
    model = KernelRegressor(name, 1.3, degree=degree).fit(X, y)
    errors = []
    for i in range(len(X)):
        others = numpy.arange(len(X)) != i
        fitted = KernelRegressor(name, 1.3, degree=degree).fit(X[others], y[others])
        errors.append(y[i] - fitted.predict(X[i : i + 1])[0])
    assert model.loo_error_ == pytest.approx(numpy.mean(numpy.square(errors)), rel=1e-7)


@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("name", [name for name in KERNELS if name not in WITHOUT_SLOPE])
def test_the_gradient_of_the_error_is_its_slope(name, features):
    X, y = curve(151, features, outputs=2)
    model = KernelRegressor(name, 1.9).fit(X, y)
    loss = LeaveOneOut(model.samples_, name, 0, "mean")
    widths, step = numpy.full(features, 1.9), 1e-5
    error, gradient = loss.error_and_gradient(widths)
    assert error == pytest.approx(model.loo_error_)
    for d in range(features):
        factor = numpy.where(numpy.arange(features) == d, numpy.exp(step), 1)
        slope = (loss.error(widths * factor) - loss.error(widths / factor)) / (2 * step)
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


@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_at_least_what_learning_finds(seed):
    X, y = curve(101, features=2, seed=seed)
    y -= 2 * numpy.sin(X.sum(1)) - 2 * numpy.sin(X[:, 0])  # of the first feature alone
    searched, learned = (KernelRegressor(bandwidth=name).fit(X, y).loo_error_ for name in ("loo", "gradient"))
    assert searched <= learned * (1 + 1e-6)


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


@pytest.mark.parametrize("features", [1, 2])
def test_weights_that_are_counts_are_repeats(features):
    X, y = curve(71, features)
    counts = numpy.random.default_rng(7).integers(0, 4, len(X))
    weighted = KernelRegressor().fit(X, y, counts)
    repeated = KernelRegressor().fit(numpy.repeat(X, counts, axis=0), numpy.repeat(y, counts))
    assert weighted.bandwidth_.tolist() == repeated.bandwidth_.tolist()
    assert weighted.loo_error_ == pytest.approx(repeated.loo_error_)
    numpy.testing.assert_allclose(weighted.predict(X), repeated.predict(X))


def test_other_weights_may_be_scaled():
    X, y = curve(71)
    weights = numpy.random.default_rng(8).uniform(0.1, 1, len(X))
    one, ten = (KernelRegressor().fit(X, y, scale * weights) for scale in (1, 10.1))
    assert one.bandwidth_.tolist() == ten.bandwidth_.tolist()
    numpy.testing.assert_allclose(one.predict(X), ten.predict(X))


# --------------------------------------------------------------------------------------------------------- windows


def test_the_window_of_equal_samples_is_what_the_kernel_covers():
    X = numpy.arange(101.0)[:, None]
    window = KernelRegressor("boxcar", 10.5).fit(X, X[:, 0]).window([[50.0], [0.0]])
    assert window.effective == pytest.approx([21, 11])
    assert (window.low.tolist(), window.high.tolist()) == ([41.0, 0.0], [59.0, 10.0])


def test_windows_of_several_features_and_of_nothing():
    X, y = curve(211, features=2)
    model = KernelRegressor("epanechnikov", 1.0, empty="nan").fit(X, y)
    window = model.window([[2.5, 2.5], [99.0, 99.0]])
    assert window.low.shape == window.high.shape == (2, 2)
    assert (window.low[0] < 2.5).all()
    assert (window.high[0] > 2.5).all()
    assert numpy.isnan(window.low[1]).all()
    assert numpy.isnan(window.effective[1])


def test_windows_look_at_few_weights_at_a_time(monkeypatch):
    X, y = curve(101)
    model = KernelRegressor(bandwidth=0.3).fit(X, y)
    whole = model.window(X)
    monkeypatch.setattr(regressor, "WEIGHTS", 700)
    for one, other in zip(whole, model.window(X), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-12)


# ---------------------------------------------------------------------------------------------- nothing in reach


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", COMPACT)
def test_what_a_query_beyond_reach_gets(name, degree):
    X, y = numpy.array([[0.0], [1.0], [1.0], [9.0]]), numpy.array([5.0, 1.0, 3.0, 7.0])
    far = [[4.0], [30.0]]

    def answer(empty):
        return KernelRegressor(name, 1.0, empty=empty, degree=degree).fit(X, y, [1.0, 1.0, 3.0, 1.0]).predict(far)

    assert answer("nearest") == pytest.approx([2.5, 7.0])
    assert answer("mean") == pytest.approx([numpy.average(y, weights=[1, 1, 3, 1])] * 2)
    assert numpy.isnan(answer("nan")).all()
    with pytest.raises(ValueError, match=r"X: row 0 has no sample within the .* kernel's bandwidth \[1.0\]"):
        answer("raise")


def test_a_gaussian_is_never_empty():
    X, y = curve(51)
    model = KernelRegressor(bandwidth=0.01, empty="raise").fit(X, y)
    assert model.predict([[1e6]])[0] == y[X[:, 0].argmax()]


# --------------------------------------------------------------------------------------------------- good manners


@parametrize_with_checks(
    [KernelRegressor(), KernelRegressor("epanechnikov", "gradient"), KernelRegressor("tricube", 2.0, degree=1)]
)
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


def test_in_a_pipeline_in_a_search_after_pickling():
    X, y = curve(151, features=2)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), KernelRegressor()), {"kernelregressor__kernel": ["gaussian", "tricube"]}, cv=3
    )
    search.fit(X, y)
    assert search.best_score_ > 0.5
    copy = pickle.loads(pickle.dumps(search))
    numpy.testing.assert_array_equal(copy.predict(X), search.predict(X))
    assert clone(search.best_estimator_[-1]).get_params() == search.best_estimator_[-1].get_params()


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_frames_keep_their_names(frame):
    X, y = curve(101, features=2)
    table = frame({"age": X[:, 0], "height": X[:, 1]})
    model = KernelRegressor().fit(table, y)
    assert model.feature_names_in_.tolist() == ["age", "height"]
    numpy.testing.assert_array_equal(model.predict(table), KernelRegressor().fit(X, y).predict(X))


def test_a_memory_map_is_read_part_by_part(tmp_path, monkeypatch):
    X, y = curve(101)
    model = KernelRegressor().fit(X, y)
    numpy.save(tmp_path / "queries.npy", numpy.linspace(-1, 6, 1009)[:, None])
    whole = model.predict(numpy.load(tmp_path / "queries.npy"))
    read = []

    class Watched(numpy.memmap):
        def __getitem__(self, part):
            read.append(part)
            return numpy.asarray(super().__getitem__(part))

    monkeypatch.setattr(regressor, "QUERIES", 100)
    predictions = model.predict(numpy.load(tmp_path / "queries.npy", mmap_mode="r").view(Watched))
    numpy.testing.assert_allclose(predictions, whole, rtol=1e-10)
    assert max(part.stop - part.start for part in read) == 100


def test_a_read_only_memory_map_can_be_fitted(tmp_path):
    X, y = curve(101, features=2)
    numpy.save(tmp_path / "X.npy", X)
    model = KernelRegressor(bandwidth=1.0).fit(numpy.load(tmp_path / "X.npy", mmap_mode="r"), y)
    numpy.testing.assert_array_equal(model.predict(X), KernelRegressor(bandwidth=1.0).fit(X, y).predict(X))


# --------------------------------------------------------------------------------------------------------- bad input

GOOD = numpy.linspace(0, 1, 7)[:, None]
BAD_PARAMETERS = [
    ({"kernel": "gausian"}, "kernel: expected one of gaussian, .* got 'gausian'"),
    ({"bandwidth": "scott"}, "bandwidth: expected a positive number.* got 'scott'"),
    ({"bandwidth": -1.0}, "bandwidth: expected positive, finite numbers, got -1"),
    ({"bandwidth": 0}, "bandwidth: expected positive, finite numbers, got 0"),
    ({"bandwidth": numpy.nan}, "bandwidth: expected positive"),
    ({"bandwidth": True}, "bandwidth: expected positive, finite numbers, got True"),
    ({"bandwidth": None}, "bandwidth: expected"),
    ({"bandwidth": [1.0, 2.0]}, "bandwidth: expected a number or 1, one per feature"),
    ({"kernel": "boxcar", "bandwidth": "gradient"}, "bandwidth: 'gradient' needs"),
    ({"empty": "zero"}, "empty: expected one of nearest, mean, nan, raise"),
    ({"degree": 2}, "degree: expected 0 .* or 1 .*, got 2"),
]
BAD_DATA = [
    (GOOD * numpy.nan, "NaN"),
    (GOOD + numpy.inf, "infinity"),
    (GOOD[:0], "0 sample"),
    (GOOD[:1], "bandwidth: 'loo' needs 2 samples or more, got n_samples = 1"),
    (GOOD * 0 + 3, r"X: feature 0 is constant \(all samples are 3\)"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD_PARAMETERS, ids=str)
def test_wrong_parameters_are_refused_by_name(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        KernelRegressor(**parameters).fit(GOOD, GOOD[:, 0])


@pytest.mark.parametrize(("X", "message"), BAD_DATA, ids=lambda given: given if isinstance(given, str) else "")
def test_wrong_data_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        KernelRegressor().fit(X, GOOD[: len(X), 0])


def test_a_constant_feature_is_named_as_its_frame_names_it():
    table = pandas.DataFrame({"age": GOOD[:, 0], "year": 2020.0})
    with pytest.raises(ValueError, match="X: feature 'year' is constant"):
        KernelRegressor().fit(table, GOOD[:, 0])
    assert KernelRegressor(bandwidth=[0.3, 1.0]).fit(table, GOOD[:, 0]).predict(table).shape == (7,)


def test_one_row_with_a_bandwidth_is_a_constant():
    model = KernelRegressor(bandwidth=1.0).fit([[2.0]], [5.0])
    assert model.predict([[2.0], [900.0]]).tolist() == [5.0, 5.0]
    assert numpy.isnan(model.loo_error_)


def test_no_weight_at_all():
    with pytest.raises(ValueError, match="at least one non-zero number"):
        KernelRegressor().fit(GOOD, GOOD[:, 0], numpy.zeros(7))


def test_queries_of_another_width():
    with pytest.raises(ValueError, match="2 features"):
        KernelRegressor(bandwidth=1.0).fit(GOOD, GOOD[:, 0]).predict(numpy.zeros((3, 2)))
