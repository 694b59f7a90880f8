"""The tasks: one file each."""

from __future__ import annotations

from importlib import import_module

from regard.training.options import Options
from regard.training.task import Task

__all__ = ["prepare"]


def prepare(name: str, options: Options) -> Task:
    """Read the data that the options name, and build the model that they describe."""
    task: Task = import_module(f"regard.training.tasks.{name}").prepare(options)
    return task
