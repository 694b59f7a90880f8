"""Nadaraya–Watson regression as a scikit-learn estimator: attention whose score is the log of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from regard.attention import Kernel, bias
from regard.attention import weights as attention_weights
from regard.attention.kernels import KERNELS
from regard.kernel.bandwidth import WITHOUT_SLOPE, LeaveOneOut, descend, minimize_error, silverman
from regard.kernel.samples import Samples, local_averages, local_lines

__all__ = ["KernelRegressor", "Window"]

Array = NDArray[numpy.float64]

EMPTY = ("nearest", "mean", "nan", "raise")
RULES = ("loo", "silverman", "gradient")
QUERIES = 1 << 20  # that are answered at once: what they need in memory stays below 100 MB
WEIGHTS = 1 << 22  # weights that are looked at together for a window


class Window(NamedTuple):
    """Per query: the effective number of samples, and the interval of each feature with 90 % of the weight.

    effective (n,) · low and high (n,) for one feature, (n, features) for several.
    """

    effective: Array
    low: Array
    high: Array


class KernelRegressor(RegressorMixin, MultiOutputMixin, BaseEstimator):
    """Kernel regression: the prediction is the average of the samples' values, weighted by a kernel of their distance.

    Parameters
    ----------
    kernel : str
        "gaussian", "laplace", "constant", "boxcar", "triangular", "epanechnikov", "biweight", "triweight", "tricube" or
        "cosine".
    bandwidth : float, array (features,) or str
        The kernel's width. A positive number, one per feature, or how to choose it: "loo" (least leave-one-out squared
        error), "gradient" (down that error's gradient from Silverman's rule, one width per feature) or "silverman" (the
        rule alone).
    empty : str
        What a query gets that has no sample within a compact kernel's reach: the value of the "nearest" sample, the
        "mean" of all, "nan", or "raise" a ValueError.
    degree : int
        0 for the local average, 1 for a local line, which does not flatten at the ends of the data.

    Attributes
    ----------
    bandwidth_ : ndarray (features,)
        An uninformative feature gets a very large value, whose size is not meaningful.
    loo_error_ : float
        The mean squared error when every sample is predicted from the others. (With several features and many samples,
        over as many of them as make 2e8 pairs.)
    loo_score_ : float
        The same as R², the share of the variance that is explained.

    Notes
    -----
    One feature costs O((n + m) log n), several every pair that is within reach; memory is never O(n m). Whole-number
    sample weights are counts: a sample of weight 3 is three samples, of which leaving one out leaves two.

    Examples
    --------
    >>> import numpy as np, regard
    >>> x = np.linspace(0, 5, 50)
    >>> model = regard.KernelRegressor().fit(x[:, None], np.sin(x))
    >>> model.predict([[1.0]]).round(2)
    array([0.85])
    """

    def __init__(
        self,
        kernel: str = "gaussian",
        bandwidth: float | ArrayLike | str = "loo",
        *,
        empty: str = "nearest",
        degree: int = 0,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.empty = empty
        self.degree = degree

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> KernelRegressor:
        """Keep the samples and choose the bandwidth."""
        self.check_parameters()
        points, values = validate_data(self, X, y, dtype=numpy.float64, multi_output=True, y_numeric=True)
        values = numpy.asarray(values, dtype=numpy.float64)
        weights = _check_sample_weight(sample_weight, points, dtype=numpy.float64, ensure_non_negative=True)
        self.one_output_ = values.ndim == 1
        samples = self.samples_ = Samples(points, values.reshape(len(values), -1), weights)
        loss = LeaveOneOut(samples, self.kernel, self.degree, self.empty)
        self.bandwidth_ = self._choose_bandwidth(loss)
        self.loo_error_ = self.loo_score_ = numpy.nan
        if len(samples.points) > 1 or samples.count >= 2:
            self.loo_error_ = loss.error(self.bandwidth_)
            variance = float(numpy.average((samples.centred**2).mean(1), weights=samples.weights))
            self.loo_score_ = 1 - self.loo_error_ / variance if variance > 0 else numpy.nan
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The weighted average (or local line) at each row of X; X may be a memory map larger than memory."""
        queries = self._check_queries(X)
        predictions = numpy.empty((len(queries), self.samples_.values.shape[1]))
        for part in _parts(len(queries), QUERIES):
            predictions[part] = self._predict(numpy.asarray(queries[part], dtype=numpy.float64))
        return predictions[:, 0] if self.one_output_ else predictions

    def weights(self, X: ArrayLike) -> Array:
        """How much each sample counts for each row of X, (n, samples of `fit`): predict(X) = weights(X) @ y."""
        queries = numpy.asarray(self._check_queries(X), dtype=numpy.float64)
        weights = numpy.zeros((len(queries), self.samples_.total))
        weights[:, self.samples_.order] = self._weights(queries, self.degree)
        return weights

    def window(self, X: ArrayLike) -> Window:
        """The samples that count for each row of X, as (effective, low, high).

        effective (n,): the effective number of samples, exp of the entropy of their weights. low, high: the ends of the
        interval that holds the middle 90 % of the weight, (n,) for one feature and (n, features) for several.
        """
        queries = self._check_queries(X)
        points = self.samples_.points
        effective = numpy.empty(len(queries))
        ends = numpy.empty((2, len(queries), points.shape[1]))
        orders = [numpy.argsort(points[:, d], kind="stable") for d in range(points.shape[1])]
        for part in _parts(len(queries), max(1, WEIGHTS // len(points))):
            weights = self._weights(numpy.asarray(queries[part], dtype=numpy.float64), degree=0)
            logs = numpy.log(weights, out=numpy.zeros_like(weights), where=weights > 0)
            effective[part] = numpy.exp(-(weights * logs).sum(1))
            for d, order in enumerate(orders):
                total = numpy.cumsum(weights[:, order], axis=1)
                for end, share in enumerate((0.05, 0.95)):
                    index = numpy.minimum((total < share).sum(1), len(points) - 1)
                    ends[end, part, d] = points[order[index], d]
            unknown = numpy.isnan(weights[:, 0])
            ends[:, part][:, unknown] = numpy.nan
        low, high = ends[..., 0] if points.shape[1] == 1 else ends
        return Window(effective, low, high)

    # ------------------------------------------------------------------------------------------------------- details

    def _predict(self, X: Array) -> Array:
        samples = self.samples_
        sums = samples.sums(self.kernel, self.bandwidth_, X, "linear" if self.degree else "average")
        predictions = (local_lines(sums, X.shape[1]) if self.degree else local_averages(sums)) + samples.mean
        missing = numpy.flatnonzero(numpy.isnan(predictions[:, 0]))
        if len(missing):
            self._refuse_empty(missing[0])
            if self.empty == "nearest":
                predictions[missing] = self._nearest_weights(X[missing]) @ samples.values
            elif self.empty == "mean":
                predictions[missing] = samples.mean
        return predictions

    def _weights(self, X: Array, degree: int) -> Array:
        samples = self.samples_
        score, mask = Kernel(self.kernel, self.bandwidth_.tolist()), bias(torch.from_numpy(samples.weights).log()[None])
        query, key = torch.tensor(X), torch.from_numpy(samples.points)  # a copy: X may be read-only
        sample_weights: Array = attention_weights(query, key, score=score, mask=mask).numpy()
        missing = numpy.flatnonzero(sample_weights.sum(1) == 0)
        if len(missing):
            self._refuse_empty(missing[0])
            if self.empty == "nearest":
                sample_weights[missing] = self._nearest_weights(X[missing]).toarray()
            else:
                sample_weights[missing] = samples.weights / samples.weights.sum() if self.empty == "mean" else numpy.nan
        return self._line_weights(X, sample_weights) if degree else sample_weights

    def _refuse_empty(self, row: int) -> None:
        if self.empty == "raise":
            raise ValueError(
                f"X: row {row} has no sample within the {self.kernel} kernel's bandwidth "
                f"{self.bandwidth_.tolist()}; fit with a larger one, or with empty='nearest'"
            )

    def _nearest_weights(self, X: Array) -> Any:
        """Sparse weights (n, samples): the nearest sample, or those that are equally near, by their weights."""
        from scipy import sparse
        from scipy.spatial import cKDTree

        samples = self.samples_
        points = samples.points / self.bandwidth_
        tree = cKDTree(points)
        distances, _ = tree.query(X / self.bandwidth_)
        nearest = tree.query_ball_point(X / self.bandwidth_, numpy.nextafter(distances, numpy.inf))
        rows = numpy.repeat(numpy.arange(len(X)), [len(indices) for indices in nearest])
        columns = numpy.concatenate([numpy.asarray(indices, dtype=numpy.int64) for indices in nearest])
        weights = sparse.csr_array((samples.weights[columns], (rows, columns)), shape=(len(X), len(points)))
        return sparse.diags_array(1 / weights.sum(1)) @ weights

    def _line_weights(self, X: Array, weights: Array) -> Array:
        """Weights of the local line: w_j (1 − mean(v) · cov(v)⁺ (v_j − mean(v)))."""
        for i in range(len(X)):
            v = (self.samples_.points - X[i]) / self.bandwidth_
            mean = weights[i] @ v
            covariance = (v - mean).T @ (weights[i][:, None] * (v - mean))
            scale = weights[i] @ (v * v).sum(1)
            if numpy.isfinite(scale) and numpy.trace(covariance) > 1e-9 * scale:
                weights[i] *= 1 - (v - mean) @ (numpy.linalg.pinv(covariance, rcond=1e-9, hermitian=True) @ mean)
        return weights

    def _choose_bandwidth(self, loss: LeaveOneOut) -> Array:
        samples = self.samples_
        features = samples.points.shape[1]
        if not isinstance(self.bandwidth, str):
            given = numpy.asarray(self.bandwidth, dtype=numpy.float64)
            if given.ndim > 1 or given.size not in (1, features):
                raise ValueError(
                    f"bandwidth: expected a number or {features}, one per feature, got shape {given.shape}"
                )
            return numpy.broadcast_to(given.reshape(-1), (features,)).copy()
        if len(samples.points) < 2:
            raise ValueError(
                f"bandwidth: {self.bandwidth!r} needs 2 samples or more, got n_samples = {len(samples.points)}; "
                "give it as a number"
            )
        self._check_spread(samples.points)
        if self.bandwidth == "silverman":
            return silverman(samples, self.kernel)
        if self.bandwidth == "gradient":
            return descend(loss, silverman(samples, self.kernel))
        return minimize_error(loss)

    def _check_spread(self, points: Array) -> None:
        for d in numpy.flatnonzero(points.max(0) == points.min(0)):
            names = getattr(self, "feature_names_in_", None)
            name = f"feature {d}" if names is None else f"feature {names[d]!r}"
            raise ValueError(
                f"X: {name} is constant (all samples are {points[0, d]:g}), so its bandwidth cannot be chosen; "
                "drop it, or give the bandwidth as numbers"
            )

    def _check_queries(self, X: ArrayLike) -> Any:
        """Two-dimensional, finite and as wide as in `fit`; a large memory map is checked part by part, not copied."""
        check_is_fitted(self)
        if isinstance(X, numpy.memmap) and X.ndim == 2 and len(X) > QUERIES:
            for part in _parts(len(X), QUERIES):
                validate_data(self, X[part], reset=False, dtype=numpy.float64)
            return X
        return validate_data(self, X, reset=False, dtype=numpy.float64)

    def check_parameters(self) -> None:
        """Raise ValueError or TypeError, naming the parameter, where one of them is wrong; `fit` does it first."""
        _check_choice("kernel", self.kernel, tuple(KERNELS))
        _check_choice("empty", self.empty, EMPTY)
        if isinstance(self.degree, bool) or self.degree not in (0, 1):
            raise ValueError(f"degree: expected 0 (local average) or 1 (local line), got {self.degree!r}")
        if isinstance(self.bandwidth, str):
            _check_choice("bandwidth", self.bandwidth, RULES, "a positive number, one per feature, or ")
            if self.bandwidth == "gradient" and self.kernel in WITHOUT_SLOPE:
                raise ValueError(
                    f"bandwidth: 'gradient' needs a kernel that falls with the distance, which {self.kernel} does not; "
                    "use 'loo'"
                )
            return
        try:
            given = numpy.asarray(self.bandwidth, dtype=numpy.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"bandwidth: expected a positive number, one per feature, or one of {', '.join(RULES)}, "
                f"got {self.bandwidth!r}"
            ) from error
        if isinstance(self.bandwidth, bool) or not given.size or not ((given > 0) & numpy.isfinite(given)).all():
            raise ValueError(f"bandwidth: expected positive, finite numbers, got {self.bandwidth!r}")


def _check_choice(name: str, given: object, allowed: tuple[str, ...], before: str = "") -> None:
    if not isinstance(given, str) or given not in allowed:
        raise ValueError(f"{name}: expected {before}one of {', '.join(allowed)}, got {given!r}")


def _parts(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))
