"""Sums under the Gaussian kernel for many queries in any order: their groups are the cells of a grid, a width each.

Shapes and names are those of sums_1d.py, the series those of sums_1d_gaussian.py.
"""

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.sorting import before
from regard.attention.loops.sums_1d_gaussian import (
    FAR,
    SIDE_BY_SIDE,
    cells_around,
    gather,
    lost_digits,
    nearest_of,
    new_work,
    scale,
    series,
)
from regard.attention.sorting import Points
from regard.attention.sums_1d import Cells


@compiled("contract")
def grid_moments(
    least: float, points: Points, cells: Cells, totals: Array, sizes: Array, near: Array, start: int, stop: int
) -> None:
    """totals[g] (c, terms) and sizes[g] about the centres of groups [start, stop), a width each, of queries ≥ least.

    near[g]: whether all queries of a group are near to samples.
    """
    work = new_work(totals.shape[1], totals.shape[2], 2 * sizes.shape[1] - 1)
    for group in range(start, stop):
        centre = least + (group + 0.5) * points.width
        after = before(points.x, centre)
        nearest = nearest_of(centre, points, after - 1, after)
        near[group] = nearest <= min(FAR, points.near - 0.6)
        if near[group]:
            low, high = cells_around(centre, nearest, points, cells)
            gather(centre, points, cells, low, high, work)
            scale(work.total, 1.0, totals[group])  # to compile an assignment of arrays takes seconds
            for k in range(len(work.sizes)):
                sizes[group, k] = work.sizes[k]


@compiled("contract")
def grid_sums(
    at: Array,
    least: float,
    points: Points,
    totals: Array,
    sizes: Array,
    near: Array,
    remain: Array,
    sums: Array,
    size: int,
    start: int,
    stop: int,
) -> None:
    """Sums for the chunks [start, stop) of `size` queries in any order, but for those that remain.

    A chunk of queries is put in order of its groups, which is less work than to sort all, and keeps what is written
    within reach.
    """
    starts, groups = numpy.empty(len(near) + 1, numpy.int64), numpy.empty(size, numpy.int64)
    sorted_at, rows = numpy.empty(size), numpy.empty(size, numpy.int64)
    work = new_work(totals.shape[1], totals.shape[2], sums.shape[1])
    for first in range(start * size, min(stop * size, len(at)), size):
        last = min(first + size, len(at))
        starts[:] = 0
        for i in range(first, last):
            group = min(int((at[i] - least) / points.width), len(near) - 1)
            groups[i - first] = group
            starts[group + 1] += 1
        for group in range(len(near)):
            starts[group + 1] += starts[group]
        for i in range(first, last):
            place = starts[groups[i - first]]
            starts[groups[i - first]] = place + 1
            sorted_at[place], rows[place] = at[i], i
        begin = 0
        for group in range(len(near)):
            end = starts[group]
            centre = least + (group + 0.5) * points.width
            while begin < end:
                next_begin = min(begin + SIDE_BY_SIDE, end) if near[group] else end
                if near[group]:
                    series(sorted_at[begin:next_begin], centre, points.width, totals[group], work)
                for i in range(begin, next_begin):
                    row = rows[i]
                    remain[row] = not near[group]
                    if near[group]:
                        tau = work.taus[i - begin]
                        if len(work.table) > 1 and lost_digits(work.answers[i - begin], sizes[group], tau):
                            remain[row] = True
                        scale(work.answers[i - begin], numpy.exp(-tau * tau / 2), sums[row])
                begin = next_begin
