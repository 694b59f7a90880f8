"""Progress of a run on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regard.data.store import watched
from regard.training.task import Sample

if TYPE_CHECKING:
    from regard.progress import ProgressBar

__all__ = ["Report", "format_metrics", "open_report", "preparation_shown"]

NAMES = {"bleu": "BLEU", "chrf": "chrF", "f1": "F1"}
INTERVAL = 10.0  # seconds between lines, where there is no bar


class Report:
    """Reports the steps of a run, with its speed in `unit`/s: on the bar, or in lines where there is no terminal."""

    def __init__(self, unit: str, bar: ProgressBar) -> None:
        self.unit, self.bar = unit, bar
        self.start = self.last = time.monotonic()
        self.first_step: int | None = None
        self.loss: float | None = None

    def step(self, step: int, steps: int | None, loss: float, speed: float) -> None:
        """After each step; of `steps`, if that is known. The loss shown is a running mean."""
        self.loss = loss if self.loss is None else 0.95 * self.loss + 0.05 * loss
        self.first_step = step - 1 if self.first_step is None else self.first_step
        text, now = f"loss {self.loss:.3f} · {speed:,.0f} {self.unit}/s", time.monotonic()
        self.bar.update(step, steps or step, text)
        if not self.bar.is_terminal and now - self.last >= INTERVAL:
            self.last = now
            if steps is None:
                self.write(f"step {step:,} · {text}")
                return
            left = (now - self.start) / (step - self.first_step) * (steps - step)
            self.write(f"step {step:,} of {steps:,} · {text} · {_clock(left)} left")

    def evaluation(self, step: int, metrics: Mapping[str, Any], samples: list[Sample], *, is_best: bool) -> None:
        """After each evaluation."""
        self.write(f"step {step:,} · {format_metrics(metrics)}" + (" · the best so far" if is_best else ""))
        for sample in samples[:1]:
            self.write(f"    {_shorten(sample.input)} → {_shorten(sample.output)}")

    def write(self, text: str) -> None:
        """A line that stays."""
        self.bar.note(text)


@contextmanager
def open_report(unit: str, *, quiet: bool) -> Iterator[Report | None]:
    """A report for the time of a run; None if it is to be quiet."""
    if quiet:
        yield None
        return
    from regard.progress import ProgressBar

    with ProgressBar() as bar:
        yield Report(unit, bar)


@contextmanager
def preparation_shown(*, quiet: bool) -> Iterator[None]:
    """Within this block it is shown how far the preparation of the data has come, unless it is to be quiet."""
    if quiet:
        yield
        return
    from regard.progress import ProgressBar

    with ProgressBar() as bar:
        last = time.monotonic()

        def show(text: str, done: int, total: int) -> None:
            nonlocal last
            bar.update(done, total, text)
            if not bar.is_terminal and time.monotonic() - last >= INTERVAL:
                last = time.monotonic()
                bar.note(f"{text}: {done / max(total, 1):.0%}")

        with watched(show):
            yield


def format_metrics(metrics: Mapping[str, Any]) -> str:
    """The metrics that are numbers, in a line."""
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return " · ".join(
        f"{NAMES.get(name, name.replace('_', ' '))} {_number(name, value)}" for name, value in numbers.items()
    )


def _number(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1f}" if name in ("bleu", "chrf") else f"{value:.1%}" if name == "accuracy" else f"{value:.3f}"


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3_600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def _shorten(text: str, limit: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
