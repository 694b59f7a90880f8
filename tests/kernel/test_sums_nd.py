"""Kernel sums of several features, against the sums themselves."""

import numpy
import pytest
import torch

from regard.attention.kernels import KERNELS
from regard.kernel import sums_nd as cloud
from regard.kernel.sums_nd import cloud_sums


def kernel_of(name, u):
    inside = u <= 1
    u = numpy.minimum(u, 1) if name not in ("gaussian", "laplace") else u
    formula = {
        "gaussian": lambda: numpy.exp(-u * u / 2),
        "laplace": lambda: numpy.exp(-u),
        "constant": lambda: numpy.ones_like(u),
        "boxcar": lambda: inside * 1.0,
        "triangular": lambda: 1 - u,
        "epanechnikov": lambda: 1 - u**2,
        "biweight": lambda: (1 - u**2) ** 2,
        "triweight": lambda: (1 - u**2) ** 3,
        "tricube": lambda: (1 - u**3) ** 3,
        "cosine": lambda: numpy.cos(numpy.pi / 2 * u),
    }
    return formula[name]()


def slope_of(name, u, step=1e-6):
    """−u K′(u) / u², by differences."""
    return -(kernel_of(name, u + step) - kernel_of(name, numpy.abs(u - step))) / (2 * step) / numpy.maximum(u, 1e-3)


def direct_sums(name, points, columns, queries, own, what):
    v = points[None] - queries[:, None]  # (n, m, features)
    u = numpy.sqrt((v**2).sum(-1))
    kernel, features = kernel_of(name, u), points.shape[1]
    slope = slope_of(name, u) if what == "slope" else None
    for each in (kernel, slope) if what == "slope" else (kernel,):
        each[own >= 0, own[own >= 0]] = 0
    rows = [kernel]
    if what == "line":
        rows += [kernel * v[..., a] for a in range(features)]
        rows += [kernel * v[..., a] * v[..., b] for a in range(features) for b in range(a, features)]
    if what == "slope":
        rows += [slope * v[..., a] ** 2 for a in range(features)]
    return numpy.stack([row @ columns for row in rows], 1)


def case(features, n=83, m=1201, spread=3.0, seed=0):
    random = numpy.random.default_rng(seed)
    points, queries = spread * random.normal(size=(m, features)), spread * random.normal(size=(n, features))
    return points, numpy.stack([random.uniform(0.5, 1, m), random.normal(size=m)], 1), queries


@pytest.mark.parametrize("what", ["average", "line", "slope"])
@pytest.mark.parametrize("features", [2, 3, 5])
@pytest.mark.parametrize("name", KERNELS)
def test_sums_are_the_direct_sums(name, features, what):
    points, columns, queries = case(features)
    own = numpy.full(len(queries), -1)
    own[:40] = numpy.arange(40) * 7
    queries[:40] = points[own[:40]]
    truth = direct_sums(name, points, columns, queries, own, what)
    found = cloud_sums(name, points, columns, queries, own, what)
    tolerance = 1e-4 if what == "slope" else 1e-10  # the slope's truth is a difference
    numpy.testing.assert_allclose(found, truth, rtol=tolerance, atol=tolerance * numpy.abs(truth).max())


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_where_every_weight_underflows_the_nearest_decides(name):
    points, columns, queries = case(3)
    queries += 1e4
    sums = cloud_sums(name, points, columns, queries)
    exponent = numpy.sqrt(((points[None] - queries[:, None]) ** 2).sum(-1))
    exponent = -(exponent**2) / 2 if name == "gaussian" else -exponent
    weights = numpy.exp(exponent - exponent.max(1, keepdims=True))
    truth = (weights @ columns[:, 1:]) / (weights @ columns[:, :1])
    numpy.testing.assert_allclose(sums[:, 0, 1:] / sums[:, 0, :1], truth, rtol=1e-6)


def test_one_sample_and_none_in_reach():
    one = numpy.zeros((1, 2))
    columns = numpy.ones((1, 2))
    queries = numpy.array([[0.0, 0.0], [300.0, 0.0]])
    assert cloud_sums("epanechnikov", one, columns, queries)[:, 0, 0].tolist() == [1, 0]
    assert cloud_sums("gaussian", one, columns, queries)[:, 0, 0].tolist() == [1, 1]  # relative to the nearest
    assert cloud_sums("epanechnikov", one, columns, one, numpy.array([0]))[0, 0, 0] == 0


@pytest.mark.parametrize("name", ["gaussian", "laplace", "tricube"])
def test_blocks_out_of_reach_are_skipped_and_nothing_else(name):
    """Clusters far apart: most pairs of tiles and blocks need not be looked at, and the sums are the same."""
    points, columns, queries = case(2, n=401, m=5003, spread=0.7)
    random = numpy.random.default_rng(5)
    points += 90 * random.integers(0, 6, (len(points), 2))
    queries += 90 * random.integers(0, 6, (len(queries), 2))
    own = numpy.full(len(queries), -1)
    truth = direct_sums(name, points, columns, queries, own, "average")
    found = cloud_sums(name, points, columns, queries)
    near = truth[:, 0, 0] > cloud.TINY
    numpy.testing.assert_allclose(found[near], truth[near], rtol=1e-10, atol=1e-10)


def test_neighbours_in_the_order_are_near_each_other():
    points, _, _ = case(3, m=4001)
    ordered = points[cloud.nearby(points)]
    assert sorted(map(tuple, ordered)) == sorted(map(tuple, points))
    steps = numpy.linalg.norm(numpy.diff(ordered, axis=0), axis=1).mean()
    assert steps < numpy.linalg.norm(numpy.diff(points, axis=0), axis=1).mean() / 4


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    points, columns, queries = case(3, n=307)
    monkeypatch.setattr("regard.attention.threads.SHARE", 1)
    found = []
    for workers in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
        found.append(cloud_sums("gaussian", points, columns, queries))
    assert all(numpy.array_equal(found[0], other) for other in found[1:])
