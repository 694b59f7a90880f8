"""Gaussian sums through a grid, against the sums themselves."""

import numpy
import pytest
import torch

from regard.attention.loops.grid_sums import least_variance
from regard.kernel.grid_scheme import ENVELOPE, NOISE, SCHEMES, make_scheme
from regard.kernel.grid_sums import gaussian_sums
from regard.kernel.kernels_nd import KernelND
from regard.kernel.local import exponents
from regard.kernel.sums_nd import SamplesND, Targets


@pytest.fixture(autouse=True)
def _pairs_cost_more(monkeypatch):
    """A grid pays for the few points of a test."""
    monkeypatch.setattr("regard.kernel.grid_sums.PAIR", 1e9)


def grid_sums(points, columns, queries, order, **options):
    """Of points in widths."""
    kernel = KernelND("gaussian", *numpy.ones((2, points.shape[1])))
    return gaussian_sums(kernel, points, columns, queries, order=order, **options)


def plain_sums(points, columns, queries, order=0):
    v = points - queries[:, None]  # (n, m, features)
    kernel = numpy.exp(-(v**2).sum(-1) / 2)
    return numpy.stack([(kernel * (v**row).prod(-1)) @ columns for row in exponents(points.shape[1], order)], 1)


def errors(sums, points, columns, queries, order=0, left_out=None):
    """Of each query, relative to what they are promised by (times what a row is among evenly spread samples)."""
    truth = plain_sums(points, columns, queries, order)
    if left_out is not None:
        truth[:, 0] -= left_out
    mean = abs(columns).sum(0) / columns[:, 0].sum()
    sizes = numpy.maximum(abs(truth[:, :1]), mean * truth[:, :1, :1])
    moments = numpy.array([1, 0.8, 1, 1.6, 3])[exponents(points.shape[1], order)].prod(1)
    return (abs(sums - truth) / sizes / moments[:, None]).max((1, 2))


def case(features, n=151, m=701, size=12.0, seed=0):
    random = numpy.random.default_rng(seed)
    points, queries = size * random.random((m, features)), size * random.random((n, features))
    return points, numpy.column_stack([random.uniform(0.5, 1, m), random.normal(size=(m, 2))]), queries


@pytest.mark.parametrize("tolerance", [1e-6, 1e-12])
@pytest.mark.parametrize("order", [0, 1, 2, 4])
@pytest.mark.parametrize("features", [1, 2, 3])
def test_sums_are_the_plain_sums(features, order, tolerance):
    points, columns, queries = case(features, size=7.0)
    sums, exact = grid_sums(points, columns, queries, order, tolerance=tolerance)
    assert exact.mean() > 0.95
    assert errors(sums, points, columns, queries, order)[exact].max() < max(tolerance, 1e-9)


def clusters(features, random):
    """A dense cluster, a sparse one, one heavy sample and the gaps between them, and queries everywhere."""
    dense, sparse = random.normal(size=(901, features)), 9 + 3 * random.normal(size=(23, features))
    heavy = numpy.full((1, features), -9.0)
    points = numpy.concatenate([dense, sparse, heavy])
    weights = numpy.concatenate([numpy.ones(901), numpy.full(23, 1e-3), [1e6]])
    values = random.standard_cauchy((len(points), 2))
    queries = numpy.concatenate([random.uniform(-14, 20, (701, features)), points[::7], 40 * dense[:17]])
    return points, numpy.column_stack([weights, weights[:, None] * values]), queries


@pytest.mark.parametrize(("tolerance", "order"), [(1e-6, 0), (1e-12, 0), (1e-6, 2), (1e-12, 2)])
@pytest.mark.parametrize(
    ("features", "width"),
    [(1, 30.0), (1, 3.0), (1, 0.3), (1, 0.03), (2, 30.0), (2, 3.0), (2, 1.0), (2, 0.1), (3, 30.0), (3, 3.0)],
)
def test_what_is_called_exact_is(features, width, tolerance, order):
    """In tails, in gaps, and beside samples that outweigh all others, however wide the window."""
    points, columns, queries = clusters(features, numpy.random.default_rng(1))
    points, queries = points / width, queries / width
    sums, exact = grid_sums(points, columns, queries, order, tolerance=tolerance)
    if order == 0:
        assert exact.any()
        assert width == 30 or not exact.all()
    worst = errors(sums[exact], points, columns, queries[exact], order).max(initial=0)
    assert worst < max(tolerance, 1e-9)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-12])
@pytest.mark.parametrize("spacing", [0.25, 0.3])
@pytest.mark.parametrize("features", [1, 2])
def test_errors_that_add_up_are_within_the_bound(features, spacing, tolerance):
    """Samples at the same place of every cell, so that no errors cancel, and queries at all places of one."""
    places = numpy.meshgrid(*[numpy.arange(0, 20, spacing)] * features)
    points = numpy.stack([place.ravel() for place in places], 1)
    columns = numpy.column_stack([numpy.ones(len(points)), numpy.random.default_rng(2).normal(size=len(points))])
    queries = numpy.repeat(numpy.linspace(9, 9 + 2 * spacing, 101)[:, None], features, 1)
    sums, exact = grid_sums(points, columns, queries, 0, tolerance=tolerance)
    assert exact.all()
    assert errors(sums, points, columns, queries).max() < max(tolerance, 1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_is_as_good_as_it_says(monkeypatch, scheme):
    """One sample, and queries at any distance: the error falls with it."""
    monkeypatch.setattr("regard.kernel.grid_scheme.SCHEMES", (scheme,))
    random, bounds = numpy.random.default_rng(3), make_scheme(*scheme, 4).errors
    points, columns = random.random((1, 1)), numpy.ones((1, 1))
    queries = points + random.uniform(-4, 4, (3001, 1))
    sums, _ = grid_sums(points, columns, queries, 4, tolerance=1e-6)
    wrong = abs(sums - plain_sums(points, columns, queries, 4))[:, :, 0] - NOISE
    wrong /= numpy.exp(-((queries - points) ** 2) / (2 * ENVELOPE))
    assert (wrong <= bounds).all()
    assert (wrong.max(0) > bounds / 8).all()  # nor much better


def test_rows_above_value_order_are_of_weights_alone():
    points, columns, queries = case(2)
    whole, _ = grid_sums(points, columns, queries, 3, tolerance=1e-12)
    sums, _ = grid_sums(points, columns, queries, 3, tolerance=1e-12, value_order=1)
    assert (sums[:, 3:, 1:] == 0).all()
    sums[:, 3:, 1:] = whole[:, 3:, 1:]
    assert (sums == whole).all()


@pytest.mark.parametrize("features", [1, 2, 3])
def test_a_sample_that_is_left_out_decides_nothing(features):
    """Of samples almost alone, so that little or nothing is left of the sums."""
    points, columns, _ = case(features, m=61, size={1: 400.0, 2: 50.0, 3: 25.0}[features])
    one = numpy.arange(61)[:, None] + [0, 1]
    sums, exact = grid_sums(points, columns, points, 0, tolerance=1e-12, left_out=one)
    assert 0 < exact.sum() < len(exact)
    assert errors(sums[exact], points, columns, points[exact], left_out=columns[exact]).max() < 1e-9


def test_samples_on_a_line_are_not_exact_for_fits():
    points, columns, queries = case(2)
    points[:, 1], queries[:, 1] = points[:, 0] + 1e-6 * points[:, 1], queries[:, 0]
    assert grid_sums(points, columns, queries, 0, tolerance=1e-12)[1].all()
    assert not grid_sums(points, columns, queries, 2, tolerance=1e-12)[1].any()


@pytest.mark.parametrize("features", [1, 2, 3])
def test_the_bound_of_the_least_variance(features):
    """Below the variance along any direction, and not far below where all directions vary alike."""
    random = numpy.random.default_rng(features)
    for spread in (numpy.ones(features), random.uniform(0.1, 2, features)):
        v, weights = random.normal(1.5, 1, (997, features)) * spread, random.uniform(0.5, 1, 997)
        sums = (weights[:, None] * (v[:, None] ** exponents(features, 2)).prod(-1)).sum(0)
        covariance = numpy.cov(v.T, aweights=weights, ddof=0).reshape(features, features)
        least, bound = numpy.linalg.eigvalsh(covariance)[0], least_variance(sums, features)
        assert 0 < bound <= least * (1 + 1e-9)
        assert bound > least / 3 or spread.min() < 1


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    points, columns, queries = case(3, n=503, m=5003, size=9.0)
    monkeypatch.setattr("regard.attention.threads.SHARE", 1)
    results = []
    for workers in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
        results.append(grid_sums(points, columns, queries, 1, tolerance=1e-12))
    assert all((results[0][0] == sums).all() and (results[0][1] == exact).all() for sums, exact in results[1:])


def test_no_grid_where_it_does_not_pay(monkeypatch):
    points, columns, queries = case(3)
    assert grid_sums(points, columns, queries, 0, tolerance=1e-6) is not None
    assert grid_sums(points, columns, queries + 1e3, 0, tolerance=1e-6) is None  # nothing near
    assert grid_sums(1e3 * points, columns, queries * 1e3, 0, tolerance=1e-6) is None  # too large
    assert grid_sums(points, 0 * columns, queries, 0, tolerance=1e-6) is None
    monkeypatch.setattr("regard.kernel.grid_sums.PAIR", 1.0)
    assert grid_sums(points, columns, queries, 0, tolerance=1e-6) is None


def test_one_value_among_zeros_is_exact_nowhere_else():
    """Beside it, its error is large for a column that is 0 but for it; weights are fine everywhere."""
    points, _, _ = case(1, m=40009, size=40000.0)
    columns = numpy.stack([numpy.ones(len(points)), numpy.zeros(len(points))], 1)
    columns[17, 1] = 1.0
    queries = points[17] + numpy.linspace(-7, 7, 211)[:, None]
    sums, exact = grid_sums(points, columns, queries, 0, tolerance=1e-6)
    worst = errors(sums, points, columns, queries)
    assert worst[exact].max() < 1e-6 < worst[~exact].max()
    assert grid_sums(points, columns[:, :1], queries, 0, tolerance=1e-6)[1].all()


def test_a_grid_that_is_too_large_is_one_for_each_part(monkeypatch):
    points, columns, queries = case(2, n=601, m=2003, size=70.0)
    monkeypatch.setattr("regard.kernel.grid_sums.MEMORY", 4e6)
    sums, exact = grid_sums(points, columns, queries, 1, tolerance=1e-12, left_out=numpy.zeros((601, 2), int))
    assert exact.mean() > 0.8
    assert errors(sums, points, columns, queries, 1)[exact].max() < 1e-9
    monkeypatch.setattr("regard.kernel.grid_sums.SIDE", 100.0)
    assert grid_sums(points, columns, queries, 1, tolerance=1e-12) is None


def kernels(features):
    widths = numpy.array([0.7, 1.3, 0.9])[:features]
    return KernelND("gaussian", widths, numpy.array([0.5, 2.0, 1.1])[:features])


@pytest.mark.parametrize("form", ["kernel", "squared"])
@pytest.mark.parametrize(("features", "order"), [(1, 4), (2, 0), (2, 2), (3, 1)])
def test_samples_take_the_grid_and_sum_the_rest_directly(monkeypatch, features, order, form):
    """Single samples left out at their own places, elsewhere and ranges of them; and queries far away."""
    points, columns, queries = case(features)
    queries[:101] = points[:101]
    queries[101:113] += 30
    left_out = numpy.stack([numpy.arange(len(queries))] * 2, 1)
    left_out[:131, 1] += 1
    left_out[50:60, 1] += 7
    asked = []
    original = SamplesND._prepare
    monkeypatch.setattr(SamplesND, "_prepare", lambda self, *a: asked.append(len(a[1].points)) or original(self, *a))
    samples, kernel = SamplesND(points, columns), kernels(features)
    targets = Targets(queries, left_out=left_out)
    sums = samples.sums(kernel, targets, order=order, form=form)
    assert 12 + 10 + 18 <= asked[0] < 100  # far away, ranges, and others than the query itself
    monkeypatch.setattr("regard.kernel.grid_sums.MEMORY", 0)
    direct = samples.sums(kernel, targets, order=order, form=form)
    near = numpy.flatnonzero(direct[:, 0, 0] > 1e-6)
    sizes = (kernel.widths / kernel.units / (2**0.5 if form == "squared" else 1)) ** exponents(features, order)
    allowed = direct[:, :1, :1] * sizes.prod(1)[:, None]
    assert (abs(sums - direct)[near] <= 1e-8 * allowed[near]).all()


def test_features_of_infinite_width_are_dropped_from_averages():
    points, columns, queries = case(3)
    kernel = KernelND("gaussian", numpy.array([1.0, numpy.inf, 2.0]), numpy.ones(3))
    sums, exact = gaussian_sums(kernel, points, columns, queries, order=0, tolerance=1e-12)
    plain = plain_sums(points[:, [0, 2]] / [1, 2], columns, queries[:, [0, 2]] / [1, 2])
    numpy.testing.assert_allclose(sums[exact], plain[exact], rtol=1e-8, atol=1e-8)
    assert exact.mean() > 0.9
    assert gaussian_sums(kernel, points, columns, queries, order=1, tolerance=1e-12) is None


@pytest.mark.parametrize(
    "kernel",
    [
        KernelND("laplace", numpy.ones(2), numpy.ones(2)),
        KernelND("gaussian", numpy.ones(2), numpy.ones(2), periods=numpy.array([5.0, numpy.inf])),
        KernelND("gaussian", numpy.ones(2), numpy.ones(2), tables=(numpy.eye(2),)),
        KernelND("gaussian", numpy.full(2, numpy.inf), numpy.ones(2)),
    ],
)
def test_other_kernels_have_no_grid(kernel):
    assert gaussian_sums(kernel, *case(2), order=0, tolerance=1e-12) is None
