"""Kernel sums over several features, against the sums themselves."""

import itertools

import numpy
import pytest
import torch

from regard.attention.kernels import KERNELS
from regard.kernel.bandwidth import WITHOUT_SLOPE
from regard.kernel.kernels_nd import KernelND
from regard.kernel.local import exponents
from regard.kernel.sums_nd import SamplesND, Targets, monomial_parents, spatial_order
from tests.attention.kernel_sums import SMOOTH, kernel_and_slope

# ---------------------------------------------------------------------------------------------------- plain formulas


def differences(kernel, points, queries):
    """Distances of each feature and basis functions, (n, m, features) each."""
    apart = points[None] - queries[:, None]
    periods = numpy.full(kernel.features, numpy.inf) if kernel.periods is None else kernel.periods
    circle, radius = numpy.isfinite(periods), numpy.where(numpy.isfinite(periods), periods, 1) / (2 * numpy.pi)
    distances = numpy.where(circle, 2 * radius * numpy.sin(apart / (2 * radius)), apart)
    return distances, numpy.where(circle, radius * numpy.sin(apart / radius), apart) / kernel.units


def log_weights(kernel, points, queries, codes, query_codes, scales=1.0):
    """log K (n, m), −inf where it is 0."""
    distances, _ = differences(kernel, points, queries)
    z = distances / kernel.widths / numpy.reshape(scales, (-1, 1, 1))
    far = numpy.sqrt((z**2).sum(-1))
    each = numpy.abs(z) if kernel.product else far[..., None]
    if kernel.name == "gaussian":
        logs = -(far**2) / 2
    elif kernel.name == "laplace":
        logs = -each.sum(-1)
    else:
        with numpy.errstate(divide="ignore"):
            logs = sum(numpy.log(kernel_and_slope(kernel.name, u)[0]) for u in numpy.moveaxis(each, -1, 0)) + 0 * far
    with numpy.errstate(divide="ignore"):
        for k, table in enumerate(kernel.tables):
            logs = logs + numpy.log(table)[query_codes[:, k, None], codes[None, :, k]]
    return logs


def plain_sums(kernel, points, columns, queries, codes, query_codes, *, order, form, left_out, scales):
    """The definition, relative to the largest weight, and how large an error may be that is called 1."""
    logs = log_weights(kernel, points, queries, codes, query_codes, scales)
    index = numpy.arange(len(points))
    if left_out is not None:
        logs[(left_out[:, :1] <= index) & (index < left_out[:, 1:])] = -numpy.inf
    logs -= numpy.maximum(logs.max(1, keepdims=True, initial=-1e300), -1e300)
    weights = numpy.exp((2 if form == "squared" else 1) * logs)
    _, basis = differences(kernel, points, queries)
    powers = exponents(kernel.features, order)
    rows = [weights * numpy.prod(basis**power, -1) for power in powers]
    sizes = numpy.stack([numpy.abs(row) @ numpy.abs(columns) for row in rows], 1)
    # What counts at all: far terms may be cut off where the weights are 1e-17 of the largest.
    measures = numpy.where(numpy.isfinite(kernel.widths), kernel.widths / kernel.units, 1)
    by_width = numpy.prod(measures**powers, -1) * numpy.reshape(scales, (-1, 1)) ** powers.sum(-1)
    allowed = numpy.maximum(sizes, sizes[:, :1] * by_width[:, :, None])
    return numpy.stack([row @ columns for row in rows], 1), allowed


def assert_same(sums, truth, allowed, tolerance=1e-9):
    """Up to a positive factor per query; 0 where nothing counts."""
    assert sums.shape == truth.shape
    reached = truth[:, 0, 0] > 0
    assert (sums[~reached] == 0).all()
    assert (sums[reached, 0, 0] > 0).all()
    factor = truth[reached, :1, :1] / sums[reached, :1, :1]
    assert (numpy.abs(sums[reached] * factor - truth[reached]) <= tolerance * allowed[reached]).all()


# ------------------------------------------------------------------------------------------------------------- cases

CATEGORIES = (3, 2)


def make_case(name, features, categorical, random, *, product=False, n=23, m=211):
    """Samples, queries and a kernel of all kinds of features: some periodic, some of infinite width."""
    points, queries = (random.normal(size=(count, features)) * 2 for count in (m, n))
    queries[:7] = points[:7]
    codes, query_codes = (random.integers(0, CATEGORIES[:categorical], (count, categorical)) for count in (m, n))
    tables = tuple(numpy.eye(size) + 0.3 * (1 - numpy.eye(size)) for size in CATEGORIES[:categorical])
    wide = numpy.where(random.random(features) < 0.2, numpy.inf, 1.0)
    kernel = KernelND(
        name,
        widths=random.uniform(1, 3, features) * wide,
        units=random.uniform(0.5, 2, features),
        product=product,
        periods=numpy.where(random.random(features) < 0.3, 5.0, numpy.inf),
        tables=tables,
        table_slopes=tuple(0.1 * table for table in tables),
    )
    columns = numpy.column_stack([random.uniform(0.5, 1, m), random.normal(size=(m, random.integers(1, 4)))])
    return kernel, points, columns, queries, codes, query_codes


def sums_of(samples, kernel, queries, codes=None, left_out=None, scales=None, **options):
    return samples.sums(kernel, Targets(queries, codes, left_out, scales), **options)


def random_ranges(random, n, m):
    """Ranges of samples: none, the sample that is the query, and up to 40."""
    low = random.integers(0, m, n)
    ranges = numpy.stack([low, numpy.minimum(low + random.integers(0, 40, n), m)], 1)
    ranges[:7, 0] = numpy.arange(7)
    ranges[:7, 1] = 1 + numpy.arange(7)
    return ranges


# ------------------------------------------------------------------------------------------------------------- tests


def test_monomials_are_graded_and_products_of_earlier_ones():
    assert exponents(2, 2).tolist() == [[0, 0], [1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    for features, order in itertools.product(range(5), range(5)):
        rows, (parents, factors) = exponents(features, order), monomial_parents(features, order)
        for r in range(1, len(rows)):
            assert (rows[r] - rows[parents[r]] == numpy.eye(features)[factors[r]]).all()
        assert len({tuple(row) for row in rows}) == len(rows) == len(parents)


@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_sums_are_the_plain_sums(name, product, order):
    random = numpy.random.default_rng([order, product, list(KERNELS).index(name)])
    for features, categorical in ((0, 2), (1, 0), (2, 1), (3, 0), (3, 2), (5, 1)):
        kernel, points, columns, queries, codes, query_codes = make_case(
            name, features, categorical, random, product=product
        )
        n, m = len(queries), len(points)
        options = {
            "order": order,
            "form": ["kernel", "squared"][random.integers(2)],
            "left_out": [None, random_ranges(random, n, m)][random.integers(2)],
            "scales": [numpy.ones(n), random.uniform(0.3, 2, n)][random.integers(2)],
        }
        sums = sums_of(SamplesND(points, columns, codes), kernel, queries, query_codes, **options)
        assert_same(sums, *plain_sums(kernel, points, columns, queries, codes, query_codes, **options))


@pytest.mark.parametrize("name", ["gaussian", "laplace", "tricube"])
@pytest.mark.parametrize("order", [0, 2])
def test_blocks_out_of_reach_are_skipped_and_nothing_else(name, order):
    """Clusters, so that most pairs of tiles and blocks need not be visited; several blocks of several tiles."""
    random = numpy.random.default_rng(5)
    points, queries = (random.normal(size=(m, 2)) + 40 * random.integers(0, 4, (m, 2)) for m in (5003, 211))
    columns = numpy.column_stack([random.uniform(0.5, 1, 5003), random.normal(size=5003)])
    kernel = KernelND(name, numpy.array([0.7, 3.0]), numpy.ones(2))
    none, ones = numpy.zeros((5003, 0), int), numpy.ones(211)
    options = {"order": order, "form": "kernel", "left_out": random_ranges(random, 211, 5003), "scales": ones}
    samples, plain = SamplesND(points, columns), plain_sums(kernel, points, columns, queries, none, none, **options)
    assert_same(sums_of(samples, kernel, queries, **options), *plain)
    assert_same(sums_of(samples, kernel, queries, tolerance=1e-6, **options), *plain, tolerance=2e-6)
    lines = sums_of(samples, kernel, queries, value_order=order // 2, **options)
    half = len(exponents(2, order // 2))
    assert_same(lines[:, :half], plain[0][:, :half], plain[1][:, :half])
    assert_same(lines[..., :1], plain[0][..., :1], plain[1][..., :1])


@pytest.mark.parametrize("form", ["kernel", "squared"])
@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_where_every_weight_underflows_the_largest_decides(name, product, form):
    """A factor of 0 takes its samples out, however near they are."""
    random = numpy.random.default_rng(3)
    for features, categorical in ((2, 0), (3, 1)):
        kernel, points, columns, queries, codes, query_codes = make_case(
            name, features, categorical, random, product=product, m=1201
        )
        tables = tuple(numpy.array([[0, 1, 1e-9], [0, 1, 0.5], [1, 0, 0]]) for _ in range(categorical))
        kernel = KernelND(name, kernel.widths * 1e-3, kernel.units * 1e-3, product, None, tables)
        queries[::2] += 1e2
        options = {"order": 1, "form": form, "left_out": random_ranges(random, 23, 1201), "scales": numpy.ones(23)}
        sums = sums_of(SamplesND(points, columns, codes), kernel, queries, query_codes, **options)
        truth, allowed = plain_sums(kernel, points, columns, queries, codes, query_codes, **options)
        assert_same(sums, truth, allowed, tolerance=1e-6)


def test_forms_are_relative_to_the_same_sample():
    """(Σ K)² ≥ Σ K² ≥ (Σ K)² / m for weights of 1, wherever the query is."""
    random = numpy.random.default_rng(4)
    points, queries = random.normal(size=(61, 2)), random.normal(size=(97, 2)) * numpy.logspace(0, 3, 97)[:, None]
    samples, kernel = SamplesND(points, numpy.ones((61, 1))), KernelND("gaussian", numpy.ones(2), numpy.ones(2))
    sums, squares = (sums_of(samples, kernel, queries, form=form)[:, 0, 0] for form in ("kernel", "squared"))
    assert (squares <= sums**2 * (1 + 1e-9)).all()
    assert (squares >= sums**2 / 61 * (1 - 1e-9)).all()


def test_none_in_reach_and_no_queries():
    one, columns = numpy.zeros((1, 2)), numpy.ones((1, 2))
    queries, samples = numpy.array([[0.0, 0.0], [300.0, 0.0]]), SamplesND(one, columns)
    for name, far in (("epanechnikov", 0), ("gaussian", 1)):  # relative to the nearest
        kernel = KernelND(name, numpy.ones(2), numpy.ones(2))
        numpy.testing.assert_allclose(sums_of(samples, kernel, queries)[:, 0, 0], [1, far], rtol=1e-9)
        assert (sums_of(samples, kernel, queries, left_out=numpy.array([[0, 1], [0, 1]])) == 0).all()
        assert sums_of(samples, kernel, numpy.zeros((0, 2)), order=2).shape == (0, 6, 2)


@pytest.mark.parametrize("features", [1, 3, 7])
def test_float32_is_as_exact_as_its_digits(features):
    random = numpy.random.default_rng(6)
    points, queries = random.normal(size=(1201, features)) + 50, random.normal(size=(83, features)) * 3 + 50
    samples = SamplesND(points, numpy.column_stack([numpy.ones(1201), random.normal(size=1201)]))
    kernel = KernelND("gaussian", numpy.full(features, 0.5), numpy.ones(features))
    ranges = random_ranges(random, 83, 1201)
    exact, short = (sums_of(samples, kernel, queries, left_out=ranges, single=single)[:, 0] for single in (False, True))
    averages = exact[:, 1] / exact[:, 0], short[:, 1] / short[:, 0]
    numpy.testing.assert_allclose(*averages, atol=2e-5)
    assert (averages[0] != averages[1]).any()


@pytest.mark.parametrize("basis", ["average", "line"])
@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("name", [name for name in KERNELS if name not in WITHOUT_SLOPE])
def test_width_slopes_are_those_of_the_leave_one_out_error(name, product, basis):
    random = numpy.random.default_rng(7)
    m, features, outputs = 83, 3, 2
    points, values = random.normal(size=(m, features)), random.normal(size=(m, outputs))
    codes, weights = random.integers(0, CATEGORIES, (m, 2)), random.uniform(0.5, 1, m)
    scales, one_out = random.uniform(1, 1.5, m), numpy.stack([numpy.arange(m), 1 + numpy.arange(m)], 1)
    samples = SamplesND(points, numpy.column_stack([weights, weights[:, None] * values]), codes)
    logs = numpy.concatenate([numpy.log([2.5, 3.5, 4.0]), numpy.log([0.3, 0.6])])

    def kernel_at(logs):
        same = [numpy.eye(size) for size in CATEGORIES]
        tables = tuple(s + numpy.exp(log) * (1 - s) for s, log in zip(same, logs[features:], strict=True))
        slopes = tuple(numpy.exp(log) * (1 - s) for s, log in zip(same, logs[features:], strict=True))
        units, periods = numpy.array([1.0, 2.0, 0.5]), numpy.array([numpy.inf, 9.0, numpy.inf])
        return KernelND(name, numpy.exp(logs[:features]), units, product, periods, tables, slopes)

    def fit_at(kernel):
        """Estimates, duals and coefficients of local fits to the other samples, from the plain formula."""
        weighed = numpy.exp(log_weights(kernel, points, points, codes, codes, scales)) * weights * (1 - numpy.eye(m))
        x = numpy.ones((m, m, 1))
        if basis == "line":
            x = numpy.concatenate([x, differences(kernel, points, points)[1]], -1)
        inverse = numpy.linalg.inv(numpy.einsum("ij,ija,ijb->iab", weighed, x, x))
        return inverse[:, 0], inverse @ numpy.einsum("ij,ija,jo->iao", weighed, x, values)

    def error_at(logs):
        return ((values - fit_at(kernel_at(logs))[1][:, 0]) ** 2).mean()

    kernel = kernel_at(logs)
    duals, fits = fit_at(kernel)
    factor = sums_of(samples, kernel, points, codes, left_out=one_out, scales=scales)[:, 0, 0]
    assert (factor > 0).all()
    slopes = samples.width_slopes(kernel, Targets(points, codes, one_out, scales), duals, fits)
    gradient = (-2 * (values - fits[:, 0])[:, None] * slopes).sum((0, 2)) / values.size
    step = 1e-5 * numpy.eye(len(logs))
    numeric = [(error_at(logs + h) - error_at(logs - h)) / 2e-5 for h in step]
    numpy.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-6 * numpy.abs(numeric).max())


def test_width_slopes_far_away_have_the_factor_of_the_sums():
    """The average of two values far from a query: d log ratio of their weights by the log width is known."""
    points, columns = numpy.array([[0.0, 0.0], [0.001, 0.0]]), numpy.array([[1.0, 1.0], [1.0, 3.0]])
    query, samples = numpy.array([[1e3, 0.0]]), SamplesND(points, columns)
    kernel = KernelND("gaussian", numpy.ones(2), numpy.ones(2))
    sums = sums_of(samples, kernel, query)[:, 0]
    average = sums[:, 1] / sums[:, 0]
    slopes = samples.width_slopes(kernel, Targets(query), 1 / sums[:, :1], average[:, None, None])
    share = (average - 1) / 2
    ratio_slope = (1e3 - 0.001) ** 2 - 1e6  # of log K_1 − log K_0
    numpy.testing.assert_allclose(slopes[0, 0, 0], 2 * share[0] * (1 - share[0]) * ratio_slope, rtol=1e-6)


def test_neighbours_in_the_order_are_near_each_other():
    points = numpy.random.default_rng(0).normal(size=(4001, 3)) * 3
    ordered = points[spatial_order(points)]
    assert sorted(map(tuple, ordered)) == sorted(map(tuple, points))
    steps = numpy.linalg.norm(numpy.diff(ordered, axis=0), axis=1).mean()
    assert steps < numpy.linalg.norm(numpy.diff(points, axis=0), axis=1).mean() / 4
    eighths = numpy.round(8 * points) / 8  # which are as exact somewhere else
    numpy.testing.assert_array_equal(spatial_order(eighths + 4096), spatial_order(eighths))


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    random = numpy.random.default_rng(0)
    kernel, points, columns, queries, codes, query_codes = make_case("gaussian", 3, 1, random, n=307, m=1201)
    monkeypatch.setattr("regard.attention.threads.SHARE", 1)
    samples, results = SamplesND(points, columns, codes), []
    duals, fits = numpy.ones((307, 1)), numpy.zeros((307, 1, columns.shape[1] - 1))
    for workers in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
        sums = sums_of(samples, kernel, queries, query_codes)
        results.append((sums, samples.width_slopes(kernel, Targets(queries, query_codes), duals, fits)))
    for other in results[1:]:
        assert all(numpy.array_equal(a, b) for a, b in zip(results[0], other, strict=True))
