"""Where the numbers of a run go besides log.jsonl: TensorBoard, Weights & Biases. A new one is a class and a row."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from regard.training.folder import RunError
from regard.training.options import Options

__all__ = ["Logger", "open_loggers"]

EVENTS = "events"  # TensorBoard's folder in that of the run


class Logger(Protocol):
    """Receives numbers by name, step by step."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """The numbers of a step, or of an evaluation after it."""

    def close(self) -> None:
        """Write what is not written yet."""


class TensorBoard:
    """Writes events, those of the training and those of the evaluations."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise RunError("tensorboard: is not installed: pip install tensorboard") from error
        # Events after the step where a run resumes are dropped.
        self.writer: Any = SummaryWriter(str(folder / EVENTS), purge_step=step + 1)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """See Logger."""
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)

    def close(self) -> None:
        """See Logger."""
        self.writer.close()


class WeightsAndBiases:
    """Writes a run of a project; where nothing else is set, offline: `wandb sync` sends it later."""

    def __init__(self, project: str, folder: Path, options: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise RunError("wandb: is not installed: pip install wandb") from error
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        settings = wandb.Settings(silent=True, console="off")
        self.run: Any = wandb.init(
            project=project, dir=folder, name=folder.name, config=dict(options), mode=mode, settings=settings
        )

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """See Logger."""
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        """See Logger."""
        self.run.finish()


def open_loggers(options: Options, folder: Path, step: int) -> list[Logger]:
    """The loggers that the options name, for a run that goes on after a step."""
    loggers: list[Logger] = []
    if options.tensorboard:
        loggers.append(TensorBoard(folder, step))
    if options.wandb is not None:
        loggers.append(WeightsAndBiases(options.wandb, folder, dataclasses.asdict(options)))
    return loggers
