"""LabelledImages and their classes; accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regard.data.batches import Batches
from regard.data.digits import digits
from regard.data.images import ImageData, LabelledImages, read_images
from regard.data.split import split
from regard.models.classifier import ImageClassifier
from regard.models.model import Model
from regard.models.resnet import ResNet
from regard.models.vision import ViT
from regard.training.defaults import complete
from regard.training.options import ImagesOptions
from regard.training.processes import World
from regard.training.task import (
    Batch,
    Goal,
    Sample,
    Task,
    TaskError,
    Tokenizers,
    cross_entropy,
    fingerprint,
)
from regard.training.tasks.classes import accuracy, balanced_subset, class_names
from regard.training.transfer import load_pretrained

SAMPLES = 3
SHIFT = 8  # an image is shifted by its edge divided by this, at most
CHUNK = 256  # images whose mean and deviation are computed at once


@dataclass(frozen=True, kw_only=True)
class ImagesTask(Task):
    """LabelledImages as bytes, and the number of each image's class."""

    train: LabelledImages
    validation: LabelledImages
    test: LabelledImages
    options: ImagesOptions
    goal: ClassVar[Goal] = Goal("accuracy", higher_is_better=True)
    unit: ClassVar[str] = "images"

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        pixels = self.train.pixels[list(rows)]
        if self.options.augment:
            pixels = _shift(pixels, generator)
        if self.options.flip:
            flipped = torch.rand(len(pixels), generator=generator) < 0.5
            pixels = torch.where(flipped[:, None, None, None], pixels.flip(3), pixels)
        return Batch((pixels[share],), self.train.labels[list(rows)][share], [1] * len(rows[share]))

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model(model.preprocess(*batch.inputs)), batch.targets, self.options.label_smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        return evaluate(model, self.validation if part == "validation" else self.test)

    def samples(self, model: Any) -> list[Sample]:
        outputs = model.classify(self.validation.pixels[:SAMPLES])
        labels = self.validation.labels[:SAMPLES].tolist()
        return [
            Sample(f"validation image {number}", self.validation.names[label], str(output))
            for number, (label, output) in enumerate(zip(labels, outputs, strict=True))
        ]


def evaluate(model: ImageClassifier, images: LabelledImages) -> dict[str, Any]:
    """Accuracy, and the loss per image."""
    labels = [images.names[label] for label in images.labels.tolist()]
    return accuracy(model.probabilities(images.pixels), labels, model.labels)


def _shift(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Each image (n, channels, height, width) shifted a little, by chance; what comes in at its edges is black."""
    count, channels, height, width = pixels.shape
    down, across = (max(1, edge // SHIFT) for edge in (height, width))
    framed = functional.pad(pixels, (across, across, down, down))
    tops = torch.randint(2 * down + 1, (count,), generator=generator)
    lefts = torch.randint(2 * across + 1, (count,), generator=generator)
    rows = (tops[:, None] + torch.arange(height))[:, None, :, None]
    columns = (lefts[:, None] + torch.arange(width))[:, None, None, :]
    return framed[torch.arange(count)[:, None, None, None], torch.arange(channels)[:, None, None], rows, columns]


def prepare(options: ImagesOptions, tokenizers: Tokenizers) -> ImagesTask:
    """Read the images, build the model."""
    data = digits() if options.data is None else read_images(Path(options.data), options.image_size or None)
    train, validation, test = _split(data, options)
    options = complete(options, examples=len(train.pixels), edge=min(train.pixels.shape[2:]))
    model = _build_model(options, train)
    return ImagesTask(
        model=model,
        batches=Batches([1] * len(train.pixels), options.batch, options.seed),
        fingerprint=fingerprint(train.pixels, train.labels, validation.labels),
        notes=[
            f"{len(train.pixels):,} images of {len(train.names)} classes to train on, "
            f"{len(validation.pixels):,} for validation, {len(test.pixels):,} for the test"
        ],
        train=train,
        validation=validation,
        test=test,
        options=options,
    )


def _statistics(pixels: Tensor) -> dict[str, list[float]]:
    """Mean and standard deviation of each channel, for pixels from 0 to 1; some images at a time."""
    total, squares = (torch.zeros(pixels.shape[1], dtype=torch.float64) for _ in range(2))
    for chunk in pixels.split(CHUNK):
        values = chunk.double() / 255
        total += values.sum((0, 2, 3))
        squares += values.square().sum((0, 2, 3))
    count = pixels.numel() / pixels.shape[1]
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=1e-6).sqrt()
    named = {"mean": mean, "deviation": deviation}
    return {name: [round(number, 4) for number in numbers.tolist()] for name, numbers in named.items()}


def _split(data: ImageData, options: ImagesOptions) -> tuple[LabelledImages, LabelledImages, LabelledImages]:
    """Training, validation and test, by the content of the images; a test part that comes with the data is kept."""
    names, where = data.train.names, options.data or "digits"
    contents = [image.numpy().tobytes() for image in data.train.pixels]
    labels = [names[label] for label in data.train.labels.tolist()]
    shares = (0.1, 0.1) if data.test is None else (0.05, 0)
    parts = split(range(len(contents)), contents.__getitem__, *shares)
    train = balanced_subset(parts.train, options.examples, labels.__getitem__)
    class_names(names, [labels[row] for row in train], where)
    if data.test is not None and data.test.names != names:
        raise TaskError(f"{where}: the classes of the test images are not those of the training images")

    def select(rows: list[int]) -> LabelledImages:
        return LabelledImages(data.train.pixels[rows], data.train.labels[rows], names)

    return select(train), select(parts.validation), data.test or select(parts.test)


def _build_model(options: ImagesOptions, train: LabelledImages) -> Model:
    channels, height, width = train.pixels.shape[1:]
    classes = len(train.names)
    head: dict[str, Any] = {"labels": list(train.names), **_statistics(train.pixels)}
    if options.init_from is not None:
        model = load_pretrained(options, ImageClassifier, classes=classes, **head)
        if model.config["channels"] != channels:
            raise TaskError(f"{options.init_from}: expected a model of {channels} channels, as the images have")
        if isinstance(model, ResNet) and model.config["image_size"] is not None:
            model.config["image_size"] = [height, width]  # of the images that it learns from now
        if isinstance(model, ViT):
            edge = model.config["patch_size"]
            if (model.grid[0] * edge, model.grid[1] * edge) != (height, width):
                model.resize([height, width])
        return model
    torch.manual_seed(options.seed)
    if options.model == "resnet":
        stem = "cifar" if max(height, width) <= 64 else "imagenet"
        depths = _depths(options.depths)
        return ResNet(depths, classes, width=options.width, stem=stem, channels=channels, **head)
    patch = options.patch_size
    if height % patch or width % patch:
        raise TaskError(f"patch_size: expected a divisor of the images' edges, {height} and {width}, got {patch}")
    return ViT(
        [height, width],
        patch,
        options.size,
        options.layers,
        options.heads,
        classes,
        pooling="mean",
        dropout=options.dropout,
        channels=channels,
        **head,
    )


def _depths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise TaskError(f"depths: expected numbers joined by commas, such as 3,3,3, got {text!r}") from None
