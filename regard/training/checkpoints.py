"""Checkpoints: everything that a run needs to resume exactly, written completely or not at all.

    checkpoints/step-00000500/    shard-….safetensors   weights and optimizer state, by torch.distributed.checkpoint:
                                                        any number of processes can read them
                                  state.json            loop.State
                                  manifest.json         the SHA-256 of the other files

A checkpoint is written beside its place, synced to disk, and renamed. The two newest are kept. Resuming takes the
newest one whose files match its manifest; damaged ones are skipped, reported, and removed. Nothing is a pickle.
"""

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from regard import files
from regard.errors import RegardError
from regard.models.folders import check_manifest, write_manifest
from regard.models.tensors import FolderError, read_json
from regard.training.processes import World

KEEP = 2
STATE = "state.json"


class CheckpointError(RegardError, ValueError):
    """A checkpoint that cannot be used."""

    exit_code = 1


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files match its manifest."""

    folder: Path
    step: int
    state: dict[str, Any]


def save(home: Path, step: int, tensors: dict[str, Tensor], state: Mapping[str, Any], world: World) -> None:
    """Write a checkpoint, unless this step has one; every process calls this.

    OSError if the disk is full: then the older ones stay.
    """
    path = home / f"step-{step:08d}"
    if world.broadcast(path.exists()):
        return
    with ExitStack() as stack:
        folder = None
        with _failing_together(world):
            if world.is_first:
                folder = stack.enter_context(files.new_folder(path))
        with _failing_together(world):
            _write_tensors(world.broadcast(folder), tensors)
        with _failing_together(world):
            if folder is not None:
                (folder / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
                write_manifest(folder, [file.name for file in folder.iterdir()])
                stack.close()  # synced and renamed
                for _, old in _folders(home)[:-KEEP]:
                    shutil.rmtree(old)


def newest(home: Path) -> tuple[Checkpoint | None, dict[int, str]]:
    """The newest complete checkpoint, and what is wrong with those after it, by step. An error if all are damaged."""
    damages: dict[int, str] = {}
    for step, folder in reversed(_folders(home)):
        try:
            return _verify(folder), damages
        except FolderError as error:
            damages[step] = str(error)
    if damages:
        raise CheckpointError(
            f"every checkpoint is damaged: {next(iter(damages.values()))}; remove the folder {home}, and --resume "
            f"trains again from the first step; the best model, in {home.parent}, stays usable"
        )
    return None, damages


def remove_after(home: Path, step: int) -> None:
    """Remove the damaged checkpoints after the one that a run resumes from; they will be written again."""
    for saved, folder in _folders(home):
        if saved > step:
            shutil.rmtree(folder)


def restore(checkpoint: Checkpoint, tensors: dict[str, Tensor]) -> None:
    """Read a checkpoint into tensors, or shards of tensors, of the same names and shapes."""
    reader = HuggingFaceStorageReader(str(checkpoint.folder))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns where there is no process group
            load_tensors(tensors, storage_reader=reader, no_dist=not distributed.is_initialized())
    except (CheckpointException, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{checkpoint.folder}: does not fit this model: {_reason(error)}") from error


def _folders(home: Path) -> list[tuple[int, Path]]:
    """The checkpoints by step, the oldest first; not what others put beside them, such as a copy of one."""
    paths = ((path.name.removeprefix("step-"), path) for path in home.glob("step-*"))
    return sorted((int(step), path) for step, path in paths if step.isdecimal())


def _write_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save_tensors(tensors, storage_writer=writer, no_dist=not distributed.is_initialized())
    except CheckpointException as error:
        raise OSError(f"{folder.parent}: the checkpoint could not be written: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """The first line of the first process's error."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _verify(folder: Path) -> Checkpoint:
    check_manifest(folder, STATE)
    state = read_json(folder / STATE)
    if type(state.get("step")) is not int or state["step"] < 0:
        raise FolderError(f"{folder / STATE}: expected the number of a step, got {state.get('step')!r}")
    return Checkpoint(folder, state["step"], state)


@contextmanager
def _failing_together(world: World) -> Iterator[None]:
    """An OSError in one process becomes one in all of them: the others would wait for it forever."""
    failure = None
    try:
        yield
    except OSError as error:
        failure = error
    (failures,) = world.all_reduce(float(failure is not None))
    if failure is not None:
        raise failure
    if failures:
        raise OSError("another process could not write the checkpoint")
