"""SIGINT and SIGTERM: noted when they come, obeyed between two steps; at once while there is nothing to save."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regard.errors import RegardError

__all__ = ["Signals", "Stopped"]


class Stopped(RegardError):
    """A run that ended because of a signal; the exit code is 128 + its number, as the shell expects."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number
        self.exit_code = 128 + number


class Signals:
    """Within its block a first signal is noted in `caught`, and a second one raises Stopped at once.

    Only the main thread can handle signals: in any other one this does nothing.
    """

    def __init__(self) -> None:
        self.caught = 0
        self.handlers: dict[int, Any] = {}  # those before this block
        self.nothing_to_save = ""

    def __enter__(self) -> Signals:
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self.handlers[number] = signal.signal(number, self._note)
        except ValueError:  # not the main thread
            self.handlers.clear()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def obeyed_at_once(self, text: str) -> Iterator[None]:
        """Within this block there is nothing to save: the first signal raises Stopped with this text."""
        self.raise_if_caught(text)
        self.nothing_to_save = text
        try:
            yield
        finally:
            self.nothing_to_save = ""

    def _note(self, number: int, frame: Any) -> None:
        if self.nothing_to_save:
            raise Stopped(number, self.nothing_to_save)
        if self.caught:
            raise Stopped(number, "stopped at once; what was saved before is complete: go on with --resume")
        self.caught = number

    def raise_if_caught(self, text: str) -> None:
        """Stop here, if a signal came."""
        if self.caught:
            raise Stopped(self.caught, text)
