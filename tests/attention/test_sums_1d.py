"""Kernel sums over one feature, against the sums themselves; and the averages that `attend` makes of them."""

import numpy
import pytest
import torch

from regard import Kernel, attend, lengths
from regard.attention import sums_1d
from regard.attention.kernels import KERNELS
from regard.attention.sums_1d import ROWS, Samples1D
from tests.attention.kernel_sums import SMOOTH, assert_same_sums, kernel_and_slope


def direct_sums(name, x, columns, width, queries, estimate, left_out=None):
    """The definition, and the same of absolute values, by which errors are judged."""
    v = (x - queries[:, None]) / width
    if left_out is not None:
        v[numpy.arange(len(x)), left_out] = numpy.inf
    with numpy.errstate(invalid="ignore"):
        kernel, slope = kernel_and_slope(name, numpy.abs(v))
    if left_out is not None:
        for table in (kernel, slope, v):
            table[numpy.arange(len(x)), left_out] = 0
    rows = {"average": [kernel], "linear": [kernel, kernel * v, kernel * v * v], "slope": [kernel, slope]}[estimate]
    sizes = numpy.stack([numpy.abs(row) @ numpy.abs(columns) for row in rows], 1)
    return numpy.stack([row @ columns for row in rows], 1), sizes


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


def draw_queries(x, count, seed=1):
    random = numpy.random.default_rng(seed)
    near, far = random.uniform(x[0] - 1, x[-1] + 1, count), random.uniform(x[0] - 400, x[-1] + 400, count // 3)
    return numpy.sort(numpy.concatenate([near, far, x[:3]]))


@pytest.mark.parametrize("estimate", ROWS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("n", "width"), [(1, 0.3), (2, 7.0), (499, 0.2), (997, 3.1), (601, 0.003), (401, 50.0)])
def test_sums_are_the_direct_sums(name, estimate, n, width):
    x, columns = samples(n)
    queries = draw_queries(x, 307)
    truth = direct_sums(name, x, columns, width, queries, estimate)
    assert_same_sums(Samples1D(x, columns).sums(name, width, queries, estimate), *truth)


@pytest.mark.parametrize("estimate", ROWS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("n", "width"), [(2, 7.0), (499, 0.2), (997, 3.1), (601, 0.003)])
def test_every_sample_about_the_others(name, estimate, n, width):
    x, columns = samples(n, seed=2)
    truth = direct_sums(name, x, columns, width, x, estimate, left_out=numpy.arange(n))
    assert_same_sums(Samples1D(x, columns).sums_of_others(name, width, estimate), *truth)


def test_one_width_after_another():
    x, columns = samples(307)
    queries = draw_queries(x, 101)
    used = Samples1D(x, columns)
    for width in (0.2, 0.2, 1.7, 0.2):
        fresh = Samples1D(x, columns).sums("gaussian", width, queries)
        assert numpy.array_equal(used.sums("gaussian", width, queries), fresh)


@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_of_weight_three_is_three_samples(name):
    x, columns = samples(211, seed=3)
    columns[:, 1] /= columns[:, 0]
    columns[:, 0] = 1
    counts = numpy.random.default_rng(4).integers(1, 4, len(x))
    repeated = Samples1D(numpy.repeat(x, counts), numpy.repeat(columns, counts, axis=0)).sums_of_others(name, 0.2)
    weighted = Samples1D(x, columns * counts[:, None]).sums_of_others(name, 0.2, left_out=columns)
    expected = repeated[numpy.cumsum(counts) - 1]
    assert_same_sums(weighted, expected, numpy.abs(expected))


@pytest.mark.parametrize("name", KERNELS)
def test_far_from_zero_nothing_is_lost(name):
    x, columns = samples(499, origin=2.0**30)
    queries = draw_queries(x, 101)
    truth = direct_sums(name, x, columns, 0.25, queries, "average")
    assert_same_sums(Samples1D(x, columns).sums(name, 0.25, queries), *truth)


def test_many_queries_beyond_the_data_are_interpolated():
    """Where every kernel value underflows: 1,000 widths away, and in a gap between samples."""
    x, columns = samples(997)
    for low, high in ((-40.0, -39.9), (1.6, 1.69), (12.0, 12.09), (60.0, 60.09)):
        queries = numpy.linspace(low, high, 211)
        truth = direct_sums("gaussian", x, columns, 0.1, queries, "average")
        assert_same_sums(Samples1D(x, columns).sums("gaussian", 0.1, queries), *truth)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    x, columns = samples(5003)
    queries = draw_queries(x, 4001)
    monkeypatch.setattr("regard.attention.threads.SHARE", 1)
    for name in ("gaussian", "tricube", "laplace"):
        sums = []
        for workers in (1, 2, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
            sums.append(Samples1D(x, columns).sums(name, 0.05, queries))
        assert all(numpy.array_equal(sums[0], other) for other in sums[1:]), name


# ------------------------------------------------------------------------------------------------------ as attention


@pytest.fixture
def sorting(monkeypatch):
    """Sorting, however few pairs there are."""
    monkeypatch.setattr(sums_1d, "WORTH_SORTING", 0)


def case(batch=(1, 1), n=397, m=499, columns=3):
    torch.manual_seed(0)
    return torch.randn(*batch, n, 1), torch.randn(*batch, m, 1), torch.randn(*batch, m, columns)


def assert_attention(output, query, key, value, tolerance=1e-6, **options):
    """Against all pairs in float64."""
    truth, _ = attend(query.double(), key.double(), value.double(), need_weights=True, **options)
    torch.testing.assert_close(output.double(), truth, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("width", [0.01, 0.3, 20.0])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("batch", [(1, 1), (2, 1), (2, 3)])
def test_attend_takes_the_average_of_sorted_samples(sorting, name, width, batch):
    tensors, score = case(batch), Kernel(name, width)
    output = attend(*tensors, score=score)
    assert torch.equal(output, score.average(*tensors))
    assert_attention(output, *tensors, score=score)


def test_ragged_batches_take_it_sequence_by_sequence(sorting):
    query, key, value = case((3, 1))
    score, counts = Kernel(width=0.3), [499, 211, 307]
    key[1, :, 211:] = torch.nan
    output = attend(query, key, value, score=score, mask=lengths(counts))
    for b, count in enumerate(counts):
        part = slice(b, b + 1)
        assert torch.equal(output[part], score.average(query[part], key[part, :, :count], value[part, :, :count]))
    assert_attention(output, query, key.nan_to_num(0), value, score=score, mask=lengths(counts))


@pytest.mark.parametrize("change", ["few pairs", "wild values", "nan", "float64", "two features", "no numba"])
def test_where_it_does_not_fit_the_call_there_is_no_average(change, request, monkeypatch):
    if change != "few pairs":
        request.getfixturevalue("sorting")
    query, key, value = case()
    score = Kernel(width=0.3)
    if change == "wild values":
        value *= torch.logspace(-12, 12, value.shape[2])[:, None]
    if change == "nan":
        key[..., 7, :] = torch.nan
    if change == "float64":
        query, key, value = query.double(), key.double(), value.double()
    if change == "two features":
        query, key = torch.cat([query] * 2, -1), torch.cat([key] * 2, -1)
    if change == "no numba":
        monkeypatch.setattr(sums_1d, "load_kernels", lambda name: None)
    assert score.average(query, key, value) is None
    assert_attention(attend(query, key, value, score=score), query, key, value, 1e-4, score=score)


def test_a_learnable_width_gets_its_gradient(sorting):
    tensors, score = case(), Kernel(width=0.3, learnable=True)
    output = attend(*tensors, score=score)
    output.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in score.parameters())
    assert_attention(output.detach(), *tensors, 1e-4, score=score.requires_grad_(False))
