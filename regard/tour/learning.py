"""The smallest training loop there is, for sections that teach a small model a small task."""

from collections.abc import Callable
from itertools import chain, count, islice
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.models.model import Model
from regard.training.task import IGNORE_INDEX, Task

Taught = TypeVar("Taught", bound=nn.Module)
Batch = Callable[[int], tuple[Tensor, Tensor]]


def fit(model: Taught, batch: Batch, *, steps: int, rate: float = 3e-3) -> Taught:
    """Teach a model that gives logits (…, words): `batch(step)` gives its inputs and the targets (…)."""

    def loss(step: int) -> Tensor:
        inputs, targets = batch(step)
        return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), ignore_index=IGNORE_INDEX)

    return _taught(model, loss, steps, rate)


def fit_task(task: Task, *, steps: int, rate: float, seed: int) -> Model:
    """Teach a task of `regard train` to its model: the same batches and the same loss, and nothing kept on the way."""
    epochs = chain.from_iterable(map(task.batches.epoch, count()))
    batches = list(islice(epochs, steps))
    chance = torch.Generator().manual_seed(seed)

    def loss(step: int) -> Tensor:
        batch = task.batch(batches[step], chance)
        return task.loss(task.model, batch) / batch.count

    return _taught(task.model, loss, steps, rate)


def _taught(model: Taught, loss: Callable[[int], Tensor], steps: int, rate: float) -> Taught:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, fused=True)
    warm = 1 + steps // 10  # the rate rises for a tenth of the steps, and falls for the others
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / (1 + steps - warm))
    )
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        loss(step).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()
