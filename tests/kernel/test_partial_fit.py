"""Fits in parts: chunks and Dask collections give the curve of all samples on one machine."""

import dask.array
import dask.dataframe
import numpy
import pandas
import pytest

from regard import KernelClassifier, KernelRegressor
from regard.kernel import BandwidthWarning
from tests.kernel.test_regressor import curve

AT = numpy.linspace(-0.5, 5.5, 97)[:, None]


def in_chunks(X, y, chunks=7, **parameters):
    model = KernelRegressor(**parameters)
    for part in numpy.array_split(numpy.arange(len(X)), chunks):
        model.partial_fit(X[part], y[part])
    return model


@pytest.mark.parametrize("rule", ["loo", "aicc", 0.3])
@pytest.mark.parametrize("degree", [0, 1])
def test_chunks_make_the_curve_of_all_samples(degree, rule, monkeypatch):
    monkeypatch.setattr("regard.kernel.compressed.LIMIT", 8_000)  # so that cells are compressed
    X, y = curve(20_011)
    whole = KernelRegressor(degree=degree, bandwidth=rule).fit(X, y)
    parts = in_chunks(X, y, degree=degree, bandwidth=rule)
    numpy.testing.assert_allclose(parts.bandwidth_, whole.bandwidth_, rtol=1e-3)
    whole = KernelRegressor(degree=degree, bandwidth=parts.bandwidth_).fit(X, y)
    assert parts.loo_error_ == pytest.approx(whole.loo_error_, rel=1e-8)
    assert parts.loo_score_ == pytest.approx(whole.loo_score_, rel=1e-8)
    for one, other in zip(parts.predict(AT, return_std=True), whole.predict(AT, return_std=True), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-6)
    for one, other in zip(parts.interval(AT), whole.interval(AT), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_outputs_and_names_and_dates_come_in_parts():
    days = pandas.DataFrame({"day": pandas.date_range("2024-01-01", periods=211, freq="8h")})
    y = numpy.column_stack([numpy.sin(numpy.arange(211) / 20), numpy.arange(211.0)])
    model = KernelRegressor(bandwidth=2.0)
    for part in numpy.array_split(numpy.arange(211), 3):
        model.partial_fit(days.iloc[part], y[part])
    whole = KernelRegressor(bandwidth=2.0).fit(days, y)
    numpy.testing.assert_allclose(model.predict(days), whole.predict(days), rtol=1e-7)
    assert model.feature_names_in_.tolist() == ["day"]


@pytest.mark.parametrize("method", ["weights", "window", "quantile"])
def test_what_needs_the_samples_says_so(method):
    model = in_chunks(*curve(301), bandwidth=0.3)
    with pytest.raises(ValueError, match=f"{method}: needs the samples, of which a fit in parts keeps only the sums"):
        getattr(model, method)(AT)


@pytest.mark.parametrize("parameters", [{"kernel": "tricube"}, {"robust": 2}, {"bandwidth": "one_se"}, {"degree": 1}])
@pytest.mark.parametrize("features", [1, 2])
def test_what_sums_cannot_do_keeps_the_samples(features, parameters):
    X, y = curve(301, features)
    model, whole = in_chunks(X, y, **parameters), KernelRegressor(**parameters).fit(X, y)
    numpy.testing.assert_allclose(model.bandwidth_, whole.bandwidth_, rtol=1e-3)
    model, whole = (
        in_chunks(X, y, **parameters | {"bandwidth": 0.7}),
        KernelRegressor(**parameters | {"bandwidth": 0.7}),
    )
    numpy.testing.assert_allclose(model.predict(X), whole.fit(X, y).predict(X), rtol=1e-7)


def test_fits_to_parts_are_merged():
    X, y = curve(3_001)
    parts = [KernelRegressor(degree=1).partial_fit(X[part], y[part]) for part in numpy.array_split(range(3_001), 4)]
    model, whole = parts[2].merge(parts[0], parts[3], parts[1]), KernelRegressor(degree=1).fit(X, y)
    numpy.testing.assert_allclose(model.bandwidth_, whole.bandwidth_, rtol=1e-3)
    whole = KernelRegressor(bandwidth=model.bandwidth_, degree=1).fit(X, y)
    numpy.testing.assert_allclose(model.predict(AT), whole.predict(AT), rtol=1e-7)
    with pytest.raises(ValueError, match="others: expected regressors that `partial_fit` has fitted"):
        model.merge(whole)


def test_a_fit_can_be_gone_on_from():
    X, y = curve(301)
    model = KernelRegressor(bandwidth=0.3).fit(X[:200], y[:200]).partial_fit(X[200:], y[200:])
    numpy.testing.assert_allclose(model.predict(AT), KernelRegressor(bandwidth=0.3).fit(X, y).predict(AT), rtol=1e-9)


def test_categories_may_come_with_later_parts():
    table = pandas.DataFrame({"x": [0.0, 1, 2, 3] * 2, "shop": list("aabbddee")})
    y = numpy.array([0.0, 0, 1, 1, 2, 2, 9, 9])
    model = KernelRegressor(bandwidth=[100, 0.0])
    for part in (slice(0, 4), slice(4, 8)):
        model.partial_fit(table[part], y[part])
    whole = KernelRegressor(bandwidth=[100, 0.0]).fit(table, y)
    numpy.testing.assert_allclose(model.predict(table), whole.predict(table), atol=1e-12)
    alone = KernelRegressor(bandwidth="loo")
    for part in (slice(0, 4), slice(4, 8)):
        alone.partial_fit(table.loc[part.start : part.stop - 1, ["shop"]], y[part])
    expected = KernelRegressor(bandwidth="loo").fit(table[["shop"]], y).predict(table[["shop"]])
    numpy.testing.assert_allclose(alone.predict(table[["shop"]]), expected, rtol=1e-3)
    sizes = table.assign(shop=pandas.Categorical(table["shop"], list("abde"), ordered=True))
    model = KernelRegressor(bandwidth=[100, 0.3]).partial_fit(sizes[:4], y[:4]).partial_fit(sizes[4:], y[4:])
    whole = KernelRegressor(bandwidth=[100, 0.3]).fit(sizes, y)
    numpy.testing.assert_allclose(model.predict(sizes), whole.predict(sizes), atol=1e-12)


def test_parts_have_the_same_feature_and_outputs():
    y = numpy.arange(50.0)
    tables = {
        "date": pandas.DataFrame({"x": pandas.date_range("2024", periods=50)}),
        "number": pandas.DataFrame({"x": y}),
        "other": pandas.DataFrame({"z": y}),
    }
    fits = {name: KernelRegressor(bandwidth=3.0).partial_fit(table, y) for name, table in tables.items()}
    for name in ("date", "other"):
        with pytest.raises(ValueError, match="others: expected the same feature"):
            fits["number"].merge(fits[name])
    for other in (KernelRegressor(), [fits["number"]]):
        with pytest.raises(ValueError, match="others: expected regressors that `partial_fit` has fitted"):
            fits["number"].merge(other)
    for X in (y[:, None], numpy.column_stack([y, y])):
        model = KernelRegressor(bandwidth=3.0).partial_fit(X, y)
        with pytest.raises(ValueError, match=r"y: expected the outputs of the samples before, got shape \(50, 2\)"):
            model.partial_fit(X, numpy.column_stack([y, y]))
        assert model.predict(X).shape == (50,)


def test_a_bandwidth_narrower_than_the_cells_is_warned_of(monkeypatch):
    monkeypatch.setattr("regard.kernel.compressed.LIMIT", 500)
    with pytest.warns(BandwidthWarning, match="narrower than"):
        in_chunks(*curve(20_011), chunks=1, bandwidth=1e-4)


def test_a_dask_collection_stays_where_it_is(monkeypatch):
    X, y = curve(2_003)
    table = dask.dataframe.from_pandas(pandas.DataFrame({"x": X[:, 0], "y": y}), npartitions=5)
    whole = KernelRegressor().fit(X, y)
    models = [
        KernelRegressor().fit(table[["x"]], table["y"]),
        KernelRegressor().fit(dask.array.from_array(X, chunks=(500, 1)), dask.array.from_array(y, chunks=500)),
    ]
    monkeypatch.setattr(type(table), "__array__", None)  # what pulls a frame into memory
    for model, queries in zip(models, (table[["x"]], dask.array.from_array(X, chunks=(500, 1))), strict=True):
        numpy.testing.assert_allclose(model.bandwidth_, whole.bandwidth_, rtol=1e-3)
        predicted = model.predict(queries)
        assert type(predicted).__module__.startswith("dask")
        numpy.testing.assert_allclose(predicted.compute(), model.predict(queries.compute()), rtol=1e-9)
        assert not hasattr(predicted, "head") or len(predicted.head(3)) == 3
        numpy.testing.assert_allclose(
            [answer.compute() for answer in model.predict(queries, return_std=True)],
            model.predict(queries.compute(), return_std=True),
        )
        with pytest.raises(TypeError, match="X: a Dask collection would be pulled into memory"):
            model.interval(queries)
    assert models[0].feature_names_in_.tolist() == ["x"]
    points, both = dask.array.from_array(X, chunks=(500, 1)), dask.array.ones((2_003, 2), chunks=(500, 2))
    for queries, outputs in ((table[["x"]], table[["x", "y"]]), (points, both)):
        model = KernelRegressor(bandwidth=0.3).fit(queries, outputs)
        assert model.predict(queries).compute().shape == (2_003, 2)
    with pytest.raises(ValueError, match="sample_weight: a fit in parts knows none"):
        KernelRegressor().fit(table[["x"]], table["y"], numpy.ones(2_003))
    with pytest.raises(ValueError, match="kernel: a fit in parts knows only the Gaussian"):
        KernelRegressor("tricube").fit(table[["x"]], table["y"])
    with pytest.raises(ValueError, match="X: expected one feature, got 2"):
        KernelRegressor().fit(table[["x", "y"]], table["y"])
    with pytest.raises(TypeError, match="y: expected a Dask"):
        KernelRegressor().fit(table[["x"]], y)


@pytest.mark.parametrize("labels", [["low", "high"], [3, 7], [True, False]], ids=["text", "int", "bool"])
def test_classes_of_a_dask_collection_stay_where_they_are(labels, monkeypatch):
    X, y = curve(2_003)
    table = pandas.DataFrame({"x": X[:, 0], "y": numpy.array(labels)[(y > 1).astype(int)]})
    parts = dask.dataframe.from_pandas(table, npartitions=5)
    whole = KernelClassifier(counts=True).fit(table[["x"]], table["y"])
    rows = [dask.array.from_array(table[name].to_numpy(), chunks=500) for name in ("x", "y")]
    monkeypatch.setattr(type(parts), "__array__", None)  # what pulls a frame into memory
    for queries, values in ((parts[["x"]], parts["y"]), (parts[["x"]], parts[["y"]]), (rows[0][:, None], rows[1])):
        model = KernelClassifier().fit(queries, values)
        assert model.classes_.tolist() == whole.classes_.tolist()
        numpy.testing.assert_allclose(model.bandwidth_, whole.bandwidth_, rtol=1e-3)
        exact = KernelClassifier(bandwidth=model.bandwidth_, counts=True).fit(X, table["y"])
        assert model.loo_error_ == pytest.approx(exact.loo_error_, rel=1e-9)
        shares, classes = model.predict_proba(queries), model.predict(queries)
        assert all(type(lazy).__module__.startswith("dask") for lazy in (shares, classes))
        numpy.testing.assert_allclose(shares.compute(), exact.predict_proba(X), rtol=1e-9, atol=1e-12)
        assert (numpy.asarray(classes.compute()) == exact.predict(X)).all()
    assert shares.shape == (2_003, 2)
    frame = KernelClassifier(bandwidth=0.3).fit(parts[["x"]], parts["y"]).predict_proba(parts[["x"]]).compute()
    assert frame.columns.tolist() == whole.classes_.tolist()


def test_classes_of_parts_are_checked_as_those_of_a_frame_are():
    table = pandas.DataFrame({"x": numpy.arange(40.0), "y": numpy.arange(40) % 3, "odd": ["a", None] * 20})
    parts = dask.dataframe.from_pandas(table.assign(z=table["x"] + 0.5), npartitions=2)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        KernelClassifier().fit(parts[["x"]], parts["z"])
    with pytest.raises(ValueError, match="y: expected a class for each row, got missing ones"):
        KernelClassifier().fit(parts[["x"]], parts["odd"])
    with pytest.raises(TypeError, match="y: expected a Dask Series or array, like X"):
        KernelClassifier().fit(parts[["x"]], table["y"])
    with pytest.raises(TypeError, match="X: expected a Dask"):
        KernelClassifier().fit(table[["x"]], parts["y"])
    with pytest.raises(ValueError, match="sample_weight: a fit in parts knows none"):
        KernelClassifier().fit(parts[["x"]], parts["y"], table["x"])
    with pytest.raises(ValueError, match="X: expected one feature, got 2"):
        KernelClassifier().fit(parts[["x", "y"]], parts["y"])


def test_parts_without_rows_have_no_answers():
    X, y = curve(301)
    table = pandas.DataFrame({"x": numpy.sort(X[:, 0]), "y": y, "kind": y > 1})
    parts = dask.dataframe.from_pandas(table, npartitions=5)
    some, few = parts[parts["x"] > 3], table[table["x"] > 3]
    for queries, expected in ((some[["x"]], few[["x"]]), (some[["x"]].values, few[["x"]].to_numpy())):
        model = KernelRegressor(bandwidth=0.3).fit(queries, some["y"])
        numpy.testing.assert_allclose(model.predict(queries).compute(), model.predict(expected))
    classes = KernelClassifier(bandwidth=0.3).fit(some[["x"]], some["kind"])
    assert (classes.predict(some[["x"]]).compute() == classes.predict(few[["x"]])).all()


def test_parts_that_make_no_curve_are_refused():
    table = pandas.DataFrame({"x": numpy.arange(40.0), "y": numpy.sin(numpy.arange(40))})
    parts = dask.dataframe.from_pandas(table, npartitions=3)
    none = parts[parts["x"] > 99]
    with pytest.raises(ValueError, match="X: expected one sample or more, got parts without rows"):
        KernelRegressor().fit(none[["x"]], none["y"])
    with pytest.raises(ValueError, match=r"y spans .*, whose square float64 cannot hold"):
        KernelRegressor().fit(parts[["x"]], parts["y"] * 1e300)
    model = KernelRegressor(bandwidth=1.0).partial_fit(table[["x"]], table["y"])
    with pytest.raises(ValueError, match=r"X spans 1e\+200, whose square float64 cannot hold"):
        model.partial_fit(table[["x"]] + 1e200, table["y"])


def test_what_has_kept_sums_goes_on_with_sums():
    X, y = curve(301)
    model, other = (KernelRegressor(bandwidth=0.3).partial_fit(X, y) for _ in range(2))
    for changed in ({"kernel": "boxcar"}, {"robust": 1}, {"bandwidth": "one_se"}):
        model.set_params(kernel="gaussian", robust=0, bandwidth=0.3).set_params(**changed)
        for go_on in (lambda: model.partial_fit(X, y), lambda: model.merge(other)):
            with pytest.raises(ValueError, match=f"{next(iter(changed))}: a fit in parts knows only the Gaussian"):
                go_on()
