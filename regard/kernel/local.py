"""Local polynomials from kernel sums: at a query, the polynomial of v that fits the samples best under their weights.

With x = (1, v, v², …) and the weights K of the samples, Σ_j K_j (y_j − β · x_j)² is least at β = S⁻¹ Σ K x y, where
S = Σ K x xᵀ; the estimate is β_0, the height at v = 0. The constant is eliminated first: with μ the mean of the other
monomials and C their covariance, both under the weights,

    slopes = C⁺ cov(x, y)        height = mean(y) − μ · slopes = Σ_j K_j (duals · x_j) y_j        duals = S⁻¹ e_0

C⁺ is not cut off where C becomes singular (far outside the data, where one sample has all the weight, or where samples
do not span a direction) but fades: each eigenvalue λ of C, relative to the mean squares, is inverted as λ / (λ² + δ²).
So a local line goes over into the local average, without a jump, where the samples do not tell a slope. Of several
features it does so already where the samples tell it too badly (`steadied`).
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

Array = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
Mask = NDArray[numpy.bool_]
Monomial = tuple[int, ...]

FADE = 1e-8  # δ: a variance of this part of the mean square could be a sum of rounding errors


@functools.cache
def monomials(features: int, order: int) -> tuple[Monomial, ...]:
    """The monomials up to a total degree, each as the features of its factors: (), (0,), …, (0, 0), (0, 1), …"""
    degrees = range(order + 1)
    return tuple(m for degree in degrees for m in itertools.combinations_with_replacement(range(features), degree))


def exponents(features: int, order: int) -> Indices:
    """The same as powers of each feature, (rows, features): by degree, then (0, 0), (0, 1), … (1, 1), …"""
    rows = [[factors.count(a) for a in range(features)] for factors in monomials(features, order)]
    return numpy.array(rows, dtype=numpy.int64).reshape(len(rows), features)


@functools.cache
def _products(features: int, degree: int, factor: Monomial = ()) -> tuple[Indices, Indices]:
    """(basis,) and (basis, basis): which monomial is the factor times one, or times two of those up to this degree."""
    index = {monomial: row for row, monomial in enumerate(monomials(features, 2 * degree + len(factor)))}
    basis = monomials(features, degree)
    one = [index[tuple(sorted(factor + a))] for a in basis]
    two = [[index[tuple(sorted(factor + a + b))] for b in basis] for a in basis]
    return numpy.array(one), numpy.array(two)


@dataclass(frozen=True)
class LocalFit:
    """Local polynomials at n queries: coefficients (n, basis, outputs) and duals (n, basis). NaN: nothing in reach."""

    features: int
    degree: int
    coefficients: Array
    duals: Array

    @property
    def heights(self) -> Array:
        """The estimates, (n, outputs)."""
        return numpy.asarray(self.coefficients[:, 0])

    def take(self, chosen: Indices) -> LocalFit:
        """Some of them."""
        return LocalFit(self.features, self.degree, self.coefficients[chosen], self.duals[chosen])

    def changes(self, slope_sums: Array, factor: Monomial = ()) -> Array:
        """How the heights change with the log of a width, (n, outputs): Σ_j K′_j (duals · x_j) (y_j − β · x_j).

        slope_sums: those of K′ = dK / d log(width), of order 2 · degree. Where K′ is K times a monomial, the factor,
        they may be those of K, of as much higher an order: under the Gaussian it is v² of the feature, in widths.
        """
        one, two = _products(self.features, self.degree, factor)
        misfit = slope_sums[:, one, 1:] - slope_sums[:, two, 0] @ self.coefficients  # (n, basis, outputs)
        return numpy.asarray(numpy.einsum("na,nac->nc", self.duals, misfit))

    def variance_factors(self, squared: Array) -> Array:
        """Σ_j l_j² (n,), the variance of estimates per variance of noise; squared: sums of K² of order 2 · degree."""
        return numpy.maximum(self._products_of_weights(squared, self.duals, self.duals), 0)

    def _products_of_weights(self, squared: Array, one: Array, two: Array) -> Array:
        """Σ_j l_j k_j (n,) of the weights that two duals (n, basis) stand for."""
        square = squared[:, _products(self.features, self.degree)[1], 0]  # (n, basis, basis)
        return numpy.asarray(numpy.einsum("na,nab,nb->n", one, square, two))

    def steadied(self, sums: Array, squared: Array) -> LocalFit:
        """The same as near to the local averages as it takes for no estimate to vary more than one sample does.

        A polynomial that extrapolates from a few samples close to each other could vary by any multiple of that. On the
        way from the averages, at 0, to the polynomials, at 1, Σ l² is quadratic; it is at most 1 at 0.
        """
        average = fit_locally(sums, self.features, 0)
        start = numpy.zeros_like(self.duals)
        start[:, :1] = average.duals
        way = self.duals - start
        at_start, slope, bend = (
            self._products_of_weights(squared, *pair) for pair in ((start, start), (start, way), (way, way))
        )
        beyond = at_start + 2 * slope + bend > 1
        root = numpy.sqrt(numpy.maximum(slope**2 + bend * (1 - at_start), 0))
        share = numpy.divide(root - slope, bend, out=numpy.ones_like(bend), where=beyond & (bend > 0))
        share = numpy.clip(share, 0, 1)[:, None]
        coefficients = self.coefficients * share[:, :, None]
        coefficients[:, 0] += (1 - share) * average.heights
        return LocalFit(self.features, self.degree, coefficients, start + share * way)


def fit_locally(sums: Array, features: int, degree: int) -> LocalFit:
    """The local polynomials of this degree from sums (n, rows, 1 + outputs) of order 2 · degree."""
    basis, rows = (math.comb(features + order, order) for order in (degree, 2 * degree))
    reached = sums[:, 0, 0] > 0
    total = numpy.where(reached, sums[:, 0, 0], numpy.nan)[:, None]
    moments = sums[:, :rows, 0] / total  # (n, rows)
    with_values = sums[:, :basis, 1:] / total[:, :, None]  # (n, basis, outputs)
    means = with_values[:, 0]
    if basis == 1:
        return LocalFit(features, degree, means[:, None], 1 / total)
    square = moments[:, _products(features, degree)[1][1:, 1:]]  # (n, basis − 1, basis − 1)
    centre = moments[:, 1:basis]
    covariance = square - centre[:, :, None] * centre[:, None, :]
    with_values = with_values[:, 1:] - centre[:, :, None] * means[:, None]
    scale = numpy.sqrt(numpy.diagonal(square, axis1=1, axis2=2))  # root mean squares about the query
    scale[~(scale > 0)] = 1.0
    right = numpy.concatenate([with_values, centre[:, :, None]], axis=2) / scale[:, :, None]
    solved = _fading_inverse(covariance / (scale[:, :, None] * scale[:, None, :]), right) / scale[:, :, None]
    slopes, tilt = solved[:, :, :-1], solved[:, :, -1]  # (n, basis − 1, outputs), (n, basis − 1)
    heights = means - numpy.einsum("nb,nbc->nc", centre, slopes)
    duals = numpy.concatenate([1 + numpy.einsum("nb,nb->n", centre, tilt)[:, None], -tilt], axis=1) / total
    return LocalFit(features, degree, numpy.concatenate([heights[:, None], slopes], axis=1), duals)


def _fading_inverse(matrices: Array, right: Array) -> Array:
    """matrices⁺ · right for symmetric matrices (n, k, k), fading where an eigenvalue falls below FADE."""
    if matrices.shape[1] == 1:
        return matrices * right / (matrices**2 + FADE**2)
    known = numpy.isfinite(matrices).all((1, 2))
    solved = numpy.full(right.shape, numpy.nan)
    values, vectors = numpy.linalg.eigh(matrices[known])
    inverse = values / (values**2 + FADE**2)
    along = numpy.einsum("nka,nkc->nac", vectors, right[known]) * inverse[:, :, None]
    solved[known] = numpy.einsum("nka,nac->nkc", vectors, along)
    return solved
