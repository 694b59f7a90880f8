"""The tab *Curve*: samples, a kernel, a bandwidth; what comes out, and what looks at what."""

from __future__ import annotations

from typing import Any

import numpy

from regard.attention.kernels import KERNELS
from regard.kernel import KernelRegressor
from regard.web.params import Asked

__all__ = ["answer"]

SAMPLES = (2, 2_000)
POINTS, CELLS = 200, 64  # of the curve; of the weight map, a side
DIGITS = 6  # of the weights, which are only looked at: all of their digits would be half of what is sent


def answer(asked: Asked) -> dict[str, Any]:
    """Curve, window, weight map and errors, for samples (x, y) that are not learned from twice."""
    samples = numpy.array(asked.table("samples", SAMPLES, (2, 2)))
    kernel = asked.choice("kernel", sorted(KERNELS))
    way = asked.choice("bandwidth_by", ("number", "loo", "gradient", "silverman"), "number")
    bandwidth: Any = asked.number("bandwidth", 1e-4, 1e4) if way == "number" else way
    x, y = samples[:, :1], samples[:, 1]
    model = KernelRegressor(kernel, bandwidth, empty="mean").fit(x, y)
    line = numpy.linspace(float(x.min()), float(x.max()), POINTS)[:, None]
    window = model.window(line)
    order = numpy.argsort(x[:, 0], kind="stable")
    chosen = order[numpy.unique(numpy.linspace(0, len(order) - 1, min(len(order), CELLS)).astype(int))]
    rows = numpy.linspace(float(x.min()), float(x.max()), CELLS)[:, None]
    weights = model.weights(rows)[:, chosen]
    return {
        "bandwidth": float(model.bandwidth_[0]),
        "x": line[:, 0].tolist(),
        "y": model.predict(line).tolist(),
        "low": window.low.tolist(),
        "high": window.high.tolist(),
        "effective": window.effective.tolist(),
        "weights": numpy.nan_to_num(weights).round(DIGITS).tolist(),
        "keys": x[chosen, 0].tolist(),
        "queries": rows[:, 0].tolist(),
        "error": float(numpy.mean((model.predict(x) - y) ** 2)),
        "left_out_error": float(model.loo_error_),
    }
