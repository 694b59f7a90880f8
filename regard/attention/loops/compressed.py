"""Loops over sorted samples in the cells of a grid (regard/kernel/compressed.py)."""

import numpy

from regard.attention.loops import Array, compiled

WHOLE = 2.0**52  # from here on, every float64 is a whole number


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
    x: Array,
    columns: Array,
    width: float,
    keys: Array,
    starts: Array,
    stops: Array,
    moments: Array,
    powers: Array,
    start: int,
    stop: int,
) -> None:
    """moments[cell, c, p] = Σ_j columns[j, c] T_p(z_j) over the samples [starts, stops) of the cells [start, stop).

    z is −1 at the cell's left end and 1 at its right, T_p are Chebyshev's polynomials. To work in: powers (terms,).
    """
    terms = len(powers)
    for cell in range(start, stop):
        moments[cell] = 0.0
        for j in range(starts[cell], stops[cell]):
            z = (x[j] - keys[cell]) * (2 / width) - 1
            powers[0], powers[1] = 1.0, z
            for p in range(2, terms):
                powers[p] = 2 * z * powers[p - 1] - powers[p - 2]
            for c in range(columns.shape[1]):
                for p in range(terms):
                    moments[cell, c, p] += columns[j, c] * powers[p]
