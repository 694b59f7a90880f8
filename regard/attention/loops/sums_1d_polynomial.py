"""Sums under a polynomial kernel over one feature, K(|v|) = Σ_p coefficients[p] |v|^p for |v| ≤ 1, at a price per query
that does not grow with the samples.

Sorted samples are grouped into blocks half a width wide; running[j, c, p] is the sum of columns[i, c] z_i^p over the
samples i of j's block up to j. A query's window is a few blocks, whole or in part, and in each the kernel is one
polynomial of z: the sum over a part is a difference of two running sums. Where a window holds few samples, or most of a
sum cancels, it is summed directly.

Shapes and names are those of sums_1d.py.
"""

from regard.attention.loops import Array, compiled
from regard.attention.loops.points_1d import before, clear
from regard.attention.loops.sums_1d_gaussian import add_size
from regard.attention.points_1d import Points, Queries
from regard.attention.sums_1d import Expansion

FEW = 24  # a window with fewer samples is summed directly
OUTER = 0.75  # from so many widths on, the kernel is expanded about its edge
ROUNDING = 1e-5  # sums smaller than this part of what they are differences of are not exact


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
def direct(t: float, points: Points, kernel: Expansion, begin: int, end: int, sums: Array) -> None:
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
def expand(tau: float, side: float, kernel: Expansion) -> None:
    """Into kernel.work, the kernel on one side of the query as a polynomial of z = v + τ.

    Near its edge it is expanded from powers of 1 − |v|, elsewhere from powers of |v|: those terms are smaller.
    """
    degree, work = len(kernel.coefficients) - 1, kernel.work
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
    kernel: Expansion,
    sums: Array,
    start: int,
    stop: int,
) -> None:
    """Sums for the sorted queries [start, stop); the window moves with them."""
    x, width, sizes = points.x, points.width, kernel.sizes
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
                        expand(tau, side, kernel)
                        add_part(tau, begin, end, first, running, len(kernel.coefficients) - 1, kernel.work, answer)
                        add_size(sizes, running[end - 1, 0, 0] * reach**kernel.lowest, reach)
                near += 1
            for k in range(len(sizes)):
                exact = exact and answer[2 * k, 0] >= ROUNDING * sizes[k]
        if not exact:
            clear(answer)
            direct(t, points, kernel, low, min(left + 1, high), answer)
            direct(t, points, kernel, max(right, low), high, answer)
