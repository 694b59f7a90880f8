"""Kernel sums by way of a regular grid: spread samples onto it, filter it along each axis, interpolate at queries.

Grids have three axes; of fewer features, the first have one cell and one tap. Taps of the last are taken in vectors.

Points are sorted by tiles, boxes of cells at least as wide as a window. Those of a tile write to that tile and to its
upper neighbours: tiles of the same parity along every axis write to different cells, and each cell receives its
samples in one order, whatever the number of threads.

Shapes: positions (n, 3) in cells, tile by tile · grids (c, cells, cells, cells) · taps (terms, width), see
kernel/grid_sums.py.
"""

from typing import Any

import numpy
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types

from regard.attention.loops import Array, compiled, intrinsic

CHUNK = 512  # cells of a grid that are filtered together: they stay in the first cache
TOGETHER = 8  # taps that are added in one go
AMPLE = 0.125  # a variance in squared widths that a fit may divide by: at an edge it is 0.36
COARSE = 2  # cells of a coarse cell along each axis, by which errors are bounded
LANES = 4
CONTRACT = ("contract",)  # a product and a sum may be rounded once
VECTOR, INDEX = ir.VectorType(ir.DoubleType(), LANES), ir.IntType(32)

# ----------------------------------------------------------------------------------------------- four numbers at a time
# For loops too short for the compiler's own vectoriser: those over the taps of a window. No index is checked: a caller
# keeps [start, start + LANES) within a one-dimensional array of float64. A function here gets the types of its
# arguments, and returns its signature and what generates its code.


class Vector(types.Type):
    """LANES numbers of float64, in a register."""


@extending.register_model(Vector)
class VectorModel(extending.models.PrimitiveModel):
    """A vector is what LLVM calls one."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


vector = Vector("Vector")


def _address(context: Any, builder: Any, array_type: Any, array: Any, start: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), VECTOR.as_pointer())


@intrinsic
def load(_: Any, array: Any, start: Any) -> Any:
    """array[start : start + LANES]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *arguments), align=8)

    return vector(array, types.intp), generate


@intrinsic
def store(_: Any, array: Any, start: Any, values: Any) -> Any:
    """array[start : start + LANES] = values."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(context, builder, signature.args[0], *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def combine(_: Any, addend: Any, factor: Any, values: Any) -> Any:
    """addend + factor · values, of a number and two vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        addend, number, numbers = arguments
        nothing, lanes = ir.Constant(VECTOR, ir.Undefined), ir.VectorType(INDEX, LANES)
        one = builder.insert_element(nothing, number, ir.Constant(INDEX, 0))
        repeated = builder.shuffle_vector(one, nothing, ir.Constant(lanes, [0] * LANES))
        return builder.fadd(builder.fmul(repeated, numbers, flags=CONTRACT), addend, flags=CONTRACT)

    return vector(vector, types.float64, vector), generate


@intrinsic
def total(_: Any, left: Any, right: Any) -> Any:
    """The dot product of two vectors, summed in pairs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        products = builder.fmul(*arguments)
        a, b, c, d = (builder.extract_element(products, ir.Constant(INDEX, lane)) for lane in range(LANES))
        return builder.fadd(builder.fadd(a, b), builder.fadd(c, d))

    return types.float64(vector, vector), generate


# ---------------------------------------------------------------------------------------------------- tiles and windows


@compiled("contract")
def tiles_of(
    points: Array, low: Array, spacing: float, shape: Array, counts: Array, tiles: Array, start: int, stop: int
) -> None:
    """tiles[i]: which of the counts[0] · counts[1] · … tiles of that shape, from low on, holds points[i]."""
    for i in range(start, stop):
        tile = 0
        for a in range(points.shape[1]):
            tile = tile * counts[a] + int((points[i, a] - low[a]) / spacing) // shape[a]
        tiles[i] = tile


@compiled("contract")
def place(points: Array, low: Array, spacing: float, order: Array, positions: Array, start: int, stop: int) -> None:
    """positions[i] (3,) = points[order[i]] in cells from low; 0 along the axes that they do not have."""
    unused = 3 - points.shape[1]
    for i in range(start, stop):
        for a in range(3):
            positions[i, a] = (points[order[i], a - unused] - low[a - unused]) / spacing if a >= unused else 0.0


@compiled("contract")
def place_window(position: float, taps: Array, window: Array) -> None:
    """window[k] = the window's value at tap k of a point, by Horner's rule in its place within the cell."""
    z = position - numpy.floor(position) - 0.5
    for k in range(0, len(window), LANES):
        values = load(taps[0], k)
        for p in range(1, len(taps)):
            values = combine(load(taps[p], k), z, values)
        store(window, k, values)


@compiled()
def row_offsets(shape: tuple[int, int, int], width: int) -> Array:
    """Where the rows under a window start in a flat grid (cells, cells, cells), from where its first one does."""
    first, second = width if shape[0] > 1 else 1, width if shape[1] > 1 else 1
    offsets = numpy.zeros(-(-first * second // LANES) * LANES, numpy.int64)  # the rest have no weight
    for a in range(first):
        for b in range(second):
            offsets[a * second + b] = (a * shape[1] + b) * shape[2]
    return offsets


@compiled()
def place_rows(position: Array, shape: tuple[int, int, int], taps: Array, windows: Array, factors: Array) -> int:
    """The windows (3, width) of a point, their products (rows,) along the first two axes, and where its cells start."""
    width = windows.shape[1]
    first, second = width if shape[0] > 1 else 1, width if shape[1] > 1 else 1
    for a in range(3):
        if shape[a] > 1:
            place_window(position[a], taps, windows[a])
    for a in range(first):
        for b in range(second):
            factors[a * second + b] = windows[0, a] * windows[1, b]
    return int((int(position[0]) * shape[1] + int(position[1])) * shape[2] + int(position[2]))


@compiled("contract")
def spread(
    taps: Array, samples: Any, columns: Array, chosen: Array, grid: Array, masses: Array, start: int, stop: int
) -> None:
    """Add the samples of the tiles chosen[start:stop] to the grid (c, …), and |columns| to masses (c, …)."""
    shape, flat = grid.shape[1:], grid.reshape(len(grid), -1)
    windows, offsets = numpy.ones((3, taps.shape[1])), row_offsets(shape, taps.shape[1])
    factors, positions, starts = numpy.zeros(len(offsets)), samples.positions, samples.starts
    for t in range(start, stop):
        for i in range(starts[chosen[t]], starts[chosen[t] + 1]):
            at = place_rows(positions[i], shape, taps, windows, factors)
            x, y, z = int(positions[i, 0]), int(positions[i, 1]), int(positions[i, 2])
            for c in range(len(grid)):
                masses[c, x // COARSE, y // COARSE, z // COARSE] += abs(columns[i, c])
                add_rows(flat[c], at, offsets, factors, columns[i, c], windows[2])


@compiled("contract")
def add_rows(cells: Array, at: int, offsets: Array, factors: Array, value: float, window: Array) -> None:
    """cells[at + offsets[r] + k] += value · factors[r] · window[k]."""
    for k in range(0, len(window), LANES):
        values = load(window, k)
        for r in range(len(offsets)):
            place = at + offsets[r] + k
            store(cells, place, combine(load(cells, place), value * factors[r], values))


@compiled("contract")
def interpolate(taps: Array, positions: Array, grid: Array, row: int, sums: Array, start: int, stop: int) -> None:
    """sums[i, row, c] = the grid (c, …) at positions[i]."""
    shape, flat = grid.shape[1:], grid.reshape(len(grid), -1)
    windows, offsets = numpy.ones((3, taps.shape[1])), row_offsets(shape, taps.shape[1])
    factors = numpy.zeros(len(offsets))
    for i in range(start, stop):
        at = place_rows(positions[i], shape, taps, windows, factors)
        for c in range(len(grid)):
            sums[i, row, c] = sum_rows(flat[c], at, offsets, factors, windows[2])


@compiled("contract")
def sum_rows(cells: Array, at: int, offsets: Array, factors: Array, window: Array) -> float:
    """Σ_{r, k} cells[at + offsets[r] + k] · factors[r] · window[k], over four rows at once."""
    result = 0.0
    for k in range(0, len(window), LANES):
        here, values = at + k, load(window, k)
        one = other = third = fourth = combine(values, -1.0, values)  # zeros
        for r in range(0, len(offsets), LANES):
            one = combine(one, factors[r], load(cells, here + offsets[r]))
            other = combine(other, factors[r + 1], load(cells, here + offsets[r + 1]))
            third = combine(third, factors[r + 2], load(cells, here + offsets[r + 2]))
            fourth = combine(fourth, factors[r + 3], load(cells, here + offsets[r + 3]))
        one, third = combine(one, 1.0, other), combine(third, 1.0, fourth)
        result += total(combine(one, 1.0, third), values)
    return result


@compiled("contract")
def correlate(padded: Array, taps: Array, stride: int, out: Array, start: int, stop: int) -> None:
    """out[a, p] = Σ_d taps[d] padded[a, p + d stride], for the chunks [start, stop) of `chunks_of`.

    padded (outer, (length + len(taps) − 1) · stride), out (outer, length · stride), len(taps) a multiple of TOGETHER.
    """
    whole = out.shape[1] if stride < CHUNK else stride  # places next to each other that are cut into chunks
    chunks, lines = -(-whole // CHUNK), out.shape[1] // whole
    for chunk in range(start, stop):
        # Line after line of the same chunk, for they share all but one of what they are made of.
        a, rest = chunk // (chunks * lines), chunk % (chunks * lines)
        within = rest // lines * CHUNK
        begin, count = rest % lines * whole + within, min(CHUNK, whole - within)
        target = out[a, begin : begin + count]
        for p in range(count):
            target[p] = 0.0
        for d in range(0, len(taps), TOGETHER):
            at = begin + d * stride
            some = padded[a, at : at + count + (TOGETHER - 1) * stride]
            add_shifted(some, taps[d : d + TOGETHER], stride, count, target)


def chunks_of(shape: tuple[int, int], stride: int) -> int:
    """How many chunks there are of out, of that shape."""
    whole = shape[1] if stride < CHUNK else stride
    return shape[0] * -(-whole // CHUNK) * (shape[1] // whole)


@compiled("contract")
def add_shifted(source: Array, taps: Array, stride: int, count: int, target: Array) -> None:
    """target[p] += Σ_d taps[d] source[p + d stride], TOGETHER taps."""
    s0, s1, s2, s3 = source, source[stride:], source[2 * stride :], source[3 * stride :]
    s4, s5, s6, s7 = source[4 * stride :], source[5 * stride :], source[6 * stride :], source[7 * stride :]
    for p in range(count):
        total = target[p] + taps[0] * s0[p] + taps[1] * s1[p] + taps[2] * s2[p] + taps[3] * s3[p]
        target[p] = total + taps[4] * s4[p] + taps[5] * s5[p] + taps[6] * s6[p] + taps[7] * s7[p]


@compiled()
def least_variance(sums: Array, features: int) -> float:
    """No more than the least variance of samples under the kernel along any direction, from sums (rows,) of order 2."""
    mean, square, row = numpy.zeros(3), numpy.eye(3), 1 + features
    for a in range(features):
        mean[a] = sums[1 + a] / sums[0]
    trace = 0.0
    for a in range(features):
        for b in range(a, features):
            square[a, b] = square[b, a] = sums[row] / sums[0] - mean[a] * mean[b]
            row += 1
        trace += square[a, a]
    minor = square[1, 1] * square[2, 2] - square[1, 2] ** 2
    other = square[0, 1] * square[2, 2] - square[1, 2] * square[0, 2]
    third = square[0, 1] * square[1, 2] - square[1, 1] * square[0, 2]
    least = square[0, 0] * minor - square[0, 1] * other + square[0, 2] * third
    for _ in range(features - 1):  # the determinant is least where the other directions share the trace
        least *= (features - 1) / trace
    return float(least)


@compiled()
def judge(
    at: Array, features: int, order: int, sums: Array, sizes: Array, errors: Array, exact: Array, start: int, stop: int
) -> None:
    """exact[i]: whether the error of sums[i, :, c] is small beside sums[i, 0, c], or values of the column's mean size.

    errors (c, …): bounds by coarse cell, as parts of what is allowed. sizes (c,): the mean |column| per weight. A fit
    divides by variances, so the error must be smaller still where one of them is little.
    """
    for i in range(start, stop):
        x, y, z = int(at[i, 0]) // COARSE, int(at[i, 1]) // COARSE, int(at[i, 2]) // COARSE
        weight = sums[i, 0, 0]
        right = weight > 0
        allowed = 1.0
        if right and order > 1:
            allowed = min(1.0, max(0.0, least_variance(sums[i, :, 0], features) / AMPLE)) ** (order // 2)
        for c in range(len(sizes)):
            size = max(abs(sums[i, 0, c]), sizes[c] * weight)
            right = right and errors[c, x, y, z] <= allowed * size
        exact[i] = right
