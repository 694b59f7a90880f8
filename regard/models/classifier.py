"""What all classifiers can do, those of texts and those of images: say which class, and how likely each is.

p_c = softmax_c(logits)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.arguments import check_positive
from regard.attention import masked_softmax
from regard.data.image_files import read_image
from regard.models.model import Model, evaluated
from regard.models.texts import groups, padded, tokens

__all__ = ["Classifier", "ImageClassifier", "TextClassifier"]

TOKENS = 4_096  # at a time
PIXELS = 1 << 20  # at a time
Picture = str | Path | Tensor


class Classifier(Model):
    """A model that may have classes, with names (`labels`) if they were given."""

    @property
    def labels(self) -> list[Any]:
        """The name of each class: its number, where no names were given."""
        return list(self.config["labels"]) or list(range(self.config["classes"]))

    def named(self, probabilities: Tensor) -> list[Any]:
        """The likeliest class of each row (rows, classes), by name."""
        labels = self.labels
        return [labels[place] for place in probabilities.argmax(-1).tolist()]


class TextClassifier(Classifier):
    """Classes of texts: subclasses give `class_logits`."""

    def class_logits(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """ids (batch, n) → logits (batch, classes)."""
        raise NotImplementedError(f"{type(self).__name__} must define class_logits")

    @evaluated
    @torch.inference_mode()
    def probabilities(self, texts: Sequence[str]) -> Tensor:
        """How likely each class is for each text, (texts, classes). What is longer than the model can read is cut."""
        longest = self.config.get("max_length") or self.config["max_positions"]
        ids = tokens(self.need_tokenizer(), texts, longest)
        order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
        device = next(self.parameters()).device
        found: dict[int, Tensor] = {}
        for group in groups([len(ids[number]) for number in order], TOKENS):
            chosen = order[group]
            rows, lengths = padded([ids[number] for number in chosen])
            found |= dict(zip(chosen, masked_softmax(self.class_logits(rows.to(device), lengths)), strict=True))
        return torch.stack([found[number] for number in range(len(ids))])

    def classify(self, text: str | Sequence[str]) -> Any:
        """The class of a text, or of each of several."""
        if isinstance(text, str):
            return self.classify([text])[0]
        if not isinstance(text, Sequence):
            raise TypeError(f"text: expected a text or several, got {type(text).__name__}")
        return self.named(self.probabilities(text)) if text else []


class ImageClassifier(Classifier):
    """Classes of images: calling the model gives logits. `mean` and `deviation` are those of its training images."""

    @property
    def example(self) -> str:
        return "classify('picture.png')"

    def prepared(self, images: Tensor) -> Tensor:
        """Images of bytes (batch, channels, height, width) as the model wants them."""
        mean, deviation = (
            torch.tensor(self.config[name], device=images.device).view(-1, 1, 1) for name in ("mean", "deviation")
        )
        return (images.float() / 255 - mean) / deviation

    @evaluated
    @torch.inference_mode()
    def probabilities(self, images: Tensor | Sequence[Picture]) -> Tensor:
        """How likely each class is for each image, (images, classes)."""
        device = next(self.parameters()).device
        if isinstance(images, Tensor) and images.dim() == 3:
            images = images[None]
        found = [torch.empty(0, self.config["classes"])]
        for some in _batches([own if isinstance(own, Tensor) else self.read(Path(own)) for own in images]):
            inputs = some if some.is_floating_point() else self.prepared(some)
            found.append(masked_softmax(self(inputs.to(device))))
        return torch.cat(found)

    def classify(self, image: Picture | Sequence[Picture]) -> Any:
        """The class of an image, or of each of several: files, bytes (channels, height, width), or a batch of them."""
        if isinstance(image, str | Path):
            return self.classify([image])[0]
        if isinstance(image, Tensor) and image.dim() == 3:
            return self.classify(image[None])[0]
        return self.named(self.probabilities(image))

    def read(self, path: Path) -> Tensor:
        """A picture, brought to the model's size if it reads one size only."""
        size = self.config.get("image_size")
        sides = (size, size) if isinstance(size, int) else None if size is None else (int(size[0]), int(size[1]))
        return read_image(path, self.config["channels"], sides)


def _batches(images: Sequence[Tensor]) -> Iterator[Tensor]:
    """Neighbours of one size, not too many at a time."""
    for _, own in groupby(images, key=lambda image: tuple(image.shape)):
        same = list(own)
        together = max(1, PIXELS // max(1, same[0].numel()))
        for start in range(0, len(same), together):
            yield torch.stack(same[start : start + together])


def check_labels(labels: Sequence[str], classes: int) -> None:
    """As many names as classes, or none, and no name twice."""
    if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"labels: expected the names of the classes, got {labels!r}")
    if labels and len(labels) != classes:
        raise ValueError(f"labels: expected {classes} names, one for each class, got {len(labels)}")
    if len(set(labels)) < len(labels):
        raise ValueError("labels: expected different names, got one twice")


def check_light(mean: Sequence[float], deviation: Sequence[float], channels: int) -> None:
    """Mean and deviation of each channel, or of all channels alike."""
    for name, numbers in (("mean", mean), ("deviation", deviation)):
        if len(numbers) not in (1, channels):
            raise ValueError(f"{name}: expected one number, or one for each of {channels} channels, got {numbers!r}")
    for number in deviation:
        check_positive("deviation", number)


def pooled(pooling: str, vectors: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
    """One vector of many, (batch, n, size) → (batch, size)."""
    if pooling == "first":
        return vectors[:, 0]
    n = vectors.shape[1]
    counts = torch.full((len(vectors),), n) if lengths is None else torch.as_tensor(lengths)
    counts = counts.to(vectors.device)[:, None]
    if pooling == "mean":
        return vectors.sum(1) / counts  # where there is no token stands a zero
    missing = torch.arange(n, device=vectors.device) >= counts  # (batch, n)
    return vectors.masked_fill(missing[..., None], -torch.inf).amax(1)
