"""The tab *Curve*: samples, a kernel and a bandwidth; the curve through them, its window and its weights."""

from __future__ import annotations

from typing import Any

import numpy

from regard.attention.kernels import KERNELS
from regard.kernel import KernelRegressor
from regard.web.params import Params

__all__ = ["answer"]

SAMPLES = (2, 2_000)
POINTS, CELLS = 200, 64  # of the curve; of the weight map, a side
DIGITS = 6  # of the weights, which are only looked at: all of their digits would be half of what is sent


def answer(params: Params) -> dict[str, Any]:
    """Curve, window, weight map and errors for samples (x, y)."""
    samples = numpy.array(params.table("samples", SAMPLES, (2, 2)))
    kernel = params.choice("kernel", sorted(KERNELS))
    rule = params.choice("bandwidth_by", ("number", "loo", "gradient", "silverman"), "number")
    bandwidth: Any = params.number("bandwidth", 1e-4, 1e4) if rule == "number" else rule
    x, y = samples[:, :1], samples[:, 1]
    model = KernelRegressor(kernel, bandwidth, empty="mean").fit(x, y)
    points, queries = (numpy.linspace(float(x.min()), float(x.max()), count)[:, None] for count in (POINTS, CELLS))
    window = model.window(points)
    order = numpy.argsort(x[:, 0], kind="stable")
    keys = order[numpy.unique(numpy.linspace(0, len(order) - 1, min(len(order), CELLS)).astype(int))]
    weights = model.weights(queries)[:, keys]  # (queries, keys)
    return {
        "bandwidth": float(model.bandwidth_[0]),
        "x": points[:, 0].tolist(),
        "y": model.predict(points).tolist(),
        "low": window.low.tolist(),
        "high": window.high.tolist(),
        "effective": window.effective.tolist(),
        "weights": numpy.nan_to_num(weights).round(DIGITS).tolist(),
        "keys": x[keys, 0].tolist(),
        "queries": queries[:, 0].tolist(),
        "error": float(numpy.mean((model.predict(x) - y) ** 2)),
        "loo_error": float(model.loo_error_),
    }
