"""The smallest training loops there are, for sections that teach a small model a small task."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)

ADAMW = {"weight_decay": 0.01, "decoupled_weight_decay": True, "fused": True}  # options of Adam


def descend(
    parameters: Iterable[nn.Parameter], loss: Callable[[], Tensor], steps: int, learning_rate: float, **options: Any
) -> list[Tensor]:
    """Go so many steps down the gradient of `loss()`, of one model or of several; the losses on the way.

    options: of Adam
    """
    optimizer, losses = torch.optim.Adam(parameters, learning_rate, **options), []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.sum().backward()
        optimizer.step()
        losses.append(value.detach())
    return losses


def share_right(logits: Tensor, classes: Tensor) -> float:
    """How many of the answers (…, classes) are right, as a share of all."""
    return float((logits.argmax(-1) == classes).double().mean())


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
