"""Windows and filters by which Gaussian sums go through a grid, and how wrong they are.

Along one feature, with a window φ of P cells of h widths each (Kaiser and Bessel's, a polynomial in each cell),

    v^k exp(−v² / 2)  ≈  Σ_{a, b} φ(query − a h) filter_k[b − a] φ(point − b h),        v = point − query, in widths

where the filter's Fourier transform is that of the left side, divided by the window's twice. The error is no more than
errors[k] · exp(−v² / (2 ENVELOPE)) + NOISE, which is measured when a scheme is made.

Over several features the formula is multiplied, so the error of a product of powers is, to first order, the sum over
features of one's error and the others' products: no more than that part of exp(−‖v‖² / (2 ENVELOPE)).
"""

import functools
import math
from typing import NamedTuple

import numpy
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.hermite_e import HermiteE

from regard.attention.threads import load_kernels
from regard.kernel.local import Array, exponents

SCHEMES = ((8, 0.25), (12, 0.3), (12, 0.25))  # cells of a window, and their size in widths: more and more exact
ENVELOPE = 3.0  # squared widths: how errors fall with the distance
NOISE = 1e-16  # errors that do not fall: those of rounding
FINEST = 1e-9  # the best accuracy that is promised, relative to the sums
MARGIN = 40.0  # how much smaller errors are to be where samples are dense, so that most others are exact, too
PLACES = 16  # in a cell, where errors are measured
BETWEEN = 1.25  # how much larger they may be elsewhere


class Scheme(NamedTuple):
    """How points are spread and grids filtered, for the powers 0 to order."""

    width: int  # how many cells the window covers
    spacing: float  # of the grid, in widths
    taps: Array  # (terms, width) φ at each tap: polynomials in a point's place in its cell, the highest power first
    filters: Array  # (order + 1, length)
    middle: int  # the filter's tap for a distance of 0
    errors: Array  # (order + 1,)


def choose_schemes(features: int, order: int, tolerance: float) -> list[tuple[Scheme, float]]:
    """Schemes to use, with the largest error of their rows as a part of what is allowed."""
    schemes = [make_scheme(*scheme, order) for scheme in SCHEMES]
    errors = [_relative_error(*scheme, features, order) / max(tolerance, FINEST) for scheme in SCHEMES]
    good = [(scheme, error) for scheme, error in zip(schemes, errors, strict=True) if error * MARGIN <= 1]
    return good or [(schemes[-1], errors[-1])]


@functools.cache
def make_scheme(width: int, spacing: float, order: int) -> Scheme:
    """A window of that many cells."""
    shape = width * (math.pi - spacing * (1.1 + 0.07 * width))  # by trial; Kaiser's is π less half the band
    taps = _taps(width, shape)
    # Where the kernel is less than the least error's envelope: each cell is good for a digit
    reach = math.ceil(math.sqrt(width * math.log(10) / (0.5 - 0.5 / ENVELOPE)) / spacing)
    filters = numpy.stack([_filter(width, spacing, shape, reach, power) for power in range(order + 1)])
    errors = numpy.array([_error(taps, spacing, filters[power], power) for power in range(order + 1)])
    together = load_kernels("grid_sums").TOGETHER
    padded = numpy.pad(filters, ((0, 0), (0, -filters.shape[1] % together)))
    return Scheme(width, spacing, taps, padded, reach, errors)


def _taps(width: int, shape: float) -> Array:
    """The window at each tap, as a polynomial in z = (place in the cell) − ½."""

    def window(z: Array, tap: int) -> Array:
        place = (tap - width / 2 + 0.5 - z) / (width / 2)
        return numpy.asarray(numpy.i0(shape * numpy.sqrt(numpy.maximum(0, 1 - place**2))) / numpy.i0(shape))

    fits = [Chebyshev.interpolate(window, width - 2, domain=[-0.5, 0.5], args=(tap,)) for tap in range(width)]
    return numpy.stack([fit.convert(kind=Polynomial).coef[::-1] for fit in fits], 1)


def _filter(width: int, spacing: float, shape: float, reach: int, power: int) -> Array:
    """(2 reach + 1,), from its Fourier transform."""
    count = 16 * reach
    halves = 2 * numpy.arange(count) + 1 - count  # twice the number of each frequency
    frequencies = halves * (math.pi / (count * spacing))
    square = (frequencies * spacing * width / 2) ** 2
    root = numpy.sqrt(shape**2 - square)
    # The window's transform is sinh(root) / root; its exponent joins the kernel's, so that neither loses digits.
    exponent = 2 * square / (shape + root) - frequencies**2 / 2
    window = width * (1 - numpy.exp(-2 * root)) / (2 * root * numpy.i0(shape) * math.exp(-shape))
    hermite = HermiteE.basis(power)(frequencies) * (-1j) ** power
    transform = math.sqrt(2 * math.pi) * numpy.exp(exponent) * hermite / window**2
    # Angles are reduced while they are whole numbers: tails keep more digits.
    turns = numpy.outer(numpy.arange(-reach, reach + 1), halves) % (2 * count)
    waves = numpy.exp(1j * math.pi / count * turns)
    return numpy.asarray((waves @ transform).real / (count * spacing))


def _error(taps: Array, spacing: float, filter: Array, power: int) -> float:
    """The largest |approximation − v^power K(v)| / exp(−v² / (2 ENVELOPE)), over places of points in their cells."""
    width, reach = taps.shape[1], len(filter) // 2
    places = (numpy.arange(PLACES) + 0.5) / PLACES
    windows = numpy.stack([numpy.polyval(taps, z) for z in places - 0.5])  # (places, width)
    cells, tap = numpy.arange(-reach - width, reach + width + 1), numpy.arange(width)
    steps = cells[:, None, None] + tap - tap[:, None] + reach  # (cells, query's tap, sample's tap)
    between = numpy.where((steps >= 0) & (steps < len(filter)), filter[steps.clip(0, len(filter) - 1)], 0)
    approximation = windows @ between @ windows.T  # (cells, query's place, sample's place)
    v = spacing * (cells[:, None, None] + places - places[:, None])
    difference = abs(approximation - v**power * numpy.exp(-(v**2) / 2)) - NOISE
    return BETWEEN * float((difference * numpy.exp(v**2 / (2 * ENVELOPE))).max())


@functools.cache
def _relative_error(width: int, spacing: float, features: int, order: int) -> float:
    """The largest error of a row of powers, as a part of what Σ K |v^row| / Σ K is among evenly spread samples."""
    scheme, rows = make_scheme(width, spacing, order), exponents(features, order)
    powers = numpy.arange(len(scheme.errors))
    fall = 0.5 - 0.5 / ENVELOPE
    highest = (powers / (2 * fall)) ** (powers / 2) * numpy.exp(-powers / 2)  # of |v|^k exp(−fall v²); 0⁰ = 1
    moments = [2 ** (k / 2) * math.gamma((k + 1) / 2) / math.sqrt(math.pi) for k in powers]
    worst = 0.0
    for row in rows.tolist():
        others = [math.prod(highest[k] for b, k in enumerate(row) if b != a) for a in range(len(row))]
        error = sum(scheme.errors[k] * other for k, other in zip(row, others, strict=True))
        worst = max(worst, float(error / math.prod(moments[k] for k in row)))
    return worst
