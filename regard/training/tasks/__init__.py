"""The tasks: one file each."""

from __future__ import annotations

from typing import Any

from regard.data.split import SplitError
from regard.errors import RegardError
from regard.training.options import Options
from regard.training.task import Task, TaskError, Tokenizers
from regard.training.tasks import images, language, text, translate

__all__ = ["images", "language", "prepare", "text", "translate"]

MODULES: dict[str, Any] = {"translate": translate, "language": language, "text": text, "images": images}


def prepare(name: str, options: Options, tokenizers: Tokenizers | None = None) -> Task:
    """Read the data that the options name, and build the model that they describe.

    tokenizers: those of the run that is resumed; without them new ones are trained.
    """
    try:
        task: Task = MODULES[name].prepare(options, tokenizers or Tokenizers())
    except SplitError as error:
        raise TaskError(f"{getattr(options, 'data', name)}: {error}") from error
    except RegardError:
        raise
    except ValueError as error:  # of a model's constructor, which refuses what the options say
        raise TaskError(str(error)) from error
    return task
