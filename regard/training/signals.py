"""SIGINT and SIGTERM: noted at once, obeyed between two steps."""

from __future__ import annotations

import signal
from typing import Any

__all__ = ["Signals", "Stopped"]


class Stopped(Exception):
    """A signal came; everything is saved."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped at step {step:,}; everything is saved: go on with --resume")
        self.number = number


class Signals:
    """Within its block a signal is noted; a second one interrupts at once. Outside of the main thread it hears none."""

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
            raise KeyboardInterrupt
        self.caught = number
