"""A smooth curve through the columns of a file: its bandwidth, its errors, its window, its picture and predictions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import files
from regard.data import curve
from regard.data.columns import Choice, CurveData, choose_columns, prepare
from regard.data.tables import Table, plain_name, read_table
from regard.kernel import KernelRegressor
from regard.view import pictures
from regard.view.regression import GROUPS, Group, KernelRegressionDisplay, Scales
from regard.view.regression_curve import Chain, Inputs, evenly

Array = NDArray[numpy.float64]

QUERIES = 200  # samples whose windows are summarised
TABLES = (".csv", ".tsv")  # endings of files of predictions
DAYS = {"w": 7.0, "d": 1.0, "h": 1 / 24, "min": 1 / 1440, "s": 1 / 86400}


class GroupFit(NamedTuple):
    """The regression of one group: its rows, of which those with y were fitted."""

    label: str
    rows: NDArray[numpy.int64]
    fitted: NDArray[numpy.int64]
    model: KernelRegressor

    def to_dict(self, data: CurveData) -> dict[str, Any]:
        """What there is to say about it; the window is the median over samples."""
        names = data.choice.x
        chosen = self.fitted[evenly(len(self.fitted), QUERIES)]
        effective, low, high = self.model.window(data.X.iloc[chosen])
        widths = numpy.median((high - low).reshape(len(chosen), -1), axis=0)
        return {
            "rows": len(self.fitted),
            "bandwidth": {name: _known(width) for name, width in zip(names, self.model.bandwidth_, strict=True)},
            "loo_r2": _known(self.model.loo_score_),
            "loo_error": _known(self.model.loo_error_),
            "window": {
                "effective": float(numpy.median(effective)),
                "interval": {name: _known(width) for name, width in zip(names, widths.tolist(), strict=True)},
            },
        }


def fit_curve(
    file: Path | None = None,
    x: Sequence[str] = (),
    y: str | None = None,
    *,
    by: str | None = None,
    weights: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    level: float | None = 0.95,
    bandwidth: str = "loo",
    day_first: bool | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    predictions: Path | None = None,
    picture: Path | None = None,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda stage: None,
    **parameters: Any,
) -> dict[str, Any]:
    """Predict a column by others, and write the predictions and a picture; both files are written, or neither.

    Returns what there is to say about it, for JSON.

    file: CSV or parquet, Path("-") for stdin; None is the noisy curve of the notes. x, y: the columns to predict from,
    and the one to predict; they may be left out where there is only one choice. by: of groups, with a curve each;
    weights: of the rows. log_x, log_y: fit on log scales. level: of the band, None for none. bandwidth: a rule, or
    numbers joined by commas, those of dates perhaps with a unit (7d, 12h). day_first, decimal, encoding: how to read
    the file, where that is not found out. predictions, picture: where to write, by default FILE-predictions.csv and
    FILE-curve.png in the working folder; names that are taken get a number unless `overwrite`. progress: is called with
    the name of each stage. parameters: of KernelRegressor.
    """
    stem = _stem(file)
    paths = predictions or Path(f"{stem}-predictions.csv"), picture or Path(f"{stem}-curve.png")
    _check_files(*paths)
    if file is None and (x or y is not None or by is not None or weights is not None):
        raise ValueError("--x and --y choose columns of a file: regard curve FILE --x COL [COL …] --y COL")
    if level is not None and not 0 < level < 1:
        raise ValueError(f"band: expected a level between 0 and 1, got {level:g}")
    given = _parse(bandwidth)
    KernelRegressor(bandwidth=given if isinstance(given, str) else 1.0, **parameters).check_parameters()
    progress("reading")
    x, y = (("x",), "y") if file is None else (x, y)
    table = _noisy_curve() if file is None else read_table(file, encoding)
    names, name_of_y, chosen = choose_columns(table, x, y, (by, weights))
    choice = Choice(names, name_of_y, by, weights, log_x, log_y)
    _check_choice(choice)
    data = prepare(table, choice, day_first=day_first, decimal=decimal)
    widths = given if isinstance(given, str) else _widths(given, data)
    model = KernelRegressor(bandwidth=widths, **parameters)
    progress("choosing the bandwidth")
    groups = _fit(data, model)
    progress("predicting")
    predicted = _predict(data, groups, level)
    progress("drawing")
    free = paths if overwrite else (_free_file(paths[0]), _free_file(paths[1]))

    def write_both(path: Path) -> None:
        """The table gets its name when this returns, so a picture that fails leaves neither file."""
        _write_predictions(path, table, predicted)
        pictures.write(lambda: _draw(data, groups, level), free[1])

    files.write(free[0], write_both)
    written = {"predictions": str(free[0]), "picture": str(free[1]), "renamed": free != paths}
    return _report(file, data, chosen, groups, level, written)


def _report(
    file: Path | None,
    data: CurveData,
    chosen: str,
    groups: Sequence[GroupFit],
    level: float | None,
    written: Mapping[str, Any],
) -> dict[str, Any]:
    """What there is to say about a fit. chosen: the columns that were chosen because there was no other choice."""
    choice, model = data.choice, groups[0].model
    report = {
        "file": None if file is None else str(file),
        "read": data.describe(),
        "chosen": chosen,
        "left_out": int(len(data.table) - data.fitted.sum()),
        "x": list(choice.x),
        "y": choice.y,
        "by": choice.by,
        "kinds": {column.name: column.kind for column in data.x},
        "log_x": choice.log_x,
        "log_y": choice.log_y,
        "kernel": model.kernel,
        "degree": model.degree,
        "rule": model.bandwidth if isinstance(model.bandwidth, str) else None,
        "level": level,
        **written,
    }
    if choice.by is None:
        return report | groups[0].to_dict(data)
    return report | {
        "rows": int(data.fitted.sum()),
        "groups": {group.label: group.to_dict(data) for group in groups},
        "groups_left_out": len(data.groups()) - len(groups),
    }


def _noisy_curve() -> Table:
    """That of the notes."""
    x, y = (column.numpy().reshape(-1) for column in curve.samples(200))
    return Table.of_columns("the noisy curve of the notes", {"x": x, "y": y}, "computed")


def _stem(file: Path | None) -> str:
    """The name that the written files begin with."""
    if file is None:
        return "regard"
    if str(file) == "-":
        return "stdin"
    return Path(file.stem).stem if file.suffix in (".gz", ".bz2", ".xz", ".zst", ".zip") else file.stem


def _check_choice(choice: Choice) -> None:
    if choice.y in choice.x:
        raise ValueError(f"y: expected a column that is not among those of x, got {choice.y!r}")
    if choice.by in choice.x or choice.by == choice.y:
        raise ValueError(f"by: expected a column that is neither x nor y, got {choice.by!r}")
    twice = [name for name in choice.x if choice.x.count(name) > 1]
    if twice:
        raise ValueError(f"x: expected different columns, got {twice[0]!r} twice")


def _parse(bandwidth: str) -> str | list[tuple[float, str]]:
    """A rule, or numbers and their units, "" where there is none."""
    parts = bandwidth.split(",")
    units = [next((unit for unit in DAYS if re.fullmatch(rf"[\d.]+{unit}", part)), "") for part in parts]
    try:
        return [(float(part.removesuffix(unit)), unit) for part, unit in zip(parts, units, strict=True)]
    except ValueError:
        return bandwidth


def _widths(given: list[tuple[float, str]], data: CurveData) -> list[float]:
    """Bandwidths in the model's units: those of dates in days."""
    columns = data.x if len(given) == len(data.x) else [data.x[0]] * len(given)
    for (width, unit), column in zip(given, columns, strict=True):
        if unit and column.kind != "dates":
            raise ValueError(f"bandwidth: {width:g}{unit} is a duration, but column {column.name!r} has no dates")
    return [width * DAYS.get(unit, 1.0) for width, unit in given]


def _fit(data: CurveData, model: KernelRegressor) -> tuple[GroupFit, ...]:
    """A model for each group that has two rows or more; a group without is neither fitted nor predicted."""
    from sklearn.base import clone

    fits = []
    for label, rows in data.groups():
        fitted = rows[data.fitted[rows]]
        if label and len(fitted) < 2:
            continue
        weights = None if data.weights is None else data.weights.values[fitted]
        try:
            regressor = clone(model).fit(data.X.iloc[fitted], data.y[fitted], sample_weight=weights)
        except ValueError as error:
            if not label:
                raise
            raise ValueError(f"{error} (of {data.choice.by} {label!r}, {len(fitted)} rows)") from error
        fits.append(GroupFit(label, rows, fitted, regressor))
    if not fits:
        raise ValueError(f"by: expected groups of two rows or more, got none in column {data.choice.by!r}")
    return tuple(fits)


def _predict(data: CurveData, groups: Sequence[GroupFit], level: float | None) -> dict[str, Array]:
    """The new columns of the table of predictions; NaN where a row cannot be predicted."""
    names = ("predicted",) if level is None else ("predicted", "low", "high")
    columns = {name: numpy.full(len(data.table), numpy.nan) for name in names}
    for group in groups:
        X = data.X.iloc[group.rows]
        values = [group.model.predict(X), *(() if level is None else group.model.interval(X, level))]
        for name, column in zip(names, values, strict=True):
            columns[name][group.rows] = numpy.exp(column) if data.choice.log_y else column
    return columns


def _known(number: float) -> float | None:
    """The number; None where it is NaN or infinite, for which JSON has no words."""
    return float(number) if numpy.isfinite(number) else None


# --------------------------------------------------------------------------------------------------------------- files


def _check_files(predictions: Path, picture: Path) -> None:
    """Refuse names that could not be written, before anything is computed."""
    for name, path, endings in (("picture", picture, pictures.ENDINGS), ("predictions", predictions, TABLES)):
        if path.suffix.lower() not in endings:
            raise ValueError(f"{name}: expected a name that ends in {', '.join(endings)}, got {path}")
        if not path.parent.is_dir():
            raise ValueError(f"{name}: no folder {path.parent}")


def _free_file(path: Path) -> Path:
    """The same name, or with the first number by which it is not taken: sales-curve-2.png."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(name for name in chain([path], numbered) if not name.exists())


def _write_predictions(path: Path, table: Table, columns: dict[str, Array]) -> None:
    """All rows with all their cells as they stand in the file, the line of each, and more columns with all digits.

    Of parquet each value is as Python writes it, and nothing where it is missing. A name that the file has already gets
    a number; `row` is left out then.
    """
    names, cells = [plain_name(name) for name in table.names], table.cells.astype(object)
    cells.columns = list(table.names)
    for name, values in (columns if "row" in names else {"row": table.lines, **columns}).items():
        numbered = chain([name], (f"{name}_{number}" for number in count(2)))
        free = next(free for free in numbered if free not in names)
        cells.insert(cells.shape[1], free, values, allow_duplicates=True)
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    cells.to_csv(path, index=False, lineterminator="\n", sep=separator)


def _draw(data: CurveData, groups: Sequence[GroupFit], level: float | None) -> Figure:
    """A panel for each column of x, with the largest groups."""
    figure = pictures.figure(3.4 * len(data.x) + (0.6 if len(groups) > 4 else 0))
    for index, axes in enumerate(figure.subplots(len(data.x), squeeze=False)[:, 0]):
        column, choice = data.x[index], data.choice
        categories = tuple(sorted(set(column.values[~column.missing]), key=str)) if column.kind == "categories" else ()
        scales = Scales(column.kind == "dates", categories, choice.log_x, choice.log_y)
        drawn = []
        for group in groups[:GROUPS]:
            inputs, values = Inputs.of(data.X.iloc[group.fitted]), data.y[group.fitted]
            drawn.append(Group.along(scales, index, group.label, Chain(group.model), inputs, values, level))
        first = drawn[0]
        display = KernelRegressionDisplay(
            first.curve,
            first.x,
            first.y,
            x_name=column.name,
            y_name=choice.y if not data.target.unit else f"{choice.y}, {data.target.unit}",
            samples=first.samples,
            others=len(data.x) - 1,
            groups=drawn if choice.by else (),
            hidden=max(0, len(groups) - GROUPS),
            level=level,
            scales=scales,
        )
        display.plot(ax=axes)
    return figure
