"""What the engines of kernel regression bring: the functions of such rows of ablation.py."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy
import torch
from scipy import optimize

from benchmarks.kernel import Array, curve
from benchmarks.measure import Figures, race
from regard import KernelRegressor


def every_pair(X: Array, y: Array, queries: Array, width: float) -> Array:
    """Nadaraya–Watson with a Gaussian as it is written, some queries at a time, in PyTorch's threads."""
    points, values = torch.from_numpy(X / width), torch.from_numpy(y)
    parts = torch.from_numpy(queries / width).split(500)
    return torch.cat([torch.softmax(-torch.cdist(part, points).square() / 2, -1) @ values for part in parts]).numpy()


def sums_nd(tiny: bool) -> Figures:
    X, y = curve(300 if tiny else 20_000, 5)
    queries, width = curve(50 if tiny else 5_000, 5, seed=1)[0], 0.5
    ours = partial(KernelRegressor(bandwidth=width).fit(X, y).predict, queries)
    plain = partial(every_pair, X, y, queries, width)
    numpy.testing.assert_allclose(ours(), plain(), rtol=1e-6)
    return race(ours, plain, tiny=tiny)


def grid(tiny: bool) -> Figures:
    """With a category that is the same for all, sums go pair by pair."""
    n = 300 if tiny else 50_000
    X, y = curve(n, 2)
    queries = curve(n, 2, seed=1)[0]
    ours = partial(KernelRegressor(bandwidth=0.2).fit(X, y).predict, queries)
    one = numpy.zeros((n, 1))
    pairs = KernelRegressor(bandwidth=[0.2, 0.2, 0.5], ordered=[2]).fit(numpy.hstack([X, one]), y)
    plain = partial(pairs.predict, numpy.hstack([queries, one]))
    numpy.testing.assert_allclose(ours(), plain(), rtol=1e-6)
    return race(ours, plain, tiny=tiny)


def searched(X: Array, y: Array) -> float:
    """The least leave-one-out error, each of all samples, of 24 widths over the same range and 8 near the best."""

    def error(log_width: float) -> float:
        return float(KernelRegressor(bandwidth=float(numpy.exp(log_width))).fit(X, y).loo_error_)

    gaps = numpy.diff(numpy.unique(X[:, 0]))
    logs = numpy.linspace(numpy.log(numpy.median(gaps) / 2), numpy.log(4 * gaps.sum()), 24)
    best, step = min(logs, key=error), logs[1] - logs[0]
    bounds = (best - step, best + step)
    return float(optimize.minimize_scalar(error, bounds=bounds, method="bounded", options={"maxiter": 8}).fun)


def compressed(tiny: bool) -> Figures:
    X, y = curve(300 if tiny else 500_000)
    assert KernelRegressor().fit(X, y).loo_error_ <= searched(X, y) * 1.001
    return race(lambda: KernelRegressor().fit(X, y), lambda: searched(X, y), tiny=tiny)


def slopes(tiny: bool) -> Figures:
    X, y = curve(60 if tiny else 3_000, 3)
    y += numpy.cos(X[:, 1])

    def error(log_widths: Array) -> float:
        return float(KernelRegressor(bandwidth=numpy.exp(log_widths)).fit(X, y).loo_error_)

    def plain() -> Any:
        return optimize.minimize(error, numpy.zeros(3), method="Nelder-Mead", options={"xatol": 0.01, "fatol": 1e-5})

    assert KernelRegressor().fit(X, y).loo_error_ <= plain().fun * 1.01
    return race(lambda: KernelRegressor().fit(X, y), plain, tiny=tiny)


def kernel_windows(tiny: bool) -> Figures:
    model = KernelRegressor(bandwidth=0.1).fit(*curve(300 if tiny else 20_000))
    queries = curve(20 if tiny else 500, seed=1)[0]

    def plain() -> Any:
        shares = model.weights(queries)  # (n, m)
        shares.cumsum(1)
        return numpy.exp(-numpy.sum(shares * numpy.log(numpy.where(shares > 0, shares, 1)), 1))

    numpy.testing.assert_allclose(model.window(queries).effective, plain(), rtol=1e-4)
    return race(partial(model.window, queries), plain, tiny=tiny)
