"""Nadaraya–Watson regression as a scikit-learn estimator: attention whose score is the log of a kernel."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from regard.kernel.compressed import merge_all
from regard.kernel.estimator import KernelEstimator
from regard.kernel.features import Rows, as_floats, check_span, indices_of, level_of, numbers_of, places_of
from regard.kernel.local import Array, Indices
from regard.kernel.parts import MergedSamples, compress_part, compress_parts, is_distributed, map_parts
from regard.kernel.samples import Samples
from regard.kernel.smoother import Smoother

AVERAGED = 200  # samples over which a partial dependence is averaged
WEIGHTS = 2e8  # weights that its band may take


class Interval(NamedTuple):
    """The ends of a band or of prediction intervals, each as `predict` gives the curve."""

    low: Array
    high: Array


class PartialDependence(NamedTuple):
    """The curve along one feature x (k,), averaged over the samples; low and high where a level was asked for."""

    x: Array
    average: Array
    low: Array | None
    high: Array | None


class KernelRegressor(RegressorMixin, MultiOutputMixin, KernelEstimator):
    """Kernel regression: the prediction is the average of the samples' values, weighted by a kernel of their distance.

    Parameters
    ----------
    kernel : str
        "gaussian", "laplace", "constant", "boxcar", "triangular", "epanechnikov", "biweight", "triweight", "tricube" or
        "cosine".
    bandwidth : float, array (features,) or str
        The kernel's width: a positive number, one per feature, or how to choose it. "loo" has the least leave-one-out
        squared error, "one_se" is the smoothest within a standard error of that, "aicc" has the least corrected AIC,
        "gradient" goes on from "loo" and from Silverman's rule down the error's gradient, "silverman" is the rule
        alone. For dates in days, or as a timedelta; for a category its λ, from 0 on. Infinity: the feature narrows
        nothing.
    empty : str
        What a query gets that has no sample within a compact kernel's reach: the value of the "nearest" sample, the
        "mean" of all, "nan", or "raise" a ValueError.
    degree : int
        0 for the local average, 1 for a local line, which does not flatten at the ends of the data, up to 3. Far
        outside the data, where the samples in reach are almost one, a local polynomial fades into their average; with
        several features so far that no prediction varies more than a sample's value does.
    counts : bool
        Whether sample weights are counts: a weight of 3 is three samples, of which leaving one out leaves two.
        Otherwise they say how much a sample matters, and copies of a row are one sample that matters more.
    product : bool
        Whether several features have a kernel each, whose product is taken, as in R's np, instead of one kernel of
        their distance. For the Gaussian that is the same.
    adaptive : bool
        Whether the bandwidth is a number of neighbours (or a share of the samples, below 1): at each query the kernel's
        width is the distance to the last of them, features being measured in their spreads.
    robust : int
        Iterations after each of which samples far from the curve count less; where the bandwidth is chosen, from the
        curve without them.
    block : int
        How many neighbours on each side (along x; with several features in the order of rows) are left out together
        with a sample when the bandwidth is chosen: for samples whose errors are correlated.
    categorical, ordered : "auto" or list of features
        Features with kernels for categories (Aitchison and Aitken's; Wang and van Ryzin's). "auto": text, bool and
        category columns of a frame.
    periodic : dict of feature to period
        Features that begin anew, as hours of a day; a period may be a timedelta.

    Attributes
    ----------
    bandwidth_ : ndarray (features,), or (outputs, features) where outputs want different ones
        An uninformative feature gets a very large value, whose size is not meaningful, and a constant one infinity.
    loo_error_ : float
        The mean squared error when every sample is predicted from the others. (Where that would cost more than 1e9
        pairs of samples, over as many of them as make so many.)
    loo_score_ : float
        The same as R², the share of the variance that is explained.

    Notes
    -----
    One feature costs O((n + m) log n); two or three under the Gaussian a grid of their range in widths, or every pair
    within reach, whichever is less; others every pair within reach. Memory does not grow with n m.

    Examples
    --------
    >>> import numpy as np, regard
    >>> x = np.linspace(0, 5, 50)
    >>> model = regard.KernelRegressor().fit(x[:, None], np.sin(x))
    >>> model.predict([[1.0]]).round(2)
    array([0.85])
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> KernelRegressor:
        """Keep the samples and choose the bandwidth.

        X and y may be Dask collections of one feature: then only sums of their parts come here (`partial_fit`).
        """
        self.check_parameters()
        if is_distributed(X) or is_distributed(y):
            self._begin_parts(X, sample_weight)
            self.one_output_: bool = numpy.ndim(y) == 1
            self._fit_merged(compress_parts(X, y))
            return self
        self._fit(*self._numbers(X, y, sample_weight), together=False)
        return self

    def _numbers(self, X: Any, y: Any, sample_weight: Any = None, reset: bool = True) -> tuple[Rows, Array, Array]:
        """Rows, values (n, outputs) and weights (n,); sets `one_output_`."""
        rows, y, weights = self._validate(X, y, sample_weight, reset, multi_output=True)
        if y.dtype.kind in "mM":
            raise TypeError(f"y: expected numbers, got {y.dtype}; count it in a unit: y / numpy.timedelta64(1, 'D')")
        values = as_floats(y, "y: expected numbers")
        if not numpy.isfinite(values).all():
            raise ValueError("y: expected finite numbers, got missing ones; drop those rows")
        if not reset and values.shape[1:] != (() if self.one_output_ else self.samples_.mean.shape):
            raise ValueError(f"y: expected the outputs of the samples before, got shape {values.shape}")
        self.one_output_ = values.ndim == 1
        values = values.reshape(len(values), -1)
        for output, column in enumerate(values.T):
            check_span("y" if self.one_output_ else f"y: output {output}", column)
        return rows, values, weights

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> KernelRegressor:
        """Go on from the samples before with these.

        Of one feature under the Gaussian kernel no more is kept than some megabytes: sums over narrow cells, and the
        samples of cells with few of them, from which sums are exact to rounding as long as the bandwidth is wider than
        two cells. The curve is that of `fit` with all samples, copies being counted; `weights`, `window` and `quantile`
        need the samples themselves. Otherwise all samples are kept.
        """
        self.check_parameters()
        before = getattr(self, "samples_", None)
        if isinstance(before, MergedSamples):
            self._refuse_parts()
        rows, values, weights = self._numbers(X, y, reset=before is None)
        unweighted = before is None or isinstance(before, MergedSamples) or bool((before.weights == 1).all())
        if self._needs_samples() is None and len(self.features_.kinds) == rows.points.shape[1] == 1 and unweighted:
            state = compress_part(rows.points, values)
            if isinstance(before, MergedSamples):
                state = before.state.merge(state)
            elif before is not None:
                state = compress_part(before.rows.points, before.values).merge(state)
            self._fit_merged(state)
        else:
            kept = rows, values, weights
            self._fit(*(kept if before is None else before.followed_by(*kept)), together=False)
        return self

    def merge(self, *others: KernelRegressor) -> KernelRegressor:
        """Go on from the samples of others that were fitted in parts like this one, as on several machines."""
        check_is_fitted(self)
        self.check_parameters()
        self._refuse_parts()
        samples = [getattr(model, "samples_", None) for model in (self, *others)]
        states = [part.state for part in samples if isinstance(part, MergedSamples)]
        if len(states) < len(samples):
            raise ValueError(
                "others: expected regressors that `partial_fit` has fitted to one feature, and so is this one"
            )
        features = [(*model.features_.kinds, *getattr(model, "feature_names_in_", [])) for model in (self, *others)]
        for feature in features:
            if feature[0] != features[0][0] or (len(feature) == len(features[0]) and feature != features[0]):
                raise ValueError(f"others: expected the same feature, {features[0]}, got {feature}")
        self._fit_merged(merge_all(states))
        return self

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = ...) -> Array: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Array, Array]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """The curve at each row of X, maybe a memory map larger than memory; if asked, with its standard error.

        For X of float32, several features are summed in float32 where that is faster.
        """
        if is_distributed(X):
            check_is_fitted(self)
            outputs = [*range(len(self.samples_.mean))]
            lazy: Array = map_parts(X, self.predict, "predicted" if self.one_output_ else outputs)
            if not return_std:
                return lazy
            errors: Array = map_parts(
                X, lambda part: self.predict(part, return_std=True)[1], "std" if self.one_output_ else outputs
            )
            return lazy, errors
        heights, deviations = [], []
        single = getattr(X, "dtype", None) == numpy.float32  # then its digits are all that is asked for
        for queries in self._by_parts(X):
            heights.append(numpy.hstack([smoother.predict(queries, single=single) for smoother in self.smoothers_]))
            if return_std:
                deviations.append(numpy.hstack([smoother.deviations(queries) for smoother in self.smoothers_]))
        predictions: Array = self._shaped(numpy.concatenate(heights))
        return (predictions, self._shaped(numpy.concatenate(deviations))) if return_std else predictions

    def interval(self, X: ArrayLike, level: float = 0.95, kind: Literal["curve", "prediction"] = "curve") -> Interval:
        """Where the curve lies at each row of X ("curve"), or a new value ("prediction"), with this probability.

        The curve's band is corrected for its bias: it is that of a local polynomial of a higher degree, and need not be
        centred on `predict`, as prediction intervals are. Both rest on the leave-one-out errors, whose size may change
        with X; where the curve goes through all samples, and they tell no noise, intervals are infinite.
        """
        level = level_of(level)
        if kind not in ("curve", "prediction"):
            raise ValueError(f"kind: expected 'curve' or 'prediction', got {kind!r}")
        queries = self._queries(X)
        ends = [smoother.interval(queries, level, kind == "prediction") for smoother in self.smoothers_]
        return Interval(*(self._shaped(numpy.hstack(end)) for end in zip(*ends, strict=True)))

    def derivative(self, X: ArrayLike) -> Array:
        """The slope of the curve by each feature, (n, features), with several outputs (n, features, outputs).

        Per day for dates; NaN for categories, which have no slope.
        """
        slopes = self._slopes(self._queries(X))
        return slopes[:, :, 0] if self.one_output_ else slopes

    def marginal_effects(self, X: ArrayLike | None = None) -> Array:
        """The mean slope by each feature over the rows of X, or the samples: (features,) or (features, outputs)."""
        if X is not None:
            return numpy.asarray(self.derivative(X).mean(0))
        check_is_fitted(self)
        slopes = numpy.average(self._slopes(self.samples_.rows), axis=0, weights=self.samples_.weights)
        return slopes[:, 0] if self.one_output_ else slopes

    def _slopes(self, queries: Rows) -> Array:
        slopes = numpy.full((len(queries.points), len(self.features_.kinds), len(self.samples_.mean)), numpy.nan)
        by_output = [smoother.derivative(queries) for smoother in self.smoothers_]
        slopes[:, self.features_.continuous] = numpy.concatenate(by_output, axis=2)
        return slopes

    def partial_dependence(
        self, feature: int | str, x: ArrayLike | None = None, level: float | None = None
    ) -> PartialDependence:
        """The curve along one feature, averaged over what the samples are in the others.

        x: where, in units of the feature (days for dates, or dates), 101 points of its range unless given. level: of a
        band for the average. For one output, and for a feature that is not a category.
        """
        check_is_fitted(self)
        index, kinds = self._feature(feature), self.features_.kinds
        level = None if level is None else level_of(level)
        smoother = self._one_smoother("partial_dependence", summed=len(kinds) == 1)
        samples = smoother.samples
        if x is None:
            at = numpy.linspace(samples.bounds[0][index], samples.bounds[1][index], 101)
        else:
            at = places_of("x", x, kinds[self.features_.continuous[index]])
        if len(kinds) == 1:
            queries = Rows(samples.nearer(at[:, None]), numpy.empty((len(at), 0)))
            ends = (None, None) if level is None else (end[:, 0] for end in smoother.interval(queries, level, False))
            return PartialDependence(at, smoother.predict(queries)[:, 0], *ends)
        chosen = samples.choose(AVERAGED)
        heights = smoother.predict(_moved(samples, chosen, index, at))[:, 0].reshape(len(at), -1)
        average = numpy.average(heights, axis=1, weights=samples.weights[chosen])
        if level is None:
            return PartialDependence(at, average, None, None)
        reach = stats.norm.ppf((1 + level) / 2) * self._average_deviation(smoother, index, at)
        return PartialDependence(at, average, average - reach, average + reach)

    def _average_deviation(self, smoother: Smoother, index: int, at: Array) -> Array:
        """The standard error (k,) of a partial dependence: Σ_j (mean weight of sample j)² · variance of its noise."""
        samples = smoother.samples
        chosen = samples.choose(max(10, min(AVERAGED, int(WEIGHTS / (len(at) * len(samples))))))
        noise = smoother.noise.deviation(samples.rows)[:, 0] ** 2 * samples.squared_weights / samples.weights**2  # (m,)
        variances = []
        for position in at:
            queries = _moved(samples, chosen, index, numpy.array([position]))
            weights = smoother.weights(queries, smoother.degree)
            mean = numpy.average(weights, axis=0, weights=samples.weights[chosen])
            variances.append(float(mean**2 @ noise))
        return numpy.sqrt(variances)

    def quantile(self, X: ArrayLike, q: ArrayLike = 0.5) -> Array:
        """Conditional quantiles: y below which a share q of the weight lies, (n,), or (n, k) for k shares."""
        shares = numbers_of("q", q, "shares from 0 to 1", lambda share: (share >= 0) & (share <= 1))
        smoother, queries = self._one_smoother("quantile"), self._queries(X)
        values = smoother.samples.values[:, 0]
        order = numpy.argsort(values)
        quantiles = numpy.empty((len(queries.points), *shares.shape))
        for part, weights in smoother.parts_of_weights(queries):
            total = numpy.cumsum(weights[:, order], axis=1)
            for k, share in numpy.ndenumerate(shares):
                index = (total < share * total[:, -1:] * (1 - 1e-12)).sum(1)
                quantiles[(part, *k)] = values[order[numpy.minimum(index, len(order) - 1)]]
            quantiles[part][numpy.isnan(weights[:, 0])] = numpy.nan
        return quantiles

    def distribution(self, X: ArrayLike, y: ArrayLike) -> Array:
        """The conditional probability of a value of at most y, (n,), or (n, k) for k of them."""
        bounds = numbers_of("y", y, "one number or more, not NaN", lambda bound: ~numpy.isnan(bound))
        smoother, queries = self._one_smoother("distribution"), self._queries(X)
        below = smoother.samples.values[:, :1] <= bounds.reshape(1, -1)  # (m, k)
        probabilities = numpy.concatenate([weights @ below for _, weights in smoother.parts_of_weights(queries)])
        return probabilities[:, 0] if bounds.ndim == 0 else probabilities

    def _shaped(self, columns: Array) -> Array:
        return columns[:, 0] if self.one_output_ else columns

    def _one_smoother(self, method: str, summed: bool = False) -> Smoother:
        """The smoother of the only output; summed: sums of the samples will do."""
        smoother = self.smoothers_[0] if summed else self._smoother_of_samples(method)
        if len(self.samples_.mean) != 1:
            raise ValueError(f"{method}: expected a regression of one output, got {len(self.samples_.mean)}")
        return smoother

    def _feature(self, feature: int | str) -> int:
        """The index among the continuous features."""
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        (index,) = indices_of("feature", [feature], names or None, len(self.features_.kinds))
        if index in self.features_.categorical:
            raise ValueError(f"feature: expected one that is not a category, got {feature!r}")
        return self.features_.continuous.index(index)


def _moved(samples: Samples, chosen: Indices, index: int, at: Array) -> Rows:
    """The chosen samples (r) with one feature at each of k places in turn, (k · r)."""
    rows = samples.rows.take(chosen)
    points = numpy.tile(rows.points, (len(at), 1))
    points[:, index] = numpy.repeat(at, len(chosen))
    return Rows(samples.nearer(points), numpy.tile(rows.labels, (len(at), 1)))
