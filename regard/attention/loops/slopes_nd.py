"""What a block of samples adds to the derivatives by the logs of the widths, for the queries of a tile.

    slopes[i, a, o] += Σ_j ∂K_ij/∂θ_a · weights[j] · (dual_i · x_ij) · (values[j, o] − fit_io · x_ij)

Names and shapes are those of kernel/sums_nd.py and blocks_nd.py.
"""

from typing import NamedTuple

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.blocks_nd import Block, Monomials, Queries, Work, basis_of, dot, multiply, omit, weigh
from regard.attention.loops.weights_nd import (
    COMPACT,
    GAUSSIAN,
    LAPLACE,
    Kernel,
    multiply_compact,
    multiply_slope,
    squares_of,
)


class Fits(NamedTuple):
    """What the derivatives are taken of: a local average (basis 1) or line (basis 1 + features)."""

    duals: Array  # (n, basis)
    fits: Array  # (n, basis, outputs)
    slopes: Array  # (n, features + categorical, outputs), to be added to
    features: Array  # (features that narrow the window,) their places among all


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
def add_slopes(
    kernel: Kernel,
    monomials: Monomials,
    fits: Fits,
    block: Block,
    queries: Queries,
    chosen: Array,
    work: Work,
    totals: Array,
) -> None:
    """Add to fits.slopes, and to totals the sums of weights."""
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
            basis_of(monomials.coordinates, points, query, queries.basis[i], count, work.basis)
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
