"""Sorting many numbers, several times faster than by comparing them: by where they lie between least and greatest."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from regard.attention.threads import load_kernels, parallel_for

__all__ = ["sort_numbers"]

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]

MANY = 1 << 12  # numbers: fewer are sorted before the loops are called
PART = 1024  # numbers of a part, on average: they stay in the nearest cache
UNEVEN = 16  # times as many in one part: then parts of equal numbers are better than parts of equal width


def sort_numbers(x: Array) -> tuple[Array, Indices]:
    """(sorted numbers, their places in x); equal numbers stay in order."""
    if (x[:-1] <= x[1:]).all():
        return x, numpy.arange(len(x))
    if len(x) < MANY or load_kernels("sorting") is None or not numpy.isfinite(x.max() - x.min()):
        order = numpy.argsort(x, kind="stable")
        return x[order], order
    parts, counts = _parts(x)
    ends = numpy.concatenate([[0], counts.cumsum()])
    loops, most = load_kernels("sorting"), int(counts.max())
    values, order = numpy.empty(len(x)), numpy.empty(len(x), dtype=numpy.int64)
    loops.fill_parts(x, parts, ends[:-1].copy(), values, order)

    def loop(start: int, stop: int) -> None:
        bins, moved = (numpy.empty(most + 1, dtype=numpy.int64) for _ in range(2))
        loops.sort_parts(ends, values, order, bins, numpy.empty(most), moved, start, stop)

    parallel_for(loop, len(counts), 16 * len(x))
    return values, order


def _parts(x: Array) -> tuple[NDArray[numpy.int32], Indices]:
    """The part of each number (n,), and how many numbers each has."""
    loops, count = load_kernels("sorting"), 1 << (len(x) // PART).bit_length()
    parts, counts = numpy.empty(len(x), dtype=numpy.int32), numpy.zeros(count, dtype=numpy.int64)
    least, extent = float(x.min()), float(x.max()) - float(x.min())
    scale = (count - 1) / extent if extent > 0 else numpy.inf
    if scale < 1e300:
        loops.parts_by_place(x, least, scale, parts, counts)
    if not scale < 1e300 or counts.max() > UNEVEN * PART:
        some = numpy.sort(x[:: max(1, len(x) // (8 * count))])
        knots = some[numpy.linspace(0, len(some) - 1, count + 1).astype(numpy.int64)[1:-1]]
        counts[:] = 0
        loops.parts_by_knots(x, knots, parts, counts)
    return parts, counts
