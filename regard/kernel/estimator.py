"""What regressor and classifier share: the parameters, the samples, and the choice of the bandwidth."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from regard.attention.kernels import KERNELS
from regard.kernel.bandwidth import WITHOUT_SLOPE, Loss, choose_widths, largest_shares, round_widths
from regard.kernel.compressed import Compressed
from regard.kernel.features import (
    LARGEST_SPAN,
    SMALLEST_SPAN,
    Features,
    Rows,
    check_span,
    days_of,
    in_memory,
    is_duration,
)
from regard.kernel.local import Array
from regard.kernel.parts import MergedSamples, feature_of, is_distributed
from regard.kernel.pyramid import mean_error, scan_by
from regard.kernel.samples import Samples, Weighing
from regard.kernel.smoother import Smoother, parts, quantile

RULES = ("loo", "one_se", "aicc", "gradient", "silverman")
CHOICES = {"kernel": tuple(KERNELS), "empty": ("nearest", "mean", "nan", "raise")}
COUNTS = {  # parameters that are whole numbers: up to which, and what they are
    "degree": (3, "0 (local average) to 3 (local cubic)"),
    "robust": (100, "a number of iterations"),
    "block": (math.inf, "a number of neighbours on each side"),
}
QUERIES = 1 << 20  # that are answered at once: what they need in memory stays below 100 MB
PAIRS = 1e9  # of samples over which `loo_error_` is taken, where errors cost pairs
NARROWEST = 1e-100  # ranges of the samples
FEW = 5.0  # effective samples of a window that hardly averages
FEWEST = 100  # samples from which on that is no accident
CORRELATED, SMOOTH = 2.0, 25.0  # between them the growth of an error is taken for a sign of correlation


class BandwidthWarning(UserWarning):
    """The bandwidth that was chosen may not mean what it seems to."""


class Window(NamedTuple):
    """Per query: the effective number of samples, and the interval of each feature with 90 % of the weight.

    effective (n,) · low and high (n,) for one feature, (n, features) for several; NaN for categories.
    """

    effective: Array
    low: Array
    high: Array


@dataclass(eq=False, repr=False)  # scikit-learn reads the parameters off the constructor that this makes
class KernelEstimator(BaseEstimator):
    """The parameters, samples and smoothers of KernelRegressor and KernelClassifier."""

    kernel: str = "gaussian"
    bandwidth: float | ArrayLike | str = "loo"
    _: KW_ONLY
    empty: str = "nearest"
    degree: int = 0
    counts: bool = False
    product: bool = False
    adaptive: bool = False
    robust: int = 0
    block: int = 0
    categorical: str | Sequence[int | str] = "auto"
    ordered: str | Sequence[int | str] = "auto"
    periodic: Mapping[int | str, Any] | None = None

    def weights(self, X: ArrayLike) -> Array:
        """How much each sample counts for each row of X, (n, samples of `fit`): predict(X) = weights(X) @ y.

        Where outputs have bandwidths of their own, or robust iterations have changed the weights, of the first output.
        """
        smoother = self._smoother_of_samples("weights")
        samples = smoother.samples
        by_sample = smoother.weights(self._queries(X), smoother.degree)
        weights = numpy.zeros((len(by_sample), samples.total))
        weights[:, samples.given] = by_sample[:, samples.part_of] * samples.share
        return weights

    def window(self, X: ArrayLike) -> Window:
        """The samples that count for each row of X, as (effective, low, high).

        effective (n,): the effective number of samples, exp of the entropy of their weights. low, high: the ends of the
        interval that holds the middle 90 % of the weight, (n,) for one feature and (n, features) for several. That of a
        periodic feature is about the row, and may reach beyond the period.
        """
        queries = self._queries(X)
        effective, ends = self._smoother_of_samples("window").windows(queries)
        whole = numpy.full((2, len(effective), len(self.features_.kinds)), numpy.nan)
        whole[:, :, self.features_.continuous] = ends
        low, high = whole[..., 0] if whole.shape[2] == 1 else whole
        return Window(effective, low, high)

    def _smoother_of_samples(self, method: str) -> Smoother:
        """The smoother of the first output, where its samples are known one by one."""
        check_is_fitted(self)
        if isinstance(self.samples_, MergedSamples):
            raise ValueError(f"{method}: needs the samples, of which a fit in parts keeps only the sums")
        return self.smoothers_[0]

    # --------------------------------------------------------------------------------------------------------- fitting

    def _validate(
        self, X: Any, y: Any, sample_weight: Any = None, reset: bool = True, **options: Any
    ) -> tuple[Rows, Any, Array]:
        """Rows, y and weights; sets `features_`, unless these rows follow others."""
        X, y = in_memory("X", X), in_memory("y", y)
        if reset:
            self.features_ = Features.of(X, self.categorical, self.ordered, self.periodic)
        else:
            self.features_.learn(X)
        table, y = validate_data(self, self._table(X, reset), y, reset=reset, dtype=numpy.float64, **options)
        if len(self.features_.kinds) != table.shape[1]:  # X was of a kind that only scikit-learn could read
            self.features_ = Features.of(table, self.categorical, self.ordered, self.periodic)
        weights = in_memory("sample_weight", sample_weight)
        weights = _check_sample_weight(weights, table, dtype=numpy.float64, ensure_non_negative=True)
        if self.counts and (weights != numpy.floor(weights)).any():
            raise ValueError("sample_weight: expected whole numbers, because counts=True, got fractions")
        if not self.counts and not SMALLEST_SPAN < weights.max() < LARGEST_SPAN:
            weights = weights / weights.max()  # only ratios count, and squares are needed
        if self.adaptive and not self.features_.continuous:
            raise ValueError("adaptive: expected a feature that is not a category, of which neighbours could be near")
        rows = self.features_.rows(table)
        names = getattr(self, "feature_names_in_", None)
        for index, column in zip(self.features_.continuous, rows.points.T, strict=True):
            check_span(f"X: feature {index if names is None else repr(str(names[index]))}", column)
        return rows, y, weights

    def _fit(self, rows: Rows, values: Array, weights: Array, *, together: bool) -> None:
        """Choose the bandwidth, one for all outputs together or one each, and keep the smoothers."""
        weighing = Weighing(self.kernel, self.product, self.adaptive, self.block)
        samples = self.samples_ = Samples(rows, values, weights, self.features_, weighing, self.counts)
        outputs = values.shape[1]
        apart = isinstance(self.bandwidth, str) and self.bandwidth != "silverman" and outputs > 1 and not together
        subjects = [samples.with_output(output) for output in range(outputs)] if apart else [samples]
        self.smoothers_ = [self._smoother(subject) for subject in subjects]
        widths = numpy.stack([smoother.widths for smoother in self.smoothers_])
        self.bandwidth_ = widths if (widths != widths[0]).any() else widths[0]
        self._measure()

    def _smoother(self, samples: Samples) -> Smoother:
        """The smoother of these samples; robust iterations choose again after samples far from the curve count less."""
        base = samples
        for iteration in range(self.robust + 1):
            loss = Loss(samples, self.degree, self.empty, pairs=PAIRS)
            smoother = Smoother(samples, self._widths(loss), self.degree, self.empty)
            if iteration < self.robust:
                samples = base.reweighed(_bisquare(self._residuals(smoother), base.copies))
        return smoother

    def _residuals(self, smoother: Smoother) -> Array:
        """How far each sample is from the curve; from that without it, where outliers may have chosen the bandwidth.

        The narrow window that they choose goes through them.
        """
        if isinstance(self.bandwidth, str):
            return smoother.loss(numpy.inf).errors(smoother.widths)
        return smoother.predict(smoother.samples.rows) - smoother.samples.values

    def _measure(self) -> None:
        """Sets `loo_error_` and `loo_score_`, and warns of what makes them meaningless."""
        if len(self.samples_) < 2 and self.samples_.count < 2:
            self._set_errors(numpy.nan, numpy.nan)
            return
        errors, variances = [], []
        for smoother in self.smoothers_:
            loss = smoother.loss(PAIRS)
            errors.append(loss(smoother.widths))
            variances.append(loss.samples.variance)
            if isinstance(self.bandwidth, str) and self.bandwidth != "silverman":
                _warn_of_correlation(loss, smoother, errors[-1])
        self._set_errors(float(numpy.mean(errors)), float(numpy.mean(variances)))

    def _set_errors(self, error: float, variance: float) -> None:
        self.loo_error_ = error
        self.loo_score_ = 1 - error / variance if variance > 0 else numpy.nan

    def _widths(self, loss: Loss) -> Array:
        if not isinstance(self.bandwidth, str):
            return self._given_widths(loss.samples)
        rows = len(loss.samples.given)  # of weight; where they are all copies, any bandwidth is as good
        if rows < 2:
            raise ValueError(
                f"bandwidth: {self.bandwidth!r} needs 2 samples or more, got n_samples = {rows}; give it as a number"
            )
        if 0 < len(loss.samples) - 1 <= self.block and self.bandwidth != "silverman":
            raise ValueError(f"block: expected less than n_samples - 1 = {len(loss.samples) - 1}, got {self.block}")
        return choose_widths(loss, self.bandwidth)

    def _given_widths(self, samples: Samples) -> Array:
        """The widths that were given, one per feature; refused where they cannot mean anything."""
        given = _numbers(self.bandwidth)
        features = samples.features
        if not given.all() and (self.adaptive or not features.categorical):
            raise ValueError(f"bandwidth: expected positive numbers, got {self.bandwidth!r}")
        if self.adaptive:
            if given.size != 1:
                raise ValueError(f"bandwidth: expected one number of neighbours, got {given.size}")
            return numpy.array([max(2.0, numpy.ceil(given[0] * samples.copies.sum() if given[0] < 1 else given[0]))])
        count = len(features.kinds)
        if given.ndim > 1 or given.size not in (1, count):
            raise ValueError(f"bandwidth: expected a number or {count}, one per feature, got shape {given.shape}")
        if given.size < count and features.categorical:
            raise ValueError(f"bandwidth: expected {count} numbers, one per feature, because some are categories")
        widths = numpy.broadcast_to(given, (count,)).copy()
        bandwidths: Any = self.bandwidth if numpy.ndim(self.bandwidth) else [self.bandwidth]
        for index, (width, kind) in enumerate(zip([*bandwidths] * (count // given.size), features.kinds, strict=True)):
            if is_duration(width) and kind not in ("date", "duration"):
                raise TypeError(f"bandwidth: expected a number for feature {index}, which has no dates, got {width!r}")
        for index, largest in zip(features.categorical, largest_shares(samples), strict=True):
            if widths[index] > largest + 1e-12:
                raise ValueError(
                    f"bandwidth: expected a λ from 0 to {largest:.4g}, at which all categories of feature {index} "
                    f"count the same, got {widths[index]:g}"
                )
        narrow = numpy.flatnonzero(widths[features.continuous] < NARROWEST * samples.spans)
        if len(narrow):
            index = features.continuous[narrow[0]]
            raise ValueError(
                f"bandwidth: {widths[index]:g} is too narrow for feature {index}, whose samples span "
                f"{samples.spans[narrow[0]]:.3g}: no distance could be measured in it"
            )
        return widths

    def _needs_samples(self) -> str | None:
        """The parameter, if any, for which sums over cells do not do."""
        plain = {"kernel": "gaussian", "adaptive": False, "robust": 0, "block": 0, "periodic": None}
        plain |= {"categorical": "auto", "ordered": "auto"}
        changed = [name for name, value in plain.items() if (getattr(self, name) or value) != value]
        rule = isinstance(self.bandwidth, str) and self.bandwidth not in ("loo", "aicc")
        return next(iter([*changed, *(["bandwidth"] if rule else [])]), None)

    def _begin_parts(self, X: Any, sample_weight: Any) -> None:
        """Sets what is known of a Dask collection of one feature, and refuses what needs all of it at once."""
        if sample_weight is not None:
            raise ValueError("sample_weight: a fit in parts knows none; repeat the rows")
        self.features_, names = feature_of(X)
        self.n_features_in_ = 1
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = numpy.array(names, dtype=object)
        self._refuse_parts()

    def _refuse_parts(self) -> None:
        """Refuse parameters for which sums over cells do not do."""
        reason = self._needs_samples()
        if reason is not None:
            raise ValueError(
                f"{reason}: a fit in parts knows only the Gaussian kernel on one feature that is not periodic, with a "
                f"bandwidth that is given, 'loo' or 'aicc'; got {reason}={getattr(self, reason)!r}"
            )

    def _fit_merged(self, state: Compressed) -> None:
        """Choose the bandwidth of samples that came in parts."""
        if not state.size:
            raise ValueError("X: expected one sample or more, got parts without rows")
        check_span("X", numpy.array([state.low, state.high]))
        samples = self.samples_ = MergedSamples(state, self.features_)
        if isinstance(self.bandwidth, str):
            widths = round_widths(numpy.array([scan_by(self.bandwidth, samples.pyramid, self.degree)]))
        else:
            widths = self._given_widths(samples)
        if widths[0] < state.narrowest:
            warnings.warn(
                f"the bandwidth {widths[0]:.4g} is narrower than the {state.narrowest:.4g} for which the sums that are "
                "kept of the samples are exact; the curve is smoothed by about as much",
                BandwidthWarning,
                stacklevel=3,
            )
        self.bandwidth_ = widths
        self.smoothers_ = [Smoother(samples, widths, self.degree, self.empty)]
        error = samples.pyramid.error(float(widths[0]), self.degree)
        self._set_errors(mean_error(error), float(state.variance.mean()))

    # --------------------------------------------------------------------------------------------------------- queries

    def _queries(self, X: Any) -> Rows:
        check_is_fitted(self)
        if is_distributed(X):
            raise TypeError(
                "X: a Dask collection would be pulled into memory; ask part by part, as in X.map_partitions(…), or use "
                "predict, which does"
            )
        table = validate_data(self, self._table(in_memory("X", X)), reset=False, dtype=numpy.float64)
        points, labels = self.features_.rows(table)
        return Rows(self.samples_.nearer(points), labels)

    def _table(self, X: Any, reset: bool = False) -> Any:
        """X with numbers alone; unless this is the first of it, with the features of before."""
        return self.features_.numbers(X, None if reset else getattr(self, "feature_names_in_", None))

    def _by_parts(self, X: Any) -> Iterator[Rows]:
        """The queries, a million at a time; a large memory map is checked part by part, not copied."""
        check_is_fitted(self)
        large = isinstance(X, numpy.memmap) and X.ndim == 2 and len(X) > QUERIES
        queries = Rows(X, X) if large else self._queries(X)
        for part in parts(len(queries.points), QUERIES):
            yield self._queries(X[part]) if large else queries.take(part)

    # ------------------------------------------------------------------------------------------------------ parameters

    def check_parameters(self) -> None:
        """Raise ValueError or TypeError, naming the parameter, where one of them is wrong; `fit` does it first."""
        for name, choices in CHOICES.items():
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in choices:
                raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name, (highest, words) in COUNTS.items():
            number = getattr(self, name)
            whole = isinstance(number, int | numpy.integer) and not isinstance(number, bool)
            if not whole or not 0 <= number <= highest:
                raise ValueError(f"{name}: expected {words}, got {number!r}")
        for name in ("counts", "product", "adaptive"):
            if not isinstance(getattr(self, name), bool | numpy.bool_):
                raise TypeError(f"{name}: expected True or False, got {getattr(self, name)!r}")
        expected = f"bandwidth: expected a positive number, one per feature, or one of {', '.join(RULES)}"
        if isinstance(self.bandwidth, str):
            if self.bandwidth not in RULES:
                raise ValueError(f"{expected}, got {self.bandwidth!r}")
            if self.bandwidth == "gradient" and self.kernel in WITHOUT_SLOPE:
                raise ValueError(
                    f"bandwidth: 'gradient' needs a kernel that falls with the distance, which {self.kernel} does not; "
                    "use 'loo'"
                )
            return
        try:
            given = _numbers(self.bandwidth)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{expected}, got {self.bandwidth!r}") from error
        if isinstance(self.bandwidth, bool) or not given.size or not (given >= 0).all():  # a category's λ may be 0
            raise ValueError(f"bandwidth: expected positive numbers, got {self.bandwidth!r}")


def _bisquare(errors: Array, counts: Array) -> Array:
    """Cleveland's weights (n,) of errors (n, outputs), so many times each: 0 from six times the median size on."""
    sizes = numpy.abs(errors).max(1)
    scale = 6 * float(quantile(sizes[:, None], counts, 0.5)[0])
    if scale == 0:
        return numpy.ones(len(sizes))
    weights: Array = numpy.square(numpy.clip(1 - (sizes / scale) ** 2, 0, None))
    # A sample of weight 0 would have no place in the order of samples; fourth powers of errors times this are nothing.
    return numpy.maximum(weights, 1e-60)


def _warn_of_correlation(loss: Loss, smoother: Smoother, error: float) -> None:
    """Of one feature: where a window of few samples explains much that is lost when neighbours are left out too.

    Without noise that would be right, but then the error grows with the fourth power of the distance and not slowly.
    """
    samples, kernel = loss.samples, loss.samples.weighing.kernel
    if not samples.on_a_line or samples.weighing != Weighing(kernel) or len(samples) < FEWEST:
        return
    effective = float(numpy.median(smoother.windows(samples.rows.take(samples.choose(200)))[0]))
    if effective > FEW or error == 0:
        return
    blocked = Loss(samples.weighed(Weighing(kernel, block=3)), loss.degree, loss.empty)
    growth = blocked(smoother.widths) / error
    alone = numpy.diff(samples.rows.points[:, 0], prepend=-numpy.inf, append=numpy.inf) > 0
    tied = 1 - float(numpy.mean(alone[1:] & alone[:-1] & ~((samples.weights > 1) & samples.counts)))
    if CORRELATED < growth < SMOOTH or (growth > CORRELATED and tied > 0.5):
        warnings.warn(
            f"leave-one-out has chosen a window in which about {effective:.1f} samples count, and its error is "
            f"{growth:.3g} times as large if three neighbours on each side are left out as well: neighbouring samples "
            "seem to be correlated or repeated, and the curve follows their noise; try block=10 or more, "
            "bandwidth='one_se', or give the bandwidth",
            BandwidthWarning,
            stacklevel=5,
        )


def _numbers(bandwidth: Any) -> Array:
    """One number or several, or durations in days."""
    widths = bandwidth if numpy.ndim(bandwidth) else [bandwidth]
    return numpy.array([days_of(width) for width in widths], dtype=numpy.float64)
