"""`train`: from options to a model folder, whatever happens on the way."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.models.folders import load, refuse_foreign
from regard.models.model import Model
from regard.models.tensors import FolderError
from regard.training import checkpoints, loop
from regard.training.folder import (
    CHECKPOINTS,
    Log,
    RunError,
    has_run,
    is_of,
    locked,
    read_options,
    seal,
    write_options,
    write_results,
)
from regard.training.options import OptionError, Options, resolved
from regard.training.processes import World, joined
from regard.training.report import reporting
from regard.training.signals import Signals
from regard.training.task import Task, Tokenizers
from regard.training.tasks import prepare

__all__ = ["Trained", "train"]


@dataclass(frozen=True)
class Trained:
    """How a run ended: the best model, where it is, and its metrics on the test part."""

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
    in `out`. quiet=False tells on stderr how it goes.

    >>> import regard, tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = regard.train("images", out=folder + "/run", steps=2, threads=1).model
    >>> model(torch.zeros(3, 1, 8, 8)).shape  # of scikit-learn's digits, for two steps
    torch.Size([3, 10])
    """
    given = {**options, **({} if data is None else {"data": str(data)})}
    return carry_out(task, given, Path(out), resume=resume, quiet=quiet)


def carry_out(task: str, given: Mapping[str, Any], folder: Path, *, resume: bool, quiet: bool) -> Trained:
    """The same, with options as a mapping."""
    launch = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) and is_of(folder, launch):
        resume = True  # torchrun starts the same command again when one of its processes has died
    known = _options(task, given, folder, resume=resume)
    if known.threads:
        torch.set_num_threads(known.threads)
    else:  # which the bits of a result depend on, so a run keeps it
        known = dataclasses.replace(known, threads=torch.get_num_threads())
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        world = stack.enter_context(joined(known.device, shard=known.shard))
        if world.first:
            stack.enter_context(locked(folder, launch))
        return _train(task, known, folder, world, signals, resume=resume, quiet=quiet)


def _train(
    task: str, options: Options, folder: Path, world: World, signals: Signals, *, resume: bool, quiet: bool
) -> Trained:
    found, reasons = checkpoints.newest(folder / CHECKPOINTS) if resume else (None, [])
    found = world.broadcast(found)
    ready = prepare(task, options, _kept(folder) if resume else None)
    signals.obey("stopped before anything was done")
    state = _state(found, ready, options, folder)
    if world.broadcast(ready.fingerprint) != ready.fingerprint:
        raise RunError("data: this process reads other data than the first one")
    with ExitStack() as stack:
        silent = quiet or not world.first
        report = stack.enter_context(reporting(options.steps, state.step, ready.unit, quiet=silent))
        if report is not None:
            for note in [
                *(f"not whole, so passed over: {reason}" for reason in reasons),
                *ready.notes,
                *_warnings(options),
            ]:
                report.say(note)
            count = ready.model.parameter_count
            report.say(f"{type(ready.model).__name__} with {count:,} parameters" + _whence(options, state))
        log = None
        if world.first:
            if found is not None:
                checkpoints.forget_after(folder / CHECKPOINTS, found.step)
            if not has_run(folder):
                ready.model.save(folder)  # its tokenizer is needed from now on, and the best model takes its place
            write_options(folder, task, options)
            log = stack.enter_context(Log(folder, state.step, events=options.tensorboard))
        run = loop.Run(ready, options, folder, world, report, log, signals)
        state = loop.run(run, state, found)
        signals.obey(f"stopped after the last step; go on with --resume, to measure the model in {folder}")
        return _ended(ready, folder, world, state)


def _ended(task: Task, folder: Path, world: World, state: loop.State) -> Trained:
    """The best model on the part that nobody has looked at."""
    results: dict[str, Any] = {}
    if world.first:
        if state.best is None:
            raise RunError(f"{folder}: the run ended before its first evaluation")
        metrics = task.evaluate(load(folder), "test")
        results = {
            "test": metrics,
            "best_step": state.best_step,
            "steps": state.step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 1),
            "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9), 1),
            "unit": task.unit,
            "padding": round(task.batches.padding(), 4),
            "parameters": task.model.parameter_count,
        }
        write_results(folder, results)
    return Trained(folder, world.broadcast(results))


def _options(task: str, given: Mapping[str, Any], folder: Path, *, resume: bool) -> Options:
    """For a new run, or those of the run that goes on, with what may change changed."""
    if not resume:
        if has_run(folder):
            raise RunError(f"{folder}: holds a run already: go on with --resume, or choose another --out")
        refuse_foreign(folder)
        options = resolved(task, given)
        if options.init_from is not None:
            _check_transfer(task, options, given)
        return options
    if not has_run(folder):
        raise RunError(f"{folder}: holds no run to go on with: begin one without --resume")
    kept, old = read_options(folder)
    if kept != task:
        raise RunError(f"{folder}: holds a run of `{kept}`, not of `{task}`")
    may_change = {own.name for own in dataclasses.fields(old) if own.metadata["later"]}
    new = resolved(task, {**dataclasses.asdict(old), **given})
    for own in dataclasses.fields(old):
        before, after = getattr(old, own.name), getattr(new, own.name)
        if before != after and own.name not in may_change:
            raise OptionError(f"{own.name}: this run has {before!r}, which cannot change to {after!r}; begin a new run")
    return new


def _check_transfer(task: str, options: Options, given: Mapping[str, Any]) -> None:
    """A model that is read has its shape already."""
    for own in dataclasses.fields(options):
        chosen = own.name in given and given[own.name] != own.default
        if own.metadata["shape"] and chosen and (task, own.name) not in DECIDE_TOGETHER:
            raise OptionError(f"{own.name}: cannot be given with init_from, whose model decides it")


DECIDE_TOGETHER = {("language", "model"), ("images", "image_size"), ("language", "context")}


def _state(found: checkpoints.Checkpoint | None, task: Task, options: Options, folder: Path) -> loop.State:
    if found is None:
        return loop.State()
    if found.state.get("fingerprint") != task.fingerprint:
        raise RunError(f"{folder}: the data are not those that this run began with")
    names = [own.name for own in dataclasses.fields(loop.State)]
    state = loop.State(**{name: found.state[name] for name in names})
    state.finished &= found.state["until"] == loop.until(options)  # unless more was asked for
    state.finished |= state.step >= options.steps
    if state.best is not None and seal(folder) != state.best_seal:
        state.best = None  # the folder holds a later model, which this run has not made yet: the next one is the best
    return state


def _kept(folder: Path) -> Tokenizers | None:
    """The tokenizers of a run, if its model was written whole."""
    try:
        model = load(folder)
    except FolderError:
        return None
    return Tokenizers(model.tokenizer, model.target_tokenizer)


def _warnings(options: Options) -> list[str]:
    """What was asked for, and may not be meant."""
    if options.warmup < options.steps or options.steps < 2:
        return []
    return [f"the warm-up of {options.warmup} steps is longer than the run: try --warmup {options.steps // 5}"]


def _whence(options: Options, state: loop.State) -> str:
    begun = f", begun from {options.init_from}" if options.init_from else ""
    return begun + (f", goes on after step {state.step:,}" if state.step else "")
