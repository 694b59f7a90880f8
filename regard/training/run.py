"""`train`: from options to a model folder."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from regard import files
from regard.models.folders import CONFIG, load, refuse_foreign
from regard.models.model import Model
from regard.progress import ProgressBar
from regard.training import checkpoints
from regard.training.folder import (
    BEST,
    CHECKPOINTS,
    RESULTS,
    Log,
    RunError,
    has_other_data,
    has_run,
    lock,
    manifest_digest,
    read_options,
    remove_remains,
    repair_best,
    save_best,
    was_launched_by,
    write_options,
)
from regard.training.loop import Run, State, end_conditions
from regard.training.options import OptionError, Options, resolve
from regard.training.processes import Signals, World, join
from regard.training.report import Report, open_loggers, preparation_shown
from regard.training.task import Task, Tokenizers
from regard.training.tasks import check_shapes, prepare

# What a run reads, and the words by which a user says where it is now.
MOVABLE = {"data": "NEW", "target": "DATA NEW", "init_from": "--init-from NEW"}


@dataclass(frozen=True)
class Trained:
    """A finished run: the folder of the best model, and its metrics on the test part."""

    folder: Path
    results: dict[str, Any]

    @property
    def model(self) -> Model:
        """The best model, read from its folder."""
        return load(self.folder)


def train(
    task: str,
    data: str | Path | None = None,
    *,
    out: str | Path,
    resume: bool = False,
    quiet: bool = True,
    **options: Any,
) -> Trained:
    """Train a model, and leave it in the folder `out`.

    task: translate, language, text or images. data: a file or a folder, as `regard train TASK --help` says; without it
    the data that come with regard. options: as there, with underscores (learning_rate=1e-3). resume: go on with the run
    in `out`. quiet=False reports progress on stderr.

    >>> import regard, tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = regard.train("images", out=folder + "/run", steps=2, threads=1).model
    >>> model(torch.zeros(3, 1, 8, 8)).shape  # of scikit-learn's digits, for two steps
    torch.Size([3, 10])
    """
    if str(out) == "":
        raise OptionError("out: expected a name, got an empty one")
    folder = Path(out)
    given = options if data is None else {**options, "data": str(data)}
    launch = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) and was_launched_by(folder, launch):
        resume = True  # torchrun starts the same command again when one of its processes has died
    chosen = _options(task, given, folder, resume=resume)
    check_shapes(chosen)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    else:  # the number of threads changes the last bits of results, so a run keeps it
        chosen = dataclasses.replace(chosen, threads=torch.get_num_threads())
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        world = stack.enter_context(join(chosen.device, shard=chosen.shard))
        if world.is_first:
            stack.enter_context(lock(folder, launch))
        return _train(task, chosen, folder, world, signals, resume=resume, quiet=quiet)


def _train(
    name: str, options: Options, folder: Path, world: World, signals: Signals, *, resume: bool, quiet: bool
) -> Trained:
    if world.is_first:
        remove_remains(folder)
    checkpoint, tokenizers, damages = _resume(folder) if resume and world.is_first else (None, None, [])
    checkpoint, tokenizers = world.broadcast(checkpoint), world.broadcast(tokenizers)
    is_silent = quiet or not world.is_first
    with signals.obeyed_at_once("stopped before the first step"), preparation_shown(quiet=is_silent):
        task = prepare(name, options, tokenizers)
    options = task.options
    state = _state(checkpoint, task, name, folder)
    if world.broadcast(task.fingerprint) != task.fingerprint:
        raise RunError("data: this process reads other data than the first one")
    with ExitStack() as stack:
        report = None if is_silent else Report(task.unit, stack.enter_context(ProgressBar()))
        if report is not None:
            for line in (*damages, *task.notes, *_description(task, options, state)):
                report.write(line)
        log = None
        if world.is_first:
            if checkpoint is not None:
                checkpoints.remove_after(folder / CHECKPOINTS, checkpoint.step)
            loggers = open_loggers(options, folder, state.step)
            if not has_run(folder):
                save_best(task.model, folder)  # for its tokenizer, which a resumed run needs; the best one replaces it
            write_options(folder, name, options, task.fingerprint)
            log = stack.enter_context(Log(folder, state.step, loggers))
            if log.missing and report is not None:
                report.write(f"{log.path}: {log.missing:,} of {state.step:,} steps are missing there; the run goes on")
        run = Run(task, folder, world, signals, state=state, checkpoint=checkpoint, log=log, report=report)
        state = run.train()
        with signals.obeyed_at_once(f"stopped before the test of {folder} was done; go on with --resume"):
            return Trained(folder, _evaluate_best(task, folder, state, world))


def _evaluate_best(task: Task, folder: Path, state: State, world: World) -> dict[str, Any]:
    """Evaluate the best model on the test part, each process a share, and write results.json."""
    if state.best is None:
        raise RunError(f"{folder}: the run ended before its first evaluation")
    results = {
        "test": task.evaluate(load(folder), "test", world),
        "best_step": state.best_step,
        "steps": state.step,
        "tokens": state.tokens,
        "seconds": round(state.seconds, 1),
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9), 1),
        "unit": task.unit,
        "padding": round(task.batches.padding(), 4),
        "parameters": task.model.parameter_count,
    }
    if world.is_first:
        files.write(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    shared: dict[str, Any] = world.broadcast(results)
    return shared


def _options(task: str, given: Mapping[str, Any], folder: Path, *, resume: bool) -> Options:
    """The options of a new run, or those of the run that is resumed with the mutable ones changed."""
    if not resume:
        if has_run(folder):
            raise RunError(f"{folder}: holds a run already: go on with --resume, or choose another --out")
        refuse_foreign(folder)
        if (folder / CONFIG).exists() and not (folder / BEST).exists():  # else a run was killed as it began
            raise RunError(f"{folder}: holds a model already: choose another --out")
        options = resolve(task, given)
        for field in dataclasses.fields(options):
            changed = field.name in given and given[field.name] != field.default
            if options.init_from is not None and field.metadata["shape"] and changed:
                raise OptionError(f"{field.name}: cannot be given with init_from, whose model decides it")
        return options
    if not has_run(folder):
        raise RunError(f"{folder}: holds no run to resume: start one without --resume")
    old_task, old = read_options(folder)
    if old_task != task:
        raise RunError(f"{folder}: holds a run of `{old_task}`, not of `{task}`")
    new = resolve(task, {**dataclasses.asdict(old), **given})
    for name, words in MOVABLE.items():
        path = getattr(new, name, None)
        if path is not None and not Path(path).exists():
            raise RunError(f"{folder}: its run needs {path}, which is not there: --resume {words} says where it is")
    for field in dataclasses.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after and not field.metadata["mutable"]:
            raise OptionError(f"{field.name}: this run has {before!r}, it cannot change to {after!r}; start a new run")
    return new


def _state(checkpoint: checkpoints.Checkpoint | None, task: Task, name: str, folder: Path) -> State:
    """The state of a checkpoint, if it is of these data."""
    if checkpoint is None:
        return State()
    options: Any = task.options
    if has_other_data(folder, task.fingerprint):
        raise RunError(
            f"{folder}: the data are not those that this run started with; to go on with new data: "
            f"regard train {name} {options.data or ''} --init-from {folder} --out NEW"
        )
    missing = [field.name for field in dataclasses.fields(State) if field.name not in checkpoint.state]
    if missing:
        raise RunError(f"{folder}: its checkpoints are of another version of regard ({missing[0]!r} is missing there)")
    state = State(**{field.name: checkpoint.state[field.name] for field in dataclasses.fields(State)})
    for name, default in dataclasses.asdict(State()).items():
        value, kinds = getattr(state, name), {float: (int, float), NoneType: (NoneType, int, float)}
        if type(value) not in kinds.get(type(default), (type(default),)):
            raise RunError(
                f"{checkpoint.folder / checkpoints.STATE}: {name}: expected a {type(default).__name__}, got {value!r}; "
                f"remove {checkpoint.folder}, and --resume goes on from the checkpoint before"
            )
    state.finished &= checkpoint.state.get("end_conditions") == end_conditions(options)  # unless more steps are wanted
    state.finished |= options.minutes is None and state.step >= options.steps
    if state.best is not None and manifest_digest(folder) != state.best_manifest:
        state.best = None  # the folder holds a model of a later step, which will be computed again
    return state


def _resume(folder: Path) -> tuple[checkpoints.Checkpoint | None, Tokenizers | None, list[str]]:
    """The newest checkpoint of a run and its tokenizers, if they are there, and lines about what was damaged.

    Tokenizers that are lost are trained again, on the same texts.
    """
    model, loss = repair_best(folder)
    checkpoint, damages = checkpoints.newest(folder / CHECKPOINTS)
    skipped = f"a damaged checkpoint is skipped, the run goes on from step {checkpoint.step if checkpoint else 0:,}"
    lines = [f"{skipped} instead of {step:,}: {reason}" for step, reason in damages.items()]
    tokenizers = None if model is None else Tokenizers(model.tokenizer, model.target_tokenizer)
    return checkpoint, tokenizers, lines if loss is None else [*lines, loss]


def _description(task: Task, options: Options, state: State) -> list[str]:
    """What is trained, and a warning about the warm-up."""
    lines = []
    if options.minutes is None and options.warmup >= options.steps > 1:
        lines.append(f"the warm-up of {options.warmup} steps is longer than the run: try --warmup {options.steps // 5}")
    source = f", starting from {options.init_from}" if options.init_from else ""
    resumed = f", resumed after step {state.step:,}" if state.step else ""
    count = task.model.parameter_count
    return [*lines, f"{type(task.model).__name__} with {count:,} parameters{source}{resumed}"]
