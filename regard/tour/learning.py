"""The smallest training loop there is, for sections that teach a small model a small task."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

NOTHING = -100  # the target of a place where nothing is asked

Batch = Callable[[int], tuple[Tensor, Tensor]]


def fit(model: nn.Module, batch: Batch, *, steps: int, rate: float = 3e-3) -> nn.Module:
    """Teach a model that gives logits (batch, n, words): `batch(step)` gives inputs and targets (batch, n)."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    model.train()
    for step in range(steps):
        inputs, targets = batch(step)
        loss = functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), ignore_index=NOTHING)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()
