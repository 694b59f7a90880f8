"""What a page asks, checked: numbers, words and tables of a size that can be answered at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Asked"]


class Asked:
    """The fields of a request. What is missing or wrong is a ValueError that names the field."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number between two others."""
        found = self.fields.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise ValueError(f"{name}: expected a number, got {found!r}")
        if not low <= found <= high:
            raise ValueError(f"{name}: expected a number from {low:g} to {high:g}, got {found:g}")
        return float(found)

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number between two others."""
        found = self.number(name, low, high, default)
        if found != int(found):
            raise ValueError(f"{name}: expected a whole number, got {found:g}")
        return int(found)

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of some words."""
        found = self.fields.get(name, default)
        if found not in choices:
            raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {found!r}")
        return str(found)

    def text(self, name: str, most: int) -> str:
        """A text that is not too long."""
        found = self.fields.get(name)
        if not isinstance(found, str):
            raise ValueError(f"{name}: expected a text, got {type(found).__name__}")
        if len(found) > most:
            raise ValueError(f"{name}: expected at most {most:,} characters, got {len(found):,}")
        return found

    def table(self, name: str, rows: tuple[int, int], columns: tuple[int, int]) -> list[list[float]]:
        """Rows of numbers, all of one length; `rows` and `columns` are the fewest and the most."""
        found = self.fields.get(name)
        if not isinstance(found, list) or not rows[0] <= len(found) <= rows[1]:
            raise ValueError(f"{name}: expected {rows[0]} to {rows[1]} rows")
        widths = {len(row) if isinstance(row, list) else -1 for row in found}
        if len(widths) != 1 or not columns[0] <= max(widths) <= columns[1]:
            raise ValueError(f"{name}: expected rows of {columns[0]} to {columns[1]} numbers, all of one length")
        for row in found:
            for cell in row:
                if isinstance(cell, bool) or not isinstance(cell, int | float) or not abs(cell) < 1e6:
                    raise ValueError(f"{name}: expected numbers below a million, got {cell!r}")
        return [[float(cell) for cell in row] for row in found]
