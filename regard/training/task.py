"""What is trained: data → batch → loss → metrics. A task is that and nothing else; the loop does the rest."""

from __future__ import annotations

import hashlib
import itertools
import math
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

IGNORE_INDEX = -100  # a target that does not count: PyTorch's default, by which its cross entropy leaves it out


class TaskError(RegardError, ValueError):
    """Data and options that do not fit together."""


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizer of the source, and that of the target if it is another one; None where there is none."""

    source: Tokenizer | None = None
    target: Tokenizer | None = None


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

    def split(self, count: int) -> list[Batch]:
        """The same in `count` batches of about as many examples each."""
        ends = [len(self.sizes) * number // count for number in range(count + 1)]
        rows = [slice(start, stop) for start, stop in itertools.pairwise(ends)]
        return [
            Batch(tuple(value[part] for value in self.inputs), self.targets[part], self.sizes[part]) for part in rows
        ]

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
    train: Any  # the examples of each part, in the form that the task stores them in
    validation: Any
    test: Any
    notes: list[str] = field(default_factory=list)  # what the user should know about the data
    goal: ClassVar[str]  # the metric that decides which model is the best
    higher_is_better: ClassVar[bool] = True
    unit: ClassVar[str] = "tokens"

    @abstractmethod
    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        """Of a batch of these examples of the training part, the share of one process.

        All randomness (augmentation, masks) comes from the generator, and is drawn for the whole batch: so it does not
        depend on the number of processes. Only the share is read and made into tensors.
        """

    @abstractmethod
    def logits(self, model: Any, batch: Batch) -> Tensor:
        """What a model makes of the inputs of a batch: (…, classes), with as many rows as there are targets."""

    def loss(self, model: Any, batch: Batch) -> Tensor:
        """The sum of the losses of all targets of a batch."""
        return cross_entropy(self.logits(model, batch), batch.targets, self.options.label_smoothing)

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
        logits.flatten(0, -2), targets.flatten(), reduction="sum", label_smoothing=label_smoothing
    )


def perplexity(
    model: Model, batches: Iterable[Batch], logits: Callable[[Any, Batch], Tensor], world: World
) -> tuple[float, float]:
    """e^(mean loss of all targets), and the sum of their losses, in evaluation mode and without label smoothing.

    batches: this process's share of them; the sums are those of all processes. logits: of the model and a batch.
    """
    total, count, device = 0.0, 0, next(model.parameters()).device
    with torch.no_grad(), evaluation(model):
        for batch in batches:
            on_device = batch.to(device)
            total += float(cross_entropy(logits(model, on_device), on_device.targets))
            count += batch.count
    total, counted = world.all_reduce(total, float(count))
    return math.exp(min(total / counted, 700)), total


def fingerprint(*parts: str) -> str:
    """The SHA-256 of texts."""
    contents = [part.encode() for part in parts]
    return hashlib.sha256(b"".join(f"{len(content)}:".encode() + content for content in contents)).hexdigest()
