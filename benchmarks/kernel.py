"""Kernel regression against statsmodels, KeOps and fastlowess: predicting, choosing the bandwidth, growing."""

from __future__ import annotations

import tracemalloc
import warnings
from functools import partial
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from benchmarks.gaussian import keops_or_formula
from benchmarks.measure import Figures, Row, race
from regard import KernelRegressor
from regard.measure import Work

Array = NDArray[numpy.float64]


def curve(n: int, features: int = 1, seed: int = 0) -> tuple[Array, Array]:
    """The noisy curve of the notes, along the first of some features."""
    random = numpy.random.default_rng(seed)
    X = 5 * random.random((n, features))
    return X, 2 * numpy.sin(X[:, 0]) + X[:, 0] ** 0.8 + random.normal(0, 0.5, n)


def statsmodels(X: Array, y: Array, bandwidth: Any) -> Any:
    """A regressor of theirs with a bandwidth that is given, or the name of a way to choose one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of changes to come in its random numbers
        from statsmodels.nonparametric.kernel_regression import KernelReg

        return KernelReg(y, X, "c" * X.shape[1], reg_type="lc", bw=bandwidth)


def against_statsmodels(tiny: bool) -> Figures:
    n = 500 if tiny else 10_000
    X, y = curve(n)
    queries, _ = curve(n, seed=1)
    model, peer = KernelRegressor(bandwidth=0.2).fit(X, y), statsmodels(X, y, [0.2])
    numpy.testing.assert_allclose(model.predict(queries[:500]), peer.fit(queries[:500])[0], rtol=1e-9)
    return race(partial(model.predict, queries), partial(peer.fit, queries), tiny=tiny)


def bandwidth(tiny: bool) -> Figures:
    X, y = curve(60 if tiny else 2_000)
    ours, theirs = KernelRegressor().fit(X, y), statsmodels(X, y, "cv_ls").bw
    if ours.loo_error_ > KernelRegressor(bandwidth=theirs).fit(X, y).loo_error_ * (1 + 1e-6):
        raise AssertionError(f"bandwidth {theirs} has a smaller leave-one-out error than {ours.bandwidth_}")
    return race(lambda: KernelRegressor().fit(X, y), lambda: statsmodels(X, y, "cv_ls"), tiny=tiny)


def against_keops(features: int, dtype: torch.dtype, tiny: bool) -> Figures:
    n, m = (50, 500) if tiny else (10_000, 100_000)
    sums, width = keops_or_formula(tiny), 0.2 if features == 1 else 0.5
    X, y = curve(m, features)
    queries, _ = curve(n, features, seed=1)
    model = KernelRegressor(bandwidth=width).fit(X, y)
    tensors = [torch.tensor(array).to(dtype) for array in (queries, X, y[:, None])]
    asked = tensors[0].numpy()
    expected = sums(*tensors, width)[:, 0].numpy()
    numpy.testing.assert_allclose(model.predict(asked), expected, rtol=1e-7 if dtype == torch.float64 else 1e-3)
    return race(lambda: model.predict(asked), lambda: sums(*tensors, width), tiny=tiny)


def three_features(tiny: bool) -> Figures:
    n, m, few = (50, 500, 5) if tiny else (10_000, 100_000, 100)
    X, y = curve(m, 3)
    queries, _ = curve(n, 3, seed=1)
    model, peer = KernelRegressor(bandwidth=0.5).fit(X, y), statsmodels(X, y, [0.5] * 3)
    numpy.testing.assert_allclose(model.predict(queries[:few]), peer.fit(queries[:few])[0], rtol=1e-9)
    figures = race(partial(model.predict, queries), partial(peer.fit, queries[:few]), tiny=tiny)
    return {**figures, "peer": [seconds * n / few for seconds in figures["peer"]]}


def predicting(n: int, features: int = 1) -> Work:
    """The predictions of a fitted model of so many samples for as many queries."""
    X, y = curve(n, features)
    queries, _ = curve(n, features, seed=1)
    return partial(KernelRegressor(bandwidth=0.1).fit(X, y).predict, queries)


def million(features: int, tiny: bool) -> Figures:
    return race(predicting(1_000 if tiny else 1_000_000, features), tiny=tiny)


def memory(tiny: bool) -> Figures:
    work = predicting(1_000 if tiny else 1_000_000)
    tracemalloc.start()  # numpy reports every array to it
    work()
    megabytes = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return {"ours": [megabytes]}


def growth(tiny: bool) -> Figures:
    small, large = (predicting(n) for n in ((100, 1_000) if tiny else (100_000, 1_000_000)))
    return race(large, small, tiny=tiny)


def window(tiny: bool) -> Figures:
    m = 1_000 if tiny else 1_000_000
    model = KernelRegressor(bandwidth=0.1).fit(*curve(m))
    return race(partial(model.window, curve(m // 1_000, seed=1)[0]), tiny=tiny)


def fit(n: int, features: int, tiny: bool) -> Figures:
    X, y = curve(300 if tiny else n, features)
    if features > 1:
        y += numpy.cos(X[:, 1])
    return race(lambda: KernelRegressor().fit(X, y), tiny=tiny)


def curve_with_band(peer: str, tiny: bool) -> Figures:
    """Curve and band at every sample; theirs without a band. Both with a window that is given, theirs a tenth."""
    X, y = curve(300 if tiny else 50_000)

    def ours() -> None:
        model = KernelRegressor(bandwidth=0.1, degree=1).fit(X, y)
        model.predict(X)
        model.interval(X)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastlowess import Lowess
        from statsmodels.nonparametric.smoothers_lowess import lowess
    peers: dict[str, Work] = {
        "statsmodels lowess": lambda: lowess(y, X[:, 0], frac=0.1),
        "fastlowess": lambda: Lowess(fraction=0.1).fit(X[:, 0], y),
    }
    return race(ours, peers[peer], tiny=tiny)


ROWS = (
    Row(
        "kernel/predict",
        "predict, 1 feature, Gaussian, 10k × 10k",
        "statsmodels KernelReg.fit",
        against_statsmodels,
        at_least=200,
    ),
    Row(
        "kernel/bandwidth",
        "bandwidth by leave-one-out, n = 2,000",
        "statsmodels bw='cv_ls'",
        bandwidth,
        at_least=300,
        why="It looks at widths from half the gap between neighbours to four times the range; the peer only downhill.",
    ),
    *(
        Row(
            f"kernel/keops-{features}d-{str(dtype)[11:]}",
            f"predict, {features} feature{'' if features == 1 else 's'}, Gaussian, 10k × 100k",
            f"pykeops on the CPU, {str(dtype)[6:]}",
            partial(against_keops, features, dtype),
            at_least=at_least,
        )
        for features, dtype, at_least in (
            (1, torch.float64, 500),
            (1, torch.float32, 500),
            (3, torch.float64, 5),
            (3, torch.float32, 10),
        )
    ),
    Row(
        "kernel/statsmodels-3d",
        "predict, 3 features, Gaussian, 10k × 100k",
        "statsmodels KernelReg.fit (100 queries, times 100)",
        three_features,
        at_least=20,
    ),
    Row(
        "kernel/million",
        "predict 1 million × 1 million, 1 feature, Gaussian",
        "",
        partial(million, 1),
        limit=2,
    ),
    Row("kernel/memory", "the same: peak extra memory", "", memory, limit=500, unit="MB"),
    Row("kernel/million-2d", "predict 1 million × 1 million, 2 features, Gaussian", "", partial(million, 2), limit=10),
    Row(
        "kernel/growth",
        "predict, 1 feature, n = m = 10⁶",
        "the same with n = m = 10⁵",
        growth,
        at_most=11,
        why="It is ten times the work, and more of it lies outside of the caches.",
    ),
    Row("kernel/window", "window, 1,000 queries on 10⁶ samples, 1 feature", "", window, limit=0.1),
    *(
        Row(
            f"kernel/fit-{features}d",
            f"fit, {features} feature{'' if features == 1 else 's'}, {count}, leave-one-out",
            "",
            partial(fit, n, features),
            limit=limit,
        )
        for features, n, count, limit in (
            (1, 1_000_000, "10⁶", None),
            (2, 100_000, "10⁵", 1.0),
            (3, 100_000, "10⁵", 2.0),
            (5, 100_000, "10⁵", 8.0),
        )
    ),
    *(
        Row(
            f"kernel/{peer.split()[-1]}",
            "curve with band, 1 feature, 50k",
            peer,
            partial(curve_with_band, peer),
            at_least=at_least,
            why=why,
        )
        for peer, at_least, why in (
            ("statsmodels lowess", 100, "Nine tenths of it are the band, which the peer does not have."),
            ("fastlowess", 1.0, "The peer fits some of the points, interpolates between them, and has no band."),
        )
    ),
)
