"""The smallest training loops there are, for sections that teach a small model a small task."""

from collections.abc import Callable
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.data.batches import Position
from regard.models.model import Model
from regard.training.task import Task

Module = TypeVar("Module", bound=nn.Module)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down the gradient of the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def fit_task(task: Task, *, steps: int, learning_rate: float, seed: int) -> Model:
    """Train the model of a task of `regard train`: the same batches and the same loss, without checkpoints."""
    batches = [rows for rows, _ in islice(task.batches.following(Position()), steps)]
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> Tensor:
        batch = task.batch(batches[step], slice(None), generator)
        return task.loss(task.model, batch) / batch.count

    return train(task.model, loss, steps=steps, learning_rate=learning_rate)


def train(model: Module, loss: Callable[[int], Tensor], *, steps: int, learning_rate: float) -> Module:
    """Go down the gradient of `loss(step)`, as often as there are steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01, fused=True)
    warmup = 1 + steps // 10  # the rate rises for a tenth of the steps, and falls for the others
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / (1 + steps - warmup))
    )
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        loss(step).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()
