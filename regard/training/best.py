"""The best model of a run: in its folder, for everybody, and once more beside the checkpoints, in case it is lost."""

from __future__ import annotations

from pathlib import Path

from regard.models.folders import WRITTEN, load
from regard.models.model import Model
from regard.models.tensors import FolderError
from regard.training.folder import BEST

__all__ = ["repair_best", "save_best"]


def save_best(model: Model, folder: Path) -> None:
    """Save the best model of the run in a folder. The copy first: so one of both is whole at any time."""
    model.save(folder / BEST)
    model.save(folder)


def repair_best(folder: Path) -> tuple[Model | None, str | None]:
    """The best model of a run, from its copy if it is damaged, and a line about that; None if both are lost."""
    try:
        return load(folder), None
    except FolderError as error:
        reason = str(error)
    for file in WRITTEN:
        (folder / file).unlink(missing_ok=True)
    try:
        model = load(folder / BEST)
    except FolderError:
        return None, f"the best model so far is lost, and the next evaluation saves one: {reason}"
    model.save(folder)
    return model, f"the best model so far was damaged, and is restored from its copy: {reason}"
