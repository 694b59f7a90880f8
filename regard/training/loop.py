"""The one loop.

    for each step:  batches → Σ loss / count → backward → clip → AdamW at the schedule's rate
    now and then:   evaluate, keep the best model; save a checkpoint

Whatever is random at a step is a function of the seed, the step and the process: so a run that goes on from a
checkpoint does exactly what the run would have done that was never stopped.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.models.model import Model, evaluation
from regard.training import checkpoints
from regard.training.folder import CHECKPOINTS, Log, seal
from regard.training.options import Options
from regard.training.processes import World
from regard.training.report import Report
from regard.training.schedule import rate
from regard.training.signals import Signals, Stopped
from regard.training.task import Batch, LossModule, Task
from regard.training.transfer import groups
from regard.training.widths import head_widths

__all__ = ["Diverged", "Run", "State", "run", "until"]


Following = Callable[[], list[list[int]]]  # the batches of the next step


class Diverged(RegardError, ValueError):
    """A loss or a gradient that is NaN or infinite stops the run."""

    exit_code = 1


@dataclass
class State:
    """Where a run stands. The fields are all that a checkpoint keeps besides tensors."""

    step: int = 0
    epoch: int = 0
    place: int = 0  # batches of this epoch that are done
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    best_seal: str = ""  # the SHA-256 of the best model's manifest: is that what the folder holds?
    waited: int = 0  # evaluations since the best
    finished: bool = False


@dataclass(frozen=True)
class Run:
    """The parts of a run."""

    task: Task
    options: Options
    folder: Path
    world: World
    report: Report | None
    log: Log | None
    signals: Signals


def run(own: Run, state: State, found: checkpoints.Checkpoint | None) -> State:
    """Train until the end, from a state and a checkpoint of it if there is one."""
    options, world = own.options, own.world
    model = own.task.model.to(world.device)
    plain = LossModule(model, own.task)
    _leave_unused(plain, own)
    groups(model, options)  # what is to stay as it is has to be known before the model is shared
    _to_train(model)
    trainee = world.share(plain, shard=options.shard)
    optimizer = _optimizer(model, options)
    if found is not None:
        checkpoints.restore(found, _tensors(model, optimizer))
        _set_steps(optimizer, state.step)
    following = _batches(own.task, options, state)
    while not state.finished:
        (stopped,) = world.all_reduce(float(own.signals.caught > 0))
        if stopped:
            _save(own, state, model, optimizer)
            text = f"stopped at step {state.step:,}; everything is saved: go on with --resume"
            raise Stopped(own.signals.caught or signal.SIGTERM, text)
        began = time.monotonic()
        loss, norm, tokens = _step(own, trainee, optimizer, following, state)
        state.seconds += time.monotonic() - began
        _tell(own, state, loss, norm, tokens)
        _now_and_then(own, state, model, optimizer)
    return state


# --------------------------------------------------------------------------------------------------------- one step


def _step(
    own: Run,
    trainee: nn.Module,
    optimizer: torch.optim.Optimizer,
    following: Following,
    state: State,
) -> tuple[float, float, int]:
    """Change the weights once: the loss, the length of the gradient, and how many tokens were read."""
    options, world = own.options, own.world
    chance = torch.Generator().manual_seed(_seed(options.seed, state.step, 0))
    torch.manual_seed(_seed(options.seed, state.step, world.rank) + 1)  # for dropout
    shares = [_share(own.task, rows, world, chance) for rows in following()]
    count, tokens = world.all_reduce(
        float(sum(batch.count for batch, counts in shares if counts)),
        float(sum(batch.tokens for batch, counts in shares if counts)),
    )
    # Processes average their gradients; the loss is a mean over all targets, wherever they are.
    total = 0.0
    for number, (batch, counts) in enumerate(shares):
        with world.no_sync(trainee, number < len(shares) - 1):
            loss: Tensor = trainee(batch) * (world.size / count if counts else 0.0)
            loss.backward()
        total += float(loss.detach())
    (total,) = world.all_reduce(total / world.size)
    length = world.clip(trainee, options.clip or math.inf)
    if not math.isfinite(total) or not math.isfinite(length):
        raise Diverged(
            f"at step {state.step + 1:,} the loss is {total} and its gradient's length {length}: training stops before "
            "that spoils the weights; try a lower --learning-rate or a longer --warmup"
        )
    state.step += 1
    now = rate(
        state.step,
        schedule=options.schedule,
        highest=options.learning_rate,
        warmup=options.warmup,
        steps=options.steps,
    )
    for group in optimizer.param_groups:
        group["lr"] = now * group["factor"]
    optimizer.step()
    optimizer.zero_grad()
    state.tokens += int(tokens)
    return total, length, int(tokens)


def _share(task: Task, rows: list[int], world: World, chance: torch.Generator) -> tuple[Batch, bool]:
    """This process's part of a batch; if there is none for it, an example that does not count.

    Every process makes the whole batch, so that what is random about it does not depend on how many there are.
    """
    whole = task.batch(rows, chance)
    if world.rank < len(rows):
        return whole.share(world.rank, world.size).to(world.device), True
    return whole.share(0, len(rows)).to(world.device), False


def _seed(seed: int, step: int, rank: int) -> int:
    """Numbers that are far apart for neighbours."""
    return (seed * 1_000_003 + step * 7_919 + rank * 104_729 + 12_345) * 2 % (1 << 62)


def _batches(task: Task, options: Options, state: State) -> Following:
    """What the next step reads, from where the state stands."""
    epoch = task.batches.epoch(state.epoch)

    def following() -> list[list[int]]:
        nonlocal epoch
        found = []
        for _ in range(options.accumulate):
            if state.place == len(epoch):
                state.epoch, state.place = state.epoch + 1, 0
                epoch = task.batches.epoch(state.epoch)
            found.append(epoch[state.place])
            state.place += 1
        return found

    return following


# ----------------------------------------------------------------------------------------------------- the optimizer


def _leave_unused(trainee: LossModule, own: Run) -> None:
    """What the task does not use, such as another head, has no gradient: processes would wait for it forever."""
    batch = own.task.batch(own.task.batches.epoch(0)[0][:1], torch.Generator()).to(own.world.device)
    with evaluation(trainee):  # so that nothing is learned of it, not even by batch norm
        trainee(batch).backward()
    for parameter in trainee.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None


def _to_train(model: Model) -> None:
    """Training mode, but for batch norm that is to stay as it is: that keeps what it knows of its inputs too."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and not any(own.requires_grad for own in module.parameters()):
            module.eval()


def _optimizer(model: Model, options: Options) -> torch.optim.AdamW:
    """Of the parameters that learn; after the model was shared, which may have put others in their places."""
    return torch.optim.AdamW(groups(model, options), lr=options.learning_rate, betas=(0.9, 0.98), fused=True)


def _tensors(model: Model, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything that a checkpoint holds: the model's tensors, and the two moments of each parameter that learns."""
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        memory = optimizer.state[parameter]
        for moment in ("exp_avg", "exp_avg_sq"):
            if moment not in memory:
                memory[moment] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            tensors[f"{moment}.{name}"] = memory[moment]
        memory.setdefault("step", torch.zeros((), device=parameter.device))
    return tensors


def _set_steps(optimizer: torch.optim.Optimizer, step: int) -> None:
    for memory in optimizer.state.values():
        memory["step"] = torch.full_like(memory["step"], step)


# ------------------------------------------------------------------------------------------------------ now and then


def _now_and_then(own: Run, state: State, model: Model, optimizer: torch.optim.Optimizer) -> None:
    """Evaluate and save when it is time. First the best model is kept, then the checkpoint that knows of it."""
    options = own.options
    (late,) = own.world.all_reduce(float(options.minutes is not None and state.seconds > 60 * options.minutes))
    state.finished = bool(late) or state.step >= options.steps
    if state.finished or state.step % options.evaluate_every == 0:
        _evaluate(own, state, model)
        state.finished |= 0 < options.patience <= state.waited
    if state.step % options.save_every == 0 or state.finished:
        _save(own, state, model, optimizer)


def _evaluate(own: Run, state: State, model: Model) -> None:
    """Ask the first process how good the model is."""
    task, world = own.task, own.world
    whole = world.whole(model) if own.options.shard else None
    told = None
    if world.first:
        plain = model if whole is None else _plain(model, whole)
        metrics = task.evaluate(plain, "validation")
        samples = task.samples(plain)
        better = task.goal.better(metrics[task.goal.name], state.best)
        if better:
            plain.save(own.folder)
        told = (metrics[task.goal.name], better, seal(own.folder))
        if own.log is not None:
            records = [asdict(sample) for sample in samples]
            more = {"widths": head_widths(task, plain)} if own.options.widths else {}
            own.log.add(step=state.step, validation=metrics, samples=records, **more, seconds=round(state.seconds, 3))
            own.log.flush()
        if own.report is not None:
            own.report.evaluated(state.step, metrics, samples, better)
    value, better, sealed = world.broadcast(told)
    state.waited += 1
    if better:
        state.best, state.best_step, state.best_seal, state.waited = value, state.step, sealed, 0


def _plain(model: Model, whole: dict[str, Tensor]) -> Model:
    """A copy of a model that is in parts, in one piece."""
    copy = type(model)(**model.config)
    copy.load_state_dict(whole)
    copy.tokenizer, copy.target_tokenizer = model.tokenizer, model.target_tokenizer
    return copy


def _save(own: Run, state: State, model: Model, optimizer: torch.optim.Optimizer) -> None:
    if own.log is not None:
        own.log.flush()
    about = {**asdict(state), "fingerprint": own.task.fingerprint, "until": until(own.options)}
    if not own.world.broadcast(checkpoints.exists(own.folder / CHECKPOINTS, state.step)):
        checkpoints.save(own.folder / CHECKPOINTS, state.step, _tensors(model, optimizer), about, own.world)


def until(options: Options) -> list[float | None]:
    """What decides when a run ends."""
    return [options.steps, options.minutes, options.patience]


def _tell(own: Run, state: State, loss: float, norm: float, tokens: int) -> None:
    if own.log is not None:
        own.log.add(step=state.step, loss=loss, norm=norm, tokens=tokens, seconds=round(state.seconds, 3))
    if own.report is not None:
        own.report.step(state.step, loss, state.tokens / max(state.seconds, 1e-9))
