"""The features of a regression: which are numbers, dates, categories or angles, and what becomes of each.

Numbers stay as they are. Dates become days since 1970-01-01 (UTC) and durations days, so that a bandwidth of 7 is a
week. Categories become labels: the rank of an ordered category, the number of an unordered one; a number that is said
to be a category is its own label.
"""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any, Literal, NamedTuple

import numpy

from regard.kernel.local import Array, Mask

Kind = Literal["number", "date", "duration", "category", "ordered"]

DAY = numpy.timedelta64(1, "D")
LARGEST_SPAN, SMALLEST_SPAN = 1e100, 1e-100  # whose squares are still numbers


class Rows(NamedTuple):
    """Rows of X: the points of its continuous features (n, continuous), the labels of the others (n, categorical)."""

    points: Array
    labels: Array

    def take(self, index: Any) -> Rows:
        """Some of the rows."""
        return Rows(self.points[index], self.labels[index])


@dataclass
class Features:
    """What each column of X is, as `fit` has seen it."""

    kinds: list[Kind]
    periods: Array  # (features,), infinite where a feature is not periodic
    categories: dict[int, list[Any]] = field(default_factory=dict)  # of columns of text: what their labels mean

    @classmethod
    def of(cls, X: Any, categorical: Any, ordered: Any, periodic: Mapping[Any, Any] | None) -> Features:
        """The features of a frame or of rows; the arguments are those of KernelRegressor."""
        columns, names = columns_of(X)
        kinds = [kind_of(column) for column in columns]
        for name, given, kind in (("categorical", categorical, "category"), ("ordered", ordered, "ordered")):
            for index in indices_of(name, given, names, len(kinds)):
                kinds[index] = kind  # type: ignore[call-overload]
        features = cls(kinds, numpy.full(len(kinds), numpy.inf))
        if not isinstance(periodic or {}, Mapping):
            raise TypeError(f"periodic: expected a dict of features and their periods, got {periodic!r}")
        for key, period in (periodic or {}).items():
            (index,) = indices_of("periodic", [key], names, len(kinds))
            if kinds[index] in ("category", "ordered"):
                raise ValueError(f"periodic: feature {key!r} is a category, which has no period")
            if kinds[index] == "number" and is_duration(period):
                raise TypeError(f"periodic: feature {key!r} has numbers, which no duration is a period of")
            try:
                features.periods[index] = days_of(period)
            except (TypeError, ValueError):
                features.periods[index] = numpy.nan
            if not 0 < features.periods[index] < numpy.inf:
                raise ValueError(f"periodic: expected a positive period of feature {key!r}, got {period!r}")
        for index, column in enumerate(columns):
            if kinds[index] in ("category", "ordered") and getattr(column.dtype, "kind", "O") not in "iuf":
                known = _categories(column)
                features.categories[index] = [c for c in known if c is not None or kinds[index] == "category"]
        return features

    @property
    def continuous(self) -> list[int]:
        """The columns of numbers, dates and durations."""
        return [index for index, kind in enumerate(self.kinds) if kind not in ("category", "ordered")]

    @property
    def categorical(self) -> list[int]:
        """The columns of categories, ordered or not."""
        return [index for index, kind in enumerate(self.kinds) if kind in ("category", "ordered")]

    def learn(self, X: Any) -> None:
        """Know the categories of more rows as well."""
        columns, _ = columns_of(X)
        for index, known in self.categories.items() if len(columns) == len(self.kinds) else ():
            if self.kinds[index] == "category":
                known.extend(category for category in _categories(columns[index]) if category not in known)

    def numbers(self, X: Any, expected: Sequence[str] | None) -> Any:
        """X with numbers alone, as a frame where it was one; what is not what `fit` was given is refused.

        expected: the names of its features
        """
        columns, names = columns_of(X)
        if len(columns) != len(self.kinds):
            return X  # scikit-learn's own words for it follow
        # Of nullable, sparse, Arrow's and object columns scikit-learn would not name the one that it cannot read.
        plain = all(isinstance(column.dtype, numpy.dtype) and column.dtype != object for column in columns)
        if (plain or names is None) and {*self.kinds, *map(kind_of, columns)} <= {"number"}:
            return X
        if names is None:
            return numpy.column_stack([self._numbers(index, column, names) for index, column in enumerate(columns)])
        import pandas

        if expected is not None and names != list(expected):
            return pandas.DataFrame(columns=names)  # it begins with the names
        return pandas.DataFrame({name: self._numbers(index, columns[index], names) for index, name in enumerate(names)})

    def _numbers(self, index: int, column: Any, names: list[str] | None) -> Array:
        name, kind, now = index if names is None else repr(names[index]), self.kinds[index], kind_of(column)
        if kind in ("category", "ordered"):
            known = self.categories.get(index)
            if known is None:
                return as_floats(column, f"X: feature {name}: expected numbers, as in fit")
            label = {category: number for number, category in enumerate(known)}
            labels = numpy.array([label.get(_plain(value), -1.0) for value in column], dtype=numpy.float64)
            if (labels < 0).all() and _is_foreign(column, known):
                like = next((category for category in known if category is not None), None)
                raise TypeError(f"X: feature {name}: expected categories like {like!r}, as in fit, got {now}s")
            if kind == "ordered" and (labels < 0).any():
                level = list(column)[int(labels.argmin())]
                raise ValueError(
                    f"X: feature {name}: expected levels whose order is known, {textwrap.shorten(str(known), 200)}, "
                    f"got {level!r}; drop those rows, or give a pandas Categorical of all levels to fit"
                )
            return labels
        if now != kind:
            came = "categories" if now in ("category", "ordered") else f"{now}s"
            raise TypeError(f"X: feature {name}: expected {kind}s, as in fit, got {came}")
        if kind == "number":
            return as_floats(column, f"X: feature {name}: expected numbers")
        return in_days(column, kind)

    def rows(self, table: Array) -> Rows:
        """Rows of numbers as points and labels; the points of periodic features within one period."""
        points = numpy.ascontiguousarray(table[:, self.continuous], dtype=numpy.float64)
        periods = self.periods[self.continuous]
        for index in numpy.flatnonzero(numpy.isfinite(periods)):
            points[:, index] %= periods[index]
        return Rows(points, numpy.ascontiguousarray(table[:, self.categorical], dtype=numpy.float64))


def check_span(name: str, column: Array) -> None:
    """Refuse numbers whose distances could not be squared in float64, in words that say what to do."""
    with numpy.errstate(over="ignore"):
        span = column.max() - column.min()
    if span > LARGEST_SPAN or 0 < span < SMALLEST_SPAN:
        raise ValueError(
            f"{name} spans {span:.3g}, whose square float64 cannot hold; measure it in another unit (expected a span "
            f"between {SMALLEST_SPAN:g} and {LARGEST_SPAN:g})"
        )


def is_duration(value: Any) -> bool:
    """Whether it is a duration of pandas, numpy or datetime."""
    return isinstance(value, datetime.timedelta | numpy.timedelta64)


def days_of(value: Any) -> float:
    """A number, or a duration in days."""
    return float(numpy.timedelta64(value) / DAY) if is_duration(value) else float(value)


# ------------------------------------------------------------------------------------------------- columns of any kind


def in_memory(name: str, table: Any) -> Any:
    """The argument, Arrow's tables and polars' as pandas'; what has no rows yet, or hides values, is refused."""
    if numpy.ma.is_masked(table):
        raise ValueError(f"{name}: expected values, got masked ones; drop those rows")
    if hasattr(table, "collect"):  # polars' LazyFrame and its kin
        raise TypeError(f"{name}: a {type(table).__name__} has no rows yet; give {name}.collect()")
    if hasattr(table, "to_pandas"):
        return table.to_pandas()
    rows = hasattr(table, "__len__") and not isinstance(table, Mapping | str)
    rows = rows or hasattr(table, "__array__") or hasattr(table, "shape")
    fields = getattr(getattr(table, "dtype", None), "names", None)  # of an array of records
    if fields or not (rows or table is None or isinstance(table, Number)):
        came = type(table).__name__
        raise TypeError(f"{name}: expected a table of rows and columns, as a DataFrame, got {came}")
    return table


def columns_of(X: Any) -> tuple[list[Any], list[str] | None]:
    """The columns of a frame and their names; of rows, without names. Rows of numbers count as such whole."""
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        names = [str(name) for name in X.columns]
        if not names:
            raise ValueError("X: expected one feature or more, got a table without columns")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"X: expected columns of different names, got {twice!r} more than once")
        return [X.iloc[:, index] for index in range(X.shape[1])], names
    try:
        rows = numpy.asarray(X)
    except ValueError:  # rows of unequal length: scikit-learn says so
        return [], None
    return list(rows.T) if rows.ndim == 2 and len(rows) else [], None


def kind_of(column: Any) -> Kind:
    """What a column is by its dtype, and if that does not say, by its first cell."""
    dtype = column.dtype
    if str(dtype) == "category":
        return "ordered" if column.cat.ordered else "category"
    kind = getattr(dtype, "kind", "O")
    if kind in "Mm":
        return "date" if kind == "M" else "duration"
    if kind == "b":
        return "category" if hasattr(column, "iloc") else "number"
    if kind not in "OUST":
        return "number"
    if str(dtype).startswith("period"):
        return "date"
    first = next((value for value in column if not _is_missing(value)), None)
    if isinstance(first, datetime.date | numpy.datetime64):
        return "date"
    if isinstance(first, datetime.timedelta | numpy.timedelta64):
        return "duration"
    # Text in a frame is a category; in bare rows scikit-learn's validation has its own opinion of it.
    return "category" if isinstance(first, str | bool) and hasattr(column, "iloc") else "number"


def _is_foreign(column: Any, known: list[Any]) -> bool:
    """Whether a column with none of the known categories is not even of their kind, as 1 is not of that of "1"."""
    import pandas

    now, before = kind_of(column), kind_of(pandas.Series(known, dtype=object))
    missing = all(_is_missing(value) for value in column)
    return not missing and now not in ("category", "ordered", before)


def as_floats(column: Any, message: str) -> Array:
    """As float64; an error begins with the message."""
    if getattr(column.dtype, "kind", "O") == "c":
        raise TypeError(f"{message}, got complex ones")
    try:
        return numpy.asarray(column, dtype=numpy.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{message}; {error}") from error


def in_days(column: Any, kind: Kind) -> Array:
    """Dates as days since 1970-01-01, durations as days."""
    import pandas

    column = pandas.Series(column)
    if kind == "duration":
        times = pandas.to_timedelta(column).to_numpy()
    else:
        column = column.dt.start_time if isinstance(column.dtype, pandas.PeriodDtype) else column
        # In their own unit: nanoseconds would reach from 1677 to 2262 alone
        times = pandas.to_datetime(column, utc=True).dt.tz_localize(None).to_numpy() - numpy.datetime64(0, "D")
    if numpy.isnat(times).any():
        raise ValueError(f"X: contains missing {kind}s (NaT); drop those rows")
    return numpy.asarray(times / DAY)


def places_of(name: str, values: Any, kind: Kind) -> Array:
    """Finite numbers (k,), places of a feature; those of dates and durations in days, or as what they are."""
    column = numpy.atleast_1d(values)
    now = kind_of(column)
    if now not in ("number", kind):
        raise TypeError(f"{name}: expected {kind}s, as in fit, got {now}s")
    numbers = as_floats(column, f"{name}: expected numbers") if now == "number" else in_days(column, kind)
    if numbers.ndim != 1 or not len(numbers) or not numpy.isfinite(numbers).all():
        raise ValueError(f"{name}: expected one finite number or more, got {values!r}")
    return numbers


def numbers_of(name: str, given: Any, expected: str, allowed: Callable[[Array], Mask], most: int = 1) -> Array:
    """One number or several, in at most so many dimensions; a ValueError says what was expected where they are not."""
    numbers = numpy.asarray(given)
    numeric = numbers.dtype.kind in "iuf" and numbers.ndim <= most and numbers.size > 0
    if not numeric or not allowed(numbers).all():
        raise ValueError(f"{name}: expected {expected}, got {given!r}")
    return numbers.astype(numpy.float64)


def level_of(level: Any) -> float:
    """The probability with which an interval holds what it is for."""
    expected = "a probability between 0 and 1"
    return float(numbers_of("level", level, expected, lambda number: (number > 0) & (number < 1), most=0))


def _categories(column: Any) -> list[Any]:
    if str(column.dtype) == "category":
        return [*column.cat.categories, *([None] if column.isna().any() else [])]
    return sorted({_plain(value) for value in column}, key=str)


def _plain(value: Any) -> Any:
    """A category as a key: missing ones are a category too."""
    return None if _is_missing(value) else value


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA is not even unequal to itself
        return True
    except ValueError:  # a cell of several values
        return False


def indices_of(name: str, given: Any, names: list[str] | None, count: int) -> Sequence[int]:
    """Columns by number or name; "auto" and None are none."""
    if given is None or (isinstance(given, str) and given == "auto"):
        return []
    if isinstance(given, str | int):
        raise TypeError(f'{name}: expected "auto" or a list of features, got {given!r}')
    indices = []
    for key in given:
        if isinstance(key, str):
            if names is None or key not in names:
                known = "numbers, as X has no names" if names is None else f"some of {', '.join(names)}"
                raise ValueError(f"{name}: expected {known}, got {key!r}")
            indices.append(names.index(key))
        elif isinstance(key, bool) or not isinstance(key, int | numpy.integer) or not -count <= key < count:
            raise ValueError(f"{name}: expected features from 0 to {count - 1}, got {key!r}")
        else:
            indices.append(int(key) % count)
    return indices
