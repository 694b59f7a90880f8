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
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data, parametrize_with_checks
from statsmodels.nonparametric.kernel_regression import KernelReg

from regard import Kernel, KernelClassifier, KernelRegressor, attend, bias
from regard.attention.kernels import KERNELS
from regard.kernel import estimator as estimators
from regard.kernel import smoother
from regard.measure import peak_memory

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


@pytest.mark.parametrize("degree", [0, 1, 3])
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


@pytest.mark.parametrize("features", [1, 3, 5])
def test_float32_queries_are_answered_to_their_digits(features):
    X, y = curve(1_009, features)
    model = KernelRegressor(bandwidth=0.9).fit(X, y)
    queries = X[:97].astype(numpy.float32)
    numpy.testing.assert_allclose(model.predict(queries), model.predict(queries.astype(float)), rtol=1e-4, atol=1e-5)


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
    monkeypatch.setattr(smoother, "WEIGHTS", 700)
    for one, other in zip(whole, model.window(X), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(("name", "features"), [("epanechnikov", 1), ("gaussian", 2), ("tricube", 4)])
def test_nothing_is_kept_for_each_pair(name, features, monkeypatch):
    """Of which one number each would take 72 MB."""
    monkeypatch.setattr(smoother, "WEIGHTS", 1 << 16)  # so many are looked at together, however many pairs there are
    X, y = curve(3_001, features)
    model = KernelRegressor(name, 2.0).fit(X, y)
    methods = (model.predict, model.interval, model.window, lambda queries: model.quantile(queries, [0.5]))
    for method in methods:
        method(X[:5])  # compiles
        assert peak_memory(lambda method=method: method(X)) < 36


def test_weights_of_polynomials_take_few_times_their_own_memory(monkeypatch):
    """Of two features up to the sixth power there are 28 products for each pair."""
    monkeypatch.setattr(smoother, "WEIGHTS", 1 << 16)
    X, y = curve(997, 2)
    model = KernelRegressor("tricube", 2.0, degree=3).fit(X, y)
    model.weights(X[:5])  # compiles
    assert peak_memory(lambda: model.weights(X[:499])) < 20 * 997 * 499 * 8 / 1e6


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


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "tricube"])
def test_the_order_of_rows_changes_no_bit(kernel, degree):
    """Also where several rows have the same x and other y."""
    numbers = numpy.random.default_rng(3)
    X, y, queries = numbers.integers(0, 11, (101, 1)) / 7, numbers.normal(size=101), numbers.uniform(0, 2, (31, 1))
    X[:5] += 0.01
    order = numbers.permutation(101)
    one, other = (
        KernelRegressor(kernel, 0.3, degree=degree, empty="mean").fit(X[rows], y[rows]) for rows in (slice(None), order)
    )
    assert (one.predict(queries) == other.predict(queries)).all()


def test_the_order_of_rows_changes_no_block():
    """Also where rows of the same x and y count otherwise."""
    X, y, counts = (numpy.array(column, dtype=float) for column in ([0, 1, 1, 2, 3], [0, 2, 2, 1, 3], [1, 5, 1, 1, 1]))
    errors = [
        KernelRegressor("laplace", 1.0, counts=True, block=1).fit(X[rows, None], y[rows], counts[rows]).loo_error_
        for rows in ([0, 1, 2, 3, 4], [0, 2, 1, 3, 4])
    ]
    assert errors[0] == errors[1]


def test_a_gaussian_is_never_empty():
    X, y = curve(51)
    model = KernelRegressor(bandwidth=0.01, empty="raise").fit(X, y)
    assert model.predict([[1e6]])[0] == y[X[:, 0].argmax()]


# --------------------------------------------------------------------------------------------------- good manners


@parametrize_with_checks([KernelRegressor(), KernelClassifier()])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@pytest.mark.faults
@parametrize_with_checks([KernelRegressor("epanechnikov", "gradient"), KernelRegressor("tricube", 2.0, degree=1)])
def test_scikit_learn_is_content_with_other_settings(estimator, check):
    check(estimator)


def test_counts_are_repeats_to_scikit_learn():
    check_sample_weight_equivalence_on_dense_data("KernelRegressor", KernelRegressor(counts=True))


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

    monkeypatch.setattr(estimators, "QUERIES", 100)
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
    ({"bandwidth": -1.0}, "bandwidth: expected positive numbers, got -1"),
    ({"bandwidth": 0}, "bandwidth: expected positive numbers, got 0"),
    ({"bandwidth": 0, "adaptive": True}, "bandwidth: expected positive numbers, got 0"),
    ({"bandwidth": numpy.nan}, "bandwidth: expected positive"),
    ({"bandwidth": True}, "bandwidth: expected positive numbers, got True"),
    ({"bandwidth": None}, "bandwidth: expected"),
    ({"bandwidth": [1.0, 2.0]}, "bandwidth: expected a number or 1, one per feature"),
    ({"kernel": "boxcar", "bandwidth": "gradient"}, "bandwidth: 'gradient' needs"),
    ({"empty": "zero"}, "empty: expected one of nearest, mean, nan, raise"),
    ({"degree": 4}, r"degree: expected 0 \(local average\) to 3 \(local cubic\), got 4"),
    ({"degree": True}, "degree: expected"),
    ({"robust": -1}, "robust: expected a number of iterations, got -1"),
    ({"block": 1.5}, "block: expected a number of neighbours on each side, got 1.5"),
    ({"bandwidth": 1e-300}, "bandwidth: 1e-300 is too narrow for feature 0, whose samples span 1"),
    ({"periodic": {0: -2.0}}, "periodic: expected a positive period of feature 0, got -2"),
    ({"periodic": {3: 2.0}}, "periodic: expected features from 0 to 0, got 3"),
    ({"categorical": 0}, "categorical: expected .* a list of features, got 0"),
    ({"ordered": ["age"]}, "ordered: expected numbers, as X has no names, got 'age'"),
    ({"bandwidth": [0.9], "categorical": [0]}, "bandwidth: expected a λ from 0 to 0.8571"),
]
BAD_DATA = [
    (GOOD * numpy.nan, "NaN"),
    (GOOD + numpy.inf, "infinity"),
    (GOOD[:0], "0 sample"),
    (GOOD[:1], "bandwidth: 'loo' needs 2 samples or more, got n_samples = 1"),
    (GOOD * 1e-200, "X: feature 0 spans 1e-200, whose square float64 cannot hold; measure it in another unit"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD_PARAMETERS, ids=str)
def test_wrong_parameters_are_refused_by_name(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        KernelRegressor(**parameters).fit(GOOD, GOOD[:, 0])


@pytest.mark.parametrize(("X", "message"), BAD_DATA, ids=lambda given: given if isinstance(given, str) else "")
def test_wrong_data_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        KernelRegressor().fit(X, GOOD[: len(X), 0])


def test_values_that_cannot_be_squared_are_refused_by_name():
    for y, name in ((GOOD[:, 0] * 1e-200, "y"), (GOOD * [[1, 1e250]], "y: output 1")):
        with pytest.raises(ValueError, match=f"{name} spans .*, whose square float64 cannot hold"):
            KernelRegressor().fit(GOOD, y)
    with pytest.raises(ValueError, match="X: feature 'height' spans 1e-200"):
        KernelRegressor().fit(pandas.DataFrame({"height": GOOD[:, 0] * 1e-200}), GOOD[:, 0])


@pytest.mark.parametrize("degree", [0, 1])
def test_a_constant_feature_narrows_nothing(degree):
    X, y = curve(71)
    wide = numpy.column_stack([X[:, 0], numpy.full(71, 2020.0)])
    model = KernelRegressor(degree=degree).fit(wide, y)
    assert model.bandwidth_[1] == numpy.inf
    numpy.testing.assert_allclose(
        model.predict(wide),
        KernelRegressor(bandwidth=model.bandwidth_[:1], degree=degree).fit(X, y).predict(X),
        rtol=1e-9,
    )


def test_one_row_with_a_bandwidth_is_a_constant():
    model = KernelRegressor(bandwidth=1.0).fit([[2.0]], [5.0])
    assert model.predict([[2.0], [900.0]]).tolist() == [5.0, 5.0]
    assert numpy.isnan(model.loo_error_)


@pytest.mark.parametrize("rule", ["loo", "one_se", "aicc", "gradient", "silverman"])
def test_copies_of_one_row_are_a_constant(rule):
    frame = pandas.DataFrame({"x": [2.0] * 5, "kind": ["a"] * 5})
    model = KernelRegressor(bandwidth=rule).fit(frame, [5.0] * 5)
    assert model.bandwidth_[0] == numpy.inf
    assert model.predict(pandas.DataFrame({"x": [2.0, 900.0], "kind": ["a", "b"]})).tolist() == [5.0, 5.0]


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("name", ["gaussian", "epanechnikov"])
def test_however_far_a_query_is_it_gets_the_nearest_sample(name, features, degree):
    X, y = curve(71, features)
    model = KernelRegressor(name, 0.4, degree=degree).fit(X, y)
    far = numpy.full((4, features), X.mean())
    far[:, 0] = [1e12, 1e200, -1e12, -1e300]
    last, first = X[:, 0].argmax(), X[:, 0].argmin()
    expected = y[[last, last, first, first]]
    numpy.testing.assert_allclose(model.predict(far), expected, atol=1e-6)
    low, high = model.interval(far)
    assert not numpy.isnan([low, high]).any()
    if degree == 0:
        numpy.testing.assert_allclose(model.derivative(far), 0, atol=1e-6)


def test_a_slope_of_points_that_are_far_from_0_for_their_width():
    X, y = curve(71)
    here, there = (KernelRegressor(bandwidth=0.4).fit(X + shift, y) for shift in (0, 1e12))
    numpy.testing.assert_allclose(there.derivative(X + 1e12), here.derivative(X), atol=0.1)


def test_no_weight_at_all():
    with pytest.raises(ValueError, match="at least one non-zero number"):
        KernelRegressor().fit(GOOD, GOOD[:, 0], numpy.zeros(7))


def test_queries_of_another_width():
    with pytest.raises(ValueError, match="2 features"):
        KernelRegressor(bandwidth=1.0).fit(GOOD, GOOD[:, 0]).predict(numpy.zeros((3, 2)))


def test_a_query_without_a_class_is_refused():
    model = KernelClassifier("boxcar", 0.1, empty="nan").fit([[0.0], [1.0]], ["a", "b"])
    assert numpy.isnan(model.predict_proba([[5.0]])).all()
    with pytest.raises(ValueError, match="X: row 1 has no sample in reach, so no class"):
        model.predict([[0.0], [5.0]])
