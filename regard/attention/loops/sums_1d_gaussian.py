"""Sums under the Gaussian kernel over one feature, at a price per query that does not grow with the samples.

Sorted samples are grouped into cells at most one width wide. About a cell's centre, with z = (x − centre) / width and
τ = (t − centre) / width,

    exp(−(z − τ)² / 2) = exp(−τ² / 2) · exp(−z² / 2) · Σ_p τ^p z^p / p!

so a cell is known by its moments, Σ_j columns[j] exp(−z_j² / 2) z_j^p / p!. Queries are grouped in the same way; for
each group, the moments of the cells around are translated to the group's centre and added up once. A group so far away
that the series would need more terms, and that kernel values may underflow, takes its samples relative to the nearest
on their side, as exp(−d (v + d / 2)): smooth in v, and interpolated from a few points. Where neither pays, queries are
summed directly, each from its nearest samples outwards.

Shapes and names are those of sums_1d.py. Loops are written out where numpy has a word for them: they compile ten times
faster.
"""

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.sums_1d import Cells, Points, Queries

FAR = 4.0  # a group whose nearest sample is more widths away is interpolated: the series would need more terms
NODES = 12  # points of an interpolation
NEGLIGIBLE = 38.0  # exp(−38) = 3e-17 of the nearest sample's weight
SLACK = 10.0  # how much less, in the exponent, a query's nearest sample may weigh than that of its group's centre
DENSE = 16  # a cell with fewer samples needs no moments
TRANSLATION = 100.0  # what a cell's translation costs, in samples summed directly
INVERSE = 1 / numpy.arange(1.0, 65.0)  # by which the powers of a Taylor series are made without dividing
ADDITION = 6.0  # what adding a sample to moments costs, in the same unit


@compiled()
def group_cells(x: Array, width: float, starts: Array) -> int:
    """Group sorted numbers into cells at most `width` wide; returns how many, `starts` has room for all and one more.

    They follow the samples, not a grid: differences of neighbours are exact, however far from 0 they lie.
    """
    count, first = 0, 0
    for j in range(len(x)):
        if j == 0 or x[j] - x[first] > width:
            starts[count] = first = j
            count += 1
    starts[count] = len(x)
    return count


@compiled()
def before(x: Array, t: float) -> int:
    """How many of the sorted numbers are less than t."""
    low, high = 0, len(x)
    while low < high:
        middle = (low + high) // 2
        if x[middle] < t:
            low = middle + 1
        else:
            high = middle
    return low


@compiled()
def clear(sums: Array) -> None:
    """Zeros."""
    for k in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            sums[k, c] = 0.0


@compiled("contract")
def add_sample(moments: Array, columns: Array, z: float) -> None:
    """Add one sample's columns to moments (c, terms)."""
    power = numpy.exp(-z * z / 2)
    for p in range(moments.shape[1]):
        for c in range(moments.shape[0]):
            moments[c, p] += columns[c] * power
        power *= z * INVERSE[p]


@compiled("contract")
def cell_moments(points: Points, cells: Cells, start: int, stop: int) -> None:
    """Compute the centres and moments (cells, c, terms) of the cells [start, stop)."""
    x, (starts, centres, moments) = points.x, cells
    for cell in range(start, stop):
        centre = centres[cell] = (x[starts[cell]] + x[starts[cell + 1] - 1]) / 2
        for c in range(moments.shape[1]):
            for p in range(moments.shape[2]):
                moments[cell, c, p] = 0.0
        if starts[cell + 1] - starts[cell] >= DENSE:
            for j in range(starts[cell], starts[cell + 1]):
                add_sample(moments[cell], points.columns[j], (x[j] - centre) / points.width)


@compiled("contract")
def translate(moments: Array, shift: float, work: Array, total: Array) -> None:
    """Add a cell's moments to those about a centre `shift` widths to its left: z becomes z + shift."""
    terms = moments.shape[1]
    shifted, powers = work[0], work[1]
    powers[0] = numpy.exp(-shift * shift / 2)
    for p in range(terms - 1):
        powers[p + 1] = powers[p] * shift * INVERSE[p]
    for c in range(moments.shape[0]):
        # shifted[a] = Σ_j columns exp(−z² / 2 − shift z) z^a / a!, by a Taylor shift
        for p in range(terms):
            shifted[p] = moments[c, p]
        for a in range(terms):
            for p in range(terms - 2, a - 1, -1):
                shifted[p] -= shift * shifted[p + 1]
        # (z + shift)^p / p! = Σ_a z^a / a! · shift^(p − a) / (p − a)!
        for a in range(terms):
            row, factor = total[c, a:], shifted[a]
            for p in range(terms - a):
                row[p] += factor * powers[p]


@compiled("contract")
def evaluate(moments: Array, tau: float, sums: Array) -> None:
    """Sums of order 0, or 0 to 2, from moments: derivatives by τ bring down z, and v = z − τ."""
    factor = numpy.exp(-tau * tau / 2)
    for c in range(moments.shape[0]):
        value, slope, bend = 0.0, 0.0, 0.0
        if len(sums) == 1:
            for p in range(moments.shape[1] - 1, -1, -1):
                value = value * tau + moments[c, p]
        else:
            for p in range(moments.shape[1] - 1, -1, -1):
                bend = bend * tau + 2 * slope
                slope = slope * tau + value
                value = value * tau + moments[c, p]
            sums[1, c] = factor * (slope - tau * value)
            sums[2, c] = factor * (bend - tau * (2 * slope - tau * value))
        sums[0, c] = factor * value


@compiled("contract")
def gather(centre: float, points: Points, cells: Cells, low: int, high: int, work: Array, total: Array) -> None:
    """The moments of the cells from low up to high, about a centre."""
    starts, centres, moments = cells
    clear(total)
    for cell in range(low, high):
        if starts[cell + 1] - starts[cell] < DENSE:
            for j in range(starts[cell], starts[cell + 1]):
                add_sample(total, points.columns[j], (points.x[j] - centre) / points.width)
        else:
            translate(moments[cell], (centres[cell] - centre) / points.width, work, total)


@compiled("contract")
def gaussian_sums(
    queries: Queries,
    groups: Array,
    points: Points,
    cells: Cells,
    counts: Array,
    sums: Array,
    work: Array,
    total: Array,
    start: int,
    stop: int,
) -> None:
    """Sums for the groups [start, stop) of sorted queries: the queries from groups[g] up to groups[g + 1].

    counts[i], which comes in as 0, becomes the number of queries from i on that remain for `remaining_sums`.
    To work in: work (2, terms), total (c, terms).
    """
    x, columns, width = points
    for group in range(start, stop):
        first, last = groups[group], groups[group + 1]
        centre = (queries.at[first] + queries.at[last - 1]) / 2
        after = before(x, centre)
        nearest = numpy.inf
        if after > 0:
            nearest = (centre - x[after - 1]) / width
        if after < len(x):
            nearest = min(nearest, (x[after] - centre) / width)
        reach = (numpy.sqrt(nearest * nearest + 2 * (NEGLIGIBLE + SLACK)) + 1) * width
        low, high = before(cells.centres, centre - reach), before(cells.centres, centre + reach)
        around = float(cells.starts[high] - cells.starts[low])  # samples, each of which every query would visit
        price = min(TRANSLATION * (high - low), ADDITION * around)
        together = nearest <= FAR and around * (last - first) > price + ADDITION * (last - first)
        if together:
            gather(centre, points, cells, low, high, work, total)
        span = last - first if nearest > FAR and last - first > NODES else 1
        i = first
        while i < last:
            counts[i] = 0 if together else span
            if together:
                evaluate(total, (queries.at[i] - centre) / width, sums[i])
                if queries.rights[i] - queries.lefts[i] == 2:
                    left_out = queries.lefts[i] + 1  # at v = 0: only the sums of order 0 hold it
                    for c in range(columns.shape[1]):
                        sums[i, 0, c] -= columns[left_out, c]
                    if sums[i, 0, 0] < 1e-3 * columns[left_out, 0]:  # too little remains for an exact difference
                        counts[i] = 1
            i += span


@compiled("contract")
def both_sides(t: float, points: Points, left: int, right: int, sides: Array) -> None:
    """sides (2, k, c): samples from `left` and from `right` outwards, relative to its weight, as long as they count."""
    x, columns, width = points
    for side in range(2):
        first, step = (left, -1) if side == 0 else (right, 1)
        clear(sides[side])
        j = first
        while 0 <= j < len(x):
            v, beyond = (x[j] - t) / width, abs(x[j] - x[first]) / width
            fall = beyond * (abs(x[first] - t) / width + beyond / 2) if beyond > 0 else 0.0
            if fall > NEGLIGIBLE:
                break
            power = numpy.exp(-fall)
            for k in range(sides.shape[1]):
                for c in range(columns.shape[1]):
                    sides[side, k, c] += power * columns[j, c]
                power *= v
            j += step


@compiled("contract")
def join(t: float, points: Points, left: int, right: int, total: float, sides: Array, sums: Array) -> None:
    """Both sides, relative to the nearer; `total` is what they were multiplied by."""
    to_left = t - points.x[left] if left >= 0 else numpy.inf
    to_right = points.x[right] - t if right < len(points.x) else numpy.inf
    width = points.width
    lead = (to_right - to_left) / width * ((to_right + to_left) / width) / 2 if to_right != to_left else 0.0
    weight_left, weight_right = numpy.exp(min(lead, 0.0)) / total, numpy.exp(min(-lead, 0.0)) / total
    for k in range(len(sums)):
        for c in range(sums.shape[1]):
            sums[k, c] = weight_left * sides[0, k, c] + weight_right * sides[1, k, c]


@compiled("contract")
def remaining_sums(
    queries: Queries,
    remaining: Array,
    counts: Array,
    points: Points,
    sums: Array,
    sides: Array,
    at_nodes: Array,
    start: int,
    stop: int,
) -> None:
    """What `gaussian_sums` has not done: counts[i] queries from i = remaining[…] on, all between two samples.

    From both sides at as many of Chebyshev's points; with one query and one point, which is the query, that is the
    direct sum. To work in: sides (2, k, c), at_nodes (NODES, 2, k, c).
    """
    for group in range(start, stop):
        first = remaining[group]
        last, left, right = first + counts[first], queries.lefts[first], queries.rights[first]
        nodes = NODES if last - first > 1 else 1
        centre = (queries.at[first] + queries.at[last - 1]) / 2
        half = (queries.at[last - 1] - queries.at[first]) / 2
        for node in range(nodes):
            t = centre + half * numpy.cos(numpy.pi * (node + 0.5) / nodes)
            both_sides(t, points, left, right, at_nodes[node])
        for i in range(first, last):
            total = 0.0
            clear(sides[0])
            clear(sides[1])
            for node in range(nodes):
                angle = numpy.pi * (node + 0.5) / nodes
                distance = queries.at[i] - (centre + half * numpy.cos(angle))
                divisor = distance if distance != 0 else 1e-18 * points.width
                # Barycentric weights. A query that is a point has almost all of its weight there.
                weight = (1.0 - 2.0 * (node % 2)) * numpy.sin(angle) / divisor
                total += weight
                for side in range(2):
                    for k in range(sums.shape[1]):
                        for c in range(sums.shape[2]):
                            sides[side, k, c] += weight * at_nodes[node, side, k, c]
            join(queries.at[i], points, left, right, total, sides, sums[i])
