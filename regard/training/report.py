"""What a run tells whoever watches: a bar on a terminal, a line now and then anywhere else. All of it on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from regard.training.task import Sample

__all__ = ["Report", "reporting", "told"]

INTERVAL = 10.0  # seconds between lines where nobody watches a bar


class Report:
    """Where a run tells how it goes."""

    def __init__(self, steps: int, unit: str, bar: Any, task: Any) -> None:
        self.steps, self.unit, self.bar, self.task = steps, unit, bar, task
        self.start = self.last = time.monotonic()
        self.begun: int | None = None
        self.loss: float | None = None

    def step(self, step: int, loss: float, speed: float) -> None:
        """After each step. The loss shown is an average over some steps."""
        self.loss = loss if self.loss is None else 0.95 * self.loss + 0.05 * loss
        self.begun = step - 1 if self.begun is None else self.begun
        now = time.monotonic()
        if self.bar is not None:
            text = f"loss {self.loss:.3f} · {speed:,.0f} {self.unit}/s"
            self.bar.update(self.task, completed=step, description=text)
        elif now - self.last >= INTERVAL:
            self.last = now
            left = (now - self.start) / (step - self.begun) * (self.steps - step)
            numbers = f"loss {self.loss:.3f} · {speed:,.0f} {self.unit}/s · {_minutes(left)} left"
            self.say(f"step {step:,} of {self.steps:,} · {numbers}")

    def evaluated(self, step: int, metrics: Mapping[str, Any], samples: list[Sample], best: bool) -> None:
        """After each evaluation."""
        self.say(f"step {step:,} · {told(metrics)}" + (" · the best so far" if best else ""))
        for sample in samples[:1]:
            self.say(f"    {_short(sample.given)} → {_short(sample.found)}")

    def say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


@contextmanager
def reporting(steps: int, done: int, unit: str, *, quiet: bool) -> Iterator[Report | None]:
    """A report for as long as the run takes; None for a process that is to be quiet."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Report(steps, unit, None, None)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        yield Report(steps, unit, bar, bar.add_task("", total=steps, completed=done))


def told(metrics: Mapping[str, Any]) -> str:
    """Metrics in a line."""
    shown = {name: value for name, value in metrics.items() if name != "signature"}
    text = " · ".join(f"{name.replace('_', ' ')} {_number(name, value)}" for name, value in shown.items())
    return text.replace("bleu", "BLEU")


def _number(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1f}" if name == "bleu" else f"{value:.1%}" if name == "accuracy" else f"{value:.3f}"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    hours, rest = divmod(whole, 3_600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def _short(text: str, most: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
