"""Progress on stderr, for commands, training runs and the tour: a bar on a terminal, nothing elsewhere but notes."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from regard.errors import visible

INTERVAL = 10.0  # seconds between lines, where there is no bar


class ProgressBar:
    """One line: what is going on, how much of it is done, the time elapsed and the time remaining."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self.is_terminal = console.is_terminal
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # stdout stays the real one: libraries that are imported meanwhile, such as colorama, keep the one they find.
        self._progress = Progress(
            *columns, console=console, transient=True, redirect_stdout=False, disable=not self.is_terminal
        )
        self._task = self._progress.add_task("", total=None, visible=False)
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, text: str) -> None:
        """What begins now."""
        self._progress.reset(self._task, total=None, description=text, visible=True)
        self._progress.refresh()  # it may be over before the next refresh

    def update(self, done: int, total: int | None, text: str | None = None, line: str = "") -> None:
        """How many parts of how many, if that is known, are done, and what is going on, if that has changed.

        line: what is said of it now and then where there is no terminal.
        """
        self._progress.update(self._task, completed=done, total=total, description=text, visible=True)
        if line and not self.is_terminal and time.monotonic() - self._last_line >= INTERVAL:
            self._last_line = time.monotonic()
            self.note(line)

    def note(self, text: str) -> None:
        """A line that stays."""
        self._progress.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)
