"""Sums under the Laplace kernel over one feature: exp(−|v|) is a product of factors from sample to sample.

What all samples up to j give at x_j is e^{−gap} times what they gave at the sample before, and x_j itself; so two runs
over the samples, from the left and from the right, answer every query.

Shapes and names are those of sums_1d.py.
"""

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.points_1d import clear
from regard.attention.loops.sums_1d_gaussian import INVERSE
from regard.attention.points_1d import Points, Queries


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
    queries: Queries,
    points: Points,
    from_left: Array,
    from_right: Array,
    lift: int,
    sums: Array,
    work: Array,
    start: int,
    stop: int,
) -> None:
    """Sums of K |v|^lift v^k for the queries [start, stop), relative to the nearest sample. Work is (k + lift, c)."""
    x, width = points.x, points.width
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
