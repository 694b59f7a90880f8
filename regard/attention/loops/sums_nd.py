"""Sums under a kernel over several features: tiles of queries against blocks of samples that stay in cache.

For each pair, with v = (x_j − query_i) in widths and u = ‖v‖, the kernel's weight is multiplied by one of several
factors, and summed with each column. Everything is float64 and written so that the innermost loops, over the samples of
a block, are vectorised: over slices that start at 0 (an index that might be negative is not), and an exponential is a
power of two by a polynomial and a shift of exponent bits.

Shapes and names are those of kernel/sums_nd.py.
"""

from typing import NamedTuple

import numpy

from regard.attention.loops import Array, compiled

TILE = 32  # queries that go through a block together
BLOCK = 512  # samples of a block
TERMS = 9  # of the polynomial for 2^x, |x| ≤ ½: exact to 1e-12
AROUND = 4.0  # squared widths: blocks within two widths of a tile come first
LITTLE = 30.0  # a block that can add no more than exp(−30) = 1e-13 of the sums so far is left out
MAGIC = 1.5 * 2.0**52  # adding it leaves the nearest whole number in a float's last bits
LOWEST = -1020.0  # 2^LOWEST is a normal number


class Kernel(NamedTuple):
    """K as the loops want it: kind 0 is Gaussian, 1 Laplace, 2 a polynomial."""

    kind: int
    reach: float  # how far it counts: from the query, or where it has no end from the nearest sample
    exponential: Array  # (TERMS,) 2^x on |x| ≤ ½, the highest power first
    polynomial: Array  # K(u) = Σ_p polynomial[p] (1 − u)^p
    slope: Array  # −u K′(u) likewise


class Blocks(NamedTuple):
    """Samples in order, BLOCK by BLOCK."""

    points: Array  # (features, m)
    columns: Array  # (c, m)
    lows: Array  # (blocks, features) their boxes
    highs: Array
    weights: Array  # (blocks,) the sums of their weights


class Work(NamedTuple):
    """Room for what is computed of a block, (BLOCK,) each: arrays of their own, so that loops can be vectorised."""

    squares: Array
    exponents: Array
    kernel: Array
    slope: Array
    factors: Array


@compiled("contract")
def exponentials(falls: Array, nearest: float, factor: float, coefficients: Array, work: Array, out: Array) -> None:
    """out = 2^((nearest − falls) · factor), for exponents that are hardly positive. Not to be reassociated."""
    whole, bits = work.view(numpy.int64), out.view(numpy.int64)
    for j in range(len(falls)):
        exponent = max((nearest - falls[j]) * factor, LOWEST)
        shifted = exponent + MAGIC
        rest = exponent - (shifted - MAGIC)
        work[j] = shifted
        total = coefficients[0]
        for p in range(1, TERMS):
            total = total * rest + coefficients[p]
        out[j] = total
    for j in range(len(falls)):
        bits[j] += whole[j] << 52


@compiled("contract", "reassoc")
def squares_of(points: Array, query: Array, first: int, count: int, squares: Array) -> None:
    """squares[j] = ‖points[:, first + j] − query‖², for two features or more."""
    done = 3 if len(query) > 2 else 2  # together, because reading the squares again costs as much as a feature
    x, y = points[0, first : first + count], points[1, first : first + count]
    z = points[done - 1, first : first + count]
    if done == 2:
        for j in range(count):
            squares[j] = (x[j] - query[0]) ** 2 + (y[j] - query[1]) ** 2
    else:
        for j in range(count):
            squares[j] = (x[j] - query[0]) ** 2 + (y[j] - query[1]) ** 2 + (z[j] - query[2]) ** 2
    for d in range(done, len(query)):
        row, t = points[d, first : first + count], query[d]
        for j in range(count):
            squares[j] += (row[j] - t) ** 2


@compiled("contract")
def weigh(kernel: Kernel, polynomial: Array, nearest: float, count: int, work: Work, weights: Array) -> None:
    """weights[j] = K(u_j): Gaussian or Laplace relative to K(nearest), or Σ_p polynomial[p] (1 − u)^p."""
    log2_e, squares, room = 1.0 / numpy.log(2.0), work.squares, work.exponents
    if kernel.kind == 0:
        falls = squares[:count]
        exponentials(falls, nearest * nearest, log2_e / 2, kernel.exponential, room[:count], weights[:count])
    elif kernel.kind == 1:
        distances = work.factors
        for j in range(count):
            distances[j] = numpy.sqrt(squares[j])
        exponentials(distances[:count], nearest, log2_e, kernel.exponential, room[:count], weights[:count])
    else:
        for j in range(count):
            room[j] = 1.0 - numpy.sqrt(squares[j])
            weights[j] = 0.0
        for p in range(len(polynomial) - 1, -1, -1):
            for j in range(count):
                weights[j] = weights[j] * room[j] + polynomial[p]
        for j in range(count):
            weights[j] = weights[j] if squares[j] <= 1.0 else 0.0


@compiled("contract", "reassoc")
def add_up(factors: Array, columns: Array, first: int, count: int, sums: Array) -> None:
    """sums[c] += Σ_j factors[j] columns[c, first + j]."""
    for c in range(len(sums)):
        row, total = columns[c, first : first + count], 0.0
        for j in range(count):
            total += factors[j] * row[j]
        sums[c] += total


@compiled("contract")
def add_block(estimate: int, query: Array, blocks: Blocks, first: int, count: int, work: Work, sums: Array) -> None:
    """Add a block's samples to sums (rows, c), for averages (0), local lines (1) or slopes by log width (2)."""
    points, columns = blocks.points, blocks.columns
    squares, kernel, slope, factors = work.squares, work.kernel, work.slope, work.factors
    add_up(kernel, columns, first, count, sums[0])
    features, row = len(query), 1
    if estimate == 1:
        for d in range(features):
            one = points[d, first : first + count]
            for j in range(count):
                factors[j] = kernel[j] * (one[j] - query[d])
            add_up(factors, columns, first, count, sums[row])
            row += 1
        for d in range(features):
            for e in range(d, features):
                one, other = points[d, first : first + count], points[e, first : first + count]
                for j in range(count):
                    factors[j] = kernel[j] * (one[j] - query[d]) * (other[j] - query[e])
                add_up(factors, columns, first, count, sums[row])
                row += 1
    elif estimate == 2:
        for d in range(features):
            one = points[d, first : first + count]
            for j in range(count):
                difference = one[j] - query[d]
                # −u K′(u) v_d² / u²; a sample at the query has no slope
                factors[j] = slope[j] * difference * difference / (squares[j] if squares[j] > 0 else 1.0)
            add_up(factors, columns, first, count, sums[row])
            row += 1


@compiled()
def squared_gap(low: Array, high: Array, other_low: Array, other_high: Array) -> float:
    """The squared distance between two boxes."""
    total = 0.0
    for d in range(len(low)):
        apart = max(0.0, max(low[d] - other_high[d], other_low[d] - high[d]))
        total += apart * apart
    return total


@compiled()
def squared_span(low: Array, high: Array, other_low: Array, other_high: Array) -> float:
    """The largest squared distance between points of two boxes."""
    total = 0.0
    for d in range(len(low)):
        apart = max(high[d] - other_low[d], other_high[d] - low[d])
        total += apart * apart
    return total


@compiled("contract")
def add_pairs(
    kernel: Kernel,
    estimate: int,
    queries: Array,
    left_out: Array,
    nearest: Array,
    blocks: Blocks,
    begin: int,
    work: Work,
    sums: Array,
    first: int,
    last: int,
) -> None:
    """Add the block of samples from `begin` on to the sums of the queries from first up to last."""
    count = min(BLOCK, blocks.points.shape[1] - begin)
    squares, weights, slope = work.squares, work.kernel, work.slope
    for i in range(first, last):
        squares_of(blocks.points, queries[i], begin, count, squares)
        weigh(kernel, kernel.polynomial, nearest[i], count, work, weights)
        if estimate == 2:  # −u K′(u) is u² K for the Gaussian, u K for Laplace, a polynomial for the others
            if kernel.kind == 2:
                weigh(kernel, kernel.slope, 0.0, count, work, slope)
            else:
                for j in range(count):
                    slope[j] = weights[j] * (squares[j] if kernel.kind == 0 else numpy.sqrt(squares[j]))
        if begin <= left_out[i] < begin + count:
            weights[left_out[i] - begin] = slope[left_out[i] - begin] = 0.0
        add_block(estimate, queries[i], blocks, begin, count, work, sums[i])


@compiled()
def surround(queries: Array, first: int, last: int, box: Array) -> None:
    """box (2, features): the least and the largest of the queries from first up to last."""
    for d in range(queries.shape[1]):
        box[0, d] = box[1, d] = queries[first, d]
        for i in range(first + 1, last):
            box[0, d] = min(box[0, d], queries[i, d])
            box[1, d] = max(box[1, d], queries[i, d])


@compiled()
def edge_of(kernel: Kernel, box: Array, blocks: Blocks) -> float:
    """The squared distance from which on no sample counts for any query in the box."""
    if kernel.kind == 2:
        return kernel.reach * kernel.reach
    # A kernel without an end reaches as far beyond a query's nearest sample, which is at most this far away.
    farthest = numpy.inf
    for b in range(len(blocks.lows)):
        if min(BLOCK, blocks.points.shape[1] - b * BLOCK) > 1:  # one sample alone may be the query itself
            farthest = min(farthest, squared_span(box[0], box[1], blocks.lows[b], blocks.highs[b]))
    if kernel.kind == 0:
        return farthest + kernel.reach * kernel.reach
    return float((numpy.sqrt(farthest) + kernel.reach) ** 2)


@compiled("contract")
def sums_nd(
    kernel: Kernel,
    estimate: int,
    queries: Array,
    left_out: Array,
    nearest: Array,
    blocks: Blocks,
    work: Work,
    box: Array,
    sums: Array,
    start: int,
    stop: int,
) -> None:
    """Sums for the tiles [start, stop) of TILE queries each; blocks of samples out of reach of a tile are skipped.

    Weights are relative to K(nearest[i]); sample left_out[i] takes no part. To work in: work, and box (2, features).
    """
    for tile in range(start, stop):
        first, last = tile * TILE, min((tile + 1) * TILE, len(queries))
        surround(queries, first, last, box)
        edge = edge_of(kernel, box, blocks)
        for i in range(first, last):
            for r in range(sums.shape[1]):
                for c in range(sums.shape[2]):
                    sums[i, r, c] = 0.0
        # First the blocks around, then those that could still add anything to the least sum of weights so far.
        for step in range(2):
            least = 0.0
            if step == 1 and kernel.kind < 2:
                least = sums[first, 0, 0]
                for i in range(first, last):
                    least = min(least, sums[i, 0, 0]) if nearest[i] == 0 else 0.0
            for b in range(len(blocks.lows)):
                apart = squared_gap(box[0], box[1], blocks.lows[b], blocks.highs[b])
                if apart > edge or (apart <= AROUND) != (step == 0):
                    continue
                fall = apart / 2 if kernel.kind == 0 else numpy.sqrt(apart)
                if least > 0 and fall > LITTLE + numpy.log(blocks.weights[b] / least):
                    continue
                add_pairs(kernel, estimate, queries, left_out, nearest, blocks, b * BLOCK, work, sums, first, last)
