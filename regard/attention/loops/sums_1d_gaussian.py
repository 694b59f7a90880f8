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

from typing import NamedTuple

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.sorting import before, clear
from regard.attention.sorting import Points, Queries
from regard.attention.sums_1d import Cells

FAR = 4.0  # a group whose nearest sample is more widths away is interpolated: the series would need more terms
NODES = 12  # points of an interpolation
NEGLIGIBLE = 38.0  # exp(−38) = 3e-17 of the nearest sample's weight
SLACK = 10.0  # how much less, in the exponent, a query's nearest sample may weigh than that of its group's centre
DENSE = 16  # a cell with fewer samples needs no moments
TRANSLATION = 100.0  # what a cell's translation costs, in samples summed directly
INVERSE = 1 / numpy.arange(1.0, 65.0)  # by which the powers of a Taylor series are made without dividing
ADDITION = 6.0  # what adding a sample to moments costs, in the same unit
SIDE_BY_SIDE = 16  # queries whose series are added up together: the processor does several at once
ROUNDING = 2e-6  # sums smaller than this part of what they were added up from (times 2 per order) are not exact


class Work(NamedTuple):
    """Where what is needed for one group of queries is put."""

    powers: Array  # (2, terms)
    total: Array  # (c, terms): moments about the group's centre
    sizes: Array  # (1 + order / 2,)
    taus: Array  # (queries side by side,)
    table: Array  # (rows, queries side by side)
    answers: Array  # (queries side by side, rows, c)
    taken: Array  # (rows,)


@compiled()
def new_work(c: int, terms: int, rows: int) -> Work:
    """Room for sums (rows, c) from moments (c, terms)."""
    powers, total, sizes = numpy.empty((2, terms)), numpy.empty((c, terms)), numpy.empty(1 + rows // 2)
    table, answers = numpy.empty((rows, SIDE_BY_SIDE)), numpy.empty((SIDE_BY_SIDE, rows, c))
    return Work(powers, total, sizes, numpy.zeros(SIDE_BY_SIDE), table, answers, numpy.empty(rows))


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
def gather(centre: float, points: Points, cells: Cells, low: int, high: int, work: Work) -> None:
    """Into work.total, the moments of the cells from low up to high, about a centre.

    work.sizes[k]: Σ K (|shift| + half a cell)^2k, what the sums of order 2k are added up from: it bounds their errors.
    """
    (x, columns, width, _), (starts, centres, moments) = points, cells
    total, sizes = work.total, work.sizes
    clear(total)
    sizes[:] = 0.0
    for cell in range(low, high):
        first, last = starts[cell], starts[cell + 1] - 1
        if last - first + 1 < DENSE:
            for j in range(first, last + 1):
                z, known = (x[j] - centre) / width, total[0, 0]
                add_sample(total, columns[j], z)
                add_size(sizes, total[0, 0] - known, z)
        else:
            shift, known = (centres[cell] - centre) / width, total[0, 0]
            translate(moments[cell], shift, work.powers, total)
            add_size(sizes, total[0, 0] - known, abs(shift) + (x[last] - x[first]) / (2 * width))


@compiled("contract")
def cells_around(centre: float, nearest: float, points: Points, cells: Cells) -> tuple[int, int]:
    """The cells, from the first up to the second number, that count for queries half a width around a centre."""
    reach = (numpy.sqrt(nearest * nearest + 2 * (NEGLIGIBLE + SLACK)) + 1) * points.width
    return before(cells.centres, centre - reach), before(cells.centres, centre + reach)


@compiled("contract")
def add_size(sizes: Array, mass: float, distance: float) -> None:
    """Add mass · distance^2k to sizes[k]."""
    for k in range(len(sizes)):
        sizes[k] += mass
        mass *= distance * distance


@compiled("contract")
def evaluate(moments: Array, taus: Array, table: Array) -> None:
    """table[k, i] = Σ_j columns[j] exp(−z² / 2) exp(τ_i z) v^k from moments (terms,), for SIDE_BY_SIDE queries.

    Derivatives by τ bring down z, and v = z − τ.
    """
    rows = len(table)
    clear(table)
    for p in range(len(moments) - 1, -1, -1):
        for k in range(rows - 1, 0, -1):
            for i in range(SIDE_BY_SIDE):
                table[k, i] = table[k, i] * taus[i] + table[k - 1, i]
        for i in range(SIDE_BY_SIDE):
            table[0, i] = table[0, i] * taus[i] + moments[p]
    factorial = 1.0
    for k in range(2, rows):
        factorial *= k
        for i in range(SIDE_BY_SIDE):
            table[k, i] *= factorial
    for a in range(1, rows):
        for k in range(rows - 1, a - 1, -1):
            for i in range(SIDE_BY_SIDE):
                table[k, i] -= taus[i] * table[k - 1, i]


@compiled("contract")
def leave_out(t: float, points: Points, begin: int, end: int, taken: Array, sums: Array) -> bool:
    """Take the samples [begin, end) out of the sums; whether enough remains for an exact difference."""
    x, columns, width, _ = points
    rows, enough = len(sums), True
    taken[:] = 0.0
    for j in range(begin, end):
        v = (x[j] - t) / width
        power = numpy.exp(-v * v / 2)
        for k in range(rows):
            taken[k] += power * columns[j, 0]
            for c in range(columns.shape[1]):
                sums[k, c] -= power * columns[j, c]
            power *= v
    for k in range(0, rows, 2):
        enough = enough and sums[k, 0] >= 1e-3 * taken[k]
    return enough


@compiled("contract")
def lost_digits(sums: Array, sizes: Array, tau: float) -> int:
    """0: the sums of even orders, whose terms are all positive, are large enough beside what they were added up from.
    1: they would be about a nearer centre. 2: not even there.
    """
    growth, mass, worst = ROUNDING, sizes[0], 0
    for k in range(1, len(sizes)):
        growth *= 4
        mass *= tau * tau
        if sums[2 * k, 0] < growth * (sizes[k] + mass):
            worst = max(worst, 2 if sums[2 * k, 0] < growth * sizes[k] else 1)
    return worst


@compiled("contract")
def nearest_of(t: float, points: Points, left: int, right: int) -> float:
    """The distance of the nearest sample that takes part, in widths."""
    nearest = numpy.inf
    if left >= 0:
        nearest = (t - points.x[left]) / points.width
    if right < len(points.x):
        nearest = min(nearest, (points.x[right] - t) / points.width)
    return float(nearest)


@compiled("contract")
def series(at: Array, centre: float, width: float, total: Array, work: Work) -> None:
    """work.answers[i] (rows, c): the sums for queries, at most SIDE_BY_SIDE, but for exp(−τ² / 2)."""
    taus, table, answers = work.taus, work.table, work.answers
    for i in range(len(at)):
        taus[i] = (at[i] - centre) / width
    for c in range(len(total)):
        evaluate(total[c], taus, table)
        for i in range(len(at)):
            for k in range(len(table)):
                answers[i, k, c] = table[k, i]


@compiled("contract")
def group_sums(
    queries: Queries, first: int, last: int, centre: float, points: Points, work: Work, counts: Array, sums: Array
) -> bool:
    """Sums for the queries [first, last) from the moments about a centre; whether the centre was near enough to all."""
    near_enough = True
    for begin in range(first, last, SIDE_BY_SIDE):
        end = min(last, begin + SIDE_BY_SIDE)
        series(queries.at[begin:end], centre, points.width, work.total, work)
        for i in range(begin, end):
            t, left, right, tau = queries.at[i], queries.lefts[i], queries.rights[i], work.taus[i - begin]
            answer, exponent, lost = work.answers[i - begin], -tau * tau / 2, 0
            if len(work.table) > 1:
                lost = lost_digits(answer, work.sizes, tau)
            if right - left > 1:
                scale(answer, numpy.exp(exponent), answer)
                exponent = 0.0
                if not leave_out(t, points, left + 1, right, work.taken, answer):
                    lost = 2
            counts[i] = min(lost, 1)
            near_enough = near_enough and lost != 1
            if lost == 0:
                nearest = nearest_of(t, points, left, right)
                if nearest > points.near:
                    exponent += nearest * nearest / 2
                scale(answer, numpy.exp(exponent), sums[queries.rows[i]])
    return near_enough


@compiled("contract")
def scale(sums: Array, factor: float, scaled: Array) -> None:
    """All of them times a factor."""
    for k in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            scaled[k, c] = factor * sums[k, c]


@compiled("contract")
def gaussian_sums(
    queries: Queries, groups: Array, points: Points, cells: Cells, counts: Array, sums: Array, start: int, stop: int
) -> None:
    """Sums for the groups [start, stop) of sorted queries: the queries from groups[g] up to groups[g + 1].

    counts[i] becomes the number of queries from i on that remain for `remaining_sums`. A group whose centre is too far
    from some of its queries (most samples lie much nearer to them) is halved.
    """
    work = new_work(sums.shape[2], cells.moments.shape[2], sums.shape[1])
    ends = numpy.empty(64, numpy.int64)  # of groups that were halved
    for group in range(start, stop):
        first, pending = groups[group], 1
        ends[0] = groups[group + 1]
        while pending:
            last = ends[pending - 1]
            centre = (queries.at[first] + queries.at[last - 1]) / 2
            after = before(points.x, centre)
            nearest = nearest_of(centre, points, after - 1, after)
            low, high = cells_around(centre, nearest, points, cells)
            around = float(cells.starts[high] - cells.starts[low])  # samples, each of which every query would visit
            price = min(TRANSLATION * (high - low), ADDITION * around)
            near_enough = True
            if nearest > FAR and last - first > NODES:
                counts[first] = last - first
                counts[first + 1 : last] = 0
            elif nearest <= FAR and around * (last - first) > price + ADDITION * (last - first):
                gather(centre, points, cells, low, high, work)
                near_enough = group_sums(queries, first, last, centre, points, work, counts, sums)
            else:
                counts[first:last] = 1
            if near_enough or pending == len(ends):
                first = last
                pending -= 1
            else:
                ends[pending] = max(first + 1, before(queries.at[:last], centre))
                pending += 1


@compiled("contract")
def both_sides(t: float, offset: float, points: Points, left: int, right: int, sides: Array) -> None:
    """sides (2, k, c): samples from `left` and from `right` outwards, relative to its weight, as long as they count.

    About t + offset, two numbers: the offset may be less than t can show.
    """
    x, columns, width, _ = points
    for side in range(2):
        first, step = (left, -1) if side == 0 else (right, 1)
        clear(sides[side])
        j = first
        while 0 <= j < len(x):
            v, beyond = (x[j] - t - offset) / width, abs(x[j] - x[first]) / width
            fall = beyond * (abs(x[first] - t - offset) / width + beyond / 2) if beyond > 0 else 0.0
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
    """Both sides, relative to the nearer if that is not near; `total` is what they were multiplied by."""
    to_left = (t - points.x[left]) / points.width if left >= 0 else numpy.inf
    to_right = (points.x[right] - t) / points.width if right < len(points.x) else numpy.inf
    lead = (to_right - to_left) * (to_right + to_left) / 2 if to_right != to_left else 0.0
    nearest = min(to_left, to_right)
    total *= numpy.exp(nearest * nearest / 2) if nearest <= points.near else 1.0
    weight_left, weight_right = numpy.exp(min(lead, 0.0)) / total, numpy.exp(min(-lead, 0.0)) / total
    for k in range(len(sums)):
        for c in range(sums.shape[1]):
            sums[k, c] = weight_left * sides[0, k, c] + weight_right * sides[1, k, c]


@compiled("contract")
def remaining_sums(
    queries: Queries, remaining: Array, counts: Array, points: Points, sums: Array, start: int, stop: int
) -> None:
    """What `gaussian_sums` has not done: counts[i] queries from i = remaining[…] on, all between two samples.

    From both sides at as many of Chebyshev's points; with one query and one point, which is the query, that is the
    direct sum.
    """
    sides, at_nodes = numpy.empty((2, *sums.shape[1:])), numpy.empty((NODES, 2, *sums.shape[1:]))  # (…, k, c)
    for group in range(start, stop):
        first = remaining[group]
        last, left, right = first + counts[first], queries.lefts[first], queries.rights[first]
        centre = (queries.at[first] + queries.at[last - 1]) / 2
        half = (queries.at[last - 1] - queries.at[first]) / 2
        nodes = NODES if half > 0 else 1
        for node in range(nodes):
            both_sides(centre, half * numpy.cos(numpy.pi * (node + 0.5) / nodes), points, left, right, at_nodes[node])
        for i in range(first, last):
            total = 0.0
            clear(sides[0])
            clear(sides[1])
            for node in range(nodes):
                angle = numpy.pi * (node + 0.5) / nodes
                distance = (queries.at[i] - centre) - half * numpy.cos(angle)
                divisor = distance if distance != 0 else 1e-18 * half
                # Barycentric weights. A query that is a point has almost all of its weight there.
                weight = (1.0 - 2.0 * (node % 2)) * numpy.sin(angle) / divisor if half > 0 else 1.0
                total += weight
                for side in range(2):
                    for k in range(sums.shape[1]):
                        for c in range(sums.shape[2]):
                            sides[side, k, c] += weight * at_nodes[node, side, k, c]
            join(queries.at[i], points, left, right, total, sides, sums[queries.rows[i]])
