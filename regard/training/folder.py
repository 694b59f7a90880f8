"""The folder of a run: who works in it, what it was told, what happened.

training.yaml     the task and its options, as they were resolved
log.jsonl         one line for each step and each evaluation
checkpoints/      to go on from
results.json      the best model's metrics on the test part, in the end
config.json, model.safetensors, …     the best model so far, for `regard.load`
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard import files
from regard.errors import RegardError
from regard.models.folders import MANIFEST
from regard.training.options import OptionError, Options, read_yaml, resolved

__all__ = ["CHECKPOINTS", "RESULTS", "Log", "RunError", "locked", "read_options", "write_options", "write_results"]

OPTIONS, LOG, CHECKPOINTS, RESULTS = "training.yaml", "log.jsonl", "checkpoints", "results.json"
LOCK, EVENTS = ".lock", "events"


class RunError(RegardError, ValueError):
    """A run that cannot begin or go on, and why."""


@contextmanager
def locked(folder: Path, launch: str) -> Iterator[None]:
    """Within this block nobody else trains in this folder. The lock goes with the process, however it ends."""
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{folder}: somebody is training there already; choose another --out") from None
        file.truncate(0)
        file.write(launch)
        file.flush()
        try:
            yield
        finally:
            if made:
                _forget_if_bare(folder)


def _forget_if_bare(folder: Path) -> None:
    """A run that ends before it wrote anything, because of a file that is not there, say, leaves no folder behind.

    Only for who holds the lock: to anybody else the folder of a run that has just begun looks the same.
    """
    if folder.exists() and [path.name for path in folder.iterdir()] == [LOCK]:
        (folder / LOCK).unlink()
        folder.rmdir()


def is_of(folder: Path, launch: str) -> bool:
    """Whether the run in this folder was begun, or gone on with, by this launch of torchrun."""
    return has_run(folder) and (folder / LOCK).read_text(encoding="utf-8") == launch


def seal(folder: Path) -> str:
    """The SHA-256 of the manifest of the model in a folder; nothing where there is none."""
    path = folder / MANIFEST
    return files.digest(path) if path.exists() else ""


def has_run(folder: Path) -> bool:
    """Whether a run was begun there."""
    return (folder / OPTIONS).exists()


def read_options(folder: Path) -> tuple[str, Options]:
    """The task and the options of a run."""
    content = read_yaml(folder / OPTIONS)
    task = content.pop("task", None)
    if not isinstance(task, str):
        raise OptionError(f"{folder / OPTIONS}: expected a line such as `task: translate`")
    return task, resolved(task, content)


def write_options(folder: Path, task: str, options: Options) -> None:
    """Keep what a run was told."""
    import yaml

    content = yaml.safe_dump({"task": task, **dataclasses.asdict(options)}, sort_keys=False, allow_unicode=True)
    files.write(folder / OPTIONS, content)


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """Keep how it ended."""
    content = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    files.write(folder / RESULTS, content)


class Log:
    """log.jsonl: what happened, line by line. A run that goes on from a step forgets what came after it."""

    def __init__(self, folder: Path, step: int, *, events: bool = False) -> None:
        self.events = _events(folder / EVENTS, step) if events else None
        self.path = folder / LOG
        kept = "".join(line for line in _lines(self.path) if json.loads(line)["step"] <= step)
        files.write(self.path, kept)
        self.waiting: list[str] = []

    def add(self, **record: Any) -> None:
        """One more line; it is written with the next flush."""
        self.waiting.append(json.dumps(record, ensure_ascii=False) + "\n")
        if self.events is not None:
            for name, value in {**record, **record.get("validation", {})}.items():
                if isinstance(value, float) and name != "seconds":
                    self.events.add_scalar(name, value, record["step"])

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *about: object) -> None:
        self.flush()
        if self.events is not None:
            self.events.close()

    def flush(self) -> None:
        if self.waiting:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(self.waiting))
            self.waiting.clear()


def _events(folder: Path, step: int) -> Any:
    """TensorBoard's own writer, from this step on."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise RunError("tensorboard: is not installed: pip install tensorboard") from error
    return SummaryWriter(str(folder), purge_step=step + 1)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All records of a run's log."""
    return [json.loads(line) for line in _lines(folder / LOG)]


def _lines(path: Path) -> Iterator[str]:
    """The complete lines: the last one may have been cut off."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            yield line + "\n"
