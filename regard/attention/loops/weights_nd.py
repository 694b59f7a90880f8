"""A block of samples for one query: squares, exponents, powers of two, polynomials, kernel weights, and their sums.

Everything is written so that the loops over the samples of a block are vectorised: over rows that start at index 0, in
passes over arrays that stay in the nearest cache. exp is a power of two: a short polynomial, whose exponent bits are
shifted. Squares in float32 are the same code, compiled again.

Shapes: points (coordinates, BLOCK) and query (coordinates,), in widths · everything else (BLOCK,), of which `count`
count.
"""

from collections.abc import Callable
from typing import Any

import numpy
from numba import types
from numba.extending import intrinsic
from numpy.polynomial import Chebyshev, Polynomial

from regard.attention.loops import Array, compiled
from regard.attention.tasks_nd import COMPACT, GAUSSIAN, Block, Kernel, Tables

# -------------------------------------------------------------------------------------------------------- powers of two


def _reinterpret(name: str, pairs: dict[Any, Any]) -> Any:
    """A function that takes the bits of one type for those of another."""

    def function(_: Any, number: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

        return pairs[number](number), generate

    function.__name__ = name
    return intrinsic(function)


as_bits = _reinterpret("as_bits", {types.float64: types.int64, types.float32: types.int32})
as_number = _reinterpret("as_number", {types.int64: types.float64, types.int32: types.float32})


def _power_of_two(degree: int) -> list[float]:
    """2^x on |x| ≤ ½, interpolated at Chebyshev's points; 2^0 is exactly 1."""
    coefficients = Chebyshev.interpolate(numpy.exp2, degree, domain=[-0.5, 0.5]).convert(kind=Polynomial).coef
    return [1.0, *(float(c) for c in coefficients[1:])]


ONE, C1, C2, C3, C4, C5, C6, C7, C8 = _power_of_two(8)  # exact to 1e-12
SINGLE_ONE, S1, S2, S3, S4, S5 = (numpy.float32(c) for c in _power_of_two(5))  # to 2e-7
# Adding it leaves the nearest whole number in a float's last bits.
MAGIC, SINGLE_MAGIC = 1.5 * 2.0**52, numpy.float32(1.5 * 2.0**23)
# 2^LOWEST is a normal number; exponents below count as this one.
LOWEST, SINGLE_LOWEST = -1020.0, numpy.float32(-125)
HIGHEST = 64.0  # relative to the nearest sample exponents are hardly positive, but for rounding
SHIFT = numpy.int32(23)
FEW = 16  # samples that are left out one by one
SMALL = 1e-150  # a table's factor below it is 0: its square is still a normal number


@compiled("contract")
def power_of_two(exponent: Any) -> Any:
    """2^exponent. Not to be reassociated: that would take the rounding away."""
    exponent = max(exponent, LOWEST)
    shifted = exponent + MAGIC
    x = exponent - (shifted - MAGIC)
    power = ONE + x * (C1 + x * (C2 + x * (C3 + x * (C4 + x * (C5 + x * (C6 + x * (C7 + x * C8)))))))
    return as_number(as_bits(power) + (as_bits(shifted) << 52))


@compiled("contract")
def single_power_of_two(exponent: Any) -> Any:
    """The same in float32."""
    exponent = max(exponent, SINGLE_LOWEST)
    shifted = exponent + SINGLE_MAGIC
    x = exponent - (shifted - SINGLE_MAGIC)
    power = SINGLE_ONE + x * (S1 + x * (S2 + x * (S3 + x * (S4 + x * S5))))
    return as_number(numpy.int32(as_bits(power) + (as_bits(shifted) << SHIFT)))


@compiled("contract")
def powers_of_two(exponents: Array, count: int, out: Array) -> None:
    """out = 2^exponents."""
    for j in range(count):
        out[j] = power_of_two(exponents[j])


@compiled("contract", "reassoc")
def add_powers_of_two(exponents: Array, count: int, weights: Array, values: Array) -> tuple[float, float]:
    """Σ 2^exponents · weights and Σ 2^exponents · weights · values, with nothing stored on the way."""
    total, other = 0.0, 0.0
    for j in range(count):
        weight = power_of_two(exponents[j]) * weights[j]
        total += weight
        other += weight * values[j]
    return total, other


@compiled("contract", "reassoc")
def add_single_powers_of_two(exponents: Array, count: int, weights: Array, values: Array) -> tuple[float, float]:
    """The same in float32."""
    total, other = numpy.float32(0), numpy.float32(0)
    for j in range(count):
        weight = single_power_of_two(exponents[j]) * weights[j]
        total += weight
        other += weight * values[j]
    return float(total), float(other)


# ------------------------------------------------------------------------------------------------------------ distances


@compiled("contract", "reassoc")
def squares_of(
    points: Array, query: Array, first: int, last: int, offset: Any, factor: Any, count: int, out: Array
) -> None:
    """out = offset + factor · Σ (points[k] − query[k])², over the coordinates from first up to last.

    Three at a time, because reading the squares again costs as much as a coordinate.
    """
    k = first + (last - first) % 3
    if k == first:
        for j in range(count):
            out[j] = offset
    elif k == first + 1:
        x, p = points[first], query[first]
        for j in range(count):
            out[j] = offset + factor * (x[j] - p) ** 2
    else:
        x, y, p, q = points[first], points[first + 1], query[first], query[first + 1]
        for j in range(count):
            out[j] = offset + factor * ((x[j] - p) ** 2 + (y[j] - q) ** 2)
    while k < last:
        x, y, z, p, q, r = points[k], points[k + 1], points[k + 2], query[k], query[k + 1], query[k + 2]
        if k == first:
            for j in range(count):
                out[j] = offset + factor * ((x[j] - p) ** 2 + (y[j] - q) ** 2 + (z[j] - r) ** 2)
        else:
            for j in range(count):
                out[j] += factor * ((x[j] - p) ** 2 + (y[j] - q) ** 2 + (z[j] - r) ** 2)
        k += 3


@compiled("contract")
def laplace_exponents(
    product: bool,
    starts: Array,
    points: Array,
    query: Array,
    offset: float,
    inverse: float,
    rate: float,
    count: int,
    room: Array,
    out: Array,
) -> None:
    """out = offset − rate · distance, or the sum of each feature's distance."""
    for j in range(count):
        out[j] = offset
    for a in range(len(starts) - 1 if product else 1):
        first, last = starts[a], starts[a + 1] if product else starts[-1]
        squares_of(points, query, first, last, 0.0, inverse * inverse, count, room)
        for j in range(count):
            out[j] -= rate * numpy.sqrt(room[j])


# ------------------------------------------------------------------------------------------------------ compact kernels


@compiled("contract")
def margins_of(even: bool, squares: Array, count: int, out: Array) -> None:
    """out = 1 − u² or 1 − u, and 0 beyond 1."""
    if even:
        for j in range(count):
            out[j] = max(1.0 - squares[j], 0.0)
    else:
        for j in range(count):
            out[j] = max(1.0 - numpy.sqrt(squares[j]), 0.0)


@compiled("contract")
def polynomial_of(coefficients: Array, margins: Array, count: int, out: Array) -> None:
    """out = Σ_p coefficients[p] margins^p, for two coefficients or more."""
    last, before = coefficients[len(coefficients) - 1], coefficients[len(coefficients) - 2]
    for j in range(count):
        out[j] = last * margins[j] + before
    for p in range(len(coefficients) - 3, -1, -1):
        coefficient = coefficients[p]
        for j in range(count):
            out[j] = out[j] * margins[j] + coefficient


@compiled("contract")
def raise_to(power: int, roots: Array, count: int, out: Array) -> None:
    """out ∗= roots^power."""
    for _ in range(power):
        for j in range(count):
            out[j] *= roots[j]


@compiled("contract")
def multiply_compact(kernel: Kernel, squares: Array, count: int, margins: Array, roots: Array, out: Array) -> None:
    """out ∗= K(√squares), which is 0 beyond 1."""
    if kernel.power > 0:  # at the edge the root is 0
        margins_of(kernel.even, squares, count, margins)
        polynomial_of(kernel.root, margins, count, roots)
        raise_to(kernel.power, roots, count, out)
    else:
        for j in range(count):
            out[j] = out[j] if squares[j] <= 1.0 else 0.0


@compiled("contract")
def multiply_slope(kernel: Kernel, squares: Array, count: int, margins: Array, roots: Array, out: Array) -> None:
    """out ∗= −u K′(u), u = √squares."""
    margins_of(kernel.even, squares, count, margins)
    polynomial_of(kernel.root_slope, margins, count, roots)
    for j in range(count):
        out[j] = kernel.power * out[j] * roots[j] if margins[j] > 0.0 else 0.0
    polynomial_of(kernel.root, margins, count, roots)
    raise_to(kernel.power - 1, roots, count, out)


@compiled("contract")
def compact_weights(
    kernel: Kernel, points: Array, query: Array, inverse: float, count: int, room: Array, out: Array
) -> None:
    """out = K of the distance, or the product of K over the features. Room: (3, BLOCK)."""
    squares, margins, roots = room[0], room[1], room[2]
    for j in range(count):
        out[j] = 1.0
    features = len(kernel.starts) - 1
    for a in range(features if kernel.product else 1):
        first, last = kernel.starts[a], kernel.starts[a + 1] if kernel.product else kernel.starts[-1]
        squares_of(points, query, first, last, 0.0, inverse * inverse, count, squares)
        multiply_compact(kernel, squares, count, margins, roots, out)


# ----------------------------------------------------------------------------------------------------- blocks and sums


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
