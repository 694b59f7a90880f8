"""The folder of a run.

training.yaml     the task and its options
log.jsonl         a line for each step and each evaluation
checkpoints/      to resume from
results.json      at the end: the metrics of the best model on the test part
config.json, model.safetensors, …     the best model so far, for `regard.load`
.lock             held while a process trains there
.launch           which launch of torchrun trains there, if it was one
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from regard import files
from regard.errors import RegardError
from regard.models.folders import MANIFEST
from regard.training.options import TASKS, OptionError, Options, read_yaml, resolve

__all__ = [
    *("CHECKPOINTS", "LOG", "RESULTS", "Log", "RunError", "has_run", "lock", "manifest_digest", "read_log"),
    *("read_options", "was_launched_by", "write_options", "write_results"),
]

OPTIONS, LOG, CHECKPOINTS, RESULTS = "training.yaml", "log.jsonl", "checkpoints", "results.json"
LOCK, LAUNCH, EVENTS = ".lock", ".launch", "events"


class RunError(RegardError, ValueError):
    """A run that cannot start or be resumed."""


@contextmanager
def lock(folder: Path, launch: str = "") -> Iterator[None]:
    """Within this block no other process can train in this folder, which is made if it is not there.

    The operating system drops the lock with the process, however that ends: a .lock file that is left behind locks
    nothing. launch: the id of a launch of torchrun, for `was_launched_by`.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    holder = FileLock(folder / LOCK)
    try:
        holder.acquire(timeout=0)
    except Timeout:
        raise RunError(f"{folder}: another process is training there; choose another --out") from None
    try:
        if launch:
            files.write(folder / LAUNCH, launch)
        else:
            (folder / LAUNCH).unlink(missing_ok=True)
        yield
    finally:
        # A run that failed before it wrote anything, because of a missing file for example, leaves no folder behind.
        # Only the holder of the lock can tell: a folder in which another process has just begun looks the same.
        # Windows does not remove a file that is open.
        if is_new and sys.platform != "win32" and _names(folder) <= {LOCK, LAUNCH}:
            shutil.rmtree(folder)
        holder.release()


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def was_launched_by(folder: Path, launch: str) -> bool:
    """Whether this launch of torchrun started or resumed the run in this folder."""
    path = folder / LAUNCH
    return has_run(folder) and path.exists() and path.read_text(encoding="utf-8") == launch


def manifest_digest(folder: Path) -> str:
    """The SHA-256 of the manifest of the model in a folder; "" if there is none."""
    path = folder / MANIFEST
    return files.digest(path) if path.exists() else ""


def has_run(folder: Path) -> bool:
    """Whether a run was started there."""
    return (folder / OPTIONS).exists()


def read_options(folder: Path) -> tuple[str, Options]:
    """The task and the options of a run."""
    path = folder / OPTIONS
    given = read_yaml(path)
    task = given.pop("task", None)
    if task not in TASKS:
        raise OptionError(f"{path}: expected a line such as `task: translate`, got {task!r}")
    unknown = given.keys() - {field.name for field in dataclasses.fields(TASKS[task])}
    if unknown:  # regard itself has written this file
        raise RunError(f"{path}: option {min(unknown)!r} is not of this version of regard; train in a new folder")
    return task, resolve(task, given)


def write_options(folder: Path, task: str, options: Options) -> None:
    """Write training.yaml."""
    import yaml

    content = yaml.safe_dump({"task": task, **dataclasses.asdict(options)}, sort_keys=False, allow_unicode=True)
    files.write(folder / OPTIONS, content)


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """Write results.json."""
    files.write(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


class Log:
    """Writes log.jsonl, and events for TensorBoard if wanted. Lines after `step`, where a run resumes, are dropped."""

    def __init__(self, folder: Path, step: int, *, tensorboard: bool = False) -> None:
        self.events = _summary_writer(folder / EVENTS, step) if tensorboard else None
        self.path = folder / LOG
        files.write(self.path, "".join(line for line in _lines(self.path) if json.loads(line)["step"] <= step))
        self.buffer: list[str] = []

    def add(self, **record: Any) -> None:
        """Add a line; it is written with the next flush."""
        self.buffer.append(json.dumps(record, ensure_ascii=False) + "\n")
        if self.events is not None:
            for name, value in {**record, **record.get("validation", {})}.items():
                if isinstance(value, float) and name != "seconds":
                    self.events.add_scalar(name, value, record["step"])

    def flush(self, *, sync: bool = False) -> None:
        """Write the lines that were added; sync=True: force them to disk, where they survive a power cut."""
        if self.buffer:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(self.buffer))
            self.buffer.clear()
        if sync:
            files.sync(self.path)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()
        if self.events is not None:
            self.events.close()


def _summary_writer(folder: Path, step: int) -> Any:
    """TensorBoard's writer; its events after this step are dropped."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise RunError("tensorboard: is not installed: pip install tensorboard") from error
    return SummaryWriter(str(folder), purge_step=step + 1)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All records of a run's log."""
    return [json.loads(line) for line in _lines(folder / LOG)]


def _lines(path: Path) -> Iterator[str]:
    """The complete lines: the last one may have been cut off when the process was killed."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            yield line + "\n"
