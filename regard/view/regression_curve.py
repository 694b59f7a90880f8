"""A kernel regression along one feature: its curve, band and window, in the units that X has before any pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from regard.kernel import KernelRegressor
from regard.kernel.estimator import Window
from regard.kernel.features import columns_of, in_days, in_memory, kind_of
from regard.kernel.regressor import Interval
from regard.view.marks import short

Array = NDArray[numpy.float64]

POINTS = 301  # of a curve of one feature
AVERAGED_POINTS = 101  # of a curve that is averaged over the samples' other features
AVERAGED = 200  # samples over which it is averaged, where a pipeline mixes features
CELLS = 100  # rows and columns of a heat map; with more samples, neighbours share a column
MICROSECONDS = 86_400_000_000  # of a day
DURATIONS = (("days", 1.0), ("hours", 1 / 24), ("minutes", 1 / 1440))


@dataclass(frozen=True)
class Chain:
    """A fitted KernelRegressor, and what transforms features on their way to it."""

    regressor: KernelRegressor
    transformers: tuple[Any, ...] = ()

    def transform(self, X: Any) -> Any:
        """X as the regressor gets it."""
        for transformer in self.transformers:
            X = transformer.transform(X)
        return X


@dataclass(frozen=True, eq=False)
class Curve:
    """A regressor along one feature.

    x, predicted (points,); band: the confidence band, (low, high), if there is one
    bandwidth: in units of x, where a pipeline does not bend them

    Its window and its weights are computed when they are asked for: which samples count at each x, where the other
    features are as in the typical row.
    chain, index: the regressor, and which feature; queries: rows of X; inner (points,): what x is to the regressor;
    None: it has no order there, and so neither window nor weights
    """

    x: Array
    predicted: Array
    bandwidth: float
    band: Interval | None
    chain: Chain = field(repr=False)
    index: int
    queries: Any = field(repr=False)
    inner: Array | None = field(repr=False)

    @cached_property
    def window(self) -> Window:
        """The effective number of samples, and the interval with 90 % of the weight, at each x."""
        inner = self._need_inner()
        effective, low, high = self.chain.regressor.window(self.chain.transform(self.queries))
        ends = (end if end.ndim == 1 else end[:, self.index] for end in (low, high))
        return Window(effective, *(self._outer(end, inner) for end in ends))

    @cached_property
    def heat_map(self) -> tuple[Array, Array]:
        """Weights (CELLS, columns) of samples, or groups of neighbours, and the edges (columns + 1,) of the columns."""
        inner, regressor = self._need_inner(), self.chain.regressor
        smoother = regressor.smoothers_[0]
        position = regressor.features_.continuous.index(self.index)
        points = self._outer(smoother.samples.rows.points[:, position], inner)
        groups = numpy.array_split(numpy.argsort(points, kind="stable"), min(CELLS, len(points)))
        chosen = numpy.linspace(0, len(self.x) - 1, CELLS).astype(int)
        rows = regressor._queries(self.chain.transform(self.queries)).take(chosen)
        weights = numpy.empty((CELLS, len(groups)))
        for part, by_sample in smoother.parts_of_weights(rows):
            weights[part] = numpy.stack([by_sample[:, group].sum(1) for group in groups], axis=1)
        # Where the groups begin and end; samples at one place still get a column of a visible width.
        middles = numpy.array([points[group].mean() for group in groups])
        edges = numpy.concatenate([[points.min()], (middles[1:] + middles[:-1]) / 2, [points.max()]])
        least = 1e-6 * max(float(numpy.ptp(points)), 1e-12)
        return weights, numpy.maximum.accumulate(edges) + least * numpy.arange(len(edges))

    def _need_inner(self) -> Array:
        if self.inner is None:
            raise ValueError(
                'kind: expected "curve", because the pipeline mixes features or leaves no order among their values, '
                "so that a window has no place on x"
            )
        return self.inner

    def _outer(self, points: Array, inner: Array) -> Array:
        """In units of X again; samples beyond the curve's ends go on as straight as it ends."""
        if inner is self.x:
            return points
        outer = numpy.interp(points, inner, self.x)
        for end, step in ((0, 1), (-1, -2)):
            beyond = points < inner[0] if end == 0 else points > inner[-1]
            slope = (self.x[step] - self.x[end]) / (inner[step] - inner[end])
            outer[beyond] = self.x[end] + slope * (points[beyond] - inner[end])
        return outer


def unwrap(name: str, estimator: Any) -> Chain:
    """A KernelRegressor, a pipeline that ends in one, or a search over either. name: of the argument."""
    transformers: list[Any] = []
    last = estimator
    while not isinstance(last, KernelRegressor):
        if hasattr(last, "steps"):
            transformers += [step for _, step in last.steps[:-1] if step not in (None, "passthrough")]
            last = last.steps[-1][1]
        elif hasattr(last, "best_estimator_"):
            last = last.best_estimator_
        elif hasattr(last, "param_distributions") or hasattr(last, "param_grid"):
            check_is_fitted(last)
            raise TypeError(f"{name}: expected a search with refit=True, got {last!r}")
        else:
            raise TypeError(
                f"{name}: expected a fitted KernelRegressor, a pipeline that ends in one, or a search over them, "
                f"got {type(last).__name__}"
            )
    check_is_fitted(last)
    return Chain(last, tuple(transformers))


@dataclass(frozen=True, eq=False)
class Inputs:
    """X as it was given, a frame or an array, and its columns as numbers.

    points (n, features): dates are days since 1970-01-01, categories NaN; dates, categories: which columns are such
    """

    X: Any
    names: tuple[str, ...] | None
    points: Array
    dates: tuple[bool, ...]
    categories: tuple[bool, ...]

    @staticmethod
    def of(X: ArrayLike) -> Inputs:
        """Of a pandas or polars frame, or of an array."""
        given: Any = in_memory("X", X)
        if not hasattr(given, "iloc"):
            given = numpy.asarray(given)
            if given.ndim != 2 or not len(given):
                raise ValueError(f"X: expected rows of features, (n, features), got shape {given.shape}")
            given = given if given.dtype.kind == "M" else given.astype(numpy.float64)
        columns, names = columns_of(given)
        dates = tuple(kind_of(column) == "date" for column in columns)
        categories = tuple(kind_of(column) in ("category", "ordered") for column in columns)
        points = numpy.full((len(given), len(columns)), numpy.nan)
        for index, column in enumerate(columns):
            if not categories[index]:
                points[:, index] = in_days(column, "date") if dates[index] else numpy.asarray(column, float)
        return Inputs(given, None if names is None else tuple(names), points, dates, categories)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def features(self) -> int:
        """How many columns there are."""
        return int(self.points.shape[1])

    def feature(self, feature: int | str) -> tuple[int, str]:
        """The index and the name of a feature, given by either."""
        if isinstance(feature, str):
            if self.names is None or feature not in self.names:
                known = "a number, as the estimator knows no names"
                known = known if self.names is None else f"one of {', '.join(self.names)}"
                raise ValueError(f"feature: expected {known}, got {feature!r}")
            return self.names.index(feature), feature
        if not 0 <= feature < self.features:
            raise ValueError(f"feature: expected a number from 0 to {self.features - 1}, got {feature}")
        return feature, self.names[feature] if self.names else "x" if self.features == 1 else f"x{feature}"

    def take(self, rows: Any) -> Any:
        """Rows of X, in its own type."""
        return self.X[rows] if self.names is None else self.X.iloc[rows]

    def levels(self, index: int) -> list[Any]:
        """The categories of a column."""
        column = self.X.iloc[:, index]
        return list(column.cat.categories) if hasattr(column, "cat") else sorted(column.unique(), key=str)

    def positions(self, index: int) -> Array:
        """Where the rows are on the axis of a column; those of a category beside each other."""
        if not self.categories[index]:
            return self.points[:, index]
        numbers = {level: number for number, level in enumerate(self.levels(index))}
        beside = 0.6 * (0.618034 * numpy.arange(len(self)) % 1 - 0.5)  # spread evenly, and always the same
        return numpy.asarray([numbers[value] for value in self.X.iloc[:, index]] + beside, dtype=numpy.float64)

    def moved(self, rows: NDArray[numpy.int64], index: int, values: Any) -> Any:
        """These rows, with other values in one column: days where it has dates."""
        if self.dates[index]:
            values = numpy.round(numpy.asarray(values) * MICROSECONDS).astype("datetime64[us]")
        if self.names is None:
            moved = self.X[rows]
            moved[:, index] = values
            return moved
        moved = self.X.iloc[rows].reset_index(drop=True)
        column = type(moved.iloc[:, index])(values, name=moved.columns[index])
        dtype = self.X.dtypes.iloc[index]
        moved.isetitem(index, column.astype(dtype) if self.categories[index] else column)
        return moved

    @cached_property
    def typical(self) -> int:
        """The row that is nearest to the medians of all numbers, in spreads."""
        numbers = self.points[:, [not category for category in self.categories]]
        if not numbers.shape[1]:
            return 0
        spread = numpy.maximum(numbers.std(0), 1e-300)
        distances = (((numbers - numpy.median(numbers, axis=0)) / spread) ** 2).sum(1)
        return int(numpy.argmin(distances))


def evenly(count: int, most: int) -> NDArray[numpy.int64]:
    """Indices of at most so many of `count` things, at even distances."""
    return numpy.unique(numpy.linspace(0, count - 1, min(count, most)).astype(numpy.int64))


# ----------------------------------------------------------------------------------------------------- along a feature


def curve_along(chain: Chain, inputs: Inputs, index: int, level: float | None = None, x: Array | None = None) -> Curve:
    """The regressor along one feature: its curve, or the average over what the samples are in the other features.

    level: of the confidence band, which is left out where a pipeline mixes several features. x: where, in units of X;
    of dates days since 1970-01-01, of categories their numbers.
    """
    regressor, categories = chain.regressor, inputs.levels(index) if inputs.categories[index] else None
    if x is None and categories is not None:
        x = numpy.arange(len(categories), dtype=numpy.float64)
    elif x is None:
        ends = inputs.points[:, index].min(), inputs.points[:, index].max()
        x = numpy.linspace(*ends, POINTS if inputs.features == 1 else AVERAGED_POINTS)
    values = x if categories is None else [categories[int(number)] for number in x]
    at_typical = inputs.moved(numpy.full(len(x), inputs.typical), index, values)
    inner = _transformed(chain, inputs, index, x) if categories is None else None
    band = None
    if inputs.features == 1:
        queries = chain.transform(at_typical)
        predicted = regressor.predict(queries)
        if level is not None:
            band = regressor.interval(queries, level)
    elif inner is not None:
        _, predicted, low, high = regressor.partial_dependence(index, inner, level)
        band = None if low is None or high is None else Interval(low, high)
    else:
        # The mean prediction over some samples, with the feature moved to every value.
        chosen = evenly(len(inputs), AVERAGED)
        repeated = numpy.repeat(numpy.array(values, dtype=object), len(chosen)).tolist()
        moved = inputs.moved(numpy.tile(chosen, len(values)), index, repeated)
        predicted = regressor.predict(chain.transform(moved)).reshape(len(values), -1).mean(1)
    predicted = numpy.asarray(predicted, dtype=numpy.float64)
    if predicted.ndim != 1:
        raise ValueError(f"estimator: expected one output, got {predicted.shape[1]}")
    return Curve(x, predicted, _bandwidth(regressor, index, x, inner), band, chain, index, at_typical, inner)


def _transformed(chain: Chain, inputs: Inputs, index: int, x: Array) -> Array | None:
    """What x becomes in the regressor's column of the same index, if that depends on it alone and keeps its order."""
    if not chain.transformers:
        return x
    rows = [0, inputs.typical, len(inputs) - 1]
    tables = [chain.transform(inputs.moved(numpy.full(len(x), row), index, x)) for row in rows]
    tables = [numpy.asarray(table, dtype=numpy.float64) for table in tables]
    if tables[0].shape[1] != inputs.features:
        return None
    others = [column for column in range(inputs.features) if column != index]
    alone = all(numpy.array_equal(table[:, index], tables[0][:, index]) for table in tables)
    apart = all((table[:, others] == table[:1, others]).all() for table in tables)
    inner = tables[0][:, index]
    return inner if alone and apart and (numpy.diff(inner) > 0).all() else None


def _bandwidth(regressor: KernelRegressor, index: int, x: Array, inner: Array | None) -> float:
    """In units of x, if they are those of the regressor or a multiple; otherwise in the regressor's, or NaN."""
    if inner is None or regressor.bandwidth_.ndim > 1:
        return numpy.nan
    slope = (inner[-1] - inner[0]) / (x[-1] - x[0]) if x[-1] > x[0] else 1.0
    straight = numpy.allclose(inner, inner[0] + slope * (x - x[0]), rtol=1e-6, atol=1e-9 * numpy.ptp(inner))
    return float(regressor.bandwidth_[index] / slope) if straight else numpy.nan


def width_text(width: float, scale: str = "") -> str:
    """A bandwidth: of "dates" in days, hours or minutes, on a "log" scale in powers of ten, of "categories" λ."""
    if scale == "categories":
        return f"λ {_rounded(width)} (0: categories apart; 1 − 1/n: all n as one)"
    if scale == "log":
        return f"{_rounded(width)} powers of ten"
    if scale == "":
        return _rounded(width)
    name, days = next(((name, days) for name, days in DURATIONS if width >= 2 * days), DURATIONS[-1])
    return f"{_rounded(width / days)} {name}"


def _rounded(width: float) -> str:
    return short(float(f"{width:.4g}")) if numpy.isfinite(width) else "∞"
