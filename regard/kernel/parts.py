"""Samples in parts on several machines: each part is compressed where it is, and only what is kept of it travels.

A Dask DataFrame, Series or array is recognised by the module of its type; dask is imported only then. The state of all
parts (compressed.py, some megabytes) is merged in pairs on the workers, so the samples do not come to whoever asks for
it, and no worker holds more than a part and two states.

Any other collection of parts, as a Ray dataset, does the same by `KernelRegressor.partial_fit` on each and `merge`.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from regard.kernel.compressed import Compressed

__all__ = ["compress_part", "compress_parts", "is_distributed"]

Array = NDArray[numpy.float64]
DAY = numpy.timedelta64(1, "D")


def is_distributed(samples: object) -> bool:
    """Whether these are a Dask DataFrame, Series or array, of which every part may be on another machine."""
    module = type(samples).__module__
    return module.split(".")[0] in ("dask", "dask_expr") and hasattr(samples, "to_delayed")


def compress_parts(X: Any, y: Any) -> Compressed:
    """The state of all samples of a Dask collection X of one feature and y of one or more values."""
    for name, samples in (("X", X), ("y", y)):
        if not is_distributed(samples):
            raise TypeError(f"{name}: expected a Dask DataFrame, Series or array, like the other, got {type(samples)}")
    from dask.delayed import delayed

    points, values = _parts(X, "X"), _parts(y, "y")
    if len(points) != len(values):
        raise ValueError(
            f"y: expected as many parts as X, {len(points)}, got {len(values)}; repartition one like the other"
        )
    compress, merge = delayed(compress_part), delayed(Compressed.merge)
    states = [compress(x, value) for x, value in zip(points, values, strict=True)]
    while len(states) > 1:
        pairs = [states[i : i + 2] for i in range(0, len(states), 2)]
        states = [merge(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    state: Compressed = states[0].compute()
    return state


def compress_part(X: Any, y: Any) -> Compressed:
    """The state of one part: rows of one feature and their values, as arrays, Series or DataFrames in memory."""
    points, values = _numbers(X, "X"), _numbers(y, "y")
    if points.shape[1] != 1:
        raise ValueError(f"X: expected one feature, got {points.shape[1]}; parts are merged for one feature only")
    if len(points) != len(values):
        raise ValueError(f"y: expected a row for each of X in every part, got {len(values)} for {len(points)}")
    return Compressed.from_samples(points[:, 0], values)


def _parts(samples: Any, name: str) -> list[Any]:
    """One delayed part after the other, each with all columns."""
    parts = numpy.asarray(samples.to_delayed(optimize_graph=True), dtype=object)
    if parts.ndim > 1 and parts.shape[1] > 1:
        raise ValueError(f"{name}: expected parts with all columns, got {parts.shape[1]} beside each other; rechunk it")
    return list(parts.ravel())


def _numbers(part: Any, name: str) -> Array:
    """(rows, columns), datetimes in days since 1970-01-01 and durations in days."""
    table = numpy.asarray(part)
    table = table[:, None] if table.ndim == 1 else table
    if table.dtype.kind == "M":
        table = (table - numpy.datetime64(0, "D")) / DAY
    elif table.dtype.kind == "m":
        table = table / DAY
    if table.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected numbers, datetimes or durations, got dtype {table.dtype}")
    return table.astype(numpy.float64)
