"""Checkpoints: all that a run needs to go on as if it had never stopped, written whole or not at all.

    checkpoints/step-00000500/    shard-….safetensors   weights and what the optimizer remembers, by torch's own
                                                        distributed checkpoints: any number of processes can read them
                                  state.json            where the run stands
                                  manifest.json         the SHA-256 of the others

A checkpoint is written beside its place, brought to disk, and renamed. The two newest are kept; the newest one that is
whole is found again. Nothing is a pickle.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from regard import files
from regard.errors import RegardError
from regard.models.folders import MANIFEST
from regard.models.tensors import FolderError, read_json
from regard.training.processes import World

__all__ = ["Checkpoint", "CheckpointError", "exists", "forget_after", "newest", "restore", "save"]

KEPT = 2
STATE = "state.json"


class CheckpointError(RegardError, ValueError):
    """A checkpoint that cannot be used."""

    exit_code = 1


@dataclass(frozen=True)
class Checkpoint:
    """One that is whole."""

    folder: Path
    step: int
    state: dict[str, Any]


def save(home: Path, step: int, tensors: dict[str, Tensor], state: Mapping[str, Any], world: World) -> None:
    """Write a checkpoint; every process calls this. OSError where the disk does not take it: the old ones stay."""
    beside = home / f".{_name(step)}"
    failed = None
    if world.first:
        try:
            home.mkdir(exist_ok=True)
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir()
        except OSError as error:
            failed = error
    _agree(world, failed)
    try:
        _write_tensors(beside, tensors)
    except OSError as error:
        failed = error
    if world.first and failed is None:
        try:
            _seal(beside, state)
            beside.rename(home / _name(step))
            _settle(home)
            _forget(home)
        except OSError as error:
            failed = error
    if failed is not None and world.first:
        shutil.rmtree(beside, ignore_errors=True)
    _agree(world, failed)


def exists(home: Path, step: int) -> bool:
    """Whether this step is saved already."""
    return (home / _name(step)).exists()


def newest(home: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and why those after it are not. An error where all are spoilt."""
    reasons: list[str] = []
    for folder in sorted(home.glob("step-*"), reverse=True):
        try:
            return _checked(folder), reasons
        except FolderError as error:
            reasons.append(str(error))
    if reasons:
        raise CheckpointError(f"no checkpoint is whole: {reasons[0]}; remove the folder to begin anew")
    return None, reasons


def forget_after(home: Path, step: int) -> None:
    """Remove what is newer than the checkpoint that a run goes on from: it is not whole, and will be written again."""
    for folder in home.glob("step-*"):
        if folder.name > _name(step):
            shutil.rmtree(folder)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def restore(found: Checkpoint, tensors: dict[str, Tensor]) -> None:
    """Read the numbers of a checkpoint into tensors, or parts of tensors, of the same names and shapes."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    reader = HuggingFaceStorageReader(str(found.folder))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a single process is alone
            load_tensors(tensors, storage_reader=reader, no_dist=not distributed.is_initialized())
    except (CheckpointException, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{found.folder}: does not fit this model: {_reason(error)}") from error


def _write_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save_tensors(tensors, storage_writer=writer, no_dist=not distributed.is_initialized())
    except CheckpointException as error:
        raise OSError(f"{folder.parent}: the checkpoint could not be written: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """The first line of what a process said."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _seal(folder: Path, state: Mapping[str, Any]) -> None:
    """State and manifest, and all of it on disk."""
    (folder / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    digests = {path.name: files.digest(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"sha256": digests}, indent=2) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        _settle(path)
    _settle(folder)


def _settle(path: Path) -> None:
    """Bring a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _forget(home: Path) -> None:
    for old in sorted(home.glob("step-*"))[:-KEPT]:
        shutil.rmtree(old)
    for unfinished in home.glob(".step-*"):
        shutil.rmtree(unfinished, ignore_errors=True)


def _checked(folder: Path) -> Checkpoint:
    listed = read_json(folder / MANIFEST).get("sha256")
    if not isinstance(listed, dict) or STATE not in listed:
        raise FolderError(f"{folder / MANIFEST}: expected the SHA-256 of the files beside it")
    for name, expected in listed.items():
        path = folder / name
        if Path(name).name != name or not path.is_file() or files.digest(path) != expected:
            raise FolderError(f"{path}: is not the file that was saved")
    state = read_json(folder / STATE)
    return Checkpoint(folder, int(state["step"]), state)


def _agree(world: World, failed: OSError | None) -> None:
    """Go on together, or fail together."""
    (count,) = world.all_reduce(float(failed is not None))
    if failed is not None:
        raise failed
    if count:
        raise OSError("another process could not write the checkpoint")
