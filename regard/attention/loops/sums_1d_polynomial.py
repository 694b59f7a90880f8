"""Sums under a polynomial kernel on a line, K(|v|) = Σ_p coefficients[p] |v|^p for |v| ≤ 1, at a price per query that
does not grow with the samples.

Sorted samples are grouped into blocks half a width wide; running[j, c, p] is the sum of columns[i, c] z_i^p over the
samples i of j's block up to j. A query's window is a few blocks, whole or in part, and in each the kernel is one
polynomial of z: the sum over a part is a difference of two running sums. Where a window holds few samples, or most of a
sum cancels, it is summed directly.

Shapes and names are those of line.py.
"""

from regard.attention.loops import Array, compiled
from regard.attention.loops.sums_1d_gaussian import before, clear

FEW = 24  # a window with fewer samples is summed directly


@compiled("contract")
def running_moments(
    x: Array, columns: Array, width: float, starts: Array, running: Array, start: int, stop: int
) -> None:
    """running (n, c, terms) for the blocks [start, stop)."""
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
def direct(
    t: float, x: Array, columns: Array, width: float, at_edge: Array, low: int, high: int, own: int, sums: Array
) -> None:
    """The samples from low up to high, but for `own`, one by one; K(|v|) = Σ_p at_edge[p] (1 − |v|)^p."""
    clear(sums)
    for j in range(low, high):
        if j == own:
            continue
        v, kernel = (x[j] - t) / width, 0.0
        for p in range(len(at_edge) - 1, -1, -1):
            kernel = kernel * (1 - abs(v)) + at_edge[p]
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
    queries: Array,
    lefts: Array,
    rights: Array,
    x: Array,
    columns: Array,
    width: float,
    starts: Array,
    running: Array,
    coefficients: Array,
    at_edge: Array,
    sums: Array,
    work: Array,
    start: int,
    stop: int,
) -> None:
    """Sums for the sorted queries [start, stop); the window moves with them. To work in: work (terms + 1,)."""
    low = high = before(x, queries[start] - width) if start < stop else 0
    block = max(0, before(starts, low + 1) - 1)
    for i in range(start, stop):
        t = queries[i]
        own = lefts[i] + 1 if rights[i] - lefts[i] == 2 else -1
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
            direct(t, x, columns, width, at_edge, low, high, own, sums[i])
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
            if begin < rights[i]:
                end, side = min(end, rights[i]), -1.0
            tau = (t - block_centre(x, starts, near)) / width
            mass += add_part(tau, side, begin, end, starts[near], running, coefficients, work, sums[i])
            begin = end
            if end == starts[near + 1]:
                near += 1
        if own >= 0:
            for c in range(columns.shape[1]):
                sums[i, 0, c] -= coefficients[0] * columns[own, c]
        if sums[i, 0, 0] < 1e-3 * mass:  # most of it cancelled: too little is left for a difference to be exact
            direct(t, x, columns, width, at_edge, low, high, own, sums[i])
