"""Features that are not plain numbers: dates, durations, categories, angles."""

import datetime

import numpy
import pandas
import polars
import pytest
from statsmodels.nonparametric.kernel_regression import KernelReg

from regard import KernelClassifier, KernelRegressor
from tests.kernel.test_regressor import curve, peer_warns


def mixed(n=101, seed=0):
    random = numpy.random.default_rng(seed)
    X = numpy.column_stack([random.uniform(0, 5, n), random.integers(0, 4, n), random.integers(0, 3, n)]).astype(float)
    return X, numpy.sin(X[:, 0]) + 0.3 * X[:, 1] + (X[:, 2] == 1) + random.normal(0, 0.2, n)


@peer_warns
@pytest.mark.parametrize("widths", [[0.4, 0.3, 0.2], [0.9, 0.05, 0.7], [0.6, 0.75, 0.0]])
def test_categories_are_weighed_as_by_statsmodels(widths):
    X, y = mixed()
    model = KernelRegressor(bandwidth=widths, categorical=[1], ordered=[2]).fit(X, y)
    queries = numpy.column_stack([numpy.linspace(0, 5, 37), numpy.arange(37) % 4, numpy.arange(37) % 3])
    peer = KernelReg(y, X, "cuo", reg_type="lc", bw=widths)
    numpy.testing.assert_allclose(model.predict(queries), peer.fit(queries)[0], rtol=1e-9, atol=1e-9)
    numpy.testing.assert_allclose(model.weights(queries) @ y, model.predict(queries), rtol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
def test_widths_of_categories_are_chosen(degree):
    X, y = mixed(211)
    X = numpy.column_stack([X, numpy.random.default_rng(1).integers(0, 5, 211)])  # the last says nothing
    model = KernelRegressor(categorical=[1, 3], ordered=[2], degree=degree).fit(X, y)
    assert model.loo_score_ > 0.8
    assert model.bandwidth_[1] < 0.5  # of 0.75, at which all four count the same
    assert model.bandwidth_[3] > 0.6  # of 0.8
    for d in range(4):
        for factor in (0.8, 1.1):
            other = model.bandwidth_ * numpy.where(numpy.arange(4) == d, factor, 1)
            if other[3] <= 0.8:
                moved = KernelRegressor(bandwidth=other, categorical=[1, 3], ordered=[2], degree=degree).fit(X, y)
                assert model.loo_error_ <= moved.loo_error_ * (1 + 1e-3)


def sales(n=97):
    random = numpy.random.default_rng(2)
    days = pandas.date_range("2024-01-01", periods=n, freq="36h")
    shop = numpy.array(["north", "south", "west"])[random.integers(0, 3, n)]
    price = random.uniform(1, 9, n)
    return pandas.DataFrame({"day": days, "shop": shop, "price": price}), numpy.sin(numpy.arange(n) / 9) + price / 5


@pytest.mark.parametrize("make", [lambda table: table, polars.from_pandas], ids=["pandas", "polars"])
def test_frames_of_dates_and_text_are_understood(make):
    table, y = sales()
    model = KernelRegressor(bandwidth=[pandas.Timedelta("3D"), 0.2, 1.0]).fit(make(table), y)
    assert model.bandwidth_.tolist() == [3.0, 0.2, 1.0]
    days = (table["day"] - pandas.Timestamp("1970-01-01")) / pandas.Timedelta("1D")
    plain = numpy.column_stack([days, table["shop"].map({"north": 0, "south": 1, "west": 2}), table["price"]])
    same = KernelRegressor(bandwidth=[3.0, 0.2, 1.0], categorical=[1]).fit(plain, y)
    numpy.testing.assert_allclose(model.predict(make(table)), same.predict(plain), rtol=1e-12)
    assert model.feature_names_in_.tolist() == ["day", "shop", "price"]
    unseen = table.assign(shop="east")
    assert numpy.isfinite(model.predict(make(unseen))).all()  # as near to one shop as to another


@pytest.mark.parametrize(
    "dates",
    [
        lambda days: days.to_numpy()[:, None],
        lambda days: days.to_numpy().astype("datetime64[s]")[:, None],
        lambda days: days.to_numpy().astype("datetime64[D]")[:, None],
        lambda days: days.dt.tz_localize("UTC").to_frame(),
        lambda days: days.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo").to_frame(),
        lambda days: numpy.array([datetime.datetime.fromisoformat(str(day)) for day in days], dtype=object)[:, None],
    ],
    ids=["ns", "s", "days", "UTC", "Tokyo", "objects"],
)
def test_dates_of_any_unit_are_days(dates):
    days = pandas.Series(pandas.date_range("2019-05-03", periods=53, freq="2D"), name="day")
    y = numpy.sin(numpy.arange(53) / 5)
    model = KernelRegressor(bandwidth=4.0).fit(dates(days), y)
    expected = KernelRegressor(bandwidth=2.0).fit(numpy.arange(53.0)[:, None], y)
    numpy.testing.assert_allclose(model.predict(dates(days)), expected.predict(numpy.arange(53.0)[:, None]), rtol=1e-9)
    with pytest.raises(TypeError, match=r"X: feature .*: expected dates, as in fit, got numbers"):
        model.predict(
            numpy.arange(5.0)[:, None] if not hasattr(dates(days), "columns") else pandas.DataFrame({"day": [1.0]})
        )


def test_durations_are_days_too():
    hours = (numpy.arange(31) * 6).astype("timedelta64[h]")[:, None]
    model = KernelRegressor(bandwidth=numpy.timedelta64(12, "h")).fit(hours, numpy.arange(31.0))
    assert model.bandwidth_.tolist() == [0.5]
    assert model.predict(hours[15:16])[0] == pytest.approx(15)


def test_dates_and_durations_of_many_centuries():
    """More than int64 nanoseconds hold."""
    years = numpy.arange(1000, 2600, 10)
    dates = numpy.array([f"{year}-01-01" for year in years], dtype="datetime64[s]")
    days = (dates - dates[0]) / numpy.timedelta64(1, "D")
    objects = numpy.array([datetime.date(year, 1, 1) for year in years.tolist()], dtype=object)
    expected = KernelRegressor(bandwidth=9000.0).fit(days[:, None], years).predict(days[:, None])
    for column in (dates, dates - dates[0], objects):
        frame = pandas.DataFrame({"when": column})
        numpy.testing.assert_allclose(KernelRegressor(bandwidth=9000.0).fit(frame, years).predict(frame), expected)


def test_periods_are_the_dates_at_which_they_begin():
    quarters = pandas.DataFrame({"when": pandas.period_range("2019Q1", periods=31, freq="Q")})
    dates = pandas.DataFrame({"when": quarters["when"].dt.start_time})
    y = numpy.sin(numpy.arange(31) / 5)
    expected = KernelRegressor().fit(dates, y).predict(dates)
    numpy.testing.assert_allclose(KernelRegressor().fit(quarters, y).predict(quarters), expected)


@pytest.mark.parametrize("dtype", ["boolean", "string", "object"])
def test_what_is_missing_is_a_category(dtype):
    values = [True, False, None] if dtype == "boolean" else ["a", "b", None]
    kinds = pandas.DataFrame({"kind": pandas.array(values * 9, dtype=dtype)})
    y = numpy.tile([1.0, 2.0, 6.0], 9) + numpy.arange(27) / 100
    plain = numpy.tile([0.0, 1.0, 2.0], 9)[:, None]
    expected = KernelRegressor(bandwidth=[0.1], categorical=[0]).fit(plain, y).predict(plain)
    model = KernelRegressor(bandwidth=[0.1]).fit(kinds, y)
    numpy.testing.assert_allclose(model.predict(kinds), expected)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_category_that_is_always_the_same_says_nothing(ordered):
    table, y = sales()
    table["shop"] = pandas.Categorical(["north"] * len(table), ["north", "south"], ordered=ordered)
    model = KernelRegressor().fit(table, y)
    south = table.assign(shop=pandas.Categorical(["south"] * len(table), ["north", "south"], ordered=ordered))
    numpy.testing.assert_allclose(model.predict(south), model.predict(table))


def test_missing_dates_are_refused():
    table, y = sales()
    table.loc[5, "day"] = pandas.NaT
    with pytest.raises(ValueError, match=r"X: contains missing dates \(NaT\)"):
        KernelRegressor().fit(table, y)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("name", ["gaussian", "epanechnikov"])
def test_a_period_begins_anew(degree, name):
    random = numpy.random.default_rng(3)
    hours = random.uniform(0, 24, 211)
    y = numpy.cos(2 * numpy.pi * hours / 24) + random.normal(0, 0.1, 211)
    width = 1.2 if name == "gaussian" else 2.5
    model = KernelRegressor(name, width, degree=degree, periodic={0: 24}).fit(hours[:, None], y)
    at = numpy.linspace(0, 24, 13)
    numpy.testing.assert_allclose(model.predict(at[:, None]), model.predict(at[:, None] + 48), rtol=1e-9)
    numpy.testing.assert_allclose(model.predict(at[:, None]), numpy.cos(2 * numpy.pi * at / 24), atol=0.2)
    # Shifted data have a shifted curve: nothing is special at 0.
    shifted = KernelRegressor(name, width, degree=degree, periodic={0: 24}).fit((hours[:, None] + 7) % 24, y)
    numpy.testing.assert_allclose(shifted.predict(at[:, None] + 7), model.predict(at[:, None]), rtol=1e-7)
    numpy.testing.assert_allclose(model.weights(at[:, None]) @ y, model.predict(at[:, None]), rtol=1e-7)


def test_the_year_is_a_period_of_dates():
    table, y = sales(300)
    model = KernelRegressor(periodic={"day": pandas.Timedelta("365.25D")}).fit(table[["day"]], y)
    later = table[["day"]] + pandas.Timedelta("730.5D")
    numpy.testing.assert_allclose(model.predict(later), model.predict(table[["day"]]), rtol=1e-7)


@pytest.mark.parametrize("features", [2, 3])
def test_a_product_of_kernels_is_not_one_of_the_distance(features):
    X, y = curve(151, features)
    model = KernelRegressor("epanechnikov", 1.5, product=True).fit(X, y)
    u = numpy.abs(X[:31, None] - X[None]) / 1.5
    kernel = numpy.where(u < 1, 1 - u**2, 0).prod(-1)
    numpy.testing.assert_allclose(model.predict(X[:31]), kernel @ y / kernel.sum(1), rtol=1e-9)
    radial = KernelRegressor("epanechnikov", 1.5).fit(X, y)
    assert numpy.abs(radial.predict(X[:31]) - model.predict(X[:31])).max() > 1e-3


def test_text_that_is_no_column_of_a_frame_is_refused():
    with pytest.raises(ValueError, match="could not convert string to float"):
        KernelRegressor().fit(numpy.array([["a"], ["b"]]), [1.0, 2.0])


def test_a_classifier_of_categories():
    table, y = sales()
    model = KernelClassifier().fit(table[["shop"]], table["shop"] == "south")
    assert model.score(table[["shop"]], table["shop"] == "south") == 1.0
    assert numpy.isfinite(y).all()


def test_a_level_without_a_known_order_is_refused():
    """It would count as the lowest."""
    table = pandas.DataFrame(
        {"x": [0.0, 1, 2], "size": pandas.Categorical(["S", "M", "L"], ["S", "M", "L"], ordered=True)}
    )
    model = KernelRegressor(bandwidth=[1.0, 0.3]).fit(table, [0.0, 1, 2])
    for level in ("XL", None):
        with pytest.raises(ValueError, match=r"X: feature 'size': expected levels .*\['S', 'M', 'L'\], got"):
            model.predict(pandas.DataFrame({"x": [0.0], "size": [level]}))
    with pytest.raises(ValueError, match="X: feature 'size': expected levels whose order is known"):
        KernelRegressor(ordered=["size"]).fit(
            table.assign(size=pandas.Categorical(["S", None, "L"], ordered=True)), [0, 1, 2]
        )
    with pytest.raises(ValueError, match="X: feature 'size': expected levels whose order is known"):
        KernelRegressor(ordered=["size"]).fit(table.assign(size=["S", None, "L"]), [0, 1, 2])


@pytest.mark.parametrize("y", [pandas.date_range("2024", periods=3), pandas.to_timedelta([1, 2, 3], "h")])
def test_an_output_has_no_unit_of_its_own(y):
    with pytest.raises(TypeError, match=r"y: expected numbers, got (datetime|timedelta)64"):
        KernelRegressor(bandwidth=1.0).fit([[0.0], [1.0], [2.0]], y)


def test_categories_alone_have_no_neighbours():
    table = pandas.DataFrame({"shop": list("abab")})
    with pytest.raises(ValueError, match="adaptive: expected a feature that is not a category"):
        KernelRegressor(bandwidth=2, adaptive=True).fit(table, [0.0, 1, 0, 1])


@pytest.mark.parametrize("ordered", [False, True])
def test_a_lambda_of_0_averages_each_category(ordered):
    """Also of a single feature, whose bandwidth is then 0."""
    table = pandas.DataFrame({"shop": pandas.Categorical(list("abab"), ordered=ordered)})
    for bandwidth in (0, [0.0]):
        model = KernelRegressor(bandwidth=bandwidth).fit(table, [0.0, 1, 2, 5])
        assert model.predict(table).tolist() == [1.0, 3.0, 1.0, 3.0]
