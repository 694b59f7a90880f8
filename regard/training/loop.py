"""The training loop, one for every task.

    every step              batches → Σ loss / count → backward → clip → AdamW at the scheduled learning rate
    every evaluate_every    evaluate; save the model if it is the best so far
    every save_every        save a checkpoint

All randomness of a step is a function of the seed, the step and the rank. So a run that resumes from a checkpoint
computes exactly, bit for bit, what it would have computed without the interruption.
"""

from __future__ import annotations

import math
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.models.model import Model, evaluation
from regard.training import checkpoints
from regard.training.folder import CHECKPOINTS, Log, manifest_digest
from regard.training.options import Options
from regard.training.processes import World
from regard.training.report import Report
from regard.training.signals import Signals, Stopped
from regard.training.task import Batch, LossModule, Task
from regard.training.transfer import freeze, parameter_groups
from regard.training.widths import head_widths

__all__ = ["Diverged", "Run", "State", "end_conditions", "learning_rate"]


class Diverged(RegardError, ValueError):
    """A loss or a gradient that is NaN or infinite stops the run."""

    exit_code = 1


@dataclass
class State:
    """Where a run stands: all that a checkpoint keeps besides tensors."""

    step: int = 0
    epoch: int = 0
    batches_done: int = 0  # of this epoch
    tokens: int = 0
    seconds: float = 0.0
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
        options: Options,
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

        task, options: what is trained, and how.
        folder: where the best model and the checkpoints go.
        world: this process among the others. signals: looked at between two steps.
        state, checkpoint: where the run starts; a new one has no checkpoint.
        log, report: for the first process; others have none.
        """
        self.task, self.options, self.folder, self.world, self.signals = task, options, folder, world, signals
        self.state, self.log, self.report = state, log, report
        self.epoch = task.batches.epoch(state.epoch)
        self.model = task.model.to(world.device)
        module = LossModule(self.model, task)
        self._freeze_unused(module)
        freeze(self.model, options)
        _set_train_mode(self.model)
        # DDP and FSDP2 have to know which parameters are frozen, and FSDP2 replaces parameters: so the model is wrapped
        # here, after freezing and before the optimizer.
        self.module = world.wrap(module, shard=options.shard)
        groups = parameter_groups(self.model, options)
        self.optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, 0.98), fused=True)
        if checkpoint is not None:
            checkpoints.restore(checkpoint, self._tensors())
            for moments in self.optimizer.state.values():
                moments["step"] = torch.full_like(moments["step"], state.step)

    def train(self) -> State:
        """Train to the end; Stopped if a signal came, Diverged if the loss is NaN."""
        state, options, world = self.state, self.options, self.world
        while not state.finished:
            (stopped,) = world.all_reduce(float(self.signals.caught > 0))
            if stopped:
                self._save()
                text = f"stopped at step {state.step:,}; everything is saved: go on with --resume"
                raise Stopped(self.signals.caught or signal.SIGTERM, text)
            start = time.monotonic()
            loss, norm, tokens = self._step()
            state.seconds += time.monotonic() - start
            if self.log is not None:
                self.log.add(step=state.step, loss=loss, norm=norm, tokens=tokens, seconds=round(state.seconds, 3))
            if self.report is not None:
                self.report.step(state.step, loss, state.tokens / max(state.seconds, 1e-9))
            late = options.minutes is not None and state.seconds > 60 * options.minutes
            (late_processes,) = world.all_reduce(float(late))
            state.finished = bool(late_processes) or state.step >= options.steps
            # The best model is saved before the checkpoint that refers to it.
            if state.finished or state.step % options.evaluate_every == 0:
                self._evaluate()
                state.finished |= 0 < options.patience <= state.evaluations_since_best
            if state.finished or state.step % options.save_every == 0:
                self._save()
        return state

    # ------------------------------------------------------------------------------------------------------- one step

    def _step(self) -> tuple[float, float, int]:
        """Update the weights once; return the loss, the norm of the gradient, and the number of tokens."""
        state, options, world = self.state, self.options, self.world
        generator = torch.Generator().manual_seed(_seed(options.seed, state.step, 0))
        torch.manual_seed(_seed(options.seed, state.step, world.rank) + 1)  # for dropout
        shards = [self._shard(rows, generator) for rows in self._next_batches()]
        count, tokens = world.all_reduce(
            float(sum(batch.count for batch, counts in shards if counts)),
            float(sum(batch.tokens for batch, counts in shards if counts)),
        )
        # DDP and FSDP2 average the gradients of the processes, but the loss is a mean over all targets, wherever they
        # are: hence the factor world.size.
        total = 0.0
        for number, (batch, counts) in enumerate(shards):
            with world.no_sync(self.module, skip=number < len(shards) - 1):
                loss: Tensor = self.module(batch) * (world.size / count if counts else 0.0)
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
        rate = learning_rate(state.step, options)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total, norm, int(tokens)

    def _next_batches(self) -> list[list[int]]:
        """The rows of each batch of the next step."""
        state, batches = self.state, []
        for _ in range(self.options.accumulate):
            if state.batches_done == len(self.epoch):
                state.epoch, state.batches_done = state.epoch + 1, 0
                self.epoch = self.task.batches.epoch(state.epoch)
            batches.append(self.epoch[state.batches_done])
            state.batches_done += 1
        return batches

    def _shard(self, rows: list[int], generator: torch.Generator) -> tuple[Batch, bool]:
        """This process's rows of a batch, and True; if there are none for it, an example that does not count.

        Every process makes the whole batch, so that its randomness does not depend on the number of processes.
        """
        world, batch = self.world, self.task.batch(rows, generator)
        if world.rank < len(rows):
            return batch.shard(world.rank, world.size).to(world.device), True
        return batch.shard(0, len(rows)).to(world.device), False

    # ----------------------------------------------------------------------------------------- evaluations, checkpoints

    def _evaluate(self) -> None:
        """Evaluate in the first process, and save the model there if it is the best so far."""
        task, state, world = self.task, self.state, self.world
        gathered = world.gather(self.model) if self.options.shard else None
        outcome = None
        if world.is_first:
            model = self.model if gathered is None else _copy(self.model, gathered)
            metrics, samples = task.evaluate(model, "validation"), task.samples(model)
            value = metrics[task.goal.name]
            is_best = task.goal.improves(value, state.best)
            if is_best:
                model.save(self.folder)
            outcome = value, is_best, manifest_digest(self.folder)
            if self.log is not None:
                widths = {"widths": head_widths(task, model)} if self.options.widths else {}
                records, seconds = [asdict(sample) for sample in samples], round(state.seconds, 3)
                self.log.add(step=state.step, validation=metrics, samples=records, **widths, seconds=seconds)
                self.log.flush()
            if self.report is not None:
                self.report.evaluation(state.step, metrics, samples, is_best=is_best)
        value, is_best, manifest = world.broadcast(outcome)
        state.evaluations_since_best += 1
        if is_best:
            state.best, state.best_step, state.best_manifest = value, state.step, manifest
            state.evaluations_since_best = 0

    def _save(self) -> None:
        """Save a checkpoint, unless this step has one."""
        if self.log is not None:
            self.log.flush()
        home, step = self.folder / CHECKPOINTS, self.state.step
        content = {
            **asdict(self.state),
            "fingerprint": self.task.fingerprint,
            "end_conditions": end_conditions(self.options),
        }
        if not self.world.broadcast(checkpoints.exists(home, step)):
            checkpoints.save(home, step, self._tensors(), content, self.world)

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
        return tensors

    def _freeze_unused(self, module: LossModule) -> None:
        """Freeze what the task does not use, such as another head: DDP would wait for its gradient forever."""
        batch = self.task.batch(self.epoch[0][:1], torch.Generator()).to(self.world.device)
        with evaluation(module):  # so that batch norm does not learn from it
            module(batch).backward()
        for parameter in module.parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None


def _set_train_mode(model: Model) -> None:
    """Training mode, except for batch norm that is frozen: its running statistics are kept as well."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and not any(parameter.requires_grad for parameter in module.parameters()):
            module.eval()


def _copy(model: Model, state: dict[str, Tensor]) -> Model:
    """A model that is not sharded, with these tensors."""
    copy = type(model)(**model.config)
    copy.load_state_dict(state)
    copy.tokenizer, copy.target_tokenizer = model.tokenizer, model.target_tokenizer
    return copy


def _seed(seed: int, step: int, rank: int) -> int:
    """Seeds far apart for neighbouring steps and ranks."""
    return (seed * 1_000_003 + step * 7_919 + rank * 104_729 + 12_345) * 2 % (1 << 62)


def end_conditions(options: Options) -> list[float | None]:
    """The options that decide when a run ends: a finished run goes on if they were changed."""
    return [options.steps, options.minutes, options.patience]


def learning_rate(step: int, options: Options) -> float:
    """The rate of a step, counted from 1: a linear warm-up, then constant, a cosine to 0, or 1 / √step."""
    peak, warmup = options.learning_rate, options.warmup
    if step < warmup:
        return peak * step / warmup
    if options.schedule == "constant":
        return peak
    if options.schedule == "inverse-root":
        return peak * math.sqrt(max(warmup, 1) / max(step, 1))
    done = (step - warmup) / max(options.steps - warmup, 1)
    return peak * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
