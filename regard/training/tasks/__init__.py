"""The tasks: one file each."""

from __future__ import annotations

from importlib import import_module

from regard.data.split import SplitError
from regard.training.options import Options
from regard.training.task import Task, TaskError, Tokenizers

__all__ = ["prepare"]


def prepare(name: str, options: Options, kept: Tokenizers | None = None) -> Task:
    """Read the data that the options name, and build the model that they describe.

    `kept` are the tokenizers of a run that has begun: tokens have to mean what they meant.
    """
    try:
        task: Task = import_module(f"regard.training.tasks.{name}").prepare(options, kept)
    except SplitError as error:
        raise TaskError(f"{getattr(options, 'data', name)}: {error}") from error
    return task
