"""How wide each head attends, as training goes on: `--widths` writes it into the run's log at each evaluation."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention import numbers
from regard.attention.capture import AttentionMap, Recorder
from regard.attention.observers import observe
from regard.models.model import Model, evaluation
from regard.training.task import Task

__all__ = ["head_widths"]

EXAMPLES = 4  # always the same ones


def head_widths(task: Task, model: Model) -> dict[str, list[float]]:
    """exp of the entropy of each head's weights, on average: {path of the layer: [a number for each head]}."""
    widths: dict[str, list[Tensor]] = {}

    def record(layer: AttentionMap) -> None:
        mean = numbers.mean_of_rows(numbers.width(layer.weights), layer.weights)  # (heads,)
        widths.setdefault(layer.name, []).append(mean)

    device = next(model.parameters()).device
    with torch.no_grad(), evaluation(model), observe(Recorder(model, record)):
        for row in next(iter(task.batches.epoch(0)))[:EXAMPLES]:
            task.loss(model, task.batch([row], slice(None), torch.Generator().manual_seed(0)).to(device))
    return {name: [round(width, 4) for width in torch.stack(means).mean(0).tolist()] for name, means in widths.items()}
