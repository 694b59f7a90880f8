"""What a block of samples adds to the sums of one query, and to their derivatives by the logs of the widths.

Names and shapes are those of kernel/sums_nd.py; those of a block, of weights_nd.py.
"""

from typing import NamedTuple

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.weights_nd import (
    COMPACT,
    GAUSSIAN,
    HIGHEST,
    Kernel,
    add_powers_of_two,
    add_single_powers_of_two,
    compact_weights,
    exponents_of,
    multiply_compact,
    multiply_slope,
    powers_of_two,
    squares_of,
)

BLOCK = 512  # samples of a block
LANES = 32  # a block's count is a multiple of it
TILE = 32  # queries that go through a block together
FEW = 16  # samples that are left out one by one
SMALL = 1e-150  # a table's factor below it is 0: its square is still a normal number
SUMS, SLOPES, SINGLE = 0, 1, 2  # what is wanted: sums, slopes by log widths, or sums of two columns in float32


class Blocks(NamedTuple):
    """Samples in order, BLOCK by BLOCK; the last is filled up with samples whose columns are 0."""

    points: Array  # (blocks, coordinates, BLOCK) the first of them narrow the window, the others are for the basis
    columns: Array  # (blocks, c, BLOCK)
    codes: Array  # (blocks, categorical, BLOCK)
    indices: Array  # (blocks, BLOCK) of the samples as they were given
    ranks: Array  # (m,) and where each of those is now
    counts: Array  # (blocks,)
    lows: Array  # (blocks, coordinates) their boxes
    highs: Array
    sizes: Array  # (blocks,) how much a block can add at most, as a weight
    single_points: Array  # float32, or empty
    single_columns: Array


class Queries(NamedTuple):
    """Queries in order; all queries of a tile have the same codes."""

    points: Array  # (n, coordinates)
    single: Array  # the same as float32
    basis: Array  # (n, features, 2) what the differences of a feature's coordinates are multiplied by
    codes: Array  # (n, categorical)
    left_out: Array  # (n, 2)
    inverses: Array  # (n,) 1 / scale
    nearest: Array  # (n,) −log of the weight that the sums are relative to
    ceilings: Array  # (n,) log of the largest factor of the tables
    ends: Array  # (n,) where −log K is more than this, nothing counts
    tiles: Array  # (tiles + 1,) their starts


class Monomials(NamedTuple):
    """Rows of sums: row r is row parents[r] times the basis function of features[r]."""

    parents: Array
    features: Array
    value_rows: int  # from this row on, only weights are summed
    order: int  # by which far samples count more
    coordinates: Array  # (features, 2) the coordinates of each feature, −1 for none


class Tables(NamedTuple):
    """Factors of categorical features, (categorical, codes of the query, codes of the sample)."""

    factors: Array
    slopes: Array
    squared: bool


class Fits(NamedTuple):
    """What the derivatives are taken of: a local average (basis 1) or line (basis 1 + features)."""

    duals: Array  # (n, basis)
    fits: Array  # (n, basis, outputs)
    slopes: Array  # (n, features + categorical, outputs), to be added to
    features: Array  # (features that narrow the window,) their places among all


class Work(NamedTuple):
    """Room for what is computed of a block, (…, BLOCK): arrays of their own, so that loops can be vectorised."""

    columns: Array  # (c, BLOCK) times the factors
    factors: Array  # (1 + categorical, BLOCK) products of the tables' entries, and their slopes
    weights: Array
    basis: Array  # (features, BLOCK)
    rows: Array  # (rows, BLOCK)
    slopes: Array  # (features that narrow the window, BLOCK)
    room: Array  # (4, BLOCK)
    single: Array  # (2, BLOCK)


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


@compiled()
def omit(blocks: Blocks, b: int, left_out: Array, value: float, out: Array) -> None:
    """out = value for the samples that are left out."""
    low, high = left_out[0], left_out[1]
    if high - low <= FEW:
        for index in range(low, high):
            position = blocks.ranks[index] - b * BLOCK
            if 0 <= position < BLOCK:
                out[position] = value
    else:
        indices = blocks.indices[b]
        for j in range(blocks.counts[b]):
            if low <= indices[j] < high:
                out[j] = value


@compiled("contract")
def exponents_in(kernel: Kernel, blocks: Blocks, b: int, queries: Queries, i: int, room: Array, out: Array) -> None:
    """out = log2 of weights relative to that of the nearest, for a Gaussian or Laplace."""
    count, log2_e = blocks.counts[b], 1.0 / numpy.log(2.0)
    offset, query = queries.nearest[i] * log2_e, queries.points[i]
    exponents_of(kernel, blocks.points[b], query, offset, queries.inverses[i], kernel.rate * log2_e, count, room, out)
    if offset > HIGHEST:  # then a sample that is near has the factor 0
        for j in range(count):
            out[j] = min(out[j], HIGHEST)


@compiled("contract")
def weigh(kernel: Kernel, blocks: Blocks, b: int, queries: Queries, i: int, work: Work) -> None:
    """work.weights = K, but 0 for samples that are left out."""
    count = blocks.counts[b]
    if kernel.kind == COMPACT:
        query, inverse = queries.points[i], queries.inverses[i]
        compact_weights(kernel, blocks.points[b], query, inverse, count, work.room, work.weights)
    else:
        exponents_in(kernel, blocks, b, queries, i, work.room[0], work.room[1])
        powers_of_two(work.room[1], count, work.weights)
    omit(blocks, b, queries.left_out[i], 0.0, work.weights)


@compiled("contract")
def basis_of(monomials: Monomials, blocks: Blocks, b: int, queries: Queries, i: int, basis: Array) -> None:
    """basis[a] = v_a."""
    count = blocks.counts[b]
    for a in range(len(monomials.coordinates)):
        first, second = monomials.coordinates[a, 0], monomials.coordinates[a, 1]
        x, t, factor, out = blocks.points[b, first], queries.points[i, first], queries.basis[i, a, 0], basis[a]
        for j in range(count):
            out[j] = (x[j] - t) * factor
        if second >= 0:
            x, t, factor = blocks.points[b, second], queries.points[i, second], queries.basis[i, a, 1]
            for j in range(count):
                out[j] += (x[j] - t) * factor


@compiled("contract")
def multiply(one: Array, other: Array, count: int, out: Array) -> None:
    """out = one · other."""
    for j in range(count):
        out[j] = one[j] * other[j]


@compiled("contract", "reassoc")
def add_up(factors: Array, columns: Array, last: int, count: int, sums: Array) -> None:
    """sums[c] += Σ_j factors[j] columns[c, j], for the columns up to last."""
    c = 0
    while c < last:
        row, total = columns[c], 0.0
        if c + 1 < last:  # two columns together
            other, second = columns[c + 1], 0.0
            for j in range(count):
                total += factors[j] * row[j]
                second += factors[j] * other[j]
            sums[c + 1] += second
        else:
            for j in range(count):
                total += factors[j] * row[j]
        sums[c] += total
        c += 2


@compiled("contract")
def add_rows(
    monomials: Monomials, blocks: Blocks, b: int, queries: Queries, i: int, columns: Array, work: Work, sums: Array
) -> None:
    """Add a block to sums (rows, c), by the weights in work."""
    count, c = blocks.counts[b], len(columns)
    add_up(work.weights, columns, c, count, sums[0])
    if len(monomials.parents) > 1:
        basis_of(monomials, blocks, b, queries, i, work.basis)
    for r in range(1, len(monomials.parents)):
        parent = monomials.parents[r]
        before = work.rows[parent] if parent > 0 else work.weights
        multiply(before, work.basis[monomials.features[r]], count, work.rows[r])
        add_up(work.rows[r], columns, c if r < monomials.value_rows else 1, count, sums[r])


# -------------------------------------------------------------------------------------------------------------- slopes


@compiled("contract")
def kernel_slopes(
    kernel: Kernel, points: Array, query: Array, inverse: float, count: int, weights: Array, room: Array, out: Array
) -> None:
    """out[a] = ∂K/∂ log width of each feature a that narrows the window. Room: (4, BLOCK)."""
    squares, whole, margins, roots = room[0], room[1], room[2], room[3]
    features, factor = len(kernel.starts) - 1, inverse * inverse
    # of the distance: −u K′(u) u_a² / u²
    squares_of(points, query, 0, kernel.starts[-1], 0.0, factor, count, whole)
    for a in range(features):
        slopes = out[a]
        squares_of(points, query, kernel.starts[a], kernel.starts[a + 1], 0.0, factor, count, squares)
        if kernel.kind == GAUSSIAN:
            for j in range(count):
                slopes[j] = weights[j] * squares[j]
        elif kernel.kind != COMPACT:
            for j in range(count):
                distance = numpy.sqrt(squares[j]) if kernel.product else numpy.sqrt(whole[j])
                portion = 1.0 if kernel.product else (squares[j] / whole[j] if whole[j] > 0.0 else 0.0)
                slopes[j] = weights[j] * distance * portion
        elif kernel.product:
            for j in range(count):
                slopes[j] = 1.0
            multiply_slope(kernel, squares, count, margins, roots, slopes)
            for b in range(features):
                if b != a:
                    squares_of(points, query, kernel.starts[b], kernel.starts[b + 1], 0.0, factor, count, squares)
                    multiply_compact(kernel, squares, count, margins, roots, slopes)
        else:
            for j in range(count):
                slopes[j] = squares[j] / whole[j] if whole[j] > 0.0 else 0.0
            multiply_slope(kernel, whole, count, margins, roots, slopes)


@compiled("contract", "reassoc")
def dot(one: Array, other: Array, third: Array, count: int) -> float:
    """Σ one · other · third."""
    total = 0.0
    for j in range(count):
        total += one[j] * other[j] * third[j]
    return total


@compiled("contract")
def residuals_of(
    dual: Array, fit: Array, output: int, columns: Array, basis: Array, count: int, room: Array, out: Array
) -> None:
    """out = (dual · x) (columns[1 + output] − columns[0] (fit · x)), x = (1, basis)."""
    weights, values = columns[0], columns[1 + output]
    for j in range(count):
        room[j] = dual[0]
        out[j] = fit[0, output]
    for a in range(len(dual) - 1):
        row, by, height = basis[a], dual[1 + a], fit[1 + a, output]
        for j in range(count):
            room[j] += by * row[j]
            out[j] += height * row[j]
    for j in range(count):
        out[j] = room[j] * (values[j] - weights[j] * out[j])


@compiled("contract")
def add_slopes(
    kernel: Kernel, monomials: Monomials, fits: Fits, blocks: Blocks, b: int, queries: Queries, i: int, work: Work
) -> float:
    """Add a block to fits.slopes, by the weights in work; return the sum of weights."""
    count, columns, factors, slopes = blocks.counts[b], blocks.columns[b], work.factors, fits.slopes[i]
    weights, residuals = work.weights, work.rows[0]
    if fits.duals.shape[1] > 1:
        basis_of(monomials, blocks, b, queries, i, work.basis)
    kernel_slopes(
        kernel, blocks.points[b], queries.points[i], queries.inverses[i], count, weights, work.room, work.slopes
    )
    for output in range(slopes.shape[1]):
        residuals_of(fits.duals[i], fits.fits[i], output, columns, work.basis, count, work.room[0], residuals)
        omit(blocks, b, queries.left_out[i], 0.0, residuals)
        for a in range(len(fits.features)):
            slopes[fits.features[a], output] += dot(work.slopes[a], factors[0], residuals, count)
        for k in range(len(factors) - 1):
            place = slopes.shape[0] - (len(factors) - 1) + k
            slopes[place, output] += dot(weights, factors[1 + k], residuals, count)
    return float(dot(weights, factors[0], columns[0], count))


# -------------------------------------------------------------------------------------------------- what is wanted


@compiled("contract")
def add_single(kernel: Kernel, blocks: Blocks, b: int, queries: Queries, i: int, work: Work, sums: Array) -> None:
    """Add a block to sums (1, 2) in float32, for a Gaussian or Laplace."""
    log2_e, count, columns = 1.0 / numpy.log(2.0), blocks.counts[b], blocks.single_columns[b]
    offset, rate = numpy.float32(queries.nearest[i] * log2_e), numpy.float32(kernel.rate * log2_e)
    points, query, inverse = blocks.single_points[b], queries.single[i], numpy.float32(queries.inverses[i])
    exponents_of(kernel, points, query, offset, inverse, rate, count, work.single[0], work.single[1])
    omit(blocks, b, queries.left_out[i], -numpy.inf, work.single[1])
    total, other = add_single_powers_of_two(work.single[1], count, columns[0], columns[1])
    sums[0, 0] += total
    sums[0, 1] += other


@compiled("contract")
def add_double(
    kernel: Kernel, blocks: Blocks, b: int, queries: Queries, i: int, columns: Array, work: Work, sums: Array
) -> None:
    """Add a block to sums (1, 2), for a Gaussian or Laplace."""
    exponents_in(kernel, blocks, b, queries, i, work.room[0], work.room[1])
    omit(blocks, b, queries.left_out[i], -numpy.inf, work.room[1])
    total, other = add_powers_of_two(work.room[1], blocks.counts[b], columns[0], columns[1])
    sums[0, 0] += total
    sums[0, 1] += other


@compiled("contract")
def add_block(
    wanted: int,
    kernel: Kernel,
    monomials: Monomials,
    fits: Fits,
    blocks: Blocks,
    b: int,
    queries: Queries,
    i: int,
    columns: Array,
    work: Work,
    totals: Array,
    sums: Array,
) -> None:
    """Add block b to what is wanted of query i, and to its sum of weights in totals."""
    if wanted == SINGLE:
        add_single(kernel, blocks, b, queries, i, work, sums[i])
    elif wanted == SUMS and kernel.kind != COMPACT and sums.shape[1] == 1 and sums.shape[2] == 2:
        add_double(kernel, blocks, b, queries, i, columns, work, sums[i])
    else:
        weigh(kernel, blocks, b, queries, i, work)
        if wanted == SUMS:
            add_rows(monomials, blocks, b, queries, i, columns, work, sums[i])
    if wanted == SLOPES:
        totals[i] += add_slopes(kernel, monomials, fits, blocks, b, queries, i, work)
    else:
        totals[i] = sums[i, 0, 0]
