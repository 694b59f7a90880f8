"""Sums under the Laplace kernel over one feature: exp(−|v|) is a product of factors from sample to sample.

What all samples up to j give at x_j is e^{−gap} times what they gave at the sample before, and x_j itself; so two runs
over the samples, from the left and from the right, answer every query.

Shapes and names are those of sums_1d.py.
"""

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.sums_1d_gaussian import clear
from regard.attention.sums_1d import Points, Queries


@compiled("contract")
def run(points: Points, step: int, gathered: Array) -> None:
    """gathered[j, k, c] = Σ_i columns[i, c] d_i^k exp(−d_i), d_i = |x_j − x_i| / width, over the samples i up to j.

    From the left (step 1) or from the right (step −1).
    """
    x, columns, width = points
    n = len(x)
    j = 0 if step > 0 else n - 1
    for count in range(n):
        clear(gathered[j])
        if count:
            gap = abs(x[j] - x[j - step]) / width
            fall = numpy.exp(-gap)
            before = gathered[j - step]
            # Beyond reach nothing is left, and gap · gap · 0 would be NaN where the gap is infinite.
            for c in range(columns.shape[1] if fall > 0 else 0):
                gathered[j, 0, c] = fall * before[0, c]
                if gathered.shape[1] > 1:
                    gathered[j, 1, c] = fall * (before[1, c] + gap * before[0, c])
                if gathered.shape[1] > 2:
                    gathered[j, 2, c] = fall * (before[2, c] + gap * (2 * before[1, c] + gap * before[0, c]))
        for c in range(columns.shape[1]):
            gathered[j, 0, c] += columns[j, c]
        j += step


@compiled("contract")
def laplace_sums(
    queries: Queries,
    points: Points,
    from_left: Array,
    from_right: Array,
    signed: bool,
    sums: Array,
    start: int,
    stop: int,
) -> None:
    """Sums for the queries [start, stop), relative to the nearest sample; of v K if signed, else of |v| K."""
    x, width = points.x, points.width
    for i in range(start, stop):
        t, left, right, out = queries.at[i], queries.lefts[i], queries.rights[i], sums[i]
        before = (t - x[left]) / width if left >= 0 else numpy.inf
        after = (x[right] - t) / width if right < len(x) else numpy.inf
        nearest = min(before, after)
        clear(out)
        for side in (-1.0, 1.0):
            gap = before if side < 0 else after
            if gap == numpy.inf:
                continue
            known = from_left[left] if side < 0 else from_right[right]
            factor = numpy.exp(nearest - gap)
            for c in range(out.shape[1]):
                out[0, c] += factor * known[0, c]
                if len(out) > 1:
                    out[1, c] += (side if signed else 1.0) * factor * (known[1, c] + gap * known[0, c])
                if len(out) > 2:
                    out[2, c] += factor * (known[2, c] + gap * (2 * known[1, c] + gap * known[0, c]))
