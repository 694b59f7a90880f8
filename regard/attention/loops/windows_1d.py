"""The weights of a kernel over one feature, summed up: how many samples count, and between which most of the weight is.

Sorted samples are grouped into narrow cells. Inside one, a kernel is as good as its interpolation from a few of
Chebyshev's points, Σ_j w_j f(x_j) = Σ_node share[node] f(node), for K and for K log K alike, whatever the query; so
samples themselves are visited only in cells where the kernel has an edge or a kink, and where a quantile is.

Shapes and names are those of sums_1d.py.
"""

import numpy

from regard.attention.loops import Array, compiled
from regard.attention.loops.sorting import before, clear
from regard.attention.sums_1d import KINDS, Place, WindowCells, WindowKernel

NODES = 12
FEW = 24  # a cell of fewer samples is visited
NEGLIGIBLE = 50.0  # exp(−50) = 2e-22 of the nearest sample's weight
STEEP = 0.5  # exp(±0.5) over half a cell is interpolated to the last bit
VISITED = 64  # samples that are weighed at a time on the way to a quantile
GAUSSIAN, LAPLACE, POLYNOMIAL = KINDS["gaussian"], KINDS["laplace"], 2


@compiled("contract")
def share_out(cells: WindowCells, start: int, stop: int) -> None:
    """The columns (m, 2) of the cells [start, stop) as shares (cells, 2, NODES) of Chebyshev's points.

    Lagrange's polynomials for these are ℓ_node(s) = Σ_p T_p(node) T_p(s) (2 − [p = 0]) / NODES.
    """
    x, columns, work = cells.x, cells.columns, numpy.empty((2, NODES))
    for cell in range(start, stop):
        first, last = cells.starts[cell], cells.starts[cell + 1]
        centre, half = (x[first] + x[last - 1]) / 2, (x[last - 1] - x[first]) / 2
        if last - first < FEW or half == 0:
            continue
        clear(work)
        for j in range(first, last):
            s = (x[j] - centre) / half
            power, following = 1.0, s  # T_p(s)
            for p in range(NODES):
                work[0, p] += columns[j, 0] * power
                work[1, p] += columns[j, 1] * power
                power, following = following, 2 * s * following - power
        for node in range(NODES):
            angle = numpy.pi * (node + 0.5) / NODES
            for c in range(2):
                share = work[c, 0]
                for p in range(1, NODES):
                    share += 2 * numpy.cos(p * angle) * work[c, p]
                cells.shares[cell, c, node] = share / NODES


@compiled("contract")
def weigh(points: Array, x: Array, kernel: WindowKernel, place: Place, on_right: bool, weights: Array) -> None:
    """weights (2, …) = K and log K of points on one side of the query, relative to the nearest sample.

    Through the first sample on that side: beyond it a Gaussian falls by beyond · (gap + beyond / 2), which keeps its
    digits however far away the query is.
    """
    first, gap, lead, sign = x[place.right - 1], place.to_left, place.lead_left, -1 / kernel.width
    if on_right:
        first, gap, lead, sign = x[place.right], place.to_right, place.lead_right, 1 / kernel.width
    if kernel.kind == POLYNOMIAL:
        weigh_polynomial(points, first, sign, gap, kernel.coefficients, kernel.by_margin, weights)
        return
    bend = 0.5 if kernel.kind == GAUSSIAN else 0.0
    slope = gap if kernel.kind == GAUSSIAN else 1.0
    for i in range(len(points)):
        beyond = sign * (points[i] - first)
        weights[1, i] = -lead - beyond * (slope + bend * beyond)
        weights[0, i] = numpy.exp(weights[1, i])


@compiled("contract")
def weigh_polynomial(
    points: Array, first: float, sign: float, gap: float, coefficients: Array, by_margin: Array, weights: Array
) -> None:
    """The same for a polynomial of |v| ≤ 1; the log of 0 is left 0."""
    for i in range(len(points)):
        u, weight = gap + sign * (points[i] - first), 0.0
        if u <= 0.5:
            for p in range(len(coefficients) - 1, -1, -1):
                weight = weight * u + coefficients[p]
        elif u <= 1:
            for p in range(len(by_margin) - 1, -1, -1):
                weight = weight * (1 - u) + by_margin[p]
        weights[0, i] = max(weight, 0.0)
        weights[1, i] = numpy.log(weight) if weight > 0 else 0.0


@compiled("contract")
def locate(t: float, x: Array, kernel: WindowKernel) -> Place:
    """The first sample to the left and to the right of a query, and how much nearer the nearer of them is."""
    right = before(x, t)
    to_left = float((t - x[right - 1]) / kernel.width) if right > 0 else numpy.inf
    to_right = float((x[right] - t) / kernel.width) if right < len(x) else numpy.inf
    lead_left, lead_right = 0.0, 0.0
    if to_left < numpy.inf and to_right < numpy.inf:
        lead = to_left - to_right
        if kernel.kind == GAUSSIAN:
            lead *= (to_left + to_right) / 2
        lead_left, lead_right = max(lead, 0.0), max(-lead, 0.0)
    return Place(right, to_left, to_right, lead_left, lead_right)


@compiled("contract")
def is_smooth(first: int, last: int, x: Array, kernel: WindowKernel, place: Place) -> bool:
    """Whether the kernel can be interpolated over the samples [first, last): no kink, no edge near, not too steep."""
    if last - first < FEW or x[first] == x[last - 1] or first < place.right < last:
        return False
    half, far = (x[last - 1] - x[first]) / (2 * kernel.width), 0.0
    if first >= place.right:
        far = place.to_right + (x[last - 1] - x[place.right]) / kernel.width
    else:
        far = place.to_left + (x[place.right - 1] - x[first]) / kernel.width
    if kernel.kind == POLYNOMIAL:
        return bool(1 - far >= 2 * half)
    return bool(half <= STEEP and (kernel.kind == LAPLACE or half * far <= STEEP))


@compiled("contract")
def weigh_samples(first: int, last: int, x: Array, kernel: WindowKernel, place: Place, weights: Array) -> None:
    """weights (2, last − first) of the samples, on whichever side they are."""
    middle = min(max(place.right, first), last)
    if first < middle:
        weigh(x[first:middle], x, kernel, place, False, weights)
    if middle < last:
        weigh(x[middle:last], x, kernel, place, True, weights[:, middle - first :])


@compiled("contract")
def reached(
    target: float, first: int, last: int, x: Array, columns: Array, kernel: WindowKernel, place: Place, weights: Array
) -> int:
    """The first of the samples [first, last) up to which their weight reaches the target, or the last of them."""
    begin, total = first, 0.0
    while begin < last:
        end = min(begin + VISITED, last)
        weigh_samples(begin, end, x, kernel, place, weights)
        for j in range(begin, end):
            total += weights[0, j - begin] * columns[j, 0]
            if total >= target:
                return j
        begin = end
    return last - 1


@compiled("contract")
def windows(
    queries: Array, kernel: WindowKernel, cells: WindowCells, share: float, result: Array, start: int, stop: int
) -> None:
    """result[:, i] = (effective, low, high) for the queries [start, stop)."""
    x, columns, starts, masses = cells.x, cells.columns, cells.starts, numpy.empty(len(cells.shares))
    points, weights = numpy.empty(NODES), numpy.empty((2, cells.most))
    for i in range(start, stop):
        t = queries[i]
        place = locate(t, x, kernel)
        nearest, reach = min(place.to_left, place.to_right), 1.0
        if kernel.kind == GAUSSIAN:
            reach = numpy.sqrt(nearest * nearest + 2 * NEGLIGIBLE)
        elif kernel.kind == LAPLACE:
            reach = nearest + NEGLIGIBLE
        reach *= kernel.width * (1 + 1e-14)
        low = high = max(0, before(starts, before(x, t - reach) + 1) - 1)
        total, logs = 0.0, 0.0
        while high < len(starts) - 1 and x[starts[high]] <= t + reach:
            first, last = starts[high], starts[high + 1]
            mass = 0.0
            if is_smooth(first, last, x, kernel, place):
                centre, half = (x[first] + x[last - 1]) / 2, (x[last - 1] - x[first]) / 2
                for node in range(NODES):
                    points[node] = centre + half * cells.nodes[node]
                weigh(points, x, kernel, place, first >= place.right, weights)
                for node in range(NODES):
                    of_weight, of_log = cells.shares[high, 0, node], cells.shares[high, 1, node]
                    mass += weights[0, node] * of_weight
                    logs += weights[0, node] * (of_log + weights[1, node] * of_weight)
            else:
                weigh_samples(first, last, x, kernel, place, weights)
                for j in range(first, last):
                    mass += weights[0, j - first] * columns[j, 0]
                    logs += weights[0, j - first] * (columns[j, 1] + weights[1, j - first] * columns[j, 0])
            masses[high] = mass
            total += mass
            high += 1
        result[:, i] = numpy.nan
        if total > 0:
            result[0, i] = numpy.exp(numpy.log(total) - logs / total)
            for end in range(2):
                target = total * (0.5 + (end - 0.5) * share)
                cell, passed = low, 0.0
                while cell < high - 1 and passed + masses[cell] < target:
                    passed += masses[cell]
                    cell += 1
                begin, stop_at = starts[cell], starts[cell + 1]
                result[1 + end, i] = x[reached(target - passed, begin, stop_at, x, columns, kernel, place, weights)]
