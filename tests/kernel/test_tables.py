"""Tables of many kinds: each means what the same pandas frame means, or is refused in one sentence."""

import datetime
import decimal

import numpy
import pandas
import polars
import pyarrow
import pytest
from scipy import sparse

from regard import KernelClassifier, KernelRegressor

RANDOM = numpy.random.default_rng(0)
TABLE = pandas.DataFrame(
    {
        "a": RANDOM.uniform(0, 5, 61),
        "shop": RANDOM.choice(["east", "north", "west"], 61),
        "day": pandas.date_range("2024-01-01", periods=61),
    }
)
Y = numpy.sin(TABLE["a"].to_numpy()) + (TABLE["shop"] == "west")
WIDTHS = [0.5, 0.2, 9.0]


def fitted(table=TABLE):
    return KernelRegressor(bandwidth=WIDTHS).fit(table, Y)


@pytest.mark.parametrize(
    "make",
    [
        polars.from_pandas,
        pyarrow.Table.from_pandas,
        lambda table: pyarrow.Table.from_pandas(table).to_batches()[0],
        lambda table: pandas.DataFrame({name: table[name].convert_dtypes(dtype_backend="pyarrow") for name in table}),
    ],
    ids=["polars", "arrow", "batch", "arrow dtypes"],
)
def test_tables_of_others_mean_what_a_frame_means(make):
    model = fitted(make(TABLE))
    assert model.features_.kinds == ["number", "category", "date"]
    assert model.feature_names_in_.tolist() == ["a", "shop", "day"]
    numpy.testing.assert_allclose(model.predict(make(TABLE)), fitted().predict(TABLE), rtol=1e-12)
    numbers = make(TABLE[["a"]])
    assert KernelRegressor(bandwidth=0.5).fit(numbers, Y).feature_names_in_.tolist() == ["a"]


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "UInt8", "object", "Sparse[float]"])
def test_a_number_is_one_in_each_dtype(dtype):
    table = pandas.DataFrame({"x": RANDOM.integers(0, 9, 61).astype(float)})
    plain, other = (KernelRegressor(bandwidth=0.8).fit(X, Y) for X in (table, table.astype(dtype)))
    numpy.testing.assert_array_equal(plain.predict(table), other.predict(table.astype(dtype)))
    beside = KernelRegressor(bandwidth=[0.8, 0.1]).fit(table.astype(dtype).assign(shop=TABLE["shop"]), Y)
    assert beside.features_.kinds == ["number", "category"]


@pytest.mark.parametrize("estimator", [KernelRegressor(), KernelClassifier()])
def test_what_has_no_rows_yet_is_refused(estimator):
    lazy = polars.from_pandas(TABLE).lazy()
    with pytest.raises(TypeError, match=r"X: a LazyFrame has no rows yet; give X\.collect\(\)"):
        estimator.fit(lazy, Y > 0)
    with pytest.raises(TypeError, match=r"y: a LazyFrame has no rows yet; give y\.collect\(\)"):
        estimator.fit(TABLE, lazy.select("a"))
    with pytest.raises(TypeError, match="X: a LazyFrame has no rows yet"):
        fitted().predict(lazy)
    for table in (dict(TABLE), (row for row in TABLE.to_numpy()), polars.col("a"), TABLE.to_records(index=False)):
        with pytest.raises(TypeError, match=r"X: expected a table of rows and columns, as a DataFrame, got"):
            estimator.fit(table, Y > 0)
    with pytest.raises(TypeError, match=r"y: expected a table of rows and columns, as a DataFrame, got Expr"):
        estimator.fit(TABLE, polars.col("a"))
    with pytest.raises(TypeError, match="Sparse data was passed for X"):
        estimator.fit(sparse.csr_array(TABLE[["a"]]), Y > 0)


def test_what_is_masked_is_not_read():
    x, hidden = TABLE[["a"]].to_numpy(), TABLE["a"].to_numpy() > 4
    masked = numpy.ma.masked_array(x, hidden[:, None])
    weights = numpy.ma.masked_array(numpy.ones(61), hidden)
    for name, arguments in {
        "X": [masked, Y],
        "y": [x, numpy.ma.masked_array(Y, hidden)],
        "sample_weight": [x, Y, weights],
    }.items():
        with pytest.raises(ValueError, match=f"^{name}: expected values, got masked ones; drop those rows"):
            KernelRegressor(bandwidth=0.5).fit(*arguments)
    model = KernelRegressor(bandwidth=0.5).fit(numpy.ma.masked_array(x, False), Y)
    with pytest.raises(ValueError, match=r"^X: expected values, got masked ones"):
        model.predict(masked)


@pytest.mark.parametrize("y", [[None, *Y[1:]], ["a", *Y[1:]], [1j, *Y[1:]]])
def test_each_value_is_a_number(y):
    with pytest.raises((TypeError, ValueError), match=r"^(y: expected|Input y contains|Complex data)"):
        KernelRegressor(bandwidth=0.5).fit(TABLE[["a"]], numpy.array(y, dtype=object))
    assert KernelRegressor(bandwidth=0.5).fit([[0.0], [1.0]], [decimal.Decimal("1.5")] * 2).predict([[1.0]]) == 1.5


def test_columns_have_names_and_an_order():
    twice = TABLE[["a", "a"]]
    for estimator in (KernelRegressor(), KernelRegressor(categorical=["a"])):
        with pytest.raises(ValueError, match=r"X: expected columns of different names, got 'a' more than once"):
            estimator.fit(twice, Y)
    with pytest.raises(ValueError, match="X: expected one feature or more, got a table without columns"):
        KernelRegressor().fit(TABLE[[]], Y)
    model = fitted()
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.predict(TABLE[["shop", "day", "a"]])
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        fitted(TABLE.set_axis([3, 4, 5], axis=1)).predict(TABLE.set_axis([3, 4, 5], axis=1)[[4, 3, 5]])
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing"):
        model.predict(TABLE[["a", "day"]])


@pytest.mark.parametrize(
    ("cells", "came"),
    [([[1, 2]] * 61, "sequence"), ([{}] * 61, "dict"), ([datetime.time(3)] * 61, "time"), ([1, *"a" * 60], "'a'")],
)
def test_cells_that_are_no_numbers_are_named_by_their_column(cells, came):
    table = TABLE[["a"]].assign(odd=pandas.Series(cells, dtype=object))
    for make in (lambda table: table, lambda table: table.assign(shop=TABLE["shop"])):
        with pytest.raises((TypeError, ValueError), match=f"^X: feature 'odd': expected numbers; .*{came}"):
            KernelRegressor().fit(make(table), Y)


def test_times_of_day_are_not_nanoseconds():
    times = polars.DataFrame({"time": [datetime.time(hour % 24) for hour in range(61)]})
    with pytest.raises(TypeError, match=r"X: feature 'time': expected numbers; .*time"):
        KernelRegressor().fit(times, Y)


def test_a_column_stays_of_its_kind():
    model = fitted()
    for column, words in {
        "a": (TABLE["shop"], "numbers, as in fit, got categories"),
        "day": (TABLE["a"], "dates, as in fit, got numbers"),
        "shop": (TABLE["a"], r"categories like 'east', as in fit, got numbers"),
    }.items():
        with pytest.raises(TypeError, match=f"X: feature {column!r}: expected {words[1]}"):
            model.predict(TABLE.assign(**{column: words[0].to_numpy()}))
    with pytest.raises(TypeError, match="X: feature 'a': expected numbers, as in fit, got categories"):
        model.predict(TABLE.assign(a=True))
    with pytest.raises(TypeError, match="X: feature 'a': expected numbers, got complex ones"):
        model.predict(TABLE.assign(a=1j))
    unseen = model.predict(TABLE.assign(shop="south"))
    for missing in (None, numpy.nan, pandas.NA):
        numpy.testing.assert_array_equal(model.predict(TABLE.assign(shop=missing)), unseen)
    digits = TABLE.assign(shop=TABLE["shop"].map({"east": "1", "north": "2", "west": "3"}))
    with pytest.raises(TypeError, match="X: feature 'shop': expected categories like '1', as in fit, got numbers"):
        fitted(digits).predict(digits.assign(shop=digits["shop"].astype(int)))
    numbers = digits.assign(shop=digits["shop"].astype(int).astype("category"))
    same = fitted(numbers)
    numpy.testing.assert_array_equal(
        same.predict(numbers), same.predict(numbers.assign(shop=numbers["shop"].astype(int)))
    )
    assert numpy.isfinite(same.predict(numbers.assign(shop=9))).all()


@pytest.mark.parametrize("dtype", ["category", "object"])
def test_a_missing_category_is_not_an_unseen_one(dtype):
    shop = TABLE["shop"].where(TABLE["shop"] != "west", None).astype(dtype)
    table = TABLE.assign(shop=shop)
    plain = TABLE.assign(shop=TABLE["shop"].map({"east": 0, "north": 1, "west": 2}))
    expected = KernelRegressor(bandwidth=WIDTHS, categorical=["shop"]).fit(plain, Y)
    model = fitted(table)
    numpy.testing.assert_allclose(model.predict(table), expected.predict(plain), rtol=1e-12)
    unseen = model.predict(table.assign(shop=pandas.Series(["south"] * 61, dtype=dtype)))
    numpy.testing.assert_allclose(unseen, expected.predict(plain.assign(shop=7)), rtol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"periodic": ["a"]}, r"periodic: expected a dict of features and their periods, got \['a'\]"),
        ({"periodic": {"a": "x"}}, "periodic: expected a positive period of feature 'a', got 'x'"),
        (
            {"periodic": {"a": datetime.timedelta(1)}},
            "periodic: feature 'a' has numbers, which no duration is a period",
        ),
        ({"bandwidth": datetime.timedelta(1)}, "bandwidth: expected a number for feature 0, which has no dates, got"),
        ({"categorical": [None]}, "categorical: expected features from 0 to 0, got None"),
        ({"counts": "no"}, "counts: expected True or False, got 'no'"),
        ({"product": None}, "product: expected True or False, got None"),
        ({"adaptive": 1}, "adaptive: expected True or False, got 1"),
    ],
)
def test_parameters_mean_something(parameters, words):
    with pytest.raises((TypeError, ValueError), match=words):
        KernelRegressor(**parameters).fit(TABLE[["a"]], Y)


def test_one_bandwidth_in_a_list_is_that_of_all_features():
    X = RANDOM.normal(size=(61, 2))
    one, listed = (KernelRegressor(bandwidth=width).fit(X, Y).predict(X) for width in (0.7, [0.7]))
    numpy.testing.assert_array_equal(one, listed)
