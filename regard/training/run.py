"""`train`: from options to a model folder. `evaluate`: the metrics of the model in a folder."""

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
from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.encoder import Encoder
from regard.models.folders import CONFIG, load, refuse_foreign
from regard.models.language_model import LanguageModel
from regard.models.model import Model
from regard.models.translator import Translator
from regard.progress import ProgressBar
from regard.training import checkpoints, tasks
from regard.training import folder as home
from regard.training.folder import RunError
from regard.training.loop import Run, State, end_conditions
from regard.training.options import OptionError, Options, TranslateOptions, resolve
from regard.training.processes import Signals, World, join
from regard.training.report import Report, open_loggers, preparation_shown
from regard.training.task import Task, TaskError, Tokenizers

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
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) and home.was_launched_by(folder, launch):
        resume = True  # torchrun starts the same command again when one of its processes has died
    chosen = _options(task, given, folder, resume=resume)
    tasks.check_shapes(chosen)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    else:  # the number of threads changes the last bits of results, so a run keeps it
        chosen = dataclasses.replace(chosen, threads=torch.get_num_threads())
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        world = stack.enter_context(join(chosen.device, shard=chosen.shard))
        if world.is_first:
            stack.enter_context(home.lock(folder, launch))
        return _train(task, chosen, folder, world, signals, resume=resume, quiet=quiet)


def _train(
    name: str, options: Options, folder: Path, world: World, signals: Signals, *, resume: bool, quiet: bool
) -> Trained:
    if world.is_first:
        home.remove_remains(folder)
    checkpoint, tokenizers, damages = _resume(folder) if resume and world.is_first else (None, None, [])
    checkpoint, tokenizers = world.broadcast(checkpoint), world.broadcast(tokenizers)
    is_silent = quiet or not world.is_first
    with signals.obeyed_at_once("stopped before the first step"), preparation_shown(quiet=is_silent):
        task = tasks.prepare(name, options, tokenizers)
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
                checkpoints.remove_after(folder / home.CHECKPOINTS, checkpoint.step)
            loggers = open_loggers(options, folder, state.step)
            if not home.has_run(folder):
                # For its tokenizer, which a resumed run needs; the best one replaces it.
                home.save_best(task.model, folder)
            home.write_options(folder, name, options, task.fingerprint)
            log = stack.enter_context(home.Log(folder, state.step, loggers))
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
        files.write(folder / home.RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    shared: dict[str, Any] = world.broadcast(results)
    return shared


def _options(task: str, given: Mapping[str, Any], folder: Path, *, resume: bool) -> Options:
    """The options of a new run, or those of the run that is resumed with the mutable ones changed."""
    if not resume:
        if home.has_run(folder):
            raise RunError(f"{folder}: holds a run already: go on with --resume, or choose another --out")
        if any((folder / home.CHECKPOINTS).glob("step-*")):  # a resumed run would take them for its own
            reason = f"holds checkpoints, and no {home.OPTIONS}, which says of what"
            raise RunError(f"{folder}: {reason}: put it back for --resume, or choose another --out")
        refuse_foreign(folder)
        if (folder / CONFIG).exists() and not (folder / home.BEST).exists():  # else a run was killed as it began
            raise RunError(f"{folder}: holds a model already: choose another --out")
        options = resolve(task, given)
        for field in dataclasses.fields(options):
            changed = field.name in given and given[field.name] != field.default
            if options.init_from is not None and field.metadata["shape"] and changed:
                raise OptionError(f"{field.name}: cannot be given with init_from, whose model decides it")
        return options
    if not home.has_run(folder):
        raise RunError(f"{folder}: holds no run to resume: start one without --resume")
    old_task, old = home.read_options(folder)
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
    if home.has_other_data(folder, task.fingerprint):
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
    if state.best is not None and home.manifest_digest(folder) != state.best_manifest:
        state.best = None  # the folder holds a model of a later step, which will be computed again
    return state


def _resume(folder: Path) -> tuple[checkpoints.Checkpoint | None, Tokenizers | None, list[str]]:
    """The newest checkpoint of a run and its tokenizers, if they are there, and lines about what was damaged.

    Tokenizers that are lost are trained again, on the same texts.
    """
    model, loss = home.repair_best(folder)
    checkpoint, damages = checkpoints.newest(folder / home.CHECKPOINTS)
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


# -------------------------------------------------------------------------------------------------- evaluation


def evaluate(
    folder: str | Path,
    data: str | Path | None = None,
    target: str | Path | None = None,
    *,
    text: str | None = None,
    label: str | None = None,
    beam_size: int | None = None,
    on_error: str | None = None,
) -> dict[str, Any]:
    """The metrics of the model in a folder.

    data: a file or a folder, as for `regard train`; None for the test part of the data that it was trained on.
    target: the target's text file, if data is the source's (translators).
    text, label: the columns of data (classifiers of texts); "text" and "label" unless given.
    beam_size: hypotheses of the beam search (translators); 5 unless given.
    on_error: "stop" if bad rows, lines or images are an error, as they are unless given, "skip" to leave them out.
    """
    folder = Path(folder)
    model: Any = load(folder)
    given = {"target": target, "text": text, "label": label, "beam_size": beam_size, "on_error": on_error}
    policy, size = on_error or "stop", beam_size or TranslateOptions.beam_size

    def accept(*names: str) -> None:
        """Refuse options that would be ignored."""
        for name, value in given.items():
            if value is not None and name not in names:
                flag = "TARGET" if name == "target" else "--" + name.replace("_", "-")
                on = "the data it was trained with" if data is None else data
                raise TaskError(f"{folder}: {flag} means nothing for this model on {on}")

    if data is None:
        accept(*(["beam_size"] if isinstance(model, Translator) else []))
        return _evaluate_test_part(folder, model, size)
    data = Path(data)
    if isinstance(model, Translator):
        accept("target", "beam_size", "on_error")
        return tasks.translate.evaluate(model, data, None if target is None else Path(target), size, policy)
    if isinstance(model, TextClassifier) and model.config["classes"]:
        accept("text", "label", "on_error")
        return tasks.text.evaluate(model, data, text or "text", label or "label", policy)
    accept("on_error")
    if isinstance(model, ImageClassifier):
        return tasks.images.evaluate(model, data, policy)
    if isinstance(model, LanguageModel) or (isinstance(model, Encoder) and model.config["mlm_head"]):
        return tasks.language.evaluate(model, data, policy)
    raise TaskError(f"{folder}: a {type(model).__name__} has nothing that can be evaluated on data")


def _evaluate_test_part(folder: Path, model: Any, beam_size: int) -> dict[str, Any]:
    if not home.has_run(folder):
        raise TaskError(f"{folder}: was not trained by regard, so say which data to evaluate it on")
    name, options = home.read_options(folder)
    trained_on = getattr(options, "data", None)
    if trained_on is not None and not Path(trained_on).exists():
        raise TaskError(f"{folder}: was trained on {trained_on}, which is not there: say which data to evaluate it on")
    if isinstance(options, TranslateOptions):
        options = dataclasses.replace(options, beam_size=beam_size)
    task = tasks.prepare(name, options, model=model)
    if home.has_other_data(folder, task.fingerprint):  # then what it was trained on may be in the test part now
        raise TaskError(
            f"{folder}: {trained_on or 'the embedded data'}: changed since this model was trained on it, so its test "
            "part is another one: say which data to evaluate the model on"
        )
    return task.evaluate(model, "test", World())
