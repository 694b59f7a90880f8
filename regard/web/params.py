"""The fields of a request, checked: numbers, words and tables of a size that can be computed at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Params"]

LARGEST = 1e6  # of the numbers in a table


class Params:
    """Fields by name. One that is missing or wrong raises a ValueError that names it.

    fields: the JSON object that the page sent.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number from `low` to `high`."""
        value = self.fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name}: expected a number, got {value!r}")
        if not low <= value <= high:
            raise ValueError(f"{name}: expected a number from {low:g} to {high:g}, got {value:g}")
        return float(value)

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self.number(name, low, high, default)
        if value != int(value):
            raise ValueError(f"{name}: expected a whole number, got {value:g}")
        return int(value)

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of these words."""
        value = self.fields.get(name, default)
        if value not in choices:
            raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
        return str(value)

    def text(self, name: str, max_length: int) -> str:
        """A text of at most so many characters."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected a text, got {type(value).__name__}")
        if len(value) > max_length:
            raise ValueError(f"{name}: expected at most {max_length:,} characters, got {len(value):,}")
        return value

    def table(self, name: str, rows: tuple[int, int], columns: tuple[int, int]) -> list[list[float]]:
        """Rows of numbers, all of one length; `rows` and `columns` are the least and the greatest count."""
        table = self.fields.get(name)
        if not isinstance(table, list) or not rows[0] <= len(table) <= rows[1]:
            raise ValueError(f"{name}: expected {rows[0]} to {rows[1]} rows")
        widths = {len(row) if isinstance(row, list) else -1 for row in table}
        if len(widths) != 1 or not columns[0] <= max(widths) <= columns[1]:
            raise ValueError(f"{name}: expected rows of {columns[0]} to {columns[1]} numbers, all of one length")
        for cell in (cell for row in table for cell in row):
            if isinstance(cell, bool) or not isinstance(cell, int | float) or not abs(cell) < LARGEST:
                raise ValueError(f"{name}: expected numbers below a million, got {cell!r}")
        return [[float(cell) for cell in row] for row in table]
