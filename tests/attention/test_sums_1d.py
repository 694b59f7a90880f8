"""Kernel sums on a line, against the sums themselves; and the short way that `attend` takes with them."""

import numpy
import pytest
import torch

from regard import Kernel, attend, lengths
from regard.attention import sums_1d as line
from regard.attention.kernels import KERNELS
from regard.attention.sums_1d import ROWS, Line, line_average

SMOOTH = ("gaussian", "laplace")


def kernel_and_slope(name, v):
    """K(|v|), relative to the largest of each row where it may underflow, and −|v| K′(|v|) by its own formula."""
    u = numpy.abs(v)
    if name in SMOOTH:
        exponent = -u * u / 2 if name == "gaussian" else -u
        kernel = numpy.exp(exponent - exponent.max(1, keepdims=True))
        return kernel, kernel * (u * u if name == "gaussian" else u)
    if name == "constant":
        return numpy.ones_like(u), numpy.zeros_like(u)
    u = numpy.minimum(u, 1)
    inner = {"epanechnikov": 1, "biweight": 2, "triweight": 3}
    if name == "boxcar":
        kernel, slope = numpy.ones_like(u), numpy.zeros_like(u)
    elif name == "triangular":
        kernel, slope = 1 - u, u
    elif name in inner:
        power, root = inner[name], (1 - u) * (1 + u)
        kernel, slope = root**power, 2 * power * u * u * root ** (power - 1)
    elif name == "tricube":
        root = (1 - u) * (1 + u + u * u)
        kernel, slope = root**3, 9 * u**3 * root**2
    else:
        kernel, slope = numpy.sin(numpy.pi / 2 * (1 - u)), u * numpy.pi / 2 * numpy.sin(numpy.pi / 2 * u)
    inside = numpy.abs(v) <= 1
    return numpy.where(inside, kernel, 0), numpy.where(inside, slope, 0)


def direct_sums(name, x, columns, width, queries, what, own=None):
    """The definition, and the same of absolute values, by which errors are judged."""
    v = (x - queries[:, None]) / width
    if own is not None:
        v[numpy.arange(len(x)), own] = numpy.inf
    with numpy.errstate(invalid="ignore"):
        kernel, slope = kernel_and_slope(name, v)
    if own is not None:
        for each in (kernel, slope, v):
            each[numpy.arange(len(x)), own] = 0
    rows = {"average": [kernel], "line": [kernel, kernel * v, kernel * v * v], "slope": [kernel, slope]}[what]
    scale = {"average": [kernel], "line": [kernel, kernel * numpy.abs(v), kernel * v * v], "slope": [kernel, slope]}
    sizes = numpy.stack([each @ numpy.abs(columns) for each in scale[what]], 1)
    return numpy.stack([each @ columns for each in rows], 1), sizes


def samples(n, seed=0, origin=0.0):
    """Dense and sparse stretches, a gap, samples that share a place, and one that is alone."""
    random = numpy.random.default_rng(seed)
    x = numpy.concatenate([random.uniform(0, 1, n // 2), random.uniform(4, 9, n - n // 2)])
    x[: n // 7] = numpy.round(x[: n // 7], 1)
    if n > 2:
        x[-1] = 31.0
    x = numpy.sort(x) + origin
    weights = random.uniform(0.1, 2, n)
    return x, numpy.stack([weights, weights * (numpy.sin(x) + random.normal(size=n))], 1)


def questions(x, count, seed=1):
    random = numpy.random.default_rng(seed)
    near, far = random.uniform(x[0] - 1, x[-1] + 1, count), random.uniform(x[0] - 400, x[-1] + 400, count // 3)
    return numpy.sort(numpy.concatenate([near, far, x[:3]]))


def assert_same_sums(found, truth, sizes):
    """Up to a positive factor per query; 0 where nothing counts."""
    seen = truth[:, 0, 0] > 0
    assert (found[~seen, 0, 0] == 0).all()
    factor = truth[seen, :1, :1] / found[seen, :1, :1]
    # Against what counts for the query at all: far terms of a local line may be cut off where the weights are 1e-17.
    allowed = 1e-9 * numpy.maximum(sizes[seen], sizes[seen, :1])
    assert (numpy.abs(found[seen] * factor - truth[seen]) <= allowed).all()


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("n", "width"), [(1, 0.3), (2, 7.0), (499, 0.2), (997, 3.1), (601, 0.003), (401, 50.0)])
def test_sums_are_the_direct_sums(name, what, n, width):
    x, columns = samples(n)
    queries = questions(x, 307)
    truth = direct_sums(name, x, columns, width, queries, what)
    assert_same_sums(Line(x, columns).sums(name, width, queries, what), *truth)


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("n", "width"), [(2, 7.0), (499, 0.2), (997, 3.1), (601, 0.003)])
def test_every_sample_about_the_others(name, what, n, width):
    x, columns = samples(n, seed=2)
    truth = direct_sums(name, x, columns, width, x, what, own=numpy.arange(n))
    assert_same_sums(Line(x, columns).sums_of_others(name, width, what), *truth)


def test_a_line_may_be_asked_with_one_width_and_another():
    x, columns = samples(307)
    queries = questions(x, 101)
    line_of_both = Line(x, columns)
    for width in (0.2, 0.2, 1.7, 0.2):
        found = line_of_both.sums("gaussian", width, queries)
        assert numpy.array_equal(found, Line(x, columns).sums("gaussian", width, queries))


@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_of_weight_three_is_three_samples(name):
    x, columns = samples(211, seed=3)
    columns[:, 1] /= columns[:, 0]
    columns[:, 0] = 1
    counts = numpy.random.default_rng(4).integers(1, 4, len(x))
    repeated = Line(numpy.repeat(x, counts), numpy.repeat(columns, counts, axis=0)).sums_of_others(name, 0.2)
    weighted = Line(x, columns * counts[:, None]).sums_of_others(name, 0.2, left_out=columns)
    expected = repeated[numpy.cumsum(counts) - 1]
    assert_same_sums(weighted, expected, numpy.abs(expected))


@pytest.mark.parametrize("name", KERNELS)
def test_far_from_zero_nothing_is_lost(name):
    x, columns = samples(499, origin=2.0**30)
    queries = questions(x, 101)
    truth = direct_sums(name, x, columns, 0.25, queries, "average")
    assert_same_sums(Line(x, columns).sums(name, 0.25, queries), *truth)


def test_many_queries_beyond_the_data_are_interpolated():
    """Where every kernel value underflows: 1,000 widths away, and in a gap between samples."""
    x, columns = samples(997)
    for low, high in ((-40.0, -39.9), (1.6, 1.69), (12.0, 12.09), (60.0, 60.09)):
        queries = numpy.linspace(low, high, 211)
        truth = direct_sums("gaussian", x, columns, 0.1, queries, "average")
        assert_same_sums(Line(x, columns).sums("gaussian", 0.1, queries), *truth)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    x, columns = samples(5003)
    queries = questions(x, 4001)
    monkeypatch.setattr("regard.attention.threads.SHARE", 1)
    for name in ("gaussian", "tricube", "laplace"):
        found = []
        for workers in (1, 2, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
            found.append(Line(x, columns).sums(name, 0.05, queries))
        assert all(numpy.array_equal(found[0], other) for other in found[1:]), name


# ------------------------------------------------------------------------------------------------------ as attention


@pytest.fixture
def sorting(monkeypatch):
    """Sorting, however few pairs there are."""
    monkeypatch.setattr(line, "WORTH_SORTING", 0)


def case(batch=(), n=397, m=499, columns=3):
    torch.manual_seed(0)
    return torch.randn(*batch, n, 1), torch.randn(*batch, m, 1), torch.randn(*batch, m, columns)


def taken(monkeypatch):
    """A list that grows whenever the short way is taken to its end."""
    calls = []

    def watched(*arguments):
        output = line_average(*arguments)
        calls.extend([] if output is None else [output])
        return output

    monkeypatch.setattr("regard.attention.kernels.line_average", watched)
    return calls


@pytest.mark.parametrize("width", [0.01, 0.3, 20.0])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_the_short_way_gives_the_same(sorting, monkeypatch, name, width, batch):
    calls = taken(monkeypatch)
    query, key, value = case(batch)
    score = Kernel(name, width)
    output = attend(query, key, value, score=score)
    assert len(calls) == 1
    truth, _ = attend(query.double(), key.double(), value.double(), score=score, need_weights=True)
    torch.testing.assert_close(output, truth.float(), rtol=1e-6, atol=1e-6)


def test_ragged_batches_take_it_sequence_by_sequence(sorting, monkeypatch):
    calls = taken(monkeypatch)
    query, key, value = case((3,))
    mask = lengths([499, 211, 307])
    key[1, 211:] = torch.nan
    output = attend(query, key, value, score=Kernel(width=0.3), mask=mask)
    assert len(calls) == 3
    key[1, 211:] = 0
    truth, _ = attend(
        query.double(), key.double(), value.double(), score=Kernel(width=0.3), mask=mask, need_weights=True
    )
    torch.testing.assert_close(output, truth.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "change", ["few pairs", "gradient", "wild values", "nan", "float64", "two features", "no numba"]
)
def test_where_it_is_not_for_the_call_the_long_way_is_taken(change, request, monkeypatch):
    if change != "few pairs":
        request.getfixturevalue("sorting")
    calls = taken(monkeypatch)
    query, key, value = case()
    score = Kernel(width=0.3, learnable=change == "gradient")
    if change == "wild values":
        value *= torch.logspace(-12, 12, len(value))[:, None]
    if change == "nan":
        key[7] = torch.nan
    if change == "float64":
        query, key, value = query.double(), key.double(), value.double()
    if change == "two features":
        query, key = torch.cat([query] * 2, -1), torch.cat([key] * 2, -1)
    if change == "no numba":
        monkeypatch.setattr(line, "load_kernels", lambda _: None)
    output = attend(query, key, value, score=score)
    assert not calls
    truth, _ = attend(query.double(), key.double(), value.double(), score=score, need_weights=True)
    torch.testing.assert_close(output, truth.to(output), rtol=1e-4, atol=1e-4, equal_nan=True)
