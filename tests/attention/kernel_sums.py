"""Kernels and their slopes as the textbooks have them, for tests that sum over every pair."""

import numpy

SMOOTH = ("gaussian", "laplace")


def kernel_and_slope(name, u):
    """K(u) and −u K′(u) for distances u ≥ 0 (n, m), relative to each row's largest where K may underflow."""
    if name in SMOOTH:
        exponent = -u * u / 2 if name == "gaussian" else -u
        kernel = numpy.exp(exponent - exponent.max(1, keepdims=True))
        return kernel, kernel * (u * u if name == "gaussian" else u)
    if name == "constant":
        return numpy.ones_like(u), numpy.zeros_like(u)
    inside, u = u <= 1, numpy.minimum(u, 1)
    powers = {"epanechnikov": 1, "biweight": 2, "triweight": 3}
    if name == "boxcar":
        kernel, slope = numpy.ones_like(u), numpy.zeros_like(u)
    elif name == "triangular":
        kernel, slope = 1 - u, u
    elif name in powers:
        power, root = powers[name], (1 - u) * (1 + u)
        kernel, slope = root**power, 2 * power * u * u * root ** (power - 1)
    elif name == "tricube":
        root = (1 - u) * (1 + u + u * u)
        kernel, slope = root**3, 9 * u**3 * root**2
    else:
        kernel, slope = numpy.sin(numpy.pi / 2 * (1 - u)), u * numpy.pi / 2 * numpy.sin(numpy.pi / 2 * u)
    return numpy.where(inside, kernel, 0), numpy.where(inside, slope, 0)


def assert_same_sums(sums, truth, sizes, tolerance=1e-9):
    """Up to a positive factor per query; 0 where nothing counts. Errors are relative to the sums of absolute values."""
    reached = truth[:, 0, 0] > 0
    assert (sums[~reached, 0, 0] == 0).all()
    factor = truth[reached, :1, :1] / sums[reached, :1, :1]
    # Against what counts for the query at all: far terms of a local line may be cut off where the weights are 1e-17.
    allowed = tolerance * numpy.maximum(sizes[reached], sizes[reached, :1])
    assert (numpy.abs(sums[reached] * factor - truth[reached]) <= allowed).all()
