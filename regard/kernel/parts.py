"""Samples of one feature that come in parts, as from several machines: a compressed state in the place of samples.

Each part is compressed where it is (compressed.py), and only what is kept of it travels. A Dask DataFrame, Series or
array is recognised by the module of its type; dask is imported only then. The state of all parts, some megabytes, is
merged in pairs on the workers, so whoever asks for it does not hold the samples, and no worker more than a part and two
states.

Any other collection of parts, as a Ray dataset, does the same by `KernelRegressor.partial_fit` on each and `merge`.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from regard.attention.sums_1d import Form, Samples1D
from regard.kernel.compressed import Compressed, merge_all
from regard.kernel.features import Features, Kind, Rows, check_span, in_days, kind_of
from regard.kernel.local import Array
from regard.kernel.pyramid import Pyramid
from regard.kernel.samples import Samples, Weighing


class MergedSamples(Samples):
    """Samples and pseudo-samples of a state; kernel sums are those of all samples that it was made of."""

    def __init__(self, state: Compressed, features: Features) -> None:
        self.state, self.features, self.weighing, self.counts = state, features, Weighing(), True
        self.points, self._origin = state.points, state.points.origin
        outputs, counts = state.outputs, self.points.columns[:, :1]
        self.mean = state.mean
        moved = state.mean - state.shift
        first = self.points.columns[:, 1 : 1 + outputs]
        self.squares = self.points.columns[:, 1 + outputs :] - 2 * moved * first + moved**2 * counts  # Σ (y − mean)²
        self.columns = numpy.hstack([counts, first - moved * counts])
        self.weights, self.factors = counts[:, 0], numpy.ones(len(counts))
        self.rows = Rows(self.points.x[:, None] + self.points.origin, numpy.empty((len(counts), 0)))
        self.values = numpy.empty((0, outputs))  # not kept

    @property
    def count(self) -> float:
        """How many samples the parts had."""
        return self.state.count

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """The least and the largest of the feature, (1,) each."""
        return numpy.array([self.state.low]), numpy.array([self.state.high])

    @property
    def _x(self) -> Array:
        return self.points.x

    def _line_sums(self, widths: Array, queries: Rows, order: int, form: Form, columns: Array | None) -> Array:
        """Far from all samples those of the cells' means: pseudo-samples, of which some are negative, do not serve."""
        sums = super()._line_sums(widths, queries, order, form, columns)
        x, width = queries.points[:, 0], self._width(widths)
        far = numpy.flatnonzero(self.state.is_far(width, x))
        if len(far):
            far = far[numpy.argsort(x[far])]
            means = self.state.add_up_nodes(self.columns if columns is None else columns)
            line = Samples1D(self.state.centroids().x, means)
            sums[far] = line.sums(self.weighing.kernel, width, x[far] - self._origin, order, form)
        return sums

    @cached_property
    def pyramid(self) -> Pyramid:
        """The samples in cells of many widths."""
        return Pyramid(self.state)

    def noise_columns(self, widths: Array, degree: int) -> tuple[Array, float]:
        """Counts and squared errors (m, 1 + outputs), less what comes from the curve's variance; degrees of freedom."""
        fit = self.fit(widths, self.rows, degree)
        leverage, heights = fit.duals[:, :1], fit.heights
        squares = self.squares - heights * (2 * self.columns[:, 1:] - heights * self.columns[:, :1])
        columns = numpy.hstack([self.columns[:, :1], squares / numpy.maximum(1 - leverage, 1e-9)])
        return columns, float(self.count - (self.weights * leverage[:, 0]).sum())


def is_distributed(samples: object) -> bool:
    """Whether these are a Dask DataFrame, Series or array, of which every part may be on another machine."""
    module = type(samples).__module__
    return module.split(".")[0] in ("dask", "dask_expr") and hasattr(samples, "to_delayed")


def feature_of(X: Any) -> tuple[Features, list[str] | None]:
    """The only feature of a Dask collection, and its name in a frame."""
    if X.ndim != 2:
        raise ValueError(f"X: expected two dimensions, got {X.ndim}; of a Series take X.to_frame()")
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    dtype = X.dtype if names is None else X.dtypes.iloc[0]
    if names is not None and str(dtype) in ("bool", "boolean"):
        raise TypeError("X: expected numbers, datetimes or durations, got bool: a fit in parts knows no categories")
    kinds: dict[str, Kind] = {"M": "date", "m": "duration"}
    return Features([kinds.get(getattr(dtype, "kind", "O"), "number")], numpy.array([numpy.inf])), names


def compress_parts(X: Any, y: Any, values_of: Callable[[Any], Array] = numpy.asarray) -> Compressed:
    """The state of all samples of a Dask collection X of one feature and y, of each part of which these are values."""
    for name, samples in (("X", X), ("y", y)):
        if not is_distributed(samples):
            raise TypeError(f"{name}: expected a Dask DataFrame, Series or array, like the other, got {type(samples)}")
    from dask.delayed import delayed

    points, values = _parts(X, "X"), _parts(y, "y")
    if len(points) != len(values):
        raise ValueError(
            f"y: expected as many parts as X, {len(points)}, got {len(values)}; repartition one like the other"
        )
    states = [delayed(compress_part)(x, delayed(values_of)(value)) for x, value in zip(points, values, strict=True)]
    state: Compressed = merge_all(states, delayed(Compressed.merge)).compute()
    return state


def classes_of(y: Any) -> NDArray[Any]:
    """The classes of all parts of a Dask Series or array, sorted."""
    if not is_distributed(y):
        raise TypeError(f"y: expected a Dask Series or array, like X, got {type(y)}")
    from dask.delayed import delayed

    classes: NDArray[Any] = merge_all([delayed(_classes)(part) for part in _parts(y, "y")], delayed(_union)).compute()
    return classes


def _classes(part: Any) -> NDArray[Any]:
    import pandas

    labels = column_or_1d(part)
    if pandas.isna(labels).any():
        raise ValueError("y: expected a class for each row, got missing ones; drop those rows")
    if len(labels):
        check_classification_targets(labels)
    return numpy.unique(labels)


def _union(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    return numpy.union1d(one, other) if len(one) and len(other) else one if len(one) else other


def map_parts(X: Any, answer: Callable[[Any], Any], names: Any, dtype: Any = numpy.float64) -> Any:
    """Dask's frame or array of what is answered to each part of X, lazily and where the part is.

    names: that of the only answer to a row, or a list of those of several
    """
    import pandas

    one = isinstance(names, str)
    nothing = numpy.empty(0 if one else (0, len(names)), dtype)

    def answers(part: Any) -> Any:
        return answer(part) if len(part) else nothing

    def framed(of_part: Any, index: Any) -> Any:
        return pandas.Series(of_part, index, name=names) if one else pandas.DataFrame(of_part, index, columns=names)

    if hasattr(X, "map_partitions"):
        return X.map_partitions(lambda part: framed(answers(part), part.index), meta=framed(nothing, []))
    shape = {"drop_axis": 1} if one else {"chunks": (X.chunks[0], (len(names),))}
    return X.map_blocks(answers, dtype=dtype, **shape)


def compress_part(X: Any, y: Any) -> Compressed:
    """The state of one part: rows of one feature and their values, as arrays, Series or DataFrames in memory."""
    points, values = _numbers(X, "X"), _numbers(y, "y")
    if points.shape[1] != 1:
        raise ValueError(f"X: expected one feature, got {points.shape[1]}; parts are merged for one feature only")
    if len(points) != len(values):
        raise ValueError(f"y: expected a row for each of X in every part, got {len(values)} for {len(points)}")
    for name, column in (("X", points), *(("y", column) for column in values.T)):
        if len(column):
            check_span(name, column)
    return Compressed.from_samples(points[:, 0], values)


def _parts(samples: Any, name: str) -> list[Any]:
    """One delayed part after the other, each with all columns."""
    parts = numpy.asarray(samples.to_delayed(optimize_graph=True), dtype=object)
    if parts.ndim > 1 and parts.shape[1] > 1:
        raise ValueError(f"{name}: expected parts with all columns, got {parts.shape[1]} beside each other; rechunk it")
    return list(parts.ravel())


def _numbers(part: Any, name: str) -> Array:
    """(rows, columns), of X datetimes in days since 1970-01-01 and durations in days."""
    table = numpy.asarray(part)
    table = table[:, None] if table.ndim == 1 else table
    kinds = [kind_of(column) for column in table.T]
    if name == "X" and "number" not in kinds:
        return numpy.column_stack([in_days(column, kind) for column, kind in zip(table.T, kinds, strict=True)])
    if table.dtype.kind not in "biuf":
        times = ", datetimes or durations" if name == "X" else ""
        raise TypeError(f"{name}: expected numbers{times}, got dtype {table.dtype}")
    if not numpy.isfinite(table).all():
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity; drop or fill them before")
    return table.astype(numpy.float64)
