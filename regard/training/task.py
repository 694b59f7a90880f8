"""What is trained: data → batch → loss → metrics. A task is that and nothing else; the loop does the rest."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.data.batches import Batches
from regard.errors import RegardError
from regard.models.model import Model, evaluation
from regard.training.options import Options

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from regard.training.processes import World

__all__ = [
    *("IGNORE_INDEX", "Batch", "Goal", "LossModule", "Sample", "Task", "TaskError", "Tokenizers"),
    *("cross_entropy", "fingerprint", "total_loss"),
]

IGNORE_INDEX = -100  # a target that does not count: PyTorch's default


class TaskError(RegardError, ValueError):
    """Data and options that do not fit together."""


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizer of the source, and that of the target if it is another one; None where there is none."""

    source: Tokenizer | None = None
    target: Tokenizer | None = None


@dataclass(frozen=True)
class Goal:
    """The metric that decides which model is the best."""

    name: str
    higher_is_better: bool

    def improves(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best one so far."""
        return best is None or (value > best if self.higher_is_better else value < best)


@dataclass(frozen=True)
class Batch:
    """Examples as tensors; every field has a row for each example."""

    inputs: tuple[Tensor | list[int], ...]  # the model's arguments
    targets: Tensor
    sizes: list[int]  # tokens of each example, without padding

    @property
    def count(self) -> int:
        """How many targets count: the loss is a mean over them."""
        return int((self.targets != IGNORE_INDEX).sum())

    @property
    def tokens(self) -> int:
        """How many tokens there are, without padding."""
        return sum(self.sizes)

    def to(self, device: torch.device) -> Batch:
        """The same on another device; lengths are lists and stay."""
        inputs = tuple(value.to(device) if isinstance(value, Tensor) else value for value in self.inputs)
        return Batch(inputs, self.targets.to(device), self.sizes)


@dataclass(frozen=True)
class Sample:
    """An example, and what a model makes of it."""

    input: str
    expected: str
    output: str


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A task with its data, and an untrained model for it."""

    model: Model
    options: Options  # all of them: what was not given follows from the data
    batches: Batches  # of the training part
    fingerprint: str  # of the data: a run is resumed with the same data only
    notes: list[str] = field(default_factory=list)  # what the user should know about the data
    goal: ClassVar[Goal]
    unit: ClassVar[str] = "tokens"

    @abstractmethod
    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        """Of a batch of these examples of the training part, the share of one process.

        All randomness (augmentation, masks) comes from the generator, and is drawn for the whole batch: so it does not
        depend on the number of processes. Only the share is read and made into tensors.
        """

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> Tensor:
        """The sum of the losses of all targets of a batch."""

    @abstractmethod
    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        """The metrics of a model, the goal among them: every process computes a share, and all get the result."""

    @abstractmethod
    def samples(self, model: Any) -> list[Sample]:
        """What a model makes of a few examples of the validation part."""


class LossModule(nn.Module):
    """A model and its task as one module whose output is the loss: what DDP and FSDP2 wrap."""

    def __init__(self, model: Model, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> Tensor:
        """The sum of the losses of a batch."""
        return self.task.loss(self.model, batch)


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Logits (…, classes), targets (…) → the sum of −log p(target) over the targets that count."""
    return functional.cross_entropy(
        logits.flatten(0, -2),
        targets.flatten(),
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def total_loss(
    model: Model, batches: Iterable[Batch], logits: Callable[[Batch], Tensor], world: World
) -> tuple[float, int]:
    """The sum of the losses of all targets, in evaluation mode and without label smoothing, and how many count.

    batches: this process's share of them; the sums are those of all processes.
    """
    total, count, device = 0.0, 0, next(model.parameters()).device
    with torch.no_grad(), evaluation(model):
        for batch in batches:
            on_device = batch.to(device)
            total += float(cross_entropy(logits(on_device), on_device.targets))
            count += batch.count
    total, counted = world.all_reduce(total, float(count))
    return total, int(counted)


def fingerprint(*parts: str | Tensor) -> str:
    """The SHA-256 of texts and tensors."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.contiguous().numpy().tobytes() if isinstance(part, Tensor) else part.encode()
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()
