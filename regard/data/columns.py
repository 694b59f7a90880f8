"""What the columns of a table mean: numbers, dates or categories, found out from all cells of a column together; and
those that a curve is drawn through: which they are, and which rows have them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy
from numpy.typing import NDArray

from regard.data.cell_texts import AMBIGUOUS, MISSING, TO_PYTHON, NumberTexts, parse_dates, parse_numbers, to_days
from regard.data.tables import Table, TableError, plain_name

Array = NDArray[numpy.float64]
Kind = Literal["numbers", "dates", "categories"]

KIND_ROWS = 1000  # from which the kinds of columns are guessed, where none are named


@dataclass(frozen=True, eq=False)
class Column:
    """A column that was understood."""

    name: str
    kind: Kind  # numbers; dates, as days since 1970-01-01; categories, as text
    values: NDArray[Any]  # (n,): float64, NaN where one is missing; of categories: object, None where one is missing
    note: str  # how it was written, such as "numbers with decimal comma, in €"
    unit: str = ""  # %, a currency, or ""

    @property
    def missing(self) -> NDArray[numpy.bool_]:
        """(n,): where there is no value."""
        import pandas

        return numpy.asarray(pandas.isna(self.values))


def understand(
    table: Table,
    names: Sequence[str],
    *,
    numbers: Collection[str] = (),
    day_first: bool | None = None,
    decimal: str | None = None,
) -> dict[str, Column]:
    """Columns of a table by their names.

    numbers: names of those that have to be numbers, whatever is in them. day_first: of dates, decimal: "." or ",", of
    numbers: as the columns say themselves unless they are given. A cell that is not as most of its column is an error.
    """
    readings = {name: _read(table, name, name in numbers, day_first) for name in dict.fromkeys(names)}
    clear = {reading.decimal for reading in readings.values()} - {""}
    shown = clear.pop() if len(clear) == 1 else ""  # what one column shows holds for the others
    return {name: reading.finish(decimal or reading.decimal or shown) for name, reading in readings.items()}


def text_column(table: Table, name: str) -> Column:
    """A column as categories, whatever is in it; only what is empty is missing: "NA" may be North America."""
    cells = table.cells[table.index(name)]
    stripped = cells.astype(str).str.strip().to_numpy(dtype=object)
    texts = stripped.copy()
    texts[cells.isna().to_numpy(dtype=bool) | (stripped == "")] = None
    return Column(name, "categories", texts, f"{len(set(texts) - {None}):,} categories")


def column_kinds(table: Table) -> dict[str, Kind]:
    """What the columns seem to be by their first rows; those without any value are left out."""
    head = replace(table, cells=table.cells.iloc[:KIND_ROWS])
    names = [plain_name(name) for name in table.names]
    readings = {name: _read(head, name, False, None) for name in names if name}
    return {name: reading.kind for name, reading in readings.items() if reading.codes.max(initial=-1) >= 0}


@dataclass(frozen=True, eq=False)
class _Reading:
    """What a column's texts may mean, before the decimal separator of the whole table is known."""

    table: Table
    name: str
    kind: Kind
    codes: NDArray[numpy.int64]  # (n,): the text of each row, -1 where it is missing
    texts: Sequence[str]
    values: NDArray[Any] | None = None  # of the texts; or …
    numbers: NumberTexts | None = None  # … which have none before the decimal separator is known
    decimal: str = ""  # that separator, where this column leaves no doubt about it
    note: str = ""

    def finish(self, decimal: str) -> Column:
        """The column; raises TableError for the first cell that is not as the others."""
        texts, note, unit = self.values, self.note, ""
        if self.numbers is not None:
            likely, unit = decimal or self.numbers.likely_decimal(self.table.separator), self.numbers.unit
            texts, note = self.numbers.values(likely), _describe_numbers(self.numbers, likely, not decimal)
        assert texts is not None
        missing = numpy.array([None if self.kind == "categories" else numpy.nan], dtype=texts.dtype)
        values = numpy.concatenate([texts, missing])[self.codes]
        if self.kind != "categories":
            for row in numpy.flatnonzero((self.codes >= 0) & ~numpy.isfinite(values)).tolist():
                expected = "a date" if self.kind == "dates" else f"a number in {unit}" if unit else "a number"
                if numpy.isinf(values[row]):
                    raise _cell_error(self.table, self.name, row, "a finite number", "infinity")
                raise _cell_error(self.table, self.name, row, expected, repr(self.texts[self.codes[row]]))
        if self.kind == "dates":
            note += f", {_range_of_dates(values)}"
        return Column(self.name, self.kind, values, note, unit)


def _cell_error(table: Table, name: str, row: int, expected: str, got: str) -> TableError:
    return TableError(f"{table.place}: line {table.lines[row]}, column {name!r}: expected {expected}, got {got}")


def _read(table: Table, name: str, must_be_numbers: bool, day_first: bool | None) -> _Reading:
    import pandas

    cells = table.cells[table.index(name)]
    if not pandas.api.types.is_string_dtype(cells.dtype):
        return _read_typed(table, name, cells, must_be_numbers)
    stripped = cells.str.strip()
    missing = (cells.isna() | stripped.str.lower().isin(MISSING)).to_numpy(dtype=bool)
    present = stripped.to_numpy(dtype=object)[~missing]
    codes = numpy.full(len(cells), -1)
    plain = _plain_numbers(present)
    if plain is not None and (must_be_numbers or not _are_compact_dates(present)):
        codes[~missing] = numpy.arange(len(present))
        point = any("." in text for text in present[:KIND_ROWS])
        return _Reading(table, name, "numbers", codes, present, plain, decimal="." if point else "", note="numbers")
    codes[~missing], texts = pandas.factorize(present)
    return _understand_texts(_Reading(table, name, "numbers", codes, texts), must_be_numbers, day_first)


def _plain_numbers(texts: NDArray[Any]) -> Array | None:
    """What Python takes for numbers, with all digits; None where some are written otherwise, or may be: 1.234."""
    if "_" in "".join(texts):  # Python would take 12_3 for 123
        return None
    try:
        values: Array = texts.astype(numpy.float64)
    except ValueError:
        return None
    for part in (texts[:KIND_ROWS], texts):  # most columns show it at once
        written = [text for text in part if "." in text]
        if any(not AMBIGUOUS.fullmatch(text.lstrip("+-")) for text in written):
            return values
    return None if written else values


def _are_compact_dates(texts: Sequence[str]) -> bool:
    """Whether all are such as 20190103, which would be a coincidence for numbers."""
    if not len(texts) or any(len(text) != 8 or text[:2] not in ("19", "20") for text in texts[:KIND_ROWS]):
        return False
    return bool(numpy.isfinite(parse_dates(sorted(set(texts))).days).all())


def _understand_texts(reading: _Reading, must_be_numbers: bool, day_first: bool | None) -> _Reading:
    """Texts that are not all plain numbers: most of them are numbers, or dates, or else they are categories."""
    texts = reading.texts
    some = [texts[index] for index in numpy.linspace(0, len(texts) - 1, min(KIND_ROWS, len(texts))).astype(int)]
    share_of_numbers = max(understood.mean() for understood in parse_numbers(some).understood.values())
    if must_be_numbers or (not _are_compact_dates(some) and share_of_numbers >= 0.5):
        numbers = parse_numbers(texts)
        return replace(reading, numbers=numbers, decimal=numbers.clear_decimal())
    if numpy.isfinite(parse_dates(some, day_first).days).mean() >= 0.5:
        dates = parse_dates(texts, day_first)
        doubt = ", or day first: --day-first decides" if dates.ambiguous else ""
        details = ", ".join(fact for fact in (dates.order + doubt, "UTC" if dates.zones else "") if fact)
        return replace(reading, kind="dates", values=dates.days, note=f"dates ({details})" if details else "dates")
    categories = numpy.array(texts, dtype=object)
    return replace(reading, kind="categories", values=categories, note=f"{len(texts):,} categories")


def _read_typed(table: Table, name: str, cells: Any, must_be_numbers: bool) -> _Reading:
    """A column of parquet."""
    import pandas

    types, dtype = pandas.api.types, cells.dtype
    codes = numpy.where(cells.isna(), -1, numpy.arange(len(cells)))
    if types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype) or str(dtype).startswith("decimal"):
        values = cells.to_numpy(dtype=numpy.float64, na_value=numpy.nan)
        return _Reading(table, name, "numbers", numpy.where(numpy.isnan(values), -1, codes), [], values, note="numbers")
    is_date = types.is_datetime64_any_dtype(dtype) or str(dtype).startswith("date")
    is_category = isinstance(dtype, pandas.CategoricalDtype) or str(dtype).startswith("dictionary")
    if must_be_numbers or not (is_date or is_category):
        expected = "numbers" if must_be_numbers else "numbers, dates or text"
        raise TableError(f"{table.place}: column {name!r}: expected {expected}, got {dtype}")
    if is_date:
        return _Reading(table, name, "dates", codes, [], to_days(cells), note="dates")
    texts = cells.astype(object).to_numpy()
    return _Reading(table, name, "categories", codes, [], texts, note=f"{cells.nunique():,} categories")


def _describe_numbers(numbers: NumberTexts, decimal: str, ambiguous: bool) -> str:
    facts = []
    if numbers.has_mark(decimal) and decimal == ",":
        facts.append("decimal comma")
    if numbers.has_mark(*" '", "," if decimal == "." else "."):
        facts.append("thousands separators")
    note = "numbers" + (f" with {' and '.join(facts)}" if facts else "")
    if ambiguous and numbers.has_mark(",", "."):
        example = next(digits for digits in numbers.digits if digits and ("," in digits or "." in digits))
        note += f" ({example} is taken as {example.translate(TO_PYTHON[decimal])}: --decimal decides)"
    return f"{note}, in {numbers.unit}" if numbers.unit else note


def _range_of_dates(days: Array) -> str:
    """The first and the last date, with their times where they have any."""
    ends = numpy.array([numpy.nanmin(days), numpy.nanmax(days)])
    unit = "D" if (ends == numpy.floor(ends)).all() else "s"
    texts = (numpy.round(ends * 86400).astype("datetime64[s]")).astype(f"datetime64[{unit}]").astype(str)
    return " … ".join(text.replace("T", " ") for text in texts)


# ------------------------------------------------------------------------------------------------------- for a curve


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
    """The columns of a choice, understood; those that the model gets are in its units: days, log₁₀ x and ln y."""

    table: Table
    choice: Choice
    x: tuple[Column, ...]
    target: Column
    by: Column | None
    X: Any  # a pandas DataFrame of all rows
    y: Array  # (n,)
    weights: Column | None

    @cached_property
    def complete(self) -> NDArray[numpy.bool_]:
        """(n,): the rows that can be predicted, because they have x and a group."""
        columns = [*self.x, *([self.by] if self.by else [])]
        return numpy.asarray(~numpy.any([column.missing for column in columns], axis=0))

    @cached_property
    def fitted(self) -> NDArray[numpy.bool_]:
        """(n,): the rows that can be fitted, because they have y and a weight, which is not 0, as well."""
        fitted = self.complete & ~self.target.missing
        return fitted if self.weights is None else fitted & (self.weights.values > 0)

    def groups(self) -> list[tuple[str, NDArray[numpy.int64]]]:
        """Labels and rows of all groups, the largest first; without groups, all complete rows under ""."""
        rows = numpy.flatnonzero(self.complete)
        if self.by is None:
            return [("", rows)]
        labels, codes = numpy.unique(self.by.values[rows].astype(str), return_inverse=True)
        groups = [(str(label), rows[codes == code]) for code, label in enumerate(labels)]
        return sorted(groups, key=lambda group: -self.fitted[group[1]].sum())

    def describe(self) -> str:
        """One line: how the table is written, what its columns were taken for, and what is missing."""
        columns = dict.fromkeys([*self.x, self.target, *filter(None, [self.by, self.weights])])
        missing = {column.name: int(column.missing.sum()) for column in columns}
        facts = [f"{self.table.place}: {self.table.form}, {len(self.table):,} rows"]
        facts += [f"{column.name}: {column.note}" for column in columns]
        for name, count in missing.items():
            if count:
                facts.append(f"{count:,} {'row misses' if count == 1 else 'rows miss'} {name}")
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
    names = ", ".join(map(plain_name, table.names))
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
    weights = columns[choice.weights] if choice.weights else None
    if weights:
        for row in numpy.flatnonzero(weights.values < 0).tolist():
            raise _cell_error(table, weights.name, row, "a weight of 0 or more", f"{weights.values[row]:g}")
    data = CurveData(table, choice, x, y, by, pandas.DataFrame(features), target, weights)
    if not data.fitted.any():
        above = f", and in {choice.weights} one above 0" if choice.weights else ""
        raise TableError(
            f"{table.place}: no row has a value in every one of the columns {', '.join([*choice.x, *numbers])}{above}"
        )
    return data


def _logarithm(table: Table, column: Column, option: str) -> Array:
    """log₁₀ of x, ln of y, as the option says."""
    if column.kind != "numbers":
        expected = f"expected numbers, because of {option}"
        raise TableError(f"{table.place}: column {column.name!r}: {expected}, got {column.kind}")
    for row in numpy.flatnonzero(column.values <= 0).tolist():
        expected = f"a positive number, because of {option}"
        raise _cell_error(table, column.name, row, expected, f"{column.values[row]:g}")
    return numpy.asarray(numpy.log10(column.values) if option == "--log-x" else numpy.log(column.values))
