"""What the loops over several features are given, for kernel/sums_nd.py and loops/sums_nd.py; without numba, too.

Shapes: n queries, m samples, c columns; BLOCK samples are visited together.
"""

from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]

LANES = 32  # a block's count is a multiple of it
TILE = 32  # queries that go through a block together
EDGE = 1 + 1e-9  # a compact kernel's reach, with room for rounding
# What is wanted: slopes by log widths; sums of any kind; or those of a Gaussian's or Laplace's weights and one value, a
# Gaussian's also in float32.
SLOPES, SUMS, AVERAGES, SINGLE = 0, 1, 2, 3
GAUSSIAN, LAPLACE, COMPACT = 0, 1, 2


class Kernel(NamedTuple):
    """K as the loops want it."""

    kind: int
    product: bool  # of one kernel per feature, else one of the distance
    rate: float  # K = exp(−rate u²) for the Gaussian, exp(−rate u) for Laplace
    even: bool  # a compact kernel's margin is 1 − u², else 1 − u
    root: Array  # K = root^power for a compact kernel, root = Σ_p root[p] margin^p
    root_slope: Array  # −u d root / du, likewise
    power: int
    starts: Array  # (features + 1,) the first coordinate of each feature that narrows the window


class Blocks(NamedTuple):
    """Samples in order, BLOCK by BLOCK; the last is filled up with samples whose weights are 0."""

    points: Array  # (blocks, coordinates, BLOCK) the first of them narrow the window, the others are for the basis
    columns: Array  # (blocks, c, BLOCK) weights, and values: the other columns divided by them
    codes: Array  # (blocks, categorical, BLOCK)
    indices: Array  # (blocks, BLOCK) of the samples as they were given
    ranks: Array  # (m,) and where each of those is now
    counts: Array  # (blocks,)
    lows: Array  # (blocks, coordinates) their boxes
    highs: Array
    sizes: Array  # (blocks,) how much a block can add at most, as a weight
    single_points: Array  # float32, or empty
    single_columns: Array


class Block(NamedTuple):
    """One of them. Few arrays: what is passed to a function is copied."""

    points: Array  # (coordinates, BLOCK)
    weights: Array  # (BLOCK,) times the factors of a tile's codes
    values: Array  # (c, BLOCK), of which row 0 is not used
    indices: Array  # (BLOCK,)
    ranks: Array  # (m,)
    begin: int
    size: int  # how many count
    single_points: Array
    single_columns: Array


class Queries(NamedTuple):
    """Queries in order; all queries of a tile have the same codes."""

    points: Array  # (n, coordinates)
    single: Array  # the same as float32
    basis: Array  # (n, features, 2) what the differences of a feature's coordinates are multiplied by
    codes: Array  # (n, categorical)
    left_out: Array  # (n, 2)
    inverses: Array  # (n,) 1 / scale
    nearest: Array  # (n,) −log of the weight that the sums are relative to
    ceilings: Array  # (n,) log of the largest factor of the tables
    ends: Array  # (n,) where −log K is more than this, nothing counts
    tiles: Array  # (tiles + 1,) their starts


class Monomials(NamedTuple):
    """Rows of sums: row r is row parents[r] times the basis function of features[r]."""

    parents: Array
    features: Array
    value_rows: int  # from this row on, only weights are summed
    stored: int  # from this row on, rows are nobody's parents, and only their weights are summed
    order: int  # by which far samples count more
    coordinates: Array  # (features, 2) the coordinates of each feature, −1 for none


class Tables(NamedTuple):
    """Factors of categorical features, (categorical, codes of the query, codes of the sample)."""

    factors: Array
    slopes: Array
    squared: bool


class Work(NamedTuple):
    """Room for what is computed of a block, (…, BLOCK): arrays of their own, so that loops can be vectorised."""

    weights: Array  # (BLOCK,) times the factors
    factors: Array  # (1 + categorical, BLOCK) products of the tables' entries, and their slopes
    basis: Array  # (features, BLOCK)
    rows: Array  # (rows, BLOCK) weights times monomials
    slopes: Array  # (4, BLOCK)
    room: Array  # (3, BLOCK)
    single: Array  # (BLOCK,) float32


class Fits(NamedTuple):
    """What the derivatives are taken of: a local average (basis 1) or line (basis 1 + features)."""

    duals: Array  # (n, basis)
    fits: Array  # (n, basis, outputs)
    slopes: Array  # (n, features + categorical, outputs), to be added to
    features: Array  # (features that narrow the window,) their places among all


class Task(NamedTuple):
    """What is asked of the loops."""

    wanted: int  # one of the four above
    kernel: Kernel
    monomials: Monomials
    tables: Tables
    fits: Fits
    tolerance: float  # what may be left out, relative to the sums
