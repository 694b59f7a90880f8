"""Sums over one feature by what runs from sample to sample: under the Laplace kernel, and under polynomials.

Shapes and names are those of sums_1d.py.
"""

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.sorting import before, clear
from regard.attention.loops.sums_1d_gaussian import INVERSE, add_size
from regard.attention.sorting import Points, Queries
from regard.attention.sums_1d import Polynomial

FEW = 24  # a window with fewer samples is summed directly
OUTER = 0.75  # from so many widths on, the kernel is expanded about its edge
ROUNDING = 1e-5  # sums smaller than this part of what they are differences of are not exact


# -------------------------------------------------------------------------------------------------------------- Laplace
# exp(−|v|) is a product of factors from sample to sample: what all samples up to j give at x_j is e^{−gap} times what
# they gave at the sample before, and x_j itself; so two runs over the samples, from the left and from the right, answer
# every query.


@compiled("contract")
def carry(known: Array, gap: float, factor: float, total: Array) -> None:
    """Add Σ columns (d + gap)^k, times a factor, where known[k, c] = Σ columns d^k: all terms have one sign."""
    for c in range(known.shape[1]):
        for k in range(len(known)):
            binomial, power = factor, 0.0
            for a in range(k + 1):  # Σ_a C(k, a) gap^a known[k − a]
                power += binomial * known[k - a, c]
                binomial *= gap * (k - a) * INVERSE[a]
            total[k, c] += power


@compiled("contract")
def run(points: Points, step: int, gathered: Array) -> None:
    """gathered[j, k, c] = Σ_i columns[i, c] d_i^k exp(−d_i), d_i = |x_j − x_i| / width, over the samples i up to j.

    From the left (step 1) or from the right (step −1).
    """
    x, columns, width, _ = points
    n = len(x)
    j = 0 if step > 0 else n - 1
    for count in range(n):
        clear(gathered[j])
        if count:
            gap = abs(x[j] - x[j - step]) / width
            fall = numpy.exp(-gap)
            before = gathered[j - step]
            # Beyond reach nothing is left, and gap · gap · 0 would be NaN where the gap is infinite.
            if fall > 0:
                carry(before, gap, fall, gathered[j])
        for c in range(columns.shape[1]):
            gathered[j, 0, c] += columns[j, c]
        j += step


@compiled("contract")
def laplace_sums(
    queries: Queries, points: Points, from_left: Array, from_right: Array, sums: Array, start: int, stop: int
) -> None:
    """Sums of K |v|^lift v^k for the queries [start, stop), relative to the nearest sample. Runs: (m, k + lift, c)."""
    x, width, lift, work = points.x, points.width, from_left.shape[1] - sums.shape[1], numpy.empty(from_left.shape[1:])
    for i in range(start, stop):
        t, left, right, answer = queries.at[i], queries.lefts[i], queries.rights[i], sums[queries.rows[i]]
        before = (t - x[left]) / width if left >= 0 else numpy.inf
        after = (x[right] - t) / width if right < len(x) else numpy.inf
        nearest = min(before, after)
        clear(answer)
        for side in (-1.0, 1.0):
            gap = before if side < 0 else after
            if gap == numpy.inf:
                continue
            clear(work)
            carry(from_left[left] if side < 0 else from_right[right], gap, numpy.exp(nearest - gap), work)
            sign = 1.0
            for k in range(answer.shape[0]):
                for c in range(answer.shape[1]):
                    answer[k, c] += sign * work[k + lift, c]
                sign *= side


# ---------------------------------------------------------------------------------------------------------- polynomials
# K(|v|) = Σ_p coefficients[p] |v|^p for |v| ≤ 1. Samples are grouped into blocks half a width wide; running[j, c, p] is
# the sum of columns[i, c] z_i^p over the samples i of j's block up to j. A query's window is a few blocks, whole or in
# part, and in each the kernel is one polynomial of z: the sum over a part is a difference of two running sums. Where a
# window holds few samples, or most of a sum cancels, it is summed directly.


@compiled("contract")
def running_moments(points: Points, starts: Array, running: Array, start: int, stop: int) -> None:
    """running (n, c, terms) for the blocks [start, stop)."""
    x, columns, width, _ = points
    for block in range(start, stop):
        centre = block_centre(x, starts, block)
        for j in range(starts[block], starts[block + 1]):
            z, power = (x[j] - centre) / width, 1.0
            for p in range(running.shape[2]):
                for c in range(columns.shape[1]):
                    before = running[j - 1, c, p] if j > starts[block] else 0.0
                    running[j, c, p] = before + columns[j, c] * power
                power *= z


@compiled("contract")
def block_centre(x: Array, starts: Array, block: int) -> float:
    """The middle of a block's samples."""
    return float(x[starts[block]] + x[starts[block + 1] - 1]) / 2


@compiled("contract")
def direct(t: float, points: Points, kernel: Polynomial, begin: int, end: int, sums: Array) -> None:
    """Add the samples [begin, end) one by one."""
    x, columns, width, _ = points
    for j in range(begin, end):
        v, weight = (x[j] - t) / width, 0.0
        inner = abs(v) <= 0.5
        powers, u = (kernel.coefficients, abs(v)) if inner else (kernel.by_margin, 1 - abs(v))
        for p in range(len(powers) - 1, -1, -1):
            weight = weight * u + powers[p]
        for k in range(len(sums)):
            for c in range(columns.shape[1]):
                sums[k, c] += weight * columns[j, c]
            weight *= v


@compiled("contract")
def expand(tau: float, side: float, kernel: Polynomial, work: Array) -> None:
    """Into work, the kernel on one side of the query as a polynomial of z = v + τ.

    Near its edge it is expanded from powers of 1 − |v|, elsewhere from powers of |v|: those terms are smaller.
    """
    degree = len(kernel.coefficients) - 1
    work[:] = 0.0
    if abs(tau) <= OUTER:
        known, origin, sign = kernel.coefficients, -side * tau, side  # |v| = −side · τ + side · z
    else:
        known, origin, sign = kernel.by_margin, 1 + side * tau, -side
    for p in range(degree + 1):
        work[p] = known[p]
    for a in range(degree):
        for p in range(degree - 1, a - 1, -1):
            work[p] += origin * work[p + 1]
    power = 1.0
    for p in range(degree + 1):
        work[p] *= power
        power *= sign


@compiled("contract")
def add_part(
    tau: float, begin: int, end: int, first: int, running: Array, degree: int, work: Array, sums: Array
) -> None:
    """Add the samples [begin, end), all on one side of t, of a block that starts at `first`."""
    for k in range(len(sums)):
        for c in range(sums.shape[1]):
            total = 0.0
            for p in range(degree + 1 + k):
                part = running[end - 1, c, p]
                if begin > first:
                    part -= running[begin - 1, c, p]
                total += work[p] * part
            sums[k, c] += total
        for p in range(degree + 1 + k, 0, -1):  # times v = z − τ, for the next order
            work[p] = work[p - 1] - tau * work[p]
        work[0] *= -tau


@compiled("contract")
def polynomial_sums(
    queries: Queries,
    points: Points,
    starts: Array,
    running: Array,
    kernel: Polynomial,
    sums: Array,
    start: int,
    stop: int,
) -> None:
    """Sums for the sorted queries [start, stop); the window moves with them."""
    x, width, degree, lowest = points.x, points.width, len(kernel.coefficients) - 1, kernel.lowest
    work, sizes = numpy.empty(running.shape[2] + 1), numpy.empty(1 + sums.shape[1] // 2)
    low = high = before(x, queries.at[start] - width) if start < stop else 0
    block = max(0, before(starts, low + 1) - 1)
    for i in range(start, stop):
        t, left, right, answer = queries.at[i], queries.lefts[i], queries.rights[i], sums[queries.rows[i]]
        while low > 0 and (t - x[low - 1]) / width <= 1:
            low -= 1
        while low < len(x) and (t - x[low]) / width > 1:
            low += 1
        high = max(high, low)
        while high < len(x) and (x[high] - t) / width <= 1:
            high += 1
        while high > low and (x[high - 1] - t) / width > 1:
            high -= 1
        clear(answer)
        exact = high - low >= FEW
        if exact:
            while starts[block] > low:
                block -= 1
            while starts[block + 1] <= low:
                block += 1
            sizes[:] = 0.0
            near = block
            while near < len(starts) - 1 and starts[near] < high:
                first, last = starts[near], starts[near + 1]
                tau = (t - block_centre(x, starts, near)) / width
                reach = abs(tau) + (x[last - 1] - x[first]) / (2 * width)
                for side in (-1.0, 1.0):
                    begin, end = max(low, first), min(left + 1, last)
                    if side > 0:
                        begin, end = max(right, first), min(high, last)
                    if begin < end:
                        expand(tau, side, kernel, work)
                        add_part(tau, begin, end, first, running, degree, work, answer)
                        add_size(sizes, running[end - 1, 0, 0] * reach**lowest, reach)
                near += 1
            for k in range(len(sizes)):
                exact = exact and answer[2 * k, 0] >= ROUNDING * sizes[k]
        if not exact:
            clear(answer)
            direct(t, points, kernel, low, min(left + 1, high), answer)
            direct(t, points, kernel, max(right, low), high, answer)
