"""Sums under a kernel over several features: tiles of queries against blocks of samples that stay in cache.

A tile's blocks are visited from the nearest to the farthest. A block is left out for a query where all that is left out
for it stays below `tolerance` of its sum of weights so far, by the distance of the query to the block's box.

Names and shapes are those of tasks_nd.py.
"""

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.weights_nd import (
    add_powers_of_two,
    add_single_powers_of_two,
    basis_of,
    dot,
    exponents_in,
    gather,
    multiply,
    multiply_and_sum,
    multiply_compact,
    multiply_slope,
    omit,
    squares_of,
    two_dots,
    weigh,
)
from regard.attention.tasks_nd import (
    AVERAGES,
    COMPACT,
    EDGE,
    GAUSSIAN,
    LAPLACE,
    SINGLE,
    SLOPES,
    TILE,
    Block,
    Blocks,
    Kernel,
    Queries,
    Tables,
    Task,
    Work,
)


@compiled(inline=True)
def fall_between(kernel: Kernel, low: Array, high: Array, other_low: Array, other_high: Array, inverse: float) -> float:
    """The least −log K between two boxes; for a compact kernel, the least distance (in a product: of any feature)."""
    total, largest = 0.0, 0.0
    for a in range(len(kernel.starts) - 1):
        square = 0.0
        for k in range(kernel.starts[a], kernel.starts[a + 1]):
            apart = max(0.0, max(low[k] - other_high[k], other_low[k] - high[k])) * inverse
            square += apart * apart
        if kernel.product:
            total += numpy.sqrt(square)
            largest = max(largest, square)
        else:
            total += square
    if kernel.kind == COMPACT:
        return float(numpy.sqrt(largest if kernel.product else total))
    if kernel.kind == GAUSSIAN or kernel.product:
        return kernel.rate * total
    return float(kernel.rate * numpy.sqrt(total))


@compiled(inline=True)
def most(kernel: Kernel, fall: float, largest: float, order: int) -> float:
    """The most that K · |v|^order · exp(largest) can be, v in widths, where −log K is at least `fall`."""
    if kernel.kind == COMPACT:
        return 0.0 if fall > EDGE else numpy.inf
    scaled = fall / kernel.rate  # u² or u
    if order == 0:
        return float(numpy.exp(largest - fall))
    distance = numpy.sqrt(scaled) if kernel.kind == GAUSSIAN else scaled
    if fall * (2 if kernel.kind == GAUSSIAN else 1) < order:  # where K u^order still grows
        return numpy.inf
    return float(numpy.exp(largest - fall) * max(1.0, distance) ** order)


@compiled()
def surround(queries: Queries, first: int, last: int, box: Array) -> tuple[float, float, float]:
    """box (2, coordinates) around a tile; its widest scale's inverse, its largest weight's log and end."""
    points = queries.points
    for k in range(points.shape[1]):  # one by one: to compile an assignment of rows takes seconds
        box[0, k] = box[1, k] = points[first, k]
    inverse, end = queries.inverses[first], queries.ends[first]
    largest = queries.nearest[first] + queries.ceilings[first]
    for i in range(first + 1, last):
        inverse, end = min(inverse, queries.inverses[i]), max(end, queries.ends[i])
        largest = max(largest, queries.nearest[i] + queries.ceilings[i])
        for k in range(points.shape[1]):
            box[0, k], box[1, k] = min(box[0, k], points[i, k]), max(box[1, k], points[i, k])
    return inverse, largest, end


@compiled()
def plan(
    kernel: Kernel, blocks: Blocks, order: int, box: Array, tile: tuple[float, float, float], rest: Array
) -> Array:
    """The blocks in reach of a tile from near to far; rest[k]: the most that the k-th and all after it can add."""
    inverse, largest, end = tile
    falls, chosen, count = numpy.empty(len(blocks.counts)), numpy.empty(len(blocks.counts), numpy.int64), 0
    for b in range(len(blocks.counts)):
        fall = fall_between(kernel, box[0], box[1], blocks.lows[b], blocks.highs[b], inverse)
        if fall <= end:
            falls[count], chosen[count] = fall, b
            count += 1
    by_fall = numpy.argsort(falls[:count])
    rest[count] = 0.0
    for k in range(count - 1, -1, -1):
        at = by_fall[k]
        rest[k] = rest[k + 1] + blocks.sizes[chosen[at]] * most(kernel, falls[at], largest, order)
    return chosen[:count][by_fall]


@compiled()
def block_of(wanted: int, blocks: Blocks, b: int, tables: Tables, codes: Array, work: Work) -> Block:
    """Block b for a tile of queries with these codes; for slopes, its weights are without the tables' factors."""
    count, weights, single = blocks.counts[b], blocks.columns[b, 0], b if wanted == SINGLE else 0
    if len(codes) > 0:
        gather(tables, codes, blocks.codes[b], count, wanted == SLOPES, work.factors)
        if wanted != SLOPES:
            multiply(weights, work.factors[0], count, work.weights)
            weights = work.weights
    begin, singles = b * blocks.points.shape[2], (blocks.single_points[single], blocks.single_columns[single])
    return Block(blocks.points[b], weights, blocks.columns[b], blocks.indices[b], blocks.ranks, begin, count, *singles)


@compiled()
def choose(
    kernel: Kernel, blocks: Blocks, b: int, order: int, queries: Queries, first: int, spare: Array, chosen: Array
) -> int:
    """The queries for which block b matters, and how many; what is left out of the others is taken from `spare`."""
    count, low, high = 0, blocks.lows[b], blocks.highs[b]
    for i in range(first, first + len(spare)):
        fall = fall_between(kernel, queries.points[i], queries.points[i], low, high, queries.inverses[i])
        little = blocks.sizes[b] * most(kernel, fall, queries.nearest[i] + queries.ceilings[i], order)
        if little <= spare[i - first] / 4:  # so that something is left for others
            spare[i - first] -= little
        elif fall <= queries.ends[i]:
            chosen[count] = i
            count += 1
    return count


@compiled("contract")
def sums_nd(
    task: Task, queries: Queries, blocks: Blocks, work: Work, totals: Array, sums: Array, start: int, stop: int
) -> None:
    """Add to totals (n,) and to sums (n, rows, c) or the slopes of fits, for the tiles [start, stop)."""
    wanted, kernel, tolerance = task.wanted, task.kernel, task.tolerance
    box, rest = numpy.empty((2, queries.points.shape[1])), numpy.empty(len(blocks.counts) + 1)
    chosen, order = numpy.empty(TILE, numpy.int64), task.monomials.order
    for tile in range(start, stop):
        first, last = queries.tiles[tile], queries.tiles[tile + 1]
        visits = plan(kernel, blocks, order, box, surround(queries, first, last, box), rest)
        spare, before = numpy.zeros(last - first), numpy.zeros(last - first)  # what may be left out, the totals before
        for k in range(len(visits)):
            if k > 0 and rest[k] <= spare.min():
                break
            count = choose(kernel, blocks, visits[k], order, queries, first, spare, chosen)
            if count > 0:
                block = block_of(wanted, blocks, visits[k], task.tables, queries.codes[first], work)
                if wanted == SLOPES:
                    add_slopes(task, block, queries, chosen[:count], work, totals)
                elif wanted == SINGLE:
                    add_single(kernel, block, queries, chosen[:count], work, sums)
                elif wanted == AVERAGES:
                    add_averages(kernel, block, queries, chosen[:count], work.room, sums)
                else:
                    add_rows(task, block, queries, chosen[:count], work, sums)
                for i in range(first, last):
                    if wanted != SLOPES:
                        totals[i] = sums[i, 0, 0]
                    spare[i - first] += tolerance * (totals[i] - before[i - first])
                    before[i - first] = totals[i]


@compiled("contract")
def nearest_weights(
    kernel: Kernel, tables: Tables, queries: Queries, blocks: Blocks, work: Work, nearest: Array, start: int, stop: int
) -> None:
    """nearest = the least −log of any weight, for a Gaussian or Laplace; infinite where no sample counts."""
    falls, exponents, factors = numpy.empty(len(blocks.counts)), work.room[1], work.factors
    for i in range(start, stop):
        point, inverse, best = queries.points[i], queries.inverses[i], numpy.inf
        for b in range(len(blocks.counts)):
            falls[b] = fall_between(kernel, point, point, blocks.lows[b], blocks.highs[b], inverse)
        for b in numpy.argsort(falls):
            if falls[b] - queries.ceilings[i] >= best:
                break
            block = block_of(SLOPES, blocks, b, tables, queries.codes[i], work)
            exponents_in(kernel, block.points, point, inverse, 0.0, block.size, work.room[0], exponents)
            omit(block, queries.left_out[i, 0], queries.left_out[i, 1], -numpy.inf, exponents)
            for j in range(block.size):
                if factors[0, j] > 0.0 and block.weights[j] > 0.0:
                    best = min(best, -exponents[j] * numpy.log(2.0) - numpy.log(factors[0, j]))
        nearest[i] = best


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


# ------------------------------------------------------------------------------------ derivatives by logs of the widths
# What a block of samples adds to them, for the queries of a tile:
#     slopes[i, a, o] += Σ_j ∂K_ij/∂θ_a · weights[j] · (dual_i · x_ij) · (values[j, o] − fit_io · x_ij)


@compiled("contract")
def radial_slopes(
    kernel: Kernel, points: Array, query: Array, inverse: float, count: int, factors: Array, room: Array, out: Array
) -> None:
    """out, which is factors · K(u), becomes −factors · K′(u) / u: times u_a², that is ∂K/∂ log width of a feature."""
    squares = room[0]
    squares_of(points, query, kernel.starts[0], kernel.starts[-1], 0.0, inverse * inverse, count, squares)
    if kernel.kind == LAPLACE:
        for j in range(count):
            out[j] = out[j] / numpy.sqrt(squares[j]) if squares[j] > 0.0 else 0.0
    elif kernel.kind == COMPACT:
        for j in range(count):
            out[j] = factors[j] / squares[j] if squares[j] > 0.0 else 0.0
        multiply_slope(kernel, squares, count, room[1], room[2], out)


@compiled("contract")
def product_slopes(
    kernel: Kernel,
    points: Array,
    query: Array,
    inverse: float,
    a: int,
    count: int,
    factors: Array,
    weights: Array,
    room: Array,
    out: Array,
) -> None:
    """out = ∂/∂ log width of feature a of weights = factors · K, K a product over features."""
    squares, starts, factor = room[0], kernel.starts, inverse * inverse
    squares_of(points, query, starts[a], starts[a + 1], 0.0, factor, count, squares)
    if kernel.kind == LAPLACE:
        for j in range(count):
            out[j] = weights[j] * numpy.sqrt(squares[j])
        return
    for j in range(count):
        out[j] = factors[j]
    multiply_slope(kernel, squares, count, room[1], room[2], out)
    for b in range(len(starts) - 1):
        if b != a:
            squares_of(points, query, starts[b], starts[b + 1], 0.0, factor, count, squares)
            multiply_compact(kernel, squares, count, room[1], room[2], out)


@compiled("contract")
def residuals_of(
    dual: Array, fit: Array, output: int, block: Block, basis: Array, count: int, room: Array, out: Array
) -> None:
    """out = weights (dual · x) (values[1 + output] − fit · x), x = (1, basis)."""
    weights, values, by, height = block.weights, block.values[1 + output], dual[0], fit[0, output]
    if len(dual) == 1:
        for j in range(count):
            out[j] = weights[j] * by * (values[j] - height)
        return
    for j in range(count):
        room[j] = by
        out[j] = values[j] - height
    for a in range(len(dual) - 1):
        row, by, height = basis[a], dual[1 + a], fit[1 + a, output]
        for j in range(count):
            room[j] += by * row[j]
            out[j] -= height * row[j]
    for j in range(count):
        out[j] *= room[j] * weights[j]


@compiled("contract", "reassoc")
def dot_square(one: Array, x: Array, t: float, count: int) -> float:
    """Σ one · (x − t)²."""
    total = 0.0
    for j in range(count):
        total += one[j] * (x[j] - t) ** 2
    return total


@compiled("contract")
def add_slopes(task: Task, block: Block, queries: Queries, chosen: Array, work: Work, totals: Array) -> None:
    """Add to the slopes of fits, and to totals the sums of weights."""
    kernel, fits = task.kernel, task.fits
    points, count, starts, factors, room = block.points, block.size, kernel.starts, work.factors[0], work.room
    weights, slopes, residuals, products = work.slopes[0], work.slopes[1], work.slopes[2], work.slopes[3]
    first = fits.slopes.shape[1] - (len(work.factors) - 1)  # of the categorical features
    for i in chosen:
        query, inverse, out = queries.points[i], queries.inverses[i], fits.slopes[i]
        low, high = queries.left_out[i, 0], queries.left_out[i, 1]
        weigh(kernel, points, query, inverse, queries.nearest[i], count, room, weights)
        omit(block, low, high, 0.0, weights)
        multiply(weights, factors, count, slopes)
        totals[i] += dot(slopes, block.weights, count)
        if kernel.kind != GAUSSIAN and not kernel.product:
            radial_slopes(kernel, points, query, inverse, count, factors, room, slopes)
        if fits.duals.shape[1] > 1:
            basis_of(task.monomials.coordinates, points, query, queries.basis[i], count, work.basis)
        for output in range(out.shape[1]):
            residuals_of(fits.duals[i], fits.fits[i], output, block, work.basis, count, room[0], residuals)
            omit(block, low, high, 0.0, residuals)
            for k in range(len(work.factors) - 1):
                multiply(residuals, work.factors[1 + k], count, products)
                out[first + k, output] += dot(weights, products, count)
            if not kernel.product:
                multiply(slopes, residuals, count, products)
            for a in range(len(starts) - 1):
                if kernel.product:
                    product_slopes(kernel, points, query, inverse, a, count, factors, slopes, room, products)
                    out[fits.features[a], output] += dot(products, residuals, count)
                else:
                    for k in range(starts[a], starts[a + 1]):
                        total = dot_square(products, points[k], query[k], count)
                        out[fits.features[a], output] += inverse * inverse * total
