"""Kernel regression against statsmodels and KeOps: predicting, choosing the bandwidth, growing."""

from __future__ import annotations

import math
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

import numpy
import torch
from numpy.typing import NDArray

from benchmarks.gaussian import keops_or_formula
from benchmarks.measure import Row, compare, duration
from regard import KernelRegressor
from regard.kernel import bandwidth
from regard.kernel.kernels_nd import KernelND
from regard.kernel.sums_nd import SamplesND, Targets
from regard.measure import Work, median_seconds

Array = NDArray[numpy.float64]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of changes to come in its random numbers
    from statsmodels.nonparametric.kernel_regression import KernelReg
    from statsmodels.nonparametric.smoothers_lowess import lowess


def curve(n: int, features: int = 1, seed: int = 0) -> tuple[Array, Array]:
    """The noisy curve of the notes, along the first of some features."""
    random = numpy.random.default_rng(seed)
    X = 5 * random.random((n, features))
    return X, 2 * numpy.sin(X[:, 0]) + X[:, 0] ** 0.8 + random.normal(0, 0.5, n)


def statsmodels(X: Array, y: Array, width: list[float]) -> KernelReg:
    """A regressor of theirs with a bandwidth that is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KernelReg(y, X, "c" * X.shape[1], reg_type="lc", bw=width)


def rows(tiny: bool = False) -> Iterator[Row]:
    """One feature, several, and how it grows."""
    n = 500 if tiny else 10_000
    X, y = curve(n)
    queries, _ = curve(n, seed=1)
    model, peer = KernelRegressor(bandwidth=0.2).fit(X, y), statsmodels(X, y, [0.2])
    numpy.testing.assert_allclose(model.predict(queries[:500]), peer.fit(queries[:500])[0], rtol=1e-9)
    yield compare(
        "predict, 1 feature, Gaussian, 10k × 10k",
        "statsmodels KernelReg.fit",
        lambda: peer.fit(queries),
        lambda: model.predict(queries),
        200,
        1,
    )
    yield _bandwidth(tiny)
    yield from _against_keops(tiny, features=1, at_least=(500, 500))
    yield from _against_keops(tiny, features=3, at_least=(5, 10))
    yield _three_features_statsmodels(tiny)
    yield _million(tiny)
    yield _million_of_two_features(tiny)
    yield _memory(tiny)
    yield _growth(tiny)
    yield _window(tiny)
    yield _fit_of_a_million(tiny)
    yield from _fits_of_several_features(tiny)
    yield from _curve_with_band(tiny)


def _bandwidth(tiny: bool) -> Row:
    X, y = curve(60 if tiny else 2_000)

    def peer() -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bandwidth: Array = KernelReg(y, X, "c", reg_type="lc", bw="cv_ls").bw
        return bandwidth

    start = time.perf_counter()
    theirs = peer()  # once: it takes minutes
    slow = time.perf_counter() - start
    fast = median_seconds(lambda: KernelRegressor().fit(X, y), rounds=1 if tiny else 7)[0]
    ours = KernelRegressor().fit(X, y)
    if ours.loo_error_ > KernelRegressor(bandwidth=theirs).fit(X, y).loo_error_ * (1 + 1e-6):
        raise AssertionError(f"bandwidth {theirs} has a smaller leave-one-out error than {ours.bandwidth_}")
    return _row("bandwidth by leave-one-out, n = 2,000", "statsmodels bw='cv_ls'", slow, fast, 300)


def _against_keops(tiny: bool, features: int, at_least: tuple[float, float]) -> Iterator[Row]:
    n, m, repeats = (50, 500, 1) if tiny else (10_000, 100_000, 3)
    against, sums = keops_or_formula(tiny)
    X, y = curve(m, features)
    queries, _ = curve(n, features, seed=1)
    width = 0.2 if features == 1 else 0.5
    model = KernelRegressor(bandwidth=width).fit(X, y)
    tensors = (torch.tensor(queries), torch.tensor(X), torch.tensor(y)[:, None])
    numpy.testing.assert_allclose(model.predict(queries), sums(*tensors, width)[:, 0].numpy(), rtol=1e-7)
    plural = "" if features == 1 else "s"
    for dtype, bar in zip((torch.float64, torch.float32), at_least, strict=True):
        arguments = [tensor.to(dtype) for tensor in tensors]
        asked = arguments[0].numpy()
        yield compare(
            f"predict, {features} feature{plural}, Gaussian, 10k × 100k",
            f"{against}, {str(dtype).removeprefix('torch.')}",
            lambda arguments=arguments: sums(*arguments, width),
            lambda asked=asked: model.predict(asked),
            bar,
            repeats,
        )


def _three_features_statsmodels(tiny: bool) -> Row:
    n, m, few, repeats = (50, 500, 5, 1) if tiny else (10_000, 100_000, 100, 3)
    X, y = curve(m, 3)
    queries, _ = curve(n, 3, seed=1)
    model, peer = KernelRegressor(bandwidth=0.5).fit(X, y), statsmodels(X, y, [0.5] * 3)
    numpy.testing.assert_allclose(model.predict(queries[:few]), peer.fit(queries[:few])[0], rtol=1e-9)
    slow = median_seconds(lambda: peer.fit(queries[:few]), rounds=repeats)[0] * n / few
    fast = median_seconds(lambda: model.predict(queries), rounds=repeats)[0]
    work = "predict, 3 features, Gaussian, 10k × 100k"
    return _row(work, "statsmodels KernelReg.fit (100 queries, times 100)", slow, fast, 20)


def _million(tiny: bool) -> Row:
    seconds = median_seconds(million(tiny), rounds=1 if tiny else 3)[0]
    text = "predict 1 million × 1 million, 1 feature, Gaussian"
    return Row(text, "absolute", "", duration(seconds), duration(seconds), "≤ 2 s", seconds <= 2)


def _million_of_two_features(tiny: bool) -> Row:
    n, width, mean = 1_000 if tiny else 1_000_000, 0.1, 3.0
    X, y = curve(n, 2)
    queries, _ = curve(n, 2, seed=1)
    samples = SamplesND(X, numpy.stack([numpy.ones(n), y - mean], 1))
    kernel = KernelND("gaussian", numpy.full(2, width), numpy.ones(2))

    def predict() -> Array:
        sums = samples.sums(kernel, Targets(queries), tolerance=1e-6)[:, 0]
        return numpy.asarray(mean + sums[:, 1] / sums[:, 0])

    some = range(0, n, n // 50)
    weights = (numpy.exp(-(((X - queries[i]) / width) ** 2).sum(1) / 2) for i in some)
    direct = [weight @ y / weight.sum() for weight in weights]
    numpy.testing.assert_allclose(predict()[some], direct, rtol=0, atol=1e-6 * float(numpy.abs(y - mean).mean()))
    seconds = median_seconds(predict, rounds=1 if tiny else 3)[0]
    text = "predict 1 million × 1 million, 2 features, Gaussian, 1e-6"
    return Row(text, "absolute", "", duration(seconds), duration(seconds), "≤ 10 s", seconds <= 10)


def million(tiny: bool) -> Work:
    """The predictions of a fitted model of a million samples for a million queries."""
    n = 1_000 if tiny else 1_000_000
    X, y = curve(n)
    queries, _ = curve(n, seed=1)
    model = KernelRegressor(bandwidth=0.1).fit(X, y)
    return lambda: model.predict(queries)


def _memory(tiny: bool) -> Row:
    work = million(tiny)
    tracemalloc.start()  # numpy reports every array to it
    work()
    megabytes = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    text = f"{megabytes:.0f} MB"
    return Row("the same: peak extra memory", "absolute", "", text, text, "≤ 500 MB", megabytes <= 500)


def _growth(tiny: bool) -> Row:
    seconds: list[float] = []
    for n in (100, 1_000) if tiny else (100_000, 1_000_000):
        X, y = curve(n)
        queries, _ = curve(n, seed=1)
        model = KernelRegressor(bandwidth=0.1).fit(X, y)
        seconds += median_seconds(partial(model.predict, queries), rounds=1 if tiny else 5)
    ratio = seconds[1] / seconds[0]
    times = f"{duration(seconds[0])}, {duration(seconds[1])}"
    work = "growth of 1-feature predict from n = m = 10⁵ to 10⁶"
    return Row(work, "itself", "", times, f"{ratio:.1f}×", "≤ 11×", ratio <= 11)


def _window(tiny: bool) -> Row:
    m = 1_000 if tiny else 1_000_000
    X, y = curve(m)
    queries, _ = curve(m // 1_000, seed=1)
    model = KernelRegressor(bandwidth=0.1).fit(X, y)
    seconds = median_seconds(lambda: model.window(queries), rounds=1 if tiny else 5)[0]
    text = "window, 1,000 queries on 10⁶ samples, 1 feature"
    return Row(text, "absolute", "", duration(seconds), duration(seconds), "≤ 0.1 s", seconds <= 0.1)


def _fit_of_a_million(tiny: bool) -> Row:
    """Against the same search with a pass over all samples for each bandwidth."""
    X, y = curve(2_000 if tiny else 1_000_000)
    seconds, models = [], []
    for many in (math.inf, bandwidth.MANY):
        with patch.object(bandwidth, "MANY", many):
            seconds += median_seconds(lambda: models.append(KernelRegressor().fit(X, y)), rounds=1)
    exact, ours = models[0], models[-1]
    numpy.testing.assert_allclose(ours.loo_error_, exact.loo_error_, rtol=1e-6)
    work = "fit, 1 feature, 10⁶, leave-one-out"
    return _row(work, "the same search by exact passes", *seconds, at_least=8)


def _fits_of_several_features(tiny: bool) -> Iterator[Row]:
    n = 300 if tiny else 100_000
    for features, bar in ((2, 1.0), (3, 2.0), (5, 8.0)):
        X, y = curve(n, features)
        y += numpy.cos(X[:, 1])
        seconds = median_seconds(lambda X=X, y=y: KernelRegressor().fit(X, y), rounds=1 if tiny else 3)[0]
        text = f"fit, {features} features, 10⁵, leave-one-out"
        yield Row(text, "absolute", "", duration(seconds), duration(seconds), f"≤ {bar:g} s", seconds <= bar)


def _curve_with_band(tiny: bool) -> Iterator[Row]:
    """Curve and band at every sample; theirs without a band. Both with a window that is given, theirs a tenth."""
    X, y = curve(300 if tiny else 50_000)

    def ours() -> None:
        model = KernelRegressor(bandwidth=0.1, degree=1).fit(X, y)
        model.predict(X)
        model.interval(X)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastlowess import Lowess
    peers: dict[str, tuple[Work, float]] = {
        "statsmodels lowess": (lambda: lowess(y, X[:, 0], frac=0.1), 100),
        "fastlowess": (lambda: Lowess(fraction=0.1).fit(X[:, 0], y), 1.0),
    }
    for name, (peer, at_least) in peers.items():
        yield compare("curve with band, 1 feature, 50k", name, peer, ours, at_least, 1 if tiny else 3)


def _row(work: str, against: str, slow: float, fast: float, at_least: float) -> Row:
    ratio = slow / fast
    return Row(work, against, duration(slow), duration(fast), f"{ratio:.0f}×", f"≥ {at_least}×", ratio >= at_least)
