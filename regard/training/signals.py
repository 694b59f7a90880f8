"""SIGINT and SIGTERM: noted at once, obeyed between two steps."""

from __future__ import annotations

import signal
from typing import Any

from regard.errors import RegardError

__all__ = ["Signals", "Stopped"]


class Stopped(RegardError):
    """A signal came, and was obeyed. The exit code is that of a process which the signal ended: 128 + its number."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = 128 + number


class Signals:
    """Within its block a signal is noted; a second one stops at once. Outside of the main thread it hears none."""

    def __init__(self) -> None:
        self.caught = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._note)
        except ValueError:  # not the main thread: then signals are somebody else's
            self.before.clear()
        return self

    def __exit__(self, *about: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.caught:
            raise Stopped(number, "stopped at once; what was saved before is whole: go on with --resume")
        self.caught = number

    def obey(self, text: str) -> None:
        """Stop here, if a signal came."""
        if self.caught:
            raise Stopped(self.caught, text)
