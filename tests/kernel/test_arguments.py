"""What is asked of a fitted model, and in which kind of table: right, or one sentence that names the argument."""

import datetime

import numpy
import pandas
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.inspection import partial_dependence

from regard import KernelRegressor
from tests.kernel.test_regressor import curve

AT = numpy.array([[0.7], [2.9], [4.1]])


@pytest.fixture(scope="module")
def model():
    return KernelRegressor(bandwidth=0.4).fit(*curve(61))


@pytest.mark.parametrize("level", [numpy.nan, numpy.inf, 0, 1.0, 95, "0.9", [0.9], True, 1j, pandas.NA])
def test_a_level_is_a_probability(model, level):
    calls = [
        lambda: model.interval(AT, level),
        lambda: model.interval(AT, level, kind="prediction"),
        lambda: model.partial_dependence(0, level=level),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="level: expected a probability between 0 and 1, got"):
            call()
    with pytest.raises(ValueError, match="level: expected a probability between 0 and 1, got None"):
        model.interval(AT, None)


@pytest.mark.parametrize("q", [numpy.nan, -0.1, 1.1, None, "0.5", "a", [], [[0.1, 0.2]], [0.1, numpy.nan], True, 1j])
def test_quantiles_are_of_shares(model, q):
    with pytest.raises(ValueError, match=r"^q: expected shares from 0 to 1, got"):
        model.quantile(AT, q)


@pytest.mark.parametrize(
    "y", [numpy.nan, None, "0.5", "a", [], [[0.1]], [0.1, numpy.nan], 1j, [None], numpy.datetime64("2020-01-01")]
)
def test_a_distribution_is_asked_for_at_numbers(model, y):
    with pytest.raises(ValueError, match=r"^y: expected one number or more, not NaN, got"):
        model.distribution(AT, y)


def test_at_infinity_a_distribution_is_0_or_1(model):
    numpy.testing.assert_allclose(model.distribution(AT, [-numpy.inf, numpy.inf]), [[0, 1]] * 3, atol=1e-12)
    assert model.distribution(AT, pandas.Series([0.1, 0.2])).shape == (3, 2)
    assert model.quantile(AT, numpy.float32(0.5)).shape == (3,)


@pytest.mark.parametrize("feature", [1, -2, "x", None, 0.5, [0], True])
def test_a_feature_is_a_name_or_a_number(model, feature):
    with pytest.raises(ValueError, match=r"feature: expected (numbers, as X has no names|features from 0 to 0), got"):
        model.partial_dependence(feature)


def test_a_date_is_no_place_on_an_axis_of_numbers(model):
    for place in (datetime.date(2020, 1, 1), numpy.timedelta64(3, "D")):
        with pytest.raises(TypeError, match=r"x: expected numbers, as in fit, got (date|duration)s"):
            model.partial_dependence(0, [place])
    days = numpy.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
    dated = KernelRegressor(bandwidth=5.0).fit(days[:, None], numpy.sin(numpy.arange(60) / 9))
    of_numbers, of_dates = (dated.partial_dependence(0, x)[1] for x in (days[:9].astype(float), days[:9]))
    numpy.testing.assert_array_equal(of_numbers, of_dates)
    with pytest.raises(TypeError, match="x: expected dates, as in fit, got durations"):
        dated.partial_dependence(0, [numpy.timedelta64(3, "D")])


def test_a_partial_dependence_counts_samples_by_their_weights():
    X, y = curve(61, 2)
    counts = numpy.random.default_rng(1).integers(0, 4, 61)
    weighted = KernelRegressor(bandwidth=0.9, counts=True).fit(X, y, counts)
    repeated = KernelRegressor(bandwidth=0.9, counts=True).fit(numpy.repeat(X, counts, 0), numpy.repeat(y, counts))
    x = numpy.linspace(0, 5, 7)
    for one, other in zip(
        weighted.partial_dependence(0, x, level=0.9), repeated.partial_dependence(0, x, level=0.9), strict=True
    ):
        numpy.testing.assert_allclose(one, other, rtol=1e-9)
    moved = numpy.tile(X, (7, 1))
    moved[:, 0] = numpy.repeat(x, 61)
    expected = numpy.average(weighted.predict(moved).reshape(7, 61), axis=1, weights=counts)
    numpy.testing.assert_allclose(weighted.partial_dependence(0, x).average, expected, rtol=1e-9)


def test_a_fit_in_parts_has_a_partial_dependence():
    X, y = curve(401)
    whole = KernelRegressor(bandwidth=0.4).fit(X, y)
    parts = KernelRegressor(bandwidth=0.4).partial_fit(X[:200], y[:200]).partial_fit(X[200:], y[200:])
    for one, other in zip(parts.partial_dependence(0), whole.partial_dependence(0), strict=True):
        if other is not None:
            numpy.testing.assert_allclose(one, other, rtol=1e-9)
    for one, other in zip(parts.partial_dependence(0, level=0.9), whole.partial_dependence(0, level=0.9), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-6)
    theirs = partial_dependence(parts, X, [0], grid_resolution=11)
    numpy.testing.assert_allclose(theirs["average"][0], whole.predict(theirs["grid_values"][0][:, None]))


@pytest.mark.parametrize("method", ["partial_dependence", "marginal_effects", "predict", "quantile", "derivative"])
def test_what_is_not_fitted_says_so(method):
    arguments = {"partial_dependence": [0], "marginal_effects": []}.get(method, [AT])
    with pytest.raises(NotFittedError):
        getattr(KernelRegressor(), method)(*arguments)


@pytest.mark.parametrize("name", ["gaussian", "epanechnikov"])
def test_slopes_do_not_lose_their_digits_to_large_values(name):
    X, y = curve(61)
    y = numpy.round(y * 2**10) / 2**10  # so that nothing is rounded beside the offset
    here, there = (KernelRegressor(name, 0.6).fit(X, y + offset) for offset in (0, 2.0**40))
    numpy.testing.assert_allclose(there.derivative(AT), here.derivative(AT), rtol=1e-6)
    parts = KernelRegressor(bandwidth=0.6).partial_fit(X, y + 2.0**40)
    numpy.testing.assert_allclose(
        parts.derivative(AT), KernelRegressor(bandwidth=0.6).fit(X, y).derivative(AT), rtol=1e-6
    )


def test_categories_alone_have_no_slopes():
    table = pandas.DataFrame({"shop": list("abc") * 7, "size": list("xyzwxyz") * 3})
    model = KernelRegressor(bandwidth=[0.1, 0.2]).fit(table, numpy.arange(21.0))
    assert model.derivative(table).shape == (21, 2)
    assert numpy.isnan(model.derivative(table)).all()
    assert numpy.isnan(model.marginal_effects()).all()


@pytest.mark.parametrize(("empty", "effective"), [("nearest", 1.0), ("mean", 61.0), ("nan", numpy.nan)])
def test_a_window_beyond_reach_is_that_of_the_weights(empty, effective):
    X, y = curve(61)
    far = [[2.5], [50.0]]
    alone, beside = (KernelRegressor("boxcar", 0.5, empty=empty, product=True) for _ in range(2))
    alone, beside = alone.fit(X, y), beside.fit(numpy.column_stack([X, X * 0]), y)
    of_two = beside.window(numpy.column_stack([far, [[0.0], [0.0]]]))
    numpy.testing.assert_allclose(alone.window(far).effective[1], effective)
    numpy.testing.assert_allclose(alone.window(far).effective, of_two.effective)
    numpy.testing.assert_allclose(alone.window(far).low, of_two.low[:, 0])
    numpy.testing.assert_allclose(alone.window(far).high, of_two.high[:, 0])
