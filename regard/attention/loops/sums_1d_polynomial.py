"""Sums under a polynomial kernel over one feature, K(|v|) = Σ_p coefficients[p] |v|^p for |v| ≤ 1, at a price per query
that does not grow with the samples.

Sorted samples are grouped into blocks half a width wide; running[j, c, p] is the sum of columns[i, c] z_i^p over the
samples i of j's block up to j. A query's window is a few blocks, whole or in part, and in each the kernel is one
polynomial of z: the sum over a part is a difference of two running sums. Where a window holds few samples, or most of a
sum cancels, it is summed directly.

Shapes and names are those of sums_1d.py.
"""

from regard.attention.loops import Array, compiled
from regard.attention.loops.sums_1d_gaussian import before, clear
from regard.attention.sums_1d import Points, Queries

FEW = 24  # a window with fewer samples is summed directly


@compiled("contract")
def running_moments(points: Points, starts: Array, running: Array, start: int, stop: int) -> None:
    """running (n, c, terms) for the blocks [start, stop)."""
    x, columns, width = points
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
def direct(t: float, points: Points, by_margin: Array, low: int, high: int, left_out: int, sums: Array) -> None:
    """The samples from low up to high, but for `left_out`, one by one; K(|v|) = Σ_p by_margin[p] (1 − |v|)^p."""
    x, columns, width = points
    clear(sums)
    for j in range(low, high):
        if j == left_out:
            continue
        v, kernel = (x[j] - t) / width, 0.0
        for p in range(len(by_margin) - 1, -1, -1):
            kernel = kernel * (1 - abs(v)) + by_margin[p]
        for k in range(len(sums)):
            for c in range(columns.shape[1]):
                sums[k, c] += kernel * columns[j, c]
            kernel *= v


@compiled("contract")
def add_part(
    tau: float,
    side: float,
    begin: int,
    end: int,
    first: int,
    running: Array,
    coefficients: Array,
    work: Array,
    sums: Array,
) -> float:
    """Add the samples [begin, end), all on one side of t, of a block that starts at `first`.

    Returns the weight of what the sums were differences of.
    """
    degree = len(coefficients) - 1
    # work: the kernel as a polynomial of z = v + τ; first of ±v, then shifted.
    for p in range(len(work)):
        work[p] = 0.0
    sign = 1.0
    for p in range(degree + 1):
        work[p] = coefficients[p] * sign
        sign *= side
    for a in range(degree):
        for p in range(degree - 1, a - 1, -1):
            work[p] -= tau * work[p + 1]
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
    return float(running[end - 1, 0, 0])


@compiled("contract")
def polynomial_sums(
    queries: Queries,
    points: Points,
    starts: Array,
    running: Array,
    coefficients: Array,
    by_margin: Array,
    sums: Array,
    work: Array,
    start: int,
    stop: int,
) -> None:
    """Sums for the sorted queries [start, stop); the window moves with them. To work in: work (terms + 1,)."""
    x, columns, width = points
    low = high = before(x, queries.at[start] - width) if start < stop else 0
    block = max(0, before(starts, low + 1) - 1)
    for i in range(start, stop):
        t = queries.at[i]
        left_out = queries.lefts[i] + 1 if queries.rights[i] - queries.lefts[i] == 2 else -1
        while low > 0 and (t - x[low - 1]) / width <= 1:
            low -= 1
        while low < len(x) and (t - x[low]) / width > 1:
            low += 1
        high = max(high, low)
        while high < len(x) and (x[high] - t) / width <= 1:
            high += 1
        while high > low and (x[high - 1] - t) / width > 1:
            high -= 1
        if high - low < FEW:
            direct(t, points, by_margin, low, high, left_out, sums[i])
            continue
        while starts[block] > low:
            block -= 1
        while starts[block + 1] <= low:
            block += 1
        clear(sums[i])
        mass = 0.0
        begin, near = low, block
        while begin < high:
            # Up to the block's end, but what lies left of the query and what lies right of it are two parts.
            end = min(high, starts[near + 1])
            side = 1.0
            if begin < queries.rights[i]:
                end, side = min(end, queries.rights[i]), -1.0
            tau = (t - block_centre(x, starts, near)) / width
            mass += add_part(tau, side, begin, end, starts[near], running, coefficients, work, sums[i])
            begin = end
            if end == starts[near + 1]:
                near += 1
        if left_out >= 0:
            for c in range(columns.shape[1]):
                sums[i, 0, c] -= coefficients[0] * columns[left_out, c]
        if sums[i, 0, 0] < 1e-3 * mass:  # most of it cancelled: too little remains for an exact difference
            direct(t, points, by_margin, low, high, left_out, sums[i])
