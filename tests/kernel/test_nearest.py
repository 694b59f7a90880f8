"""The nearest samples: on circles, of the same categories first, and without those that are left out."""

import numpy
import pandas
import pytest
from sklearn.neighbors import KNeighborsRegressor

from regard import KernelRegressor
from tests.kernel.test_regressor import curve

HOURS = numpy.array([[0.2], [1.0], [12.0], [14.0], [22.0]])


def test_midnight_is_near_the_end_of_the_day():
    y = numpy.arange(5.0)
    model = KernelRegressor("epanechnikov", 0.1, periodic={0: 24}).fit(HOURS, y)
    assert model.predict([[23.5], [23.0], [-1.2], [47.9]]).tolist() == [0.0, 4.0, 4.0, 0.0]
    assert model.loo_error_ == numpy.mean(numpy.square([0 - 1, 1 - 0, 2 - 3, 3 - 2, 4 - 0]))


@pytest.mark.parametrize("features", [1, 2])
def test_neighbours_are_counted_across_midnight(features):
    random = numpy.random.default_rng(0)
    X = random.uniform(0, 24, (80, features))
    y = numpy.cos(X[:, 0] * numpy.pi / 12)
    answers = []
    for turn in (0.0, 7.0, 24.0):
        model = KernelRegressor("tricube", 9, adaptive=True, periodic={0: 24})
        turned = X + turn * numpy.eye(features)[0]
        answers.append(model.fit(turned, y).predict(turned))
    numpy.testing.assert_allclose(answers[1:], [answers[0]] * 2, atol=1e-12)


def test_the_rule_of_thumb_knows_no_midnight():
    random = numpy.random.default_rng(0)
    X, y = random.normal(0, 2, (50, 1)), random.normal(size=50)
    night, noon = (KernelRegressor(bandwidth="silverman", periodic={0: 24}).fit(X + at, y) for at in (0.0, 12.0))
    assert night.bandwidth_ == pytest.approx(noon.bandwidth_, rel=1e-3)


def test_the_names_of_categories_do_not_matter():
    """A sample of the same category is the nearest, and one of an unknown category is as far from all the others."""
    x, shops = [0.0, 1.0, 2.0, 3.5], ["a", "a", "b", "c"]
    queries = pandas.DataFrame({"x": [3.2, 9.0, 9.0, 1.9], "shop": ["a", "b", "?", "?"]})
    for names in ("abc", "cab", "zyx"):
        named = dict(zip("abc", names, strict=True))
        table = pandas.DataFrame({"x": x, "shop": [named[shop] for shop in shops]})
        model = KernelRegressor("epanechnikov", [0.5, 0.0]).fit(table, [0.0, 1.0, 2.0, 3.0])
        asked = queries.assign(shop=queries["shop"].replace(named))
        assert model.predict(asked).tolist() == [1.0, 2.0, 3.0, 2.0]


@pytest.mark.parametrize("features", [1, 2])
def test_the_nearest_other_is_not_of_the_block(features):
    """Also where nothing is in reach, what is left out does not tell."""
    X, y = curve(40, features)
    X = numpy.sort(X, axis=0)
    model = KernelRegressor("epanechnikov", 1e-3, block=2).fit(X, y)
    errors = []
    for i in range(len(X)):
        others = numpy.abs(numpy.arange(len(X)) - i) > 2
        errors.append(y[i] - KernelRegressor("epanechnikov", 1e-3).fit(X[others], y[others]).predict(X[i : i + 1])[0])
    assert model.loo_error_ == pytest.approx(numpy.mean(numpy.square(errors)), rel=1e-9)
    everything = KernelRegressor("epanechnikov", 1e-3, block=99).fit(X, y)  # is left out: the mean remains
    assert everything.loo_score_ == pytest.approx(0)


def test_a_boxcar_over_neighbours_averages_as_many():
    """The last of them lies at its edge, where rounding must not decide."""
    for seed in range(20):
        random = numpy.random.default_rng(seed)
        X, y = random.normal(1000, 1, (60, 1)), random.normal(size=60)
        queries = random.normal(1000, 1, (20, 1))
        model = KernelRegressor("boxcar", 7, adaptive=True).fit(X, y)
        expected = KNeighborsRegressor(7).fit(X, y).predict(queries)
        numpy.testing.assert_allclose(model.predict(queries), expected, rtol=1e-9, atol=1e-12)
        numpy.testing.assert_allclose(model.weights(queries) @ y, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bandwidth", [9, 0.3, "loo", "silverman"])
@pytest.mark.parametrize("robust", [0, 1])
def test_a_count_is_as_many_neighbours(bandwidth, robust):
    X, y = curve(40, 2)
    counts = numpy.arange(40) % 4
    options = {"adaptive": True, "counts": True, "degree": 1, "robust": robust}
    counted, repeated = (KernelRegressor("tricube", bandwidth, **options) for _ in range(2))
    counted.fit(X, y, sample_weight=counts)
    repeated.fit(numpy.repeat(X, counts, axis=0), numpy.repeat(y, counts))
    assert counted.bandwidth_ == repeated.bandwidth_
    assert counted.loo_error_ == pytest.approx(repeated.loo_error_, rel=1e-9)
    numpy.testing.assert_allclose(counted.predict(X), repeated.predict(X), atol=1e-9)


def test_the_unit_of_weights_chooses_no_other_spread():
    """Sums of weights are rounded otherwise in another unit, and would end beside a quarter of them."""
    random = numpy.random.default_rng(0)
    X, y = random.normal(size=(40, 2)), random.normal(size=40)
    ones, others = (KernelRegressor(bandwidth="silverman").fit(X, y, numpy.full(40, unit)) for unit in (1.0, 7.3))
    assert ones.bandwidth_.tolist() == others.bandwidth_.tolist()
