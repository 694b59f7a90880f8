"""How many samples count for a query, and between which most of the weight is, against the weights themselves."""

import numpy
import pytest
import torch

from regard.attention.kernels import KERNELS
from regard.attention.sums_1d import Samples1D
from tests.attention.kernel_sums import SMOOTH, kernel_and_slope


def direct_window(name, x, weights, width, queries, share):
    u = numpy.abs(x.astype(numpy.longdouble) - queries[:, None]) / width
    kernel = kernel_and_slope(name, u)[0] * weights
    reached = kernel.sum(1) > 0
    parts = kernel[reached] / kernel[reached].sum(1, keepdims=True)
    logs = numpy.log(parts, out=numpy.zeros_like(parts), where=parts > 0)
    result = numpy.full((3, len(queries)), numpy.nan)
    result[0, reached] = numpy.exp(-(parts * logs).sum(1))
    for end, part in enumerate(((1 - share) / 2, (1 + share) / 2)):
        index = (parts.cumsum(1) < part).sum(1)
        result[1 + end, reached] = x[numpy.minimum(index, len(x) - 1)]
    return result


SHAPES = {
    "one": lambda random: random.normal(size=1),
    "even": lambda random: random.uniform(0, 1, 1009),
    "clusters": lambda random: 3.0 * random.integers(0, 5, 397) + 1e-4 * random.normal(size=397),
    "tail": lambda random: random.standard_t(1.5, 599),
    "shared": lambda random: random.integers(0, 9, 1201).astype(float),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KERNELS)
def test_windows_are_those_of_the_weights(name, shape):
    random = numpy.random.default_rng(7)
    x = numpy.sort(SHAPES[shape](random))
    weights = random.uniform(0.1, 2, len(x))
    weights[len(x) // 2 + 1 : len(x) // 2 + 4] = 0
    extent = max(x[-1] - x[0], 1.0)
    queries = numpy.concatenate([random.uniform(x[0] - extent / 5, x[-1] + extent / 5, 31), x[:7], x[:1] - 40 * extent])
    ours = Samples1D(x, numpy.stack([weights, weights * x], 1))
    for part in (1e-6, 1e-3, 1 / 30, 1 / 3, 1e9):
        truth = direct_window(name, x, weights, part * extent, queries, 0.9)
        effective, low, high = ours.window(name, part * extent, queries)
        numpy.testing.assert_allclose(effective, truth[0], rtol=1e-9, err_msg=str(part))
        assert numpy.array_equal(low, truth[1], equal_nan=True), part
        assert numpy.array_equal(high, truth[2], equal_nan=True), part


@pytest.mark.parametrize("name", SMOOTH)
def test_however_far_away_the_query_is(name):
    """The weights of a Gaussian become those of the nearest samples alone; those of Laplace stay what they are."""
    random = numpy.random.default_rng(8)
    x, weights = numpy.sort(random.normal(size=1511)), random.uniform(0.5, 1.5, 1511)
    queries = numpy.array([-9.0, -30.0, 100.0, -1e4, 1e7])
    truth = direct_window(name, x, weights, 0.5, queries, 0.9)
    windows = Samples1D(x, numpy.stack([weights, weights], 1)).window(name, 0.5, queries)
    numpy.testing.assert_allclose(windows, truth, rtol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_any_share_of_the_weight(share):
    random = numpy.random.default_rng(9)
    x, weights = numpy.sort(random.uniform(0, 3, 701)), numpy.ones(701)
    queries = random.uniform(0, 3, 17)
    truth = direct_window("tricube", x, weights, 0.4, queries, share)
    _, low, high = Samples1D(x, weights[:, None]).window("tricube", 0.4, queries, share)
    assert numpy.array_equal(low, truth[1])
    assert numpy.array_equal(high, truth[2])


def test_the_number_of_threads_changes_no_bit_of_a_window(monkeypatch):
    random = numpy.random.default_rng(10)
    x, queries = numpy.sort(random.normal(size=5003)), random.normal(size=211)
    monkeypatch.setattr("regard.attention.threads.SHARE", 1)
    for name in ("gaussian", "tricube"):
        windows = []
        for workers in (1, 2, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
            windows.append(Samples1D(x, numpy.ones((5003, 1))).window(name, 0.05, queries))
        assert all(numpy.array_equal(windows[0], other) for other in windows[1:]), name


def test_one_window_after_another():
    random = numpy.random.default_rng(11)
    x, queries = numpy.sort(random.normal(size=307)), random.normal(size=13)
    used = Samples1D(x, numpy.ones((307, 1)))
    for name, width in (("gaussian", 0.2), ("laplace", 0.2), ("laplace", 0.7), ("gaussian", 0.2)):
        fresh = Samples1D(x, numpy.ones((307, 1))).window(name, width, queries)
        assert numpy.array_equal(used.window(name, width, queries), fresh)
