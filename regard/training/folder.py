"""The folder of a run.

training.yaml     the task, its options, and the fingerprint of its data
log.jsonl         a line for each step and each evaluation
checkpoints/      to resume from; in checkpoints/best a copy of the best model
plan.json         of a run of some minutes: how many steps it will have
results.json      at the end: the metrics of the best model on the test part
config.json, model.safetensors, …     the best model so far, for `regard.load`
.lock             held while a process trains there
.launch           which launch of torchrun trains there, if it was one
"""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from regard import files
from regard.errors import RegardError
from regard.models.folders import MANIFEST, WRITTEN, load
from regard.models.model import Model
from regard.models.tensors import FolderError
from regard.training.options import TASKS, OptionError, Options, read_yaml, resolve

if TYPE_CHECKING:
    from regard.training.report import Logger

OPTIONS, LOG, CHECKPOINTS, RESULTS = "training.yaml", "log.jsonl", "checkpoints", "results.json"
BEST = f"{CHECKPOINTS}/best"  # a copy of the best model
LOCK, LAUNCH = ".lock", ".launch"
UNFINISHED = re.compile(r"\.(saving-|[0-9a-f]{8}-)")  # how names begin that Model.save, files.write and new_folder use


class RunError(RegardError, ValueError):
    """A run that cannot start or be resumed."""


@contextmanager
def lock(folder: Path, launch: str = "") -> Iterator[None]:
    """Within this block no other process can train in this folder, which is made if it is not there.

    The operating system drops the lock with the process, however that ends: a .lock file that is left behind locks
    nothing. launch: the id of a launch of torchrun, for `was_launched_by`.
    """
    is_new = not folder.exists()
    if not is_new and not folder.is_dir():
        raise RunError(f"{folder}: is a file, expected a folder: choose another --out")
    if not files.is_text(str(folder)):  # safetensors would not read the model, at the end of the run
        raise RunError(f"{str(folder)!r}: expected a name in UTF-8: choose another --out")
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
        if is_new and sys.platform != "win32" and {path.name for path in folder.iterdir()} <= {LOCK, LAUNCH}:
            shutil.rmtree(folder)
        holder.release()


def remove_remains(folder: Path) -> None:
    """Remove what killed processes left behind: files and folders that had not got their names yet."""
    for path in [path for home in (folder, folder / CHECKPOINTS, folder / BEST) for path in home.glob(".*")]:
        if UNFINISHED.match(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


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
    given.pop("fingerprint", None)
    if task not in TASKS:
        raise OptionError(f"{path}: expected a line such as `task: translate`, got {task!r}")
    unknown = given.keys() - {field.name for field in dataclasses.fields(TASKS[task])}
    if unknown:  # regard itself has written this file
        raise RunError(f"{path}: option {min(unknown)!r} is not of this version of regard; train in a new folder")
    return task, resolve(task, given)


def has_other_data(folder: Path, fingerprint: str) -> bool:
    """Whether a run was started with other data than those of this fingerprint, see `Task`."""
    return bool(read_yaml(folder / OPTIONS).get("fingerprint", fingerprint) != fingerprint)


def write_options(folder: Path, task: str, options: Options, fingerprint: str) -> None:
    """Write training.yaml."""
    import yaml

    content = {"task": task, "fingerprint": fingerprint, **dataclasses.asdict(options)}
    files.write(folder / OPTIONS, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def save_best(model: Model, folder: Path) -> None:
    """Save the best model of the run in a folder. The copy first: so one of both is whole at any time."""
    model.save(folder / BEST)
    model.save(folder)


def repair_best(folder: Path) -> tuple[Model | None, str | None]:
    """The best model of a run and its copy, each restored from the other if it is damaged, and a line about the model.

    None if both are lost.
    """
    model, copy = _load_or_remove(folder), _load_or_remove(folder / BEST)
    if isinstance(model, Model):
        if not isinstance(copy, Model):
            model.save(folder / BEST)
        return model, None
    if isinstance(copy, Model):
        copy.save(folder)
        return copy, f"the best model so far was damaged, and is restored from its copy: {model}"
    return None, f"the best model so far is lost, and the next evaluation saves one: {model}"


def _load_or_remove(folder: Path) -> Model | FolderError:
    """The model in a folder of this run; or what is wrong with it: then its files, which `save` takes for a stranger's
    where the config is damaged, are removed."""
    try:
        return load(folder)
    except FolderError as error:
        for file in WRITTEN:
            (folder / file).unlink(missing_ok=True)
        return error


class Log:
    """Writes log.jsonl, and the numbers in it to loggers. Lines after `step`, where a run resumes, are dropped."""

    def __init__(self, folder: Path, step: int, loggers: "Sequence[Logger]" = ()) -> None:
        self.path, self.loggers = folder / LOG, loggers
        records = [record for record in read_log(folder) if record["step"] <= step]
        self.missing = step - len({record["step"] for record in records if "loss" in record})  # steps without a line
        files.write(self.path, "".join(map(_line, records)))
        self.buffer: list[str] = []

    def add(self, step: int, **record: Any) -> None:
        """Add a line; it is written with the next flush."""
        self.buffer.append(_line({"step": step, **record}))
        numbers = {**record, **record.get("validation", {})}
        for logger in self.loggers:
            logger.add(step, {name: value for name, value in numbers.items() if isinstance(value, float)})

    def flush(self, *, sync: bool = False) -> None:
        """Write the lines that were added; sync=True: force them to disk, where they survive a power cut."""
        if self.buffer:
            with files.named(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write("".join(self.buffer))
            self.buffer.clear()
        if sync and self.path.exists():
            files.sync(self.path)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()
        for logger in self.loggers:
            logger.close()


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All records of a run's log: not the last line, if the process was killed in it, nor lines that are damaged."""
    path, records = folder / LOG, []
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    for line in lines:
        with suppress(files.ContentError):
            record = files.parse_json(line)
            if isinstance(record, dict) and type(record.get("step")) is int and record["step"] >= 0:
                records.append(record)
    return records
