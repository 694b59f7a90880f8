"""The training loop, one for every task.

    every step              batches → Σ loss / count → backward → clip → AdamW at the scheduled learning rate
    every evaluate_every    evaluate; save the model if it is the best so far
    every save_every        save a checkpoint

All randomness of a step is a function of the seed, the step and the rank. So a run that resumes from a checkpoint
computes exactly, bit for bit, what it would have computed without the interruption. Each process makes its own share of
the batches, here or ahead of time in worker processes.
"""

import itertools
import math
import signal
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from regard.data.batches import Position
from regard.errors import RegardError
from regard.models.model import Model, evaluation
from regard.training import checkpoints
from regard.training.folder import CHECKPOINTS, Log, RunError, manifest_digest, save_best
from regard.training.options import Options
from regard.training.processes import STOPS, Signals, Stopped, World
from regard.training.report import Report, head_widths
from regard.training.schedule import Average, learning_rate, read_plan
from regard.training.task import Batch, LossModule, Task
from regard.training.transfer import add_adapters, checkpoint_blocks, freeze, merge_adapters, parameter_groups

AHEAD = 4  # steps that each worker process prepares ahead
PASS = 4_096  # tokens that a processor computes at once, about
StepRows = tuple[int, list[list[int]], Position]  # the number of a step, the rows of its batches, where they end
EARLY = 0.2  # of its minutes: the share after which the steps of a run are planned, however few are done
OVERTIME = 1.2  # a run whose steps became slow ends after so many times its minutes, wherever its plan is


class Diverged(RegardError, ValueError):
    """A loss or a gradient that is NaN or infinite stops the run."""

    exit_code = 1


@dataclass
class State:
    """Where a run stands: all that a checkpoint keeps besides tensors."""

    step: int = 0
    epoch: int = 0
    window: int = 0  # of this epoch
    batch: int = 0  # of this window
    tokens: int = 0
    seconds: float = 0.0  # of steps
    elapsed: float = 0.0  # seconds, with evaluations and checkpoints
    best: float | None = None  # the task's goal, of the best model so far
    best_step: int = 0
    best_manifest: str = ""  # the SHA-256 of its manifest: is it still the model in the folder?
    evaluations_since_best: int = 0
    finished: bool = False


class Run:
    """One training run, in this process."""

    def __init__(
        self,
        task: Task,
        folder: Path,
        world: World,
        signals: Signals,
        *,
        state: State,
        checkpoint: checkpoints.Checkpoint | None = None,
        log: Log | None = None,
        report: Report | None = None,
    ) -> None:
        """Prepare model and optimizer.

        task: what is trained, and how.
        folder: where the best model and the checkpoints go.
        world: this process among the others. signals: looked at between two steps.
        state, checkpoint: where the run starts; a new one has no checkpoint.
        log, report: for the first process; others have none.
        """
        self.task, self.options, self.folder, self.world, self.signals = task, task.options, folder, world, signals
        self.state, self.log, self.report = state, log, report
        self.plan = world.broadcast(read_plan(folder, self.options, state.step))
        self.model = task.model.to(world.device)
        module = LossModule(self.model, task)
        self._freeze_unused(module)
        freeze(self.model, self.options)
        if self.options.lora:
            add_adapters(self.model, self.options.lora)
        if self.options.checkpoint_activations:
            checkpoint_blocks(self.model)
        self.model.train()
        for layer in self.model.modules():  # batch norm that is frozen keeps its running statistics as well
            if isinstance(layer, nn.BatchNorm2d) and not any(weight.requires_grad for weight in layer.parameters()):
                layer.eval()
        # DDP and FSDP2 have to know which parameters are frozen, and FSDP2 replaces parameters: so the model is wrapped
        # here, after freezing and before the optimizer.
        if self.options.compile:
            module.compile(dynamic=True)
        self.module = world.wrap(module, shard=self.options.shard)
        groups = parameter_groups(self.model, self.options)
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)
        self.average = Average(self.model, self.options.average)
        if checkpoint is not None:
            checkpoints.restore(checkpoint, self._tensors())
            for moments in self.optimizer.state.values():
                moments["step"] = torch.full_like(moments["step"], state.step)

    def train(self) -> State:
        """Train to the end; Stopped if a signal came, Diverged if the loss is NaN."""
        state, options, world = self.state, self.options, self.world
        data = step_data(self.task, world, state.step, Position(state.epoch, state.window, state.batch))
        begin = time.monotonic() - state.elapsed
        if state.finished and state.best is None:  # its best model was lost
            self._evaluate()
        with closing(data):  # also where the traceback of an error keeps this frame: Python would wait for its workers
            while not state.finished:
                (stopped,) = world.all_reduce(float(self.signals.caught > 0))
                if stopped:
                    self._save()
                    text = f"stopped at step {state.step:,}; everything is saved: go on with --resume"
                    raise Stopped(self.signals.caught or signal.SIGTERM, text)
                self._step(next(data))
                state.elapsed = time.monotonic() - begin
                state.finished = self._is_over()
                # The best model is saved before the checkpoint that refers to it.
                if state.finished or state.step % options.evaluate_every == 0:
                    self._evaluate()
                    state.elapsed = time.monotonic() - begin
                    state.finished |= 0 < options.patience <= state.evaluations_since_best
                if state.finished or state.step % options.save_every == 0:
                    self._save()
        return state

    def _is_over(self) -> bool:
        """Whether the last step is done; the plan of a run of some minutes is revised now and then."""
        state, plan = self.state, self.plan
        spent = state.elapsed / 60 / (plan.minutes or math.inf)  # of the time
        late, early = self.world.all_reduce(float(spent > OVERTIME), float(spent > EARLY))
        if plan.is_due(state.step, early=early > 0):
            if self.world.is_first:
                plan.revise(state.step, state.elapsed, self.options.steps)
                plan.write(self.folder)
            self.plan = plan = self.world.broadcast(plan)
        steps = self.options.steps if plan.steps is None else plan.steps
        return late > 0 or (steps is not None and state.step >= steps)

    # ------------------------------------------------------------------------------------------------------- one step

    def _step(self, data: "StepData") -> None:
        """Update the weights once."""
        state, options, world, start = self.state, self.options, self.world, time.monotonic()
        torch.manual_seed(random_seed(options.seed, state.step, world.rank) + 1)  # for dropout
        counted = [batch for batch, counts in data.shares if counts]
        count, tokens = world.all_reduce(
            float(sum(batch.count for batch in counted)), float(sum(batch.tokens for batch in counted))
        )
        # DDP and FSDP2 average the gradients of the processes, but the loss is a mean over all targets, wherever they
        # are: hence the factor world.size.
        total = 0.0
        for number, (batch, counts) in enumerate(data.shares, 1):
            with world.no_sync(self.module, skip=number < len(data.shares)):
                with torch.autocast(world.device.type, torch.bfloat16, enabled=options.precision == "bf16"):
                    losses: Tensor = self.module(batch.to(world.device))
                loss = losses * (world.size / count if counts else 0.0)
                loss.backward()
            total += float(loss.detach())
        (total,) = world.all_reduce(total / world.size)
        norm = world.clip_grad_norm(self.module, options.clip or math.inf)
        if not math.isfinite(total) or not math.isfinite(norm):
            raise Diverged(
                f"step {state.step + 1:,}: the loss is {total}, the norm of its gradient {norm}: the run stops before "
                "the weights change; try a lower --learning-rate or a longer --warmup"
            )
        state.step += 1
        state.tokens += int(tokens)
        state.epoch, state.window, state.batch = data.after.epoch, data.after.window, data.after.batch
        rate = learning_rate(state.step, options, self.plan)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.average.update(state.step)
        state.seconds += time.monotonic() - start
        if self.log is not None:
            seconds = round(state.seconds, 3)
            self.log.add(step=state.step, loss=total, norm=norm, rate=rate, tokens=int(tokens), seconds=seconds)
        if self.report is not None:
            self.report.step(state.step, self.plan.steps, total, state.tokens / max(state.seconds, 1e-9))

    # ----------------------------------------------------------------------------------------- evaluations, checkpoints

    def _evaluate(self) -> None:
        """Evaluate the averaged weights, each process a share, and save the model if it is the best so far."""
        task, state, world, outcome = self.task, self.state, self.world, None
        with self.average.in_place():
            model = self.model
            if self.options.shard or self.options.lora:
                model = _copy(model, merge_adapters(world.gather(model)))
            metrics = task.evaluate(model, "validation", world)
            if world.is_first:
                # Sentences of fewer than four words have a BLEU of 0, however good they are: then perplexity decides.
                value = metrics[task.goal] or -metrics.get("perplexity", 0.0)
                best, samples = state.best, task.samples(model)
                is_best = best is None or (value > best if task.higher_is_better else value < best)
                if is_best:
                    save_best(model, self.folder)
                outcome = value, is_best, manifest_digest(self.folder)
                if self.log is not None:
                    widths = {"widths": head_widths(task, model)} if self.options.widths else {}
                    records, seconds = [asdict(sample) for sample in samples], round(state.seconds, 3)
                    numbers = {name: value for name, value in metrics.items() if name != "confusion"}
                    self.log.add(step=state.step, validation=numbers, samples=records, **widths, seconds=seconds)
                    self.log.flush()
                if self.report is not None:
                    self.report.evaluation(state.step, metrics, samples, is_best=is_best)
        value, is_best, manifest = world.broadcast(outcome)
        state.evaluations_since_best += 1
        if is_best:
            state.best, state.best_step, state.best_manifest = value, state.step, manifest
            state.evaluations_since_best = 0

    def _save(self) -> None:
        """Save a checkpoint."""
        if self.log is not None:
            self.log.flush(sync=True)
        content = {**asdict(self.state), "end_conditions": end_conditions(self.options)}
        checkpoints.save(self.folder / CHECKPOINTS, self.state.step, self._tensors(), content, self.world)

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors of a checkpoint: the model's, and Adam's two moments of each parameter that is trained."""
        tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            moments = self.optimizer.state[parameter]
            for moment in ("exp_avg", "exp_avg_sq"):
                if moment not in moments:
                    moments[moment] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                tensors[f"{moment}.{name}"] = moments[moment]
            moments.setdefault("step", torch.zeros((), device=parameter.device))
        return tensors | {f"average.{name}": tensor for name, tensor in self.average.tensors.items()}

    def _freeze_unused(self, module: LossModule) -> None:
        """Freeze what the task does not use, such as another head: DDP would wait for its gradient forever."""
        batch = self.task.batch([0], slice(None), torch.Generator()).to(self.world.device)
        with evaluation(module):  # so that batch norm does not learn from it
            module(batch).backward()
        for parameter in module.parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None


def _copy(model: Model, state: dict[str, Tensor]) -> Model:
    """A model like this one, in one piece and without adapters, with these tensors."""
    copy = type(model)(**model.config)
    copy.load_state_dict(state)
    copy.to(next(iter(state.values())).device)
    copy.tokenizer, copy.target_tokenizer = model.tokenizer, model.target_tokenizer
    return copy


def end_conditions(options: Options) -> list[float | None]:
    """The options that decide when a run ends: a finished run goes on if they were changed."""
    return [options.steps, options.minutes, options.patience]


# --------------------------------------------------------------------------------------------- the batches of a run


@dataclass(frozen=True)
class StepData:
    """What a process computes in one step: its share of each batch; and where the run stands in its data after it."""

    shares: list[tuple[Batch, bool]]  # whether it counts: where there is no row for this process, some example does not
    after: Position


def step_data(task: Task, world: World, step: int, position: Position) -> Generator[StepData]:
    """The data of each step after `step`, without end; `position` is where the run stands in its data."""
    rows, maker, workers = _step_rows(task, step, position), _Maker(task, world), task.options.workers
    if not workers:
        yield from map(maker.__getitem__, rows)
        return
    try:
        with warnings.catch_warnings():  # of more workers than processors: as many as were asked for
            warnings.filterwarnings("ignore", "This DataLoader will create")
            loader = DataLoader(  # without a batch size: the maker returns whole steps
                maker, None, sampler=rows, num_workers=workers, prefetch_factor=AHEAD, worker_init_fn=_ignore_signals
            )
            steps = iter(loader)
        yield from steps
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise RunError(f"a process that prepares batches has died: {reason}; go on with --resume") from error


def random_seed(seed: int, step: int, rank: int) -> int:
    """Seeds far apart for neighbouring steps and ranks."""
    return (seed * 1_000_003 + step * 7_919 + rank * 104_729 + 12_345) * 2 % (1 << 62)


def _step_rows(task: Task, step: int, position: Position) -> Iterator[StepRows]:
    """The rows of each step: a function of the seed and the step, whoever asks."""
    following = task.batches.following(position)
    for number in itertools.count(step):
        batches = [next(following) for _ in range(task.options.accumulate)]
        yield number, [rows for rows, _ in batches], batches[-1][1]


class _Maker(Dataset[StepData]):
    """Makes the data of a step from its rows."""

    def __init__(self, task: Task, world: World) -> None:
        self.task, self.rank, self.size = task, world.rank, world.size

    def __getitem__(self, rows_of_step: StepRows) -> StepData:
        step, batches, after = rows_of_step
        generator = torch.Generator().manual_seed(random_seed(self.task.options.seed, step, 0))
        shares = []
        for rows in batches:
            counts = self.rank < len(rows)
            share = slice(self.rank, None, self.size) if counts else slice(0, 1)
            batch = self.task.batch(rows, share, generator)
            shares += [(part, counts) for part in batch.split(self._passes(len(rows)))]
        return StepData(shares, after)

    def _passes(self, rows: int) -> int:
        """In how many passes a process computes its share of a batch: equally many in all, which wait for each other.

        Activations are as large as a pass, and the logits of a large vocabulary are larger still: 16,384 tokens at once
        take six gigabytes where 4,096 take three, and a processor is no faster with more. Images are not split, because
        batch norm depends on what is in a batch.
        """
        options = self.task.options
        if self.task.unit != "tokens" or options.device != "cpu":
            return 1
        return max(1, min(math.ceil(options.batch / (self.size * PASS)), rows // self.size))


def _ignore_signals(worker: int) -> None:
    """Ctrl-C, and the end of a terminal, go to all its processes, and the one that trains has to save first."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
