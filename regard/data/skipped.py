"""Rows that cannot be used: all of them are counted, and the first ones named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import RegardError

__all__ = ["RowsError", "Skipped"]

NAMED = 10


class RowsError(RegardError, ValueError):
    """Rows of a file that cannot be used; the message has a line for each of the first ones."""

    keeps_lines = True


class Skipped:
    """The rows that a reader could not use. `check` stops at the end of the pass, when all of them are known.

    policy: "stop" if one such row is an error, "skip" if they are left out.
    unit: what one of them is called.
    """

    def __init__(self, policy: str = "stop", unit: str = "row") -> None:
        if policy not in ("stop", "skip"):
            raise ValueError(f"policy: expected stop or skip, got {policy!r}")
        self.policy, self.unit = policy, unit
        self.count = 0
        self.named: list[str] = []

    def add(self, file: Path | str, row: int | str | None, reason: str) -> None:
        """A row that cannot be used: its line number, or None if the file is one row, and why."""
        self.count += 1
        if len(self.named) < NAMED:
            place = file if row is None else f"{file}: line {row}" if isinstance(row, int) else f"{file}: {row}"
            self.named.append(" ".join(f"{place}: {reason}".splitlines()))

    def check(self, usable: int) -> None:
        """At the end of a pass with so many usable rows: RowsError if there were others and the policy is to stop.

        If no row is usable, that is an error under both policies.
        """
        if not self.count or (self.policy == "skip" and usable):
            return
        if self.count == 1:
            cure = "fix it or pass --on-error skip" if usable else f"there is no other {self.unit}"
            raise RowsError(f"{self.named[0]}; {cure}")
        if not usable:  # it is another kind of file: one reason says it
            raise RowsError(f"{self.named[0]}; none of the {self.count:,} {self.unit}s can be used")
        amount, cure = f"{self.count:,} of {self.count + usable:,}", "fix them or pass --on-error skip"
        raise RowsError("\n".join([f"{amount} {self.unit}s cannot be used:", *self._lines(), cure]))

    def notes(self) -> list[str]:
        """What was left out, for the user to read."""
        if not self.count:
            return []
        counted = f"1 {self.unit} is" if self.count == 1 else f"{self.count:,} {self.unit}s are"
        return [f"{counted} left out:", *self._lines()]

    def facts(self) -> dict[str, Any]:
        """The same as JSON can write it, for a store that remembers what was left out."""
        return {"count": self.count, "named": self.named}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any], policy: str = "stop", unit: str = "row") -> Skipped:
        """What a store remembers."""
        skipped = cls(policy, unit)
        skipped.count, skipped.named = int(facts["count"]), list(facts["named"])
        return skipped

    def _lines(self) -> list[str]:
        more = self.count - len(self.named)
        return [*(f"  {line}" for line in self.named), *([f"  and {more:,} more"] if more else [])]
