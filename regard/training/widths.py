"""How wide each head looks, as training goes on: `--widths` writes it into the run's log at each evaluation."""

from __future__ import annotations

import torch

from regard.attention import numbers
from regard.attention.observers import AttentionCall, watching
from regard.models.model import Model, evaluation
from regard.training.task import Task

__all__ = ["head_widths"]

EXAMPLES = 4  # that are looked at, always the same


def head_widths(task: Task, model: Model) -> dict[str, list[float]]:
    """exp of the entropy of each head's weights, on average: {path of the layer: [a number for each head]}."""
    paths = {module: path or type(model).__name__ for path, module in model.named_modules()}
    found: dict[str, list[torch.Tensor]] = {}

    def see(look: AttentionCall) -> None:
        weights = look.weights()
        weights = weights if weights.dim() == 4 else weights.reshape(-1, 1, *weights.shape[-2:])
        name = paths.get(look.layer, "") if look.layer is not None else ""
        found.setdefault(name, []).append(numbers.mean_of_rows(numbers.width(weights), weights))

    device = next(model.parameters()).device
    with torch.no_grad(), evaluation(model), watching(see):
        for row in task.batches.epoch(0)[0][:EXAMPLES]:
            task.loss(model, task.batch([row], torch.Generator().manual_seed(0)).to(device))
    return {name: [round(own, 4) for own in torch.stack(each).mean(0).tolist()] for name, each in found.items()}
