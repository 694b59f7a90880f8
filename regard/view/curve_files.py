"""Where the predictions and the picture of a curve are written, and the table of predictions."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from regard.data.tables import Table
from regard.view import pictures

__all__ = ["check_files", "free_file", "write_predictions"]

Array = NDArray[numpy.float64]


def check_files(predictions: Path, picture: Path) -> None:
    """Refuse names that could not be written, before anything is computed."""
    if picture.suffix.lower() not in pictures.ENDINGS:
        raise ValueError(f"picture: expected a name that ends in {', '.join(pictures.ENDINGS)}, got {picture}")
    for name, path in (("picture", picture), ("predictions", predictions)):
        if not path.parent.is_dir():
            raise ValueError(f"{name}: no folder {path.parent}")


def free_file(path: Path) -> Path:
    """The same name, or with the first number by which it is not taken: sales-curve-2.png."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return path if not path.exists() else next(name for name in numbered if not name.exists())


def write_predictions(path: Path, table: Table, columns: dict[str, Array]) -> None:
    """All rows with all their cells as they stand in the file, the line of each, and more columns with all digits.

    A name that the file has already gets a number; `row` is left out then.
    """
    names = [name.strip() for name in table.names]
    header, cells = list(table.names), [_as_written(table.cells[column]) for column in range(len(names))]
    if "row" not in names:
        header.append("row")
        cells.append(table.lines.tolist())
    for name, values in columns.items():
        header.append(next(free for free in _numbered(name) if free not in names))
        cells.append([None if value != value else value for value in values.tolist()])
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*cells, strict=True))


def _as_written(column: Any) -> Sequence[Any]:
    """Text as it is; of parquet each value as Python writes it, and nothing where it is missing."""
    values = column.astype(object)
    return values.where(column.notna(), None).tolist()  # type: ignore[no-any-return]


def _numbered(name: str) -> Any:
    yield name
    yield from (f"{name}_{number}" for number in count(2))
