"""`regard curve`: a smooth curve through the columns of a file, with its bandwidth chosen, said and drawn."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.data import curve
from regard.data.tables import Table, TableError, read_columns, read_names
from regard.kernel import KernelRegressor
from regard.view import pictures
from regard.view.regression import KernelRegressionDisplay

Array = NDArray[numpy.float64]

LOOKED_AT = 200  # samples whose windows are summed up
ERRORS = (TableError, ValueError)  # what the user can mend


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    file: Path | None
    x: Sequence[str]
    y: str | None
    kernel: str
    bandwidth: str
    degree: int
    predictions: Path | None
    picture: Path | None
    as_json: bool


def run(request: Request) -> int:
    """Read, fit, tell, write. Exit code 2 where the file or the options are wrong."""
    try:
        _check(request)
        with _progress() as say:
            say("reading")
            table, x_names, y_name = _table(request)
            X, y = table.rows[:, :-1], table.rows[:, -1]
            say("choosing the bandwidth")
            model = KernelRegressor(request.kernel, _bandwidth(request.bandwidth), degree=request.degree).fit(X, y)
            say("predicting")
            predicted = model.predict(X)
            say("drawing")
            report = _report(request, table, x_names, y_name, model)
            _write(report, model, table, predicted, x_names, y_name)
    except ERRORS as error:
        print(f"regard: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report, ensure_ascii=False) if request.as_json else _text(report))
    return 0


def _check(request: Request) -> None:
    if request.file is not None and (not request.x or request.y is None):
        names = ", ".join(read_names(request.file))
        raise ValueError(f"{request.file}: say which columns: --x COL [COL …] --y COL (columns: {names})")
    if request.y in request.x:
        raise ValueError(f"--y: expected a column that is not among --x, got {request.y!r}")
    if request.file is None and (request.x or request.y is not None):
        raise ValueError("--x and --y choose columns of a file: regard curve FILE --x COL [COL …] --y COL")
    if request.picture is not None and request.picture.suffix.lower() not in pictures.ENDINGS:
        raise ValueError(
            f"--picture: expected a name that ends in {', '.join(pictures.ENDINGS)}, got {request.picture}"
        )
    for option, path in (("--picture", request.picture), ("--predictions", request.predictions)):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"{option}: no folder {path.parent}")
    KernelRegressor(request.kernel, _bandwidth(request.bandwidth), degree=request.degree).check_parameters()


def _table(request: Request) -> tuple[Table, tuple[str, ...], str]:
    if request.file is None:  # the noisy curve of the notes
        rows = numpy.column_stack([column.numpy() for column in curve.samples(200)])
        return Table(("x", "y"), rows, 0, None), ("x",), "y"
    assert request.y is not None
    table = read_columns(request.file, [*request.x, request.y])
    if table.left_out:
        where = f"{request.file}: left out {table.left_out} of {table.left_out + len(table.rows)} rows"
        print(f"regard: {where}, which miss a value (the first: line {table.first_left_out})", file=sys.stderr)
    return table, tuple(request.x), request.y


def _bandwidth(text: str) -> str | list[float]:
    """A word, or numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return text


def _report(
    request: Request, table: Table, x_names: Sequence[str], y_name: str, model: KernelRegressor
) -> dict[str, Any]:
    rows = table.rows[:, :-1]
    chosen = numpy.unique(numpy.linspace(0, len(rows) - 1, min(len(rows), LOOKED_AT)).astype(int))
    effective, low, high = model.window(rows[chosen])
    widths = numpy.median((high - low).reshape(len(chosen), -1), axis=0)
    stem = "regard" if request.file is None else request.file.stem
    return {
        "file": None if request.file is None else str(request.file),
        "rows": len(rows),
        "left_out": table.left_out,
        "x": list(x_names),
        "y": y_name,
        "kernel": model.kernel,
        "degree": model.degree,
        "bandwidth": dict(zip(x_names, model.bandwidth_.tolist(), strict=True)),
        "loo_r2": _number(model.loo_score_),
        "loo_error": _number(model.loo_error_),
        "window": {
            "effective": float(numpy.median(effective)),
            "interval": dict(zip(x_names, widths.tolist(), strict=True)),
        },
        "predictions": str(request.predictions or f"{stem}-predictions.csv"),
        "picture": str(request.picture or f"{stem}-curve.png"),
    }


def _number(value: float) -> float | None:
    return None if numpy.isnan(value) else float(value)


def _text(report: dict[str, Any]) -> str:
    def each(numbers: dict[str, float]) -> str:
        if len(numbers) == 1:
            return f"{next(iter(numbers.values())):.4g}"
        return ", ".join(f"{name} {number:.4g}" for name, number in numbers.items())

    source = "the noisy curve of the notes" if report["file"] is None else report["file"]
    method = "local line" if report["degree"] else "local average"
    r2 = "unknown (one row)" if report["loo_r2"] is None else f"{report['loo_r2']:.4f}"
    lines = {
        "data": f"{source}: {report['y']} by {', '.join(report['x'])}, {report['rows']} rows",
        "kernel": f"{report['kernel']}, {method}",
        "bandwidth": each(report["bandwidth"]),
        "leave-one-out R²": r2,
        "window": f"{report['window']['effective']:.3g} samples count; "
        f"90 % of the weight within {each(report['window']['interval'])} (medians)",
        "predictions": report["predictions"],
        "picture": report["picture"],
    }
    return "\n".join(f"{name:<17} {text}" for name, text in lines.items())


def _write(
    report: dict[str, Any], model: KernelRegressor, table: Table, predicted: Array, x_names: Sequence[str], y_name: str
) -> None:
    """Both files, whole, or neither: the picture is drawn before the first of them appears."""
    table_path, picture_path = Path(report["predictions"]), Path(report["picture"])
    part = table_path.with_name(f".{table_path.name}.part")
    try:
        with part.open("w", newline="", encoding="utf-8") as file:
            header = ",".join(_cell(name) for name in (*x_names, y_name, "predicted"))
            numpy.savetxt(file, numpy.column_stack([table.rows, predicted]), "%.10g", ",", header=header, comments="")
        pictures.write(lambda: _figure(model, table, x_names, y_name), picture_path)
        part.replace(table_path)
    finally:
        part.unlink(missing_ok=True)


def _cell(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(mark in name for mark in ',"\n') else name


def _figure(model: KernelRegressor, table: Table, x_names: Sequence[str], y_name: str) -> Figure:
    """A panel for each column of x, the others at their medians."""
    figure = pictures.figure(3.4 * len(x_names))
    panels = figure.subplots(len(x_names), squeeze=False)[:, 0]
    X, y = table.rows[:, :-1], table.rows[:, -1]
    for d, (axes, name) in enumerate(zip(panels, x_names, strict=True)):
        KernelRegressionDisplay.from_estimator(model, X, y, feature=d, ax=axes)
        axes.set(xlabel=name, ylabel=y_name)
    return figure


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """What is going on and for how long, on stderr, where somebody is looking."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda text: progress.update(task, description=text)
