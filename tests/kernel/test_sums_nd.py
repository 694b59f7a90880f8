"""Kernel sums over several features, against the sums themselves."""

import numpy
import pytest
import torch

from regard.attention.kernels import KERNELS
from regard.kernel.sums_nd import spatial_order, sums_nd
from tests.attention.kernel_sums import SMOOTH, assert_same_sums, kernel_and_slope


def direct_sums(name, points, columns, queries, left_out=None, estimate="average"):
    """The definition, and the same of absolute values, by which errors are judged."""
    v = points[None] - queries[:, None]  # (n, m, features)
    u = numpy.sqrt((v**2).sum(-1))
    features = range(points.shape[1])
    omitted = numpy.zeros_like(u, dtype=bool)
    if left_out is not None:
        omitted[left_out >= 0, left_out[left_out >= 0]] = True
    with numpy.errstate(invalid="ignore"):
        kernel, slope = (
            numpy.where(omitted, 0, table) for table in kernel_and_slope(name, numpy.where(omitted, 1e9, u))
        )
    rows = [kernel]
    if estimate == "linear":
        rows += [kernel * v[..., a] for a in features]
        rows += [kernel * v[..., a] * v[..., b] for a in features for b in features if a <= b]
    if estimate == "slope":
        rows += [slope * v[..., a] ** 2 / numpy.where(u > 0, u, 1) ** 2 for a in features]
    sizes = numpy.stack([numpy.abs(row) @ numpy.abs(columns) for row in rows], 1)
    return numpy.stack([row @ columns for row in rows], 1), sizes


def case(features, n=83, m=1201, spread=3.0, seed=0):
    random = numpy.random.default_rng(seed)
    points, queries = spread * random.normal(size=(m, features)), spread * random.normal(size=(n, features))
    return points, numpy.stack([random.uniform(0.5, 1, m), random.normal(size=m)], 1), queries


@pytest.mark.parametrize("estimate", ["average", "linear", "slope"])
@pytest.mark.parametrize("features", [2, 3, 5])
@pytest.mark.parametrize("name", KERNELS)
def test_sums_are_the_direct_sums(name, features, estimate):
    points, columns, queries = case(features)
    left_out = numpy.full(len(queries), -1)
    left_out[:40] = numpy.arange(40) * 7
    queries[:40] = points[left_out[:40]]
    sums = sums_nd(name, points, columns, queries, left_out, estimate)
    assert_same_sums(sums, *direct_sums(name, points, columns, queries, left_out, estimate))


@pytest.mark.parametrize("name", SMOOTH)
def test_where_every_weight_underflows_the_nearest_decides(name):
    points, columns, queries = case(3)
    queries += 1e4
    assert_same_sums(
        sums_nd(name, points, columns, queries), *direct_sums(name, points, columns, queries), tolerance=1e-6
    )


def test_one_sample_and_none_in_reach():
    one = numpy.zeros((1, 2))
    columns = numpy.ones((1, 2))
    queries = numpy.array([[0.0, 0.0], [300.0, 0.0]])
    assert sums_nd("epanechnikov", one, columns, queries)[:, 0, 0].tolist() == [1, 0]
    assert sums_nd("gaussian", one, columns, queries)[:, 0, 0].tolist() == [1, 1]  # relative to the nearest
    assert sums_nd("epanechnikov", one, columns, one, numpy.array([0]))[0, 0, 0] == 0


@pytest.mark.parametrize("name", ["gaussian", "laplace", "tricube"])
def test_blocks_out_of_reach_are_skipped_and_nothing_else(name):
    """Clusters far apart: most pairs of tiles and blocks need not be visited, and the sums are the same."""
    points, columns, queries = case(2, n=401, m=5003, spread=0.7)
    random = numpy.random.default_rng(5)
    points += 90 * random.integers(0, 6, (len(points), 2))
    queries += 90 * random.integers(0, 6, (len(queries), 2))
    assert_same_sums(sums_nd(name, points, columns, queries), *direct_sums(name, points, columns, queries))


def test_neighbours_in_the_order_are_near_each_other():
    points, _, _ = case(3, m=4001)
    ordered = points[spatial_order(points)]
    assert sorted(map(tuple, ordered)) == sorted(map(tuple, points))
    steps = numpy.linalg.norm(numpy.diff(ordered, axis=0), axis=1).mean()
    assert steps < numpy.linalg.norm(numpy.diff(points, axis=0), axis=1).mean() / 4


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    points, columns, queries = case(3, n=307)
    monkeypatch.setattr("regard.attention.threads.SHARE", 1)
    sums = []
    for workers in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
        sums.append(sums_nd("gaussian", points, columns, queries))
    assert all(numpy.array_equal(sums[0], other) for other in sums[1:])
