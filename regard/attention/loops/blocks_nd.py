"""What a block of samples adds to the sums of the queries of a tile.

Names and shapes are those of kernel/sums_nd.py; those of a block, of weights_nd.py.
"""

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.weights_nd import (
    HIGHEST,
    add_powers_of_two,
    add_single_powers_of_two,
    compact_weights,
    laplace_exponents,
    powers_of_two,
    squares_of,
)
from regard.attention.tasks_nd import COMPACT, GAUSSIAN, Block, Kernel, Queries, Tables, Task, Work

FEW = 16  # samples that are left out one by one
SMALL = 1e-150  # a table's factor below it is 0: its square is still a normal number


# ---------------------------------------------------------------------------------------------------------------- sums


@compiled()
def gather(tables: Tables, codes: Array, block_codes: Array, count: int, with_slopes: bool, factors: Array) -> None:
    """factors[0] = Π_k T_k, factors[1 + k] = slope_k Π_{l≠k} T_l, for the codes of a tile."""
    for j in range(count):
        factor = 1.0
        for k in range(len(codes)):
            factor *= tables.factors[k, codes[k], block_codes[k, j]]
        factor = factor if factor > SMALL else 0.0
        factors[0, j] = factor * factor if tables.squared else factor
    if with_slopes:
        for k in range(len(codes)):
            for j in range(count):
                slope = tables.slopes[k, codes[k], block_codes[k, j]]
                for other in range(len(codes)):
                    if other != k:
                        slope *= tables.factors[other, codes[other], block_codes[other, j]]
                factors[1 + k, j] = slope


@compiled(inline=True)
def omit(block: Block, low: int, high: int, value: float, out: Array) -> None:
    """out = value for the samples with an index from low up to high."""
    if high - low <= FEW:
        for index in range(low, high):
            position = block.ranks[index] - block.begin
            if 0 <= position < block.size:
                out[position] = value
    else:
        for j in range(block.size):
            if low <= block.indices[j] < high:
                out[j] = value


@compiled("contract")
def exponents_in(
    kernel: Kernel, points: Array, query: Array, inverse: float, nearest: float, count: int, room: Array, out: Array
) -> None:
    """out = log2 of weights relative to that of the nearest, for a Gaussian or Laplace."""
    rate, offset = kernel.rate / numpy.log(2.0), nearest / numpy.log(2.0)
    if kernel.kind == GAUSSIAN:
        squares_of(points, query, kernel.starts[0], kernel.starts[-1], offset, -rate * inverse * inverse, count, out)
    else:
        laplace_exponents(kernel.product, kernel.starts, points, query, offset, inverse, rate, count, room, out)
    if offset > HIGHEST:  # then a sample that is near has the factor 0
        for j in range(count):
            out[j] = min(out[j], HIGHEST)


@compiled("contract")
def weigh(
    kernel: Kernel, points: Array, query: Array, inverse: float, nearest: float, count: int, room: Array, weights: Array
) -> None:
    """weights = K. Room: (3, BLOCK)."""
    if kernel.kind == COMPACT:
        compact_weights(kernel, points, query, inverse, count, room, weights)
    else:
        exponents_in(kernel, points, query, inverse, nearest, count, room[0], room[1])
        powers_of_two(room[1], count, weights)


@compiled("contract")
def basis_of(coordinates: Array, points: Array, query: Array, factors: Array, count: int, basis: Array) -> None:
    """basis[a] = v_a."""
    for a in range(len(coordinates)):
        first, second = coordinates[a, 0], coordinates[a, 1]
        x, t, factor, out = points[first], query[first], factors[a, 0], basis[a]
        for j in range(count):
            out[j] = (x[j] - t) * factor
        if second >= 0:
            x, t, factor = points[second], query[second], factors[a, 1]
            for j in range(count):
                out[j] += (x[j] - t) * factor


@compiled("contract")
def multiply(one: Array, other: Array, count: int, out: Array) -> None:
    """out = one · other."""
    for j in range(count):
        out[j] = one[j] * other[j]


@compiled("contract", "reassoc", inline=True)
def multiply_and_sum(one: Array, other: Array, count: int, out: Array) -> float:
    """out = one · other, and its sum."""
    total = 0.0
    for j in range(count):
        product = one[j] * other[j]
        out[j] = product
        total += product
    return total


@compiled("contract", "reassoc", inline=True)
def dot(one: Array, other: Array, count: int) -> float:
    """Σ one · other."""
    total = 0.0
    for j in range(count):
        total += one[j] * other[j]
    return total


@compiled("contract", "reassoc", inline=True)
def two_dots(one: Array, other: Array, third: Array, count: int) -> tuple[float, float]:
    """Σ one · other and Σ one · third."""
    total, second = 0.0, 0.0
    for j in range(count):
        total += one[j] * other[j]
        second += one[j] * third[j]
    return total, second


# --------------------------------------------------------------- for those queries of a tile for which a block matters


@compiled("contract")
def add_averages(kernel: Kernel, block: Block, queries: Queries, chosen: Array, room: Array, sums: Array) -> None:
    """Add to sums (n, 1, 2), for a Gaussian or Laplace."""
    weights, values, points, count, exponents = block.weights, block.values[1], block.points, block.size, room[1]
    for i in chosen:
        query, nearest, inverse = queries.points[i], queries.nearest[i], queries.inverses[i]
        exponents_in(kernel, points, query, inverse, nearest, count, room[0], exponents)
        omit(block, queries.left_out[i, 0], queries.left_out[i, 1], -numpy.inf, exponents)
        total, other = add_powers_of_two(exponents, count, weights, values)
        sums[i, 0, 0] += total
        sums[i, 0, 1] += other


@compiled("contract")
def add_single(kernel: Kernel, block: Block, queries: Queries, chosen: Array, work: Work, sums: Array) -> None:
    """The same in float32, for a Gaussian."""
    log2_e, count, weights, values = 1.0 / numpy.log(2.0), block.size, block.single_columns[0], block.single_columns[1]
    points, first, last, exponents = block.single_points, kernel.starts[0], kernel.starts[-1], work.single
    for i in chosen:
        offset = numpy.float32(queries.nearest[i] * log2_e)
        factor = numpy.float32(-kernel.rate * log2_e * queries.inverses[i] ** 2)
        squares_of(points, queries.single[i], first, last, offset, factor, count, exponents)
        omit(block, queries.left_out[i, 0], queries.left_out[i, 1], -numpy.inf, exponents)
        total, other = add_single_powers_of_two(exponents, count, weights, values)
        sums[i, 0, 0] += total
        sums[i, 0, 1] += other


@compiled("contract")
def add_rows(task: Task, block: Block, queries: Queries, chosen: Array, work: Work, sums: Array) -> None:
    """Add to sums (n, rows, c)."""
    kernel, monomials = task.kernel, task.monomials
    rows, weights, basis, values = work.rows, work.rows[0], work.basis, block.values
    points, count, parents, features = block.points, block.size, monomials.parents, monomials.features
    for i in chosen:
        query, inverse = queries.points[i], queries.inverses[i]
        weigh(kernel, points, query, inverse, queries.nearest[i], count, work.room, weights)
        omit(block, queries.left_out[i, 0], queries.left_out[i, 1], 0.0, weights)
        if len(parents) > 1:
            basis_of(monomials.coordinates, points, query, queries.basis[i], count, basis)
        for r in range(monomials.stored):
            factor = basis[features[r]] if r > 0 else block.weights
            sums[i, r, 0] += multiply_and_sum(rows[parents[r]], factor, count, rows[r])
            for c in range(1, len(values) if r < monomials.value_rows else 1):
                sums[i, r, c] += dot(rows[r], values[c], count)
        r = monomials.stored
        while r < len(parents):
            row = rows[parents[r]]
            if r + 1 < len(parents) and parents[r + 1] == parents[r]:
                total, other = two_dots(row, basis[features[r]], basis[features[r + 1]], count)
                sums[i, r, 0] += total
                sums[i, r + 1, 0] += other
                r += 2
            else:
                sums[i, r, 0] += dot(row, basis[features[r]], count)
                r += 1
