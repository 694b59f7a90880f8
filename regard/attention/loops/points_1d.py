"""Sorted numbers: into cells, and where others lie among them. Shapes and names are those of points_1d.py."""

from regard.attention.loops import Array, compiled


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
