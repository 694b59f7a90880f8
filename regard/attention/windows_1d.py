"""Windows of kernels over one feature: how many samples count for a query, and between which most of the weight lies.

With the weights p_j = w_j K(|v_j|) / Σ w K of sorted samples x (m,), the effective number of samples is
exp(−Σ p_j log p_j), and the window's ends are the first samples up to which p adds up to (1 − share) / 2 and to the
rest. The cost of a query grows with the cells in reach, of which there are as many as widths need, or √m.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy

from regard.attention.sorting import Array, Indices, cell_starts
from regard.attention.threads import load_kernels, parallel_for

KINDS = {"gaussian": 0, "laplace": 1}  # all others, 2, are polynomials
CELLS = (8, 4, 32)  # of each kind, cells to a width: an edge or a kink needs narrow ones


class WindowKernel(NamedTuple):
    """A kernel as the loops want it; a polynomial in powers of |v| and of 1 − |v|."""

    kind: int
    width: float
    coefficients: Array
    by_margin: Array


class WindowCells(NamedTuple):
    """Samples, and neighbouring ones as weights of Chebyshev's points (loops/windows_1d.py)."""

    x: Array
    columns: Array  # (m, 2) weights, and weights times their logs
    most: int  # samples of a cell
    starts: Indices
    shares: Array  # (cells, 2, nodes)
    nodes: Array  # in [−1, 1]


class Place(NamedTuple):
    """Where a query is: the index of the first sample not to its left, and in widths the distances of that and the one
    before it, and by how much the log of their K falls short of that of the nearer."""

    right: int
    to_left: float
    to_right: float
    lead_left: float
    lead_right: float


class Windows1D:
    """The windows of one kernel over sorted samples x (m,) of these weights (m,)."""

    def __init__(self, x: Array, weights: Array, kernel: WindowKernel) -> None:
        self._loops, self._kernel = load_kernels("windows_1d"), kernel
        logs = numpy.log(weights, out=numpy.zeros_like(weights), where=weights > 0)
        most = max(256, math.isqrt(2 * len(x)))  # of a cell: then cells and samples cost a query as much
        starts = cell_starts(x, kernel.width / CELLS[kernel.kind], most)
        nodes = numpy.cos(numpy.pi * (numpy.arange(self._loops.NODES) + 0.5) / self._loops.NODES)
        shares = numpy.empty((len(starts) - 1, 2, len(nodes)))
        self._cells = WindowCells(x, numpy.stack([weights, weights * logs], 1), most, starts, shares, nodes)
        parallel_for(partial(self._loops.share_out, self._cells), len(shares), 24 * len(x))

    def __call__(self, queries: Array, share: float) -> tuple[Array, Array, Array]:
        """(effective, low, high), (n,) each; NaN where no sample is within reach."""
        result = numpy.empty((3, len(queries)))
        loop = partial(self._loops.windows, queries, self._kernel, self._cells, share, result)
        parallel_for(loop, len(queries), len(queries) << 14)
        effective, low, high = result
        return effective, low, high
