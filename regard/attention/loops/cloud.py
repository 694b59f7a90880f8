"""Sums under a kernel for points of several features: tiles of queries against blocks of samples that stay in cache.

For each pair, with v = (x_j − query_i) in widths and u = ‖v‖, the kernel's weight is multiplied by one of several
factors, and summed with each column. Everything is float64 and written so that the innermost loops, over the samples of
a block, are vectorised: over slices that start at 0 (an index that might be negative is not), and an exponential is a
power of two by a polynomial and a shift of exponent bits.

Shapes and names are those of cloud.py.
"""

import numpy

from regard.attention.loops import Array, compiled

TILE = 32  # queries that go through a block together
BLOCK = 512  # samples of a block
TERMS = 9  # of the polynomial for 2^x, |x| ≤ ½: exact to 1e-12
AROUND = 4.0  # squared widths: blocks within two widths of a tile come first
LITTLE = 30.0  # a block that can add no more than exp(−30) = 1e-13 of what was found is left out
MAGIC = 1.5 * 2.0**52  # adding it leaves the nearest whole number in a float's last bits
LOWEST = -1020.0  # 2^LOWEST is a normal number


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
    done = 3 if len(query) > 2 else 2  # together, because every look at the squares costs as much as a feature
    x, y = points[0, first : first + count], points[1, first : first + count]
    z = points[done - 1, first : first + count]
    if done == 2:
        for j in range(count):
            squares[j] = (x[j] - query[0]) ** 2 + (y[j] - query[1]) ** 2
    else:
        for j in range(count):
            squares[j] = (x[j] - query[0]) ** 2 + (y[j] - query[1]) ** 2 + (z[j] - query[2]) ** 2
    for d in range(done, len(query)):
        row, own = points[d, first : first + count], query[d]
        for j in range(count):
            squares[j] += (row[j] - own) ** 2


@compiled("contract")
def weigh(
    kind: int,
    squares: Array,
    nearest: float,
    polynomial: Array,
    exponential: Array,
    distances: Array,
    work: Array,
    kernel: Array,
    count: int,
) -> None:
    """kernel[j] = K(u_j): Gaussian (kind 0) or Laplace (1), relative to K(nearest), or Σ_p polynomial[p] (1 − u)^p."""
    log2_e = 1.0 / numpy.log(2.0)
    if kind == 0:
        exponentials(squares[:count], nearest * nearest, log2_e / 2, exponential, work[:count], kernel[:count])
    elif kind == 1:
        for j in range(count):
            distances[j] = numpy.sqrt(squares[j])
        exponentials(distances[:count], nearest, log2_e, exponential, work[:count], kernel[:count])
    else:
        for j in range(count):
            work[j] = 1.0 - numpy.sqrt(squares[j])
            kernel[j] = 0.0
        for p in range(len(polynomial) - 1, -1, -1):
            for j in range(count):
                kernel[j] = kernel[j] * work[j] + polynomial[p]
        for j in range(count):
            kernel[j] = kernel[j] if squares[j] <= 1.0 else 0.0


@compiled("contract", "reassoc")
def add_up(factors: Array, columns: Array, first: int, count: int, sums: Array) -> None:
    """sums[c] += Σ_j factors[j] columns[c, first + j]."""
    for c in range(len(sums)):
        row, total = columns[c, first : first + count], 0.0
        for j in range(count):
            total += factors[j] * row[j]
        sums[c] += total


@compiled("contract")
def add_block(
    what: int,
    query: Array,
    points: Array,
    columns: Array,
    first: int,
    count: int,
    squares: Array,
    kernel: Array,
    slope: Array,
    factors: Array,
    sums: Array,
) -> None:
    """Add a block's samples to sums (rows, c): what is 0 for averages, 1 for local lines, 2 for slopes by log width."""
    add_up(kernel, columns, first, count, sums[0])
    features, row = len(query), 1
    if what == 1:
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
    elif what == 2:
        for d in range(features):
            one = points[d, first : first + count]
            for j in range(count):
                difference = one[j] - query[d]
                # −u K′(u) v_d² / u²; a sample at the query has no slope
                factors[j] = slope[j] * difference * difference / (squares[j] if squares[j] > 0 else 1.0)
            add_up(factors, columns, first, count, sums[row])
            row += 1


@compiled()
def gap(low: Array, high: Array, other_low: Array, other_high: Array) -> float:
    """The squared distance between two boxes."""
    total = 0.0
    for d in range(len(low)):
        apart = max(0.0, max(low[d] - other_high[d], other_low[d] - high[d]))
        total += apart * apart
    return total


@compiled()
def span(low: Array, high: Array, other_low: Array, other_high: Array) -> float:
    """The largest squared distance between points of two boxes."""
    total = 0.0
    for d in range(len(low)):
        apart = max(high[d] - other_low[d], other_high[d] - low[d])
        total += apart * apart
    return total


@compiled("contract")
def add_pairs(
    kind: int,
    what: int,
    queries: Array,
    own: Array,
    nearest: Array,
    points: Array,
    columns: Array,
    begin: int,
    polynomial: Array,
    slope_polynomial: Array,
    exponential: Array,
    squares: Array,
    exponents: Array,
    kernel: Array,
    slope: Array,
    factors: Array,
    sums: Array,
    first: int,
    last: int,
) -> None:
    """Add the block of samples from `begin` on to the sums of the queries from first up to last."""
    count = min(BLOCK, points.shape[1] - begin)
    for i in range(first, last):
        squares_of(points, queries[i], begin, count, squares)
        weigh(kind, squares, nearest[i], polynomial, exponential, factors, exponents, kernel, count)
        if what == 2:  # −u K′(u) is u² K for the Gaussian, u K for Laplace, a polynomial for the others
            if kind == 2:
                weigh(kind, squares, 0.0, slope_polynomial, exponential, factors, exponents, slope, count)
            else:
                for j in range(count):
                    slope[j] = kernel[j] * (squares[j] if kind == 0 else numpy.sqrt(squares[j]))
        if begin <= own[i] < begin + count:
            kernel[own[i] - begin] = slope[own[i] - begin] = 0.0
        add_block(what, queries[i], points, columns, begin, count, squares, kernel, slope, factors, sums[i])


@compiled("contract")
def cloud_sums(
    kind: int,
    what: int,
    queries: Array,
    own: Array,
    nearest: Array,
    points: Array,
    columns: Array,
    lows: Array,
    highs: Array,
    heavy: Array,
    reach: float,
    polynomial: Array,
    slope_polynomial: Array,
    exponential: Array,
    squares: Array,
    exponents: Array,
    kernel: Array,
    slope: Array,
    factors: Array,
    box: Array,
    sums: Array,
    start: int,
    stop: int,
) -> None:
    """Sums for the tiles [start, stop) of TILE queries each; blocks of samples out of reach of a tile are skipped.

    Weights are relative to K(nearest[i]); sample own[i] takes no part. To work in: box (2, features), the others before
    it (BLOCK,), each an array of its own, so that loops over two of them can be vectorised.
    """
    m, features = points.shape[1], queries.shape[1]
    for tile in range(start, stop):
        first, last = tile * TILE, min((tile + 1) * TILE, len(queries))
        for d in range(features):
            box[0, d] = box[1, d] = queries[first, d]
            for i in range(first + 1, last):
                box[0, d] = min(box[0, d], queries[i, d])
                box[1, d] = max(box[1, d], queries[i, d])
        # A kernel without an end reaches as far beyond a query's nearest sample, which is at most this far away.
        farthest = 0.0 if kind == 2 else numpy.inf
        for b in range(len(lows)):
            if min(BLOCK, m - b * BLOCK) > 1:  # one sample alone may be the query's own
                farthest = min(farthest, span(box[0], box[1], lows[b], highs[b]))
        edge = (numpy.sqrt(farthest) + reach) ** 2 if kind == 1 else farthest + reach * reach
        for i in range(first, last):
            for r in range(sums.shape[1]):
                for c in range(sums.shape[2]):
                    sums[i, r, c] = 0.0
        # First the blocks around, then those that could still add anything to what every query has found there.
        for step in range(2):
            found = 0.0
            if step == 1 and kind < 2:
                found = sums[first, 0, 0]
                for i in range(first, last):
                    found = min(found, sums[i, 0, 0]) if nearest[i] == 0 else 0.0
            for b in range(len(lows)):
                apart = gap(box[0], box[1], lows[b], highs[b])
                if apart > edge or (apart <= AROUND) != (step == 0):
                    continue
                if found > 0 and (apart / 2 if kind == 0 else numpy.sqrt(apart)) > LITTLE + numpy.log(heavy[b] / found):
                    continue
                add_pairs(
                    kind,
                    what,
                    queries,
                    own,
                    nearest,
                    points,
                    columns,
                    b * BLOCK,
                    polynomial,
                    slope_polynomial,
                    exponential,
                    squares,
                    exponents,
                    kernel,
                    slope,
                    factors,
                    sums,
                    first,
                    last,
                )
