"""The columns of a table that a curve is drawn through: which they are, what they mean, and which rows have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray

from regard.data.columns import Column, column_kinds, text_column, understand
from regard.data.tables import Table, TableError

Array = NDArray[numpy.float64]
Rows = NDArray[numpy.int64]


@dataclass(frozen=True)
class Choice:
    """The columns by name: to predict from, to predict, of groups and of weights; which of them have log scales."""

    x: tuple[str, ...]
    y: str
    by: str | None = None
    weights: str | None = None
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, eq=False)
class CurveData:
    """The columns of a choice, understood.

    X: a pandas DataFrame of all rows in the model's units: dates are days since 1970-01-01, log scales log₁₀ x and ln y
    y, weights (n,): in the model's units
    """

    table: Table
    choice: Choice
    x: tuple[Column, ...]
    target: Column
    by: Column | None
    X: Any
    y: Array
    weights: Array | None

    @cached_property
    def complete(self) -> NDArray[numpy.bool_]:
        """(n,): the rows that can be predicted, because they have x and a group."""
        columns = [*self.x, *([self.by] if self.by else [])]
        return numpy.asarray(~numpy.any([column.missing for column in columns], axis=0))

    @cached_property
    def fitted(self) -> NDArray[numpy.bool_]:
        """(n,): the rows that can be fitted, because they have y and a weight as well."""
        fitted = self.complete & ~self.target.missing
        return fitted if self.weights is None else fitted & ~numpy.isnan(self.weights)

    def groups(self) -> list[tuple[str, Rows]]:
        """Labels and rows of all groups, the largest first; without groups, all complete rows under ""."""
        if self.by is None:
            return [("", numpy.flatnonzero(self.complete))]
        labels = numpy.array([label if label is not None else "" for label in self.by.values], dtype=object)
        known, codes = numpy.unique(labels.astype(str), return_inverse=True)
        codes[~self.complete] = len(known)
        counts = numpy.bincount(codes[self.fitted], minlength=len(known))[: len(known)]
        order = numpy.argsort(-counts, kind="stable")
        return [(str(known[code]), numpy.flatnonzero(codes == code)) for code in order if (codes == code).any()]

    def describe(self) -> str:
        """One line: how the table is written, what its columns were taken for, and what is missing."""
        columns = [*self.x, self.target, *([self.by] if self.by else [])]
        missing = {column.name: int(column.missing.sum()) for column in columns}
        facts = [f"{self.table.place}: {self.table.form}, {len(self.table):,} rows"]
        facts += [f"{column.name}: {column.note}" for column in columns]
        facts += [
            f"{count:,} {'row misses' if count == 1 else 'rows miss'} {name}"
            for name, count in missing.items()
            if count
        ]
        return "; ".join(facts)


def choose_columns(
    table: Table, x: Sequence[str], y: str | None, besides: Sequence[str | None]
) -> tuple[tuple[str, ...], str, str]:
    """The columns of x and y, chosen where only one choice is possible, and a note of what was chosen.

    A date, or else the first of two numbers, is x; a number is y. besides: columns with another use.
    """
    if x and y is not None:
        return tuple(x), y, ""
    kinds = {name: kind for name, kind in column_kinds(table).items() if name not in (*x, y, *besides)}
    dates, numbers = ([name for name, kind in kinds.items() if kind == wanted] for wanted in ("dates", "numbers"))
    if x and len(numbers) == 1:
        return tuple(x), numbers[0], f"y = {numbers[0]}"
    if y is not None and len(dates or numbers) == 1:
        (only,) = dates or numbers
        return (only,), y, f"x = {only}"
    if not x and y is None and (len(dates), len(numbers)) in ((1, 1), (0, 2)):
        first, second = [*dates, *numbers]
        return (first,), second, f"x = {first}, y = {second}"
    names = ", ".join(name.strip() for name in table.names)
    raise TableError(f"{table.place}: say which columns: --x COL [COL …] --y COL (columns: {names})")


def prepare(table: Table, choice: Choice, *, day_first: bool | None = None, decimal: str | None = None) -> CurveData:
    """The columns in the model's units; raises TableError where a row cannot be used as asked for."""
    import pandas

    numbers = [choice.y, *([choice.weights] if choice.weights else [])]
    columns = understand(table, [*choice.x, *numbers], numbers=numbers, day_first=day_first, decimal=decimal)
    by = text_column(table, choice.by) if choice.by else None
    x = tuple(columns[name] for name in choice.x)
    y = columns[choice.y]
    features = {column.name: _logarithm(table, column, "--log-x") if choice.log_x else column.values for column in x}
    target = _logarithm(table, y, "--log-y") if choice.log_y else y.values
    weights = columns[choice.weights].values if choice.weights else None
    if weights is not None and (weights < 0).any():
        row = numpy.flatnonzero(weights < 0)[0]
        raise TableError(
            f"{table.place}: line {table.lines[row]}, column {choice.weights!r}: expected a weight of 0 or more, "
            f"got {weights[row]:g}"
        )
    data = CurveData(table, choice, x, y, by, pandas.DataFrame(features), target, weights)
    if not data.fitted.any():
        raise TableError(
            f"{table.place}: no row has a value in every one of the columns {', '.join([*choice.x, *numbers])}"
        )
    return data


def _logarithm(table: Table, column: Column, option: str) -> Array:
    """log₁₀ of x, ln of y, as the option says."""
    if column.kind != "numbers":
        raise TableError(
            f"{table.place}: column {column.name!r}: expected numbers, because of {option}, got {column.kind}"
        )
    wrong = numpy.flatnonzero(column.values <= 0)
    if len(wrong):
        line, value = table.lines[wrong[0]], column.values[wrong[0]]
        raise TableError(
            f"{table.place}: line {line}, column {column.name!r}: expected a positive number, because of {option}, "
            f"got {value:g}"
        )
    return numpy.asarray(numpy.log10(column.values) if option == "--log-x" else numpy.log(column.values))
