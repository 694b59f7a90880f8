"""Samples in parts: compressed on the workers of a local Dask cluster, the state is that of all samples at once."""

import pickle
import resource

import dask
import dask.array
import dask.dataframe
import numpy
import pandas
import pytest
from dask.distributed import Client, LocalCluster

from regard import KernelRegressor
from regard.attention.sums_1d import Samples1D
from regard.kernel.compressed import LIMIT, Compressed, merge_all
from regard.kernel.parts import compress_part, compress_parts, is_distributed
from regard.kernel.pyramid import Pyramid, scan
from tests.kernel.test_compressed import heights_of, local_fit


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each a process of its own."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit="2GB") as workers,
        Client(workers) as client,
    ):
        yield client


def waves(rows, chunk, seed=0):
    """X (rows, 1) and y (rows,), whose chunks are drawn on the workers."""
    random = dask.array.random.default_rng(seed)
    X = random.uniform(0, 1, (rows, 1), chunks=(chunk, 1))
    return X, dask.array.sin(20 * X[:, 0]) + random.normal(0, 0.5, rows, chunks=chunk)


def frame(rows=1009):
    random = numpy.random.default_rng(1)
    hours = pandas.Timestamp("2026-01-01") + pandas.to_timedelta(random.uniform(0, 1e4, rows), unit="h")
    return pandas.DataFrame({"when": hours, "x": random.normal(size=rows), "y": random.normal(size=rows)})


def test_every_collection_of_dask_is_recognised(cluster):
    table = frame()
    parts = dask.dataframe.from_pandas(table, npartitions=5)
    X, y = parts[["x"]], parts["y"]
    whole = Compressed.from_samples(table["x"], table["y"])
    lengths = True  # of the parts are counted, so that arrays know their shapes
    for points, values in [
        (X, y),
        (parts["x"], parts[["y"]]),
        (X.to_dask_array(lengths=lengths), y.to_dask_array(lengths=lengths)),
        (X.values, y.values),
    ]:
        assert is_distributed(points)
        assert is_distributed(values)
        state = compress_parts(points, values)
        numpy.testing.assert_array_equal(state.x, whole.x)
        numpy.testing.assert_allclose(state.mean, whole.mean, rtol=1e-12)
        numpy.testing.assert_allclose(Pyramid(state).error(0.2).loo, Pyramid(whole).error(0.2).loo, rtol=1e-10)
    for other in (table, table["x"], table["x"].to_numpy(), [[1.0]], None):
        assert not is_distributed(other)


def test_dates_are_days_and_outputs_may_be_several(cluster):
    table = frame()
    parts = dask.dataframe.from_pandas(table, npartitions=3)
    state = compress_parts(parts[["when"]], parts[["x", "y"]])
    days = (table["when"] - pandas.Timestamp("1970-01-01")) / pandas.Timedelta(days=1)
    numpy.testing.assert_allclose(state.x, numpy.sort(days), rtol=1e-15)
    numpy.testing.assert_allclose(state.mean, table[["x", "y"]].mean(), rtol=1e-12)


def test_parts_may_be_empty(cluster):
    table = frame()
    parts = dask.dataframe.from_pandas(table, npartitions=5)
    some = parts[parts["x"] > 3]
    state = compress_parts(some[["x"]], some["y"])
    numpy.testing.assert_array_equal(state.x, numpy.sort(table["x"][table["x"] > 3]))


def test_more_rows_than_a_state_keeps_say_the_same_as_in_one_place(cluster):
    X, y = waves(600_011, 100_003)
    state = compress_parts(X, y)
    assert len(pickle.dumps(state)) < 10e6
    x, values = dask.compute(X[:, 0], y)
    assert state.count == len(x)
    assert LIMIT / 2 < state.size <= LIMIT
    width = scan(Pyramid(state))
    order = numpy.argsort(x)
    exact = Samples1D(x[order], numpy.column_stack([numpy.ones(len(x)), values - state.mean])[order])
    queries = numpy.linspace(0, 1, 1009)
    heights = heights_of(state, width, queries)
    numpy.testing.assert_allclose(heights, local_fit(exact.sums("gaussian", width, queries), 0)[0], atol=1e-10)
    assert width == pytest.approx(scan(Pyramid.from_samples(x, values)), rel=1e-4)
    left_out = values[order] - state.mean - local_fit(exact.sums_of_others("gaussian", width), 0)[0][:, 0]
    assert Pyramid(state).error(width).loo[0] == pytest.approx(numpy.square(left_out).mean(), rel=1e-10)


@pytest.mark.faults
def test_fifty_million_rows_do_not_pass_through_the_caller(cluster):
    X, y = waves(50_000_000, 1_000_000)
    compress_parts(X[:1_000_000], y[:1_000_000])  # what is imported and compiled is in memory from here on
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = compress_parts(X, y)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # MB; the rows are 800
    assert state.count == 50_000_000
    assert grown < 100
    width = scan(Pyramid(state))
    queries = numpy.linspace(0.05, 0.95, 101)
    heights = heights_of(state, width, queries)[:, 0] + state.mean[0]
    numpy.testing.assert_allclose(heights, numpy.sin(20 * queries), atol=0.02)


def test_a_fit_in_parts_has_an_answer_at_any_distance():
    random = numpy.random.default_rng(2)
    x = random.uniform(0, 10, LIMIT + 10_007)
    y = numpy.sin(2 * x) + random.normal(0, 0.5, len(x))
    model = KernelRegressor(bandwidth=0.05).partial_fit(x[::2, None], y[::2]).partial_fit(x[1::2, None], y[1::2])
    exact = KernelRegressor(bandwidth=0.05).fit(x[:, None], y)
    near = numpy.linspace(-3, 13, 1009)[:, None]
    numpy.testing.assert_allclose(model.predict(near), exact.predict(near), rtol=1e-9, atol=1e-9)
    far = model.predict([[-1e9], [100.0], [1e5]])
    assert (
        (y[x < 0.01].min() < far[0] < y[x < 0.01].max()) & (y[x > 9.99].min() < far[1]) & (far[2] < y[x > 9.99].max())
    )


def test_other_collections_merge_what_their_parts_make():
    """As a Ray dataset would: each batch becomes bytes, and the bytes one state."""
    table = frame()
    batches = [{name: column.to_numpy() for name, column in table[i : i + 200].items()} for i in range(0, 1009, 200)]
    states = [pickle.dumps(Compressed.from_samples(batch["x"], batch["y"])) for batch in batches]
    merged = merge_all([pickle.loads(state) for state in states])
    numpy.testing.assert_array_equal(merged.x, numpy.sort(table["x"]))


def test_what_cannot_be_merged_is_refused(cluster):
    table = frame()
    parts = dask.dataframe.from_pandas(table, npartitions=5)
    with pytest.raises(TypeError, match="y: expected a Dask DataFrame"):
        compress_parts(parts[["x"]], table["y"])
    with pytest.raises(ValueError, match="y: expected as many parts as X, 5, got 3"):
        compress_parts(parts[["x"]], dask.dataframe.from_pandas(table["y"], npartitions=3))
    with pytest.raises(ValueError, match="X: expected one feature, got 2"):
        compress_parts(parts[["x", "y"]], parts["y"])
    with pytest.raises(ValueError, match="X: expected parts with all columns, got 2 beside each other"):
        compress_parts(dask.array.ones((10, 2), chunks=(5, 1)), dask.array.ones(10, chunks=5))


def test_a_part_has_to_fit_together():
    with pytest.raises(ValueError, match="y: expected a row for each of X in every part, got 2 for 3"):
        compress_part([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(TypeError, match="X: expected numbers, datetimes or durations, got dtype"):
        compress_part(["one", "two"], [1.0, 2.0])
    for name, part in {"X": ([1.0, numpy.nan], [1.0, 2.0]), "y": ([1.0, 2.0], [numpy.inf, 2.0])}.items():
        with pytest.raises(ValueError, match=f"{name}: expected finite numbers"):
            compress_part(*part)


def test_a_collection_means_what_a_frame_means():
    table = pandas.DataFrame({"x": pandas.date_range("2024", periods=40, tz="Europe/Paris"), "y": numpy.arange(40.0)})
    parts = dask.dataframe.from_pandas(table.assign(yes=table["y"] > 5), npartitions=2)
    model, whole = KernelRegressor(bandwidth=3.0), KernelRegressor(bandwidth=3.0, counts=True)
    expected = whole.fit(table[["x"]], table["y"]).predict(table[["x"]])
    numpy.testing.assert_allclose(model.fit(parts[["x"]], parts["y"]).predict(table[["x"]]), expected, rtol=1e-9)
    with pytest.raises(TypeError, match="X: expected numbers, datetimes or durations, got bool"):
        model.fit(parts[["yes"]], parts["y"])
    with pytest.raises(TypeError, match="y: expected numbers, got dtype"):
        model.fit(parts[["y"]], parts["x"])
    with pytest.raises(ValueError, match="X: expected two dimensions, got 1"):
        model.fit(parts["y"], parts["y"])
    with pytest.raises(ValueError, match="categorical: a fit in parts knows only"):
        KernelRegressor(bandwidth=3.0, categorical=[0]).fit(parts[["y"]], parts["y"])
