"""What is trained: data → batch → loss → metrics. A task is that, and nothing else; all the rest is the loop's."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.data.batches import Batches
from regard.errors import RegardError
from regard.models.model import Model
from regard.models.tensors import FolderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    *("Batch", "Goal", "Sample", "Task", "TaskError", "Tokenizers", "LossModule"),
    *("built", "cross_entropy", "fingerprint"),
]

IGNORE_INDEX = -100  # a target that counts for nothing: PyTorch's own number for it


@dataclass(frozen=True)
class Tokenizers:
    """Of the source, and of the target where that has another."""

    source: Tokenizer | None
    target: Tokenizer | None = None


class TaskError(RegardError, ValueError):
    """Data and options that do not fit together; the message says which and why."""


@dataclass(frozen=True)
class Goal:
    """The number that says which model is best."""

    name: str
    higher: bool  # is better

    def better(self, new: float, old: float | None) -> bool:
        return old is None or (new > old if self.higher else new < old)


@dataclass(frozen=True)
class Batch:
    """Examples side by side, as tensors."""

    inputs: tuple[Tensor | list[int], ...]  # each with a row for each example
    targets: Tensor  # likewise
    sizes: list[int]  # tokens of each example, without padding

    @property
    def count(self) -> int:
        """Targets that count: the loss is a mean over them."""
        return int((self.targets != IGNORE_INDEX).sum())

    @property
    def tokens(self) -> int:
        """That are read, without padding."""
        return sum(self.sizes)

    def to(self, device: torch.device) -> Batch:
        """The same on another device; lengths are lists and stay."""
        inputs = tuple(own.to(device) if isinstance(own, Tensor) else own for own in self.inputs)
        return Batch(inputs, self.targets.to(device), self.sizes)

    def share(self, rank: int, size: int) -> Batch:
        """The rows of one of several processes."""
        inputs = tuple(own[rank::size] for own in self.inputs)
        return Batch(inputs, self.targets[rank::size], self.sizes[rank::size])


@dataclass(frozen=True)
class Sample:
    """What a model makes of one example, beside what was expected."""

    given: str
    expected: str
    found: str


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A task with its data read, and a model that has not learned it yet."""

    model: Model
    batches: Batches  # of the training part
    fingerprint: str  # of the data: a run goes on only with the same
    notes: list[str] = field(default_factory=list)  # what the user should know of the data
    goal: ClassVar[Goal]
    unit: ClassVar[str] = "tokens"

    @abstractmethod
    def batch(self, rows: Sequence[int], chance: torch.Generator) -> Batch:
        """Some examples of the training part; `chance` decides what is random about them."""

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> Tensor:
        """The sum of the losses of all targets of a batch."""

    @abstractmethod
    def evaluate(self, model: Any, part: Literal["validation", "test"]) -> dict[str, Any]:
        """The metrics of a model; the goal is among them."""

    @abstractmethod
    def samples(self, model: Any) -> list[Sample]:
        """A few examples of the validation part, to be looked at."""


@contextmanager
def built() -> Iterator[None]:
    """Within this block a model is made from options: what cannot be is the user's to mend."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, TaskError | FolderError):
            raise
        raise TaskError(str(error)) from error


class LossModule(nn.Module):
    """A model and its task as one module whose output is a loss: what several processes share."""

    def __init__(self, model: Model, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> Tensor:
        """The sum of the losses of a batch."""
        return self.task.loss(self.model, batch)


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Logits (…, classes), targets (…) → the sum of −log p(target); each class gets a share of the target if smooth."""
    return functional.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=smoothing
    )


def fingerprint(*parts: str | bytes | Tensor) -> str:
    """The SHA-256 of texts and tensors."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.contiguous().numpy().tobytes() if isinstance(part, Tensor) else part
        content = content.encode() if isinstance(content, str) else content
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()
