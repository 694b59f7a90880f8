"""A smooth curve through the columns of a file: its bandwidth, its errors, its window, its picture and predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from matplotlib.figure import Figure

from regard import files
from regard.data import curve
from regard.data.tables import Table, TableError, read_columns, read_names
from regard.kernel import KernelRegressor
from regard.view import pictures
from regard.view.regression import KernelRegressionDisplay

__all__ = ["Curve", "fit_curve"]

QUERIES = 200  # samples whose windows are summarised


@dataclass(frozen=True, eq=False)
class Curve:
    """A regression on columns of a file, and where its predictions and its picture were written."""

    file: Path | None  # None: the noisy curve of the notes
    table: Table  # the columns of x, then that of y
    model: KernelRegressor
    predictions: Path
    picture: Path

    def to_dict(self) -> dict[str, Any]:
        """What there is to say about it, for JSON; the window is the median over samples."""
        *x, y = self.table.names
        rows = self.table.rows[:, :-1]
        chosen = numpy.unique(numpy.linspace(0, len(rows) - 1, min(len(rows), QUERIES)).astype(int))
        effective, low, high = self.model.window(rows[chosen])
        widths = numpy.median((high - low).reshape(len(chosen), -1), axis=0)
        return {
            "file": None if self.file is None else str(self.file),
            "rows": len(rows),
            "left_out": self.table.left_out,
            "x": x,
            "y": y,
            "kernel": self.model.kernel,
            "degree": self.model.degree,
            "bandwidth": dict(zip(x, self.model.bandwidth_.tolist(), strict=True)),
            "loo_r2": None if numpy.isnan(self.model.loo_score_) else float(self.model.loo_score_),
            "loo_error": None if numpy.isnan(self.model.loo_error_) else float(self.model.loo_error_),
            "window": {
                "effective": float(numpy.median(effective)),
                "interval": dict(zip(x, widths.tolist(), strict=True)),
            },
            "predictions": str(self.predictions),
            "picture": str(self.picture),
        }


def fit_curve(
    file: Path | None = None,
    x: Sequence[str] = (),
    y: str | None = None,
    *,
    kernel: str = "gaussian",
    bandwidth: str | float | Sequence[float] = "loo",
    degree: int = 0,
    predictions: Path | None = None,
    picture: Path | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> Curve:
    """Predict a column by others, and write the predictions and a picture; both files are written, or neither.

    file: CSV or parquet; None is the noisy curve of the notes. x, y: the columns to predict from, and the one to
    predict. kernel, bandwidth, degree: as for KernelRegressor. predictions, picture: where to write; by default
    FILE-predictions.csv and FILE-curve.png in the working folder. progress: is called with the name of each stage.
    """
    stem = "regard" if file is None else file.stem
    predictions = predictions or Path(f"{stem}-predictions.csv")
    picture = picture or Path(f"{stem}-curve.png")
    model = KernelRegressor(kernel, bandwidth, degree=degree)
    _check(file, x, y, predictions, picture)
    model.check_parameters()
    progress("reading")
    table = _read(file, x, y)
    X = table.rows[:, :-1]
    progress("choosing the bandwidth")
    model.fit(X, table.rows[:, -1])
    progress("predicting")
    predicted = model.predict(X)
    progress("drawing")

    def write_both(path: Path) -> None:
        """The table gets its name when this returns, so a picture that fails leaves neither file."""
        header = ",".join(_csv_cell(name) for name in (*table.names, "predicted"))
        content = numpy.column_stack([table.rows, predicted])
        with path.open("w", newline="", encoding="utf-8") as stream:
            numpy.savetxt(stream, content, "%.10g", ",", header=header, comments="")
        pictures.write(lambda: _draw(model, table), picture)

    files.write(predictions, write_both)
    return Curve(file, table, model, predictions, picture)


def _check(file: Path | None, x: Sequence[str], y: str | None, predictions: Path, picture: Path) -> None:
    if file is None and (x or y is not None):
        raise ValueError("--x and --y choose columns of a file: regard curve FILE --x COL [COL …] --y COL")
    if file is not None and (not x or y is None):
        raise TableError(f"{file}: say which columns: --x COL [COL …] --y COL (columns: {', '.join(read_names(file))})")
    if y in x:
        raise ValueError(f"y: expected a column that is not among those of x, got {y!r}")
    if picture.suffix.lower() not in pictures.ENDINGS:
        raise ValueError(f"picture: expected a name that ends in {', '.join(pictures.ENDINGS)}, got {picture}")
    for name, path in (("picture", picture), ("predictions", predictions)):
        if not path.parent.is_dir():
            raise ValueError(f"{name}: no folder {path.parent}")


def _read(file: Path | None, x: Sequence[str], y: str | None) -> Table:
    """The columns of x, then that of y."""
    if file is None or y is None:
        return Table(("x", "y"), numpy.column_stack([column.numpy() for column in curve.samples(200)]), 0, None)
    return read_columns(file, [*x, y])


def _csv_cell(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(mark in name for mark in ',"\n') else name


def _draw(model: KernelRegressor, table: Table) -> Figure:
    """A panel for each column of x, the others at their medians."""
    *x, y = table.names
    figure = pictures.figure(3.4 * len(x))
    for feature, axes in enumerate(figure.subplots(len(x), squeeze=False)[:, 0]):
        KernelRegressionDisplay.from_estimator(model, table.rows[:, :-1], table.rows[:, -1], feature=feature, ax=axes)
        axes.set(xlabel=x[feature], ylabel=y)
    return figure
