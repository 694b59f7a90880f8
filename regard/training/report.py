"""What a run says: progress on stderr, numbers for TensorBoard and Weights & Biases, how wide heads attend."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.capture import AttentionMap, Recorder
from regard.attention.numbers import mean_of_rows, width
from regard.attention.observers import observe
from regard.data.store import watched
from regard.models.model import Model, evaluation
from regard.progress import ProgressBar
from regard.training.folder import RunError
from regard.training.options import Options
from regard.training.task import Sample, Task

NAMES = {"bleu": "BLEU", "chrf": "chrF", "f1": "F1"}
EVENTS = "events"  # TensorBoard's folder in that of the run
WIDTH_EXAMPLES = 4  # of which widths are measured: always the same ones


class Report:
    """Reports the steps of a run, with its speed in `unit`/s: on the bar, or in lines where there is no terminal."""

    def __init__(self, unit: str, bar: ProgressBar) -> None:
        self.unit, self.bar, self.write = unit, bar, bar.note
        self.start = time.monotonic()
        self.first_step: int | None = None
        self.loss: float | None = None

    def step(self, step: int, steps: int | None, loss: float, speed: float) -> None:
        """After each step; of `steps`, if that is known. The loss shown is a running mean."""
        self.loss = loss if self.loss is None else 0.95 * self.loss + 0.05 * loss
        self.first_step = step - 1 if self.first_step is None else self.first_step
        text = f"loss {self.loss:.3f} · {speed:,.0f} {self.unit}/s"
        left = (time.monotonic() - self.start) / (step - self.first_step) * ((steps or step) - step)
        line = f"step {step:,} of {steps:,} · {text} · {_clock(left)} left" if steps else f"step {step:,} · {text}"
        self.bar.update(step, steps, text, line)

    def evaluation(self, step: int, metrics: Mapping[str, Any], samples: list[Sample], *, is_best: bool) -> None:
        """After each evaluation."""
        self.write(f"step {step:,} · {format_metrics(metrics)}" + (" · the best so far" if is_best else ""))
        for sample in samples[:1]:
            self.write(f"    {shorten(sample.input)} → {shorten(sample.output)}")


@contextmanager
def preparation_shown(*, quiet: bool) -> Iterator[None]:
    """Within this block it is shown how far the preparation of the data has come, unless it is to be quiet."""
    if quiet:
        yield
        return
    with ProgressBar() as bar:

        def show(text: str, done: int, total: int) -> None:
            bar.update(done, total, text, f"{text}: {done / max(total, 1):.0%}")

        with watched(show):
            yield


def format_metrics(metrics: Mapping[str, Any]) -> str:
    """The metrics that are numbers, in a line."""
    texts = []
    for name, value in metrics.items():
        if isinstance(value, float):
            form = ".1f" if name in ("bleu", "chrf") else ".1%" if name == "accuracy" else ".3f"
            texts.append(f"{NAMES.get(name, name.replace('_', ' '))} {value:{form}}")
    return " · ".join(texts)


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3_600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def shorten(text: str, limit: int = 70) -> str:
    """A text in one line, so many characters of it at most."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


@dataclass(frozen=True)
class Logger:
    """Where numbers go besides log.jsonl: `add` gets those of a step, or of an evaluation after it, by their names."""

    add: Callable[[int, Mapping[str, float]], object]
    close: Callable[[], object]


def open_loggers(options: Options, folder: Path, step: int) -> list[Logger]:
    """The loggers that the options name, for a run that goes on after a step."""
    loggers = []
    if options.tensorboard:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise RunError("tensorboard: is not installed: pip install tensorboard") from error
        # Events after the step where a run resumes are dropped.
        writer: Any = SummaryWriter(str(folder / EVENTS), purge_step=step + 1)

        def add_scalars(step: int, numbers: Mapping[str, float]) -> None:
            for name, number in numbers.items():
                writer.add_scalar(name, number, step)

        loggers.append(Logger(add_scalars, writer.close))
    if options.wandb is not None:
        try:
            import wandb
        except ImportError as error:
            raise RunError("wandb: is not installed: pip install wandb") from error
        # Where nothing else is set, offline: `wandb sync` sends it later.
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        place = {"project": options.wandb, "dir": folder, "name": folder.name}
        settings = wandb.Settings(silent=True, console="off")
        run: Any = wandb.init(**place, config=dataclasses.asdict(options), mode=mode, settings=settings)
        loggers.append(Logger(lambda step, numbers: run.log(dict(numbers), step=step), run.finish))
    return loggers


def head_widths(task: Task, model: Model) -> dict[str, list[float]]:
    """exp of the entropy of each head's weights, on average: {path of the layer: [a number for each head]}."""
    widths: dict[str, list[Tensor]] = {}

    def record(layer: AttentionMap) -> None:
        widths.setdefault(layer.name, []).append(mean_of_rows(width(layer.weights), layer.weights))  # (heads,)

    device = next(model.parameters()).device
    with torch.no_grad(), evaluation(model), observe(Recorder(model, record)):
        for row in next(iter(task.batches.epoch(0)))[:WIDTH_EXAMPLES]:
            task.loss(model, task.batch([row], slice(None), torch.Generator().manual_seed(0)).to(device))
    return {name: [round(mean, 4) for mean in torch.stack(means).mean(0).tolist()] for name, means in widths.items()}
