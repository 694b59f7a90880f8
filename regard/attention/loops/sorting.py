"""Sorting numbers by where they lie: into parts, parts into bins, and what is left by insertion; and sorted numbers.

Each of the three keeps equal numbers in their order. Names are those of sorting.py and kernel/compressed.py.
"""

import numpy

from regard.attention.loops import Array, compiled

WHOLE = 2.0**52  # from here on, every float64 is a whole number
FEW = 16  # numbers that are sorted by insertion alone


@compiled()
def parts_by_place(x: Array, least: float, scale: float, parts: Array, counts: Array) -> None:
    """The part of each number, all of them equally wide, and how many are in each; counts come in as 0."""
    for i in range(len(x)):
        part = int((x[i] - least) * scale)
        parts[i] = part
        counts[part] += 1


@compiled()
def parts_by_knots(x: Array, knots: Array, parts: Array, counts: Array) -> None:
    """The same for parts that begin at sorted knots, of which there are one less than a power of two."""
    for i in range(len(x)):
        part, step = 0, (len(knots) + 1) // 2
        while step:
            part += step * (knots[part + step - 1] <= x[i])
            step //= 2
        parts[i] = part
        counts[part] += 1


@compiled()
def fill_parts(x: Array, parts: Array, starts: Array, values: Array, order: Array) -> None:
    """Put each number behind the others of its part, which begins at starts[p]; starts[p] becomes its end."""
    for i in range(len(x)):
        place = starts[parts[i]]
        starts[parts[i]] = place + 1
        values[place], order[place] = x[i], i


@compiled()
def sort_parts(ends: Array, most: int, values: Array, order: Array, start: int, stop: int) -> None:
    """Sort the parts [start, stop), from ends[p] up to ends[p + 1], of at most so many numbers."""
    bins, moved, work = numpy.empty(most + 1, numpy.int64), numpy.empty(most, numpy.int64), numpy.empty(most)
    for part in range(start, stop):
        first, last = ends[part], ends[part + 1]
        if last - first > FEW:
            sort_into_bins(values[first:last], order[first:last], bins, work, moved)
        insert(values[first:last], order[first:last])


@compiled()
def sort_into_bins(values: Array, order: Array, bins: Array, work: Array, moved: Array) -> None:
    """As many bins as numbers, so that most of them hold one or two."""
    count, least, greatest = len(values), values[0], values[0]
    for i in range(count):
        work[i], moved[i] = values[i], order[i]
        least, greatest = min(least, values[i]), max(greatest, values[i])
    scale = (count - 1) / (greatest - least) if least < greatest else 0.0
    if not 0 < scale < 1e300:  # equal, or less apart than a division can show
        return
    bins[: count + 1] = 0
    for i in range(count):
        bins[int((work[i] - least) * scale) + 1] += 1
    for i in range(count):
        bins[i + 1] += bins[i]
    for i in range(count):
        bin_of = int((work[i] - least) * scale)
        place = bins[bin_of]
        bins[bin_of] = place + 1
        values[place], order[place] = work[i], moved[i]


@compiled()
def insert(values: Array, order: Array) -> None:
    """Sort by insertion."""
    for i in range(1, len(values)):
        value, index, place = values[i], order[i], i
        while place > 0 and values[place - 1] > value:
            values[place], order[place] = values[place - 1], order[place - 1]
            place -= 1
        values[place], order[place] = value, index


@compiled()
def sort_by_group(groups: Array, starts: Array, order: Array) -> None:
    """order: what is in each group, in the order given; of group g it is order[starts[g] : starts[g + 1]]."""
    for g in range(len(starts)):
        starts[g] = 0
    for i in range(len(groups)):
        starts[groups[i] + 1] += 1
    for g in range(1, len(starts)):
        starts[g] += starts[g - 1]
    for i in range(len(groups)):
        order[starts[groups[i]]] = i
        starts[groups[i]] += 1
    for g in range(len(starts) - 1, 0, -1):  # each start has become the next one's
        starts[g] = starts[g - 1]
    starts[0] = 0


# ------------------------------------------------------------------------------------------------------ sorted numbers


@compiled()
def group_cells(x: Array, width: float, most: int, starts: Array) -> int:
    """Group sorted numbers into cells at most `width` wide and of at most so many; returns how many cells.

    They follow the samples, not a grid: differences of neighbours are exact, however far from 0 they lie. `starts` has
    room for all and one more.
    """
    count, first = 0, 0
    for j in range(len(x)):
        if j == 0 or x[j] - x[first] > width or j - first == most:
            starts[count] = first = j
            count += 1
    starts[count] = len(x)
    return count


@compiled()
def group_by_grid(x: Array, width: float, keys: Array, starts: Array) -> int:
    """Group sorted numbers by the cells [key, key + width), key a multiple of the width; returns how many cells.

    Numbers so large that they are all multiples of the width are cells of their own. `keys` has room for a cell per
    number, `starts` for one more.
    """
    count = 0
    for j in range(len(x)):
        key = x[j]
        if abs(key) < WHOLE * width:
            key = numpy.floor(key / width) * width
        if count == 0 or key != keys[count - 1]:
            keys[count], starts[count] = key, j
            count += 1
    starts[count] = len(x)
    return count


@compiled("contract")
def chebyshev_moments(
    x: Array, columns: Array, width: float, keys: Array, ends: Array, moments: Array, start: int, stop: int
) -> None:
    """moments[cell, c, p] = Σ_j columns[j, c] T_p(z_j) over the samples from ends[0, cell] up to ends[1, cell].

    z is −1 at the cell's left end and 1 at its right, T_p are Chebyshev's polynomials.
    """
    terms = moments.shape[2]
    powers = numpy.empty(terms)
    for cell in range(start, stop):
        moments[cell] = 0.0
        for j in range(ends[0, cell], ends[1, cell]):
            z = (x[j] - keys[cell]) * (2 / width) - 1
            powers[0], powers[1] = 1.0, z
            for p in range(2, terms):
                powers[p] = 2 * z * powers[p - 1] - powers[p - 2]
            for c in range(columns.shape[1]):
                for p in range(terms):
                    moments[cell, c, p] += columns[j, c] * powers[p]


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
def find_neighbours(x: Array, at: Array, rights: Array, start: int, stop: int) -> None:
    """For the sorted numbers at[start:stop], how many of the sorted x are less."""
    right = before(x, at[start]) if start < stop else 0
    for i in range(start, stop):
        step = 1
        while right < len(x) and x[right] < at[i]:  # in steps twice as long each time, then half as long
            beyond = right + step
            if beyond < len(x) and x[beyond] < at[i]:
                right, step = beyond, 2 * step
            else:
                right += 1
                step = 1 if step == 1 else step // 2
        rights[i] = right


@compiled()
def clear(sums: Array) -> None:
    """Zeros."""
    for k in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            sums[k, c] = 0.0
