"""What is expected of a smoother beside its curve: bands, intervals, slopes, quantiles, robustness, neighbours."""

import numpy
import pandas
import pytest
from mapie.regression import CrossConformalRegressor
from sklearn.base import clone
from statsmodels.nonparametric.smoothers_lowess import lowess

from regard import KernelClassifier, KernelRegressor
from tests.kernel.test_regressor import curve

FUNCTIONS = {
    "sine": (lambda x: 2 * numpy.sin(x) + x**0.8, lambda x: 0.5 + 0 * x),
    "bump, noise that grows": (lambda x: numpy.exp(-((x - 2.5) ** 2) / 0.5) + x / 5, lambda x: 0.2 + 0.1 * x),
    "step": (lambda x: numpy.tanh(4 * (x - 2)) + 0.1 * x**2, lambda x: 0.3 + 0 * x),
}


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bands_and_intervals_cover_what_they_say(name, degree):
    """Over 40 sets of 300 samples and 41 places: 93 to 97 % of what should be 95 %."""
    function, noise = FUNCTIONS[name]
    at, inside, predicted = numpy.linspace(0.1, 4.9, 41), [], []
    for seed in range(40):
        random = numpy.random.default_rng(seed)
        x = random.uniform(0, 5, 300)
        model = KernelRegressor(degree=degree).fit(x[:, None], function(x) + noise(x) * random.normal(size=300))
        low, high = model.interval(at[:, None])
        inside.append((low <= function(at)) & (function(at) <= high))
        low, high = model.interval(at[:, None], kind="prediction")
        new = function(at) + noise(at) * random.normal(size=41)
        predicted.append((low <= new) & (new <= high))
    assert 0.93 <= numpy.mean(inside) <= 0.97
    assert 0.93 <= numpy.mean(predicted) <= 0.97


@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_the_standard_error_is_that_of_a_linear_estimate(degree, features):
    """With l the weights of a prediction: √(Σ l² · local mean of squared leave-one-out errors, less the leverage)."""
    X, y = curve(151, features)
    model = KernelRegressor(bandwidth=1.4, degree=degree).fit(X, y)
    queries = X[:17] * 0.9
    weights, hat = model.weights(queries), model.weights(X)
    leverage = numpy.diag(hat)
    variances = ((y - hat @ y) / (1 - leverage)) ** 2 * (1 - leverage)
    local = KernelRegressor(bandwidth=2.8).fit(X, variances).predict(queries)
    mean, deviation = model.predict(queries, return_std=True)
    numpy.testing.assert_allclose(mean, model.predict(queries), rtol=1e-12)
    numpy.testing.assert_allclose(deviation, numpy.sqrt((weights**2).sum(1) * local), rtol=1e-6)


def test_intervals_for_new_values_hold_for_few_samples():
    """Of 19 errors, the ends are the outermost: between them lie 18 of 20 new values. Over 150 sets, 88 to 95 %."""
    inside = []
    for seed in range(150):
        random = numpy.random.default_rng(seed)
        X, y, new = numpy.arange(19.0)[:, None], random.normal(size=19), random.normal(size=19)
        low, high = KernelRegressor(bandwidth=numpy.inf).fit(X, y).interval(X, 0.9, kind="prediction")
        inside.append((low <= new) & (new <= high))
    assert 0.88 < numpy.mean(inside) < 0.95


def test_bands_shrink_with_samples_and_widen_with_the_level():
    widths = [
        numpy.ptp(KernelRegressor(bandwidth=0.3).fit(*curve(n)).interval([[2.5]]), axis=0)[0] for n in (101, 1009)
    ]
    assert widths[1] < widths[0] / 2
    model = KernelRegressor(bandwidth=0.3).fit(*curve(101))
    low, high = model.interval([[2.5]], 0.99)
    assert high[0] - low[0] > widths[0]
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match="level: expected a probability between 0 and 1"):
            model.interval([[2.5]], level)
    with pytest.raises(ValueError, match="kind: expected 'curve' or 'prediction'"):
        model.interval([[2.5]], kind="both")


def test_several_outputs_have_bands_each():
    X, y = curve(101)
    model = KernelRegressor().fit(X, numpy.column_stack([y, -2 * y]))
    low, high = model.interval(X[:7])
    assert low.shape == high.shape == (7, 2)
    numpy.testing.assert_allclose(high[:, 1], -2 * low[:, 0], rtol=1e-6)


def test_mapie_makes_intervals_with_it():
    X, y = curve(211)
    mapie = CrossConformalRegressor(KernelRegressor(bandwidth=0.2), confidence_level=0.9, cv=5).fit_conformalize(X, y)
    _, intervals = mapie.predict_interval(X)
    assert 0.85 < numpy.mean((intervals[:, 0, 0] <= y) & (y <= intervals[:, 1, 0])) < 0.97


@pytest.mark.parametrize(("name", "degree"), [("gaussian", 0), ("gaussian", 1), ("epanechnikov", 2), ("gaussian", 3)])
def test_derivatives_are_those_of_the_curve(name, degree):
    """Of a plane, exactly 2 and −3 in degree 1 and above; of averages, the slope of the average itself."""
    X = numpy.random.default_rng(0).uniform(0, 5, (307, 2))
    model = KernelRegressor(name, [1.1, 1.7], degree=degree).fit(X, 2 * X[:, 0] - 3 * X[:, 1])
    queries = numpy.array([[2.0, 2.5], [3.0, 3.1]])
    slopes = model.derivative(queries)
    if degree:
        numpy.testing.assert_allclose(slopes, [[2, -3]] * 2, rtol=1e-6)
        numpy.testing.assert_allclose(model.marginal_effects(), [2, -3], rtol=1e-6)
        numpy.testing.assert_allclose(model.marginal_effects(queries), [2, -3], rtol=1e-6)
    else:
        for d in range(2):
            step = 1e-3 * (numpy.arange(2) == d)
            slope = (model.predict(queries + step) - model.predict(queries - step)) / 2e-3
            numpy.testing.assert_allclose(slopes[:, d], slope, rtol=1e-4)


def test_robust_iterations_forget_outliers():
    X, y = curve(211)
    spoilt = y + 30 * (numpy.arange(211) % 20 == 7)
    truth = KernelRegressor(bandwidth=0.3).fit(X, y).predict(X)
    plain, robust = (KernelRegressor(bandwidth=0.3, robust=n).fit(X, spoilt).predict(X) for n in (0, 3))
    assert numpy.abs(robust - truth).max() < 0.3 < numpy.abs(plain - truth).max()


def test_of_several_outputs_the_largest_error_decides_how_much_a_row_counts():
    X, y = curve(211)
    y[::20] += 30
    alone, beside = (
        KernelRegressor(bandwidth=0.3, robust=2).fit(X, values).predict(X)
        for values in (y, numpy.column_stack([numpy.zeros(211), y]))
    )
    numpy.testing.assert_allclose(beside[:, 1], alone, rtol=1e-9)


@pytest.mark.parametrize("rule", ["loo", "aicc", "one_se"])
@pytest.mark.parametrize("size", [30.0, 1e6, 1e12])
def test_outliers_do_not_choose_the_bandwidth(rule, size):
    """The narrow window that they would choose goes through them, and would not find them far from the curve."""
    X, y = curve(211)
    spoilt = y + size * (numpy.arange(211) % 20 == 7)
    clean = KernelRegressor(bandwidth=rule).fit(X, y)
    robust = KernelRegressor(bandwidth=rule, robust=3).fit(X, spoilt)
    assert 0.7 < robust.bandwidth_[0] / clean.bandwidth_[0] < 1.4
    assert numpy.abs(robust.predict(X) - clean.predict(X)).max() < 0.5


@pytest.mark.parametrize(("degree", "rows"), [(0, 1), (1, 2), (2, 3)])
def test_a_curve_through_all_samples_knows_nothing_of_their_noise(degree, rows):
    X = numpy.arange(rows, dtype=float)[:, None]
    model = KernelRegressor(bandwidth=1.0, degree=degree).fit(X, X[:, 0] ** 2)
    heights, deviations = model.predict(X, return_std=True)
    numpy.testing.assert_allclose(heights, X[:, 0] ** 2, atol=1e-9)
    assert (deviations == numpy.inf).all()
    for kind in ("curve", "prediction"):
        low, high = model.interval(X, kind=kind)
        assert (low == -numpy.inf).all()
        assert (high == numpy.inf).all()


def least_squares_weights(X, query, width, degree):
    """l with l · y the local polynomial at the query: by the pseudo-inverse of its design, Gaussian weights."""
    v = (X - query) / width
    columns = [numpy.ones(len(X)), *v.T]
    if degree == 2:
        columns += [v[:, a] * v[:, b] for a in range(v.shape[1]) for b in range(a, v.shape[1])]
    roots = numpy.exp(-(v**2).sum(1) / 4)
    return numpy.linalg.pinv(numpy.column_stack(columns) * roots[:, None], rcond=1e-12)[0] * roots


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("features", [2, 3])
def test_a_prediction_varies_no_more_than_a_sample(features, degree, counts):
    """Where least squares do not either they are taken as they are, else as much of them as that allows."""
    random = numpy.random.default_rng(features)
    X = random.normal(size=(41, features))
    y = X.sum(1) + random.normal(0, 0.3, 41)
    queries = random.normal(0, 2, (61, features))
    model = KernelRegressor(bandwidth=0.8, degree=degree, counts=counts).fit(X, y)
    weights = model.weights(queries)
    numpy.testing.assert_allclose(weights @ y, model.predict(queries), rtol=1e-7, atol=1e-7)
    squares = (weights**2).sum(1)
    assert squares.max() <= 1 + 1e-4  # those of least squares are up to 1e16, and their digits few
    plain = numpy.array([least_squares_weights(X, query, 0.8, degree) for query in queries])
    wildness = (plain**2).sum(1)
    steady, wild = wildness <= 0.999, (wildness > 1.001) & (wildness < 500)  # beyond that they have few digits
    assert 5 < steady.sum() < 56
    numpy.testing.assert_allclose(weights[steady], plain[steady], atol=1e-6)
    assert wild.any()
    average = KernelRegressor(bandwidth=0.8).fit(X, y).weights(queries)
    share = ((weights - average) * (plain - average)).sum(1)[wild] / ((plain - average) ** 2).sum(1)[wild]
    between = average[wild] + share[:, None] * (plain - average)[wild]
    numpy.testing.assert_allclose(weights[wild], between, atol=1e-5)
    numpy.testing.assert_allclose(squares[wild], 1, atol=1e-5)


@pytest.mark.parametrize(("features", "n"), [(1, 211), (2, 101), (1, 20_011)])
def test_counts_of_one_are_samples_also_when_they_count_less(features, n):
    """A robust iteration takes weight from a count, not samples; of many, too, whose search would be in cells."""
    X, y = curve(n, features)
    y[::20] += 30
    counted, plain = (KernelRegressor(counts=counts, robust=1).fit(X, y) for counts in (True, False))
    numpy.testing.assert_allclose(counted.bandwidth_, plain.bandwidth_, rtol=1e-3)
    assert counted.loo_error_ == pytest.approx(plain.loo_error_, rel=1e-6)
    numpy.testing.assert_allclose(counted.interval(X[:7]), plain.interval(X[:7]), rtol=1e-2, atol=1e-2)


def test_neighbours_are_those_of_lowess():
    """A local line under a tricube kernel that reaches the k-th neighbour is Cleveland's lowess without iterations."""
    X, y = curve(211)
    model = KernelRegressor("tricube", 0.3, degree=1, adaptive=True).fit(X, y)
    theirs = lowess(y, X[:, 0], frac=64 / 211, it=0, return_sorted=False)
    assert model.bandwidth_.tolist() == [64]
    numpy.testing.assert_allclose(model.predict(X), theirs, atol=1e-5)


@pytest.mark.parametrize("features", [1, 2])
def test_the_number_of_neighbours_is_chosen(features):
    X, y = curve(211, features)
    model = KernelRegressor("tricube", degree=1, adaptive=True).fit(X, y)
    for other in (0.5, 0.8, 1.25, 2):
        neighbours = max(4, int(model.bandwidth_[0] * other))
        assert model.loo_error_ <= KernelRegressor("tricube", neighbours, degree=1, adaptive=True).fit(X, y).loo_error_
    numpy.testing.assert_allclose(model.weights(X[:7]) @ y, model.predict(X[:7]), rtol=1e-7)


def test_quantiles_are_those_of_the_weights():
    X, y = curve(101)
    model = KernelRegressor(bandwidth=0.5).fit(X, y)
    queries = numpy.linspace(0, 5, 13)[:, None]
    quantiles = model.quantile(queries, [0.1, 0.5, 0.9])
    for row, (weights, found) in enumerate(zip(model.weights(queries), quantiles, strict=True)):
        for share, value in zip((0.1, 0.5, 0.9), found, strict=True):
            assert weights[y <= value].sum() >= share - 1e-9
            assert weights[y < value].sum() < share
            assert model.distribution(queries[row : row + 1], value)[0] == pytest.approx(weights[y <= value].sum())
    assert model.quantile(queries).shape == (13,)
    with pytest.raises(ValueError, match="q: expected shares from 0 to 1"):
        model.quantile(queries, 1.5)


def test_partial_dependence_is_an_average_of_predictions():
    X, y = curve(101, features=3)
    model = KernelRegressor(bandwidth=0.9).fit(X, y)
    at = [1.0, 2.0, 3.5]
    dependence = model.partial_dependence(1, at, level=0.9)
    for position, average in zip(at, dependence.average, strict=True):
        moved = X.copy()
        moved[:, 1] = position
        assert average == pytest.approx(model.predict(moved).mean())
    assert (dependence.low < dependence.average).all()
    assert (dependence.average < dependence.high).all()
    alone = KernelRegressor(bandwidth=0.9).fit(X[:, :1], y)
    along = alone.partial_dependence(0, level=0.9)
    numpy.testing.assert_allclose(along.low, alone.interval(along.x[:, None], 0.9).low)


def test_a_classifier_averages_labels():
    X, y = curve(211, features=2)
    labels = numpy.array(["low", "middle", "high"])[numpy.digitize(y, [1.0, 3.0])]
    model = KernelClassifier().fit(X, labels)
    numpy.testing.assert_allclose(
        model.predict_proba(X), model.weights(X) @ (labels[:, None] == model.classes_), atol=1e-9
    )
    assert model.score(X, labels) > 0.8
    line = KernelClassifier(degree=1).fit(X, labels)
    assert ((line.predict_proba(X * 3) >= 0) & (line.predict_proba(X * 3) <= 1)).all()


def test_a_window_reaches_across_midnight():
    hours = numpy.arange(0, 24, 0.1)[:, None]
    model = KernelRegressor(bandwidth=1.0, periodic={0: 24}).fit(hours, numpy.cos(hours[:, 0]))
    noon, night = model.window([[12.0]]), model.window([[0.0]])
    assert night.effective == pytest.approx(noon.effective)
    assert night.low == pytest.approx(noon.low - 12, abs=0.11)
    assert night.high == pytest.approx(noon.high - 12, abs=0.11)


def test_the_order_of_columns_does_not_matter_to_neighbours():
    random = numpy.random.default_rng(0)
    table = pandas.DataFrame({"shop": random.choice(["a", "b"], 60), "x": random.normal(size=60)})
    y = random.normal(size=60)
    first, last = (
        KernelRegressor(bandwidth=9, adaptive=True).fit(table[order], y).predict(table[order], return_std=True)
        for order in (["shop", "x"], ["x", "shop"])
    )
    numpy.testing.assert_allclose(first, last, rtol=1e-9)


def test_a_partial_dependence_is_asked_for_in_days_or_dates():
    table = pandas.DataFrame({"day": pandas.date_range("2024", periods=30, unit="s")})
    model = KernelRegressor(bandwidth=3.0).fit(table, numpy.arange(30.0))
    expected = model.predict(table[:3])
    days = (table["day"] - pandas.Timestamp(0)) / pandas.Timedelta("1D")
    for at in (table["day"][:3], table["day"].to_numpy()[:3], days[:3]):
        numpy.testing.assert_allclose(model.partial_dependence("day", at).average, expected)
    assert model.partial_dependence("day", table["day"][0]).average == pytest.approx(expected[0])
    for at in ([], [numpy.nan], [[1.0]]):
        with pytest.raises(ValueError, match="x: expected one finite number or more"):
            model.partial_dependence("day", at)


def test_what_is_set_after_a_fit_waits_for_the_next():
    X, y = curve(50)
    model = KernelRegressor(bandwidth=0.5).fit(X, y)
    before = model.predict(X)
    model.set_params(degree=2, kernel="boxcar", bandwidth=3.0)
    numpy.testing.assert_allclose(model.weights(X) @ y, before)


@pytest.mark.parametrize("robust", [0, 2])
@pytest.mark.parametrize("kernel", ["boxcar", "gaussian"])
def test_counts_are_rows_that_stand_so_many_times(kernel, robust):
    """Also where quantiles of errors decide: in prediction intervals, and in what an outlier is."""
    X, y = curve(61)
    counts = numpy.random.default_rng(11).integers(1, 7, len(X))
    model = KernelRegressor(kernel, 0.4, counts=True, robust=robust)
    counted = clone(model).fit(X, y, counts)
    repeated = clone(model).fit(numpy.repeat(X, counts, axis=0), numpy.repeat(y, counts))
    at = numpy.linspace(0, 5, 17)[:, None]
    numpy.testing.assert_allclose(counted.predict(at), repeated.predict(at), rtol=1e-10)
    for kind in ("curve", "prediction"):
        numpy.testing.assert_allclose(counted.interval(at, kind=kind), repeated.interval(at, kind=kind), rtol=1e-9)
