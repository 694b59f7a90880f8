"""Images and their classes; accuracy."""

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
from regard.data.images import ImageData, read_images
from regard.data.images import Images as Pictures
from regard.data.split import split
from regard.models.classifier import ImageClassifier
from regard.models.model import Model
from regard.models.resnet import ResNet
from regard.models.vision import ViT
from regard.training.options import Images
from regard.training.task import (
    Batch,
    Goal,
    Sample,
    Task,
    TaskError,
    Tokenizers,
    built,
    cross_entropy,
    fingerprint,
)
from regard.training.tasks.classes import accuracy, chosen, classes_of
from regard.training.transfer import begun_from

SHOWN = 3
SHIFT = 8  # an image moves by its edge divided by this, at most


@dataclass(frozen=True, kw_only=True)
class ImageTask(Task):
    """Images as bytes, and the number of each image's class."""

    train: Pictures
    validation: Pictures
    test: Pictures
    options: Images
    goal: ClassVar[Goal] = Goal("accuracy", higher=True)
    unit: ClassVar[str] = "images"

    def batch(self, rows: Sequence[int], chance: torch.Generator) -> Batch:
        pixels = self.train.pixels[list(rows)]
        if self.options.augment:
            pixels = _moved(pixels, chance)
        if self.options.flip:
            mirrored = torch.rand(len(pixels), generator=chance) < 0.5
            pixels = torch.where(mirrored[:, None, None, None], pixels.flip(3), pixels)
        return Batch((pixels,), self.train.labels[list(rows)], [1] * len(rows))

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model(model.preprocess(*batch.inputs)), batch.targets, self.options.smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"]) -> dict[str, Any]:
        return measured(model, self.validation if part == "validation" else self.test)

    def samples(self, model: Any) -> list[Sample]:
        found = model.classify(self.validation.pixels[:SHOWN])
        expected = [self.validation.names[label] for label in self.validation.labels[:SHOWN].tolist()]
        return [
            Sample(f"validation image {number}", right, str(own))
            for number, (right, own) in enumerate(zip(expected, found, strict=True))
        ]


def measured(model: ImageClassifier, images: Pictures) -> dict[str, Any]:
    """Accuracy, and the loss per image."""
    labels = [images.names[label] for label in images.labels.tolist()]
    return accuracy(model.probabilities(images.pixels), labels, model.labels)


def _moved(pixels: Tensor, chance: torch.Generator) -> Tensor:
    """Each image a little higher or lower, to the left or to the right; what comes in is black."""
    count, _, height, width = pixels.shape
    down, across = (max(1, edge // SHIFT) for edge in (height, width))
    wide = functional.pad(pixels, (across, across, down, down))
    tops = torch.randint(2 * down + 1, (count,), generator=chance)
    lefts = torch.randint(2 * across + 1, (count,), generator=chance)
    rows = (tops[:, None] + torch.arange(height))[:, None, :, None]
    columns = (lefts[:, None] + torch.arange(width))[:, None, None, :]
    return wide[torch.arange(count)[:, None, None, None], torch.arange(wide.shape[1])[:, None, None], rows, columns]


def prepare(options: Images, kept: Tokenizers | None) -> ImageTask:
    """Read the images, build the model."""
    data = digits() if options.data is None else read_images(Path(options.data), options.image_size or None)
    train, validation, test = _parts(data, options)
    with built():
        model = _model(options, train, _light(train.pixels))
    return ImageTask(
        model=model,
        batches=Batches([1] * len(train.pixels), options.batch, options.seed),
        fingerprint=fingerprint(train.pixels, train.labels, validation.labels),
        notes=[
            f"{len(train.pixels):,} images of {len(train.names)} classes to learn, "
            f"{len(validation.pixels):,} and {len(test.pixels):,} set aside"
        ],
        train=train,
        validation=validation,
        test=test,
        options=options,
    )


def _light(pixels: Tensor) -> dict[str, list[float]]:
    """Mean and deviation of each channel, of 1; some images at a time."""
    total, squares = (torch.zeros(pixels.shape[1], dtype=torch.float64) for _ in range(2))
    for some in pixels.split(256):
        values = some.double() / 255
        total += values.sum((0, 2, 3))
        squares += values.square().sum((0, 2, 3))
    count = pixels.numel() / pixels.shape[1]
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=1e-6).sqrt()
    named = (("mean", mean), ("deviation", deviation))
    return {name: [round(number, 4) for number in own.tolist()] for name, own in named}


def _parts(data: ImageData, options: Images) -> tuple[Pictures, Pictures, Pictures]:
    """By the content of the images; a test part that came with the data stays what it is."""
    given = data.test
    contents = [own.numpy().tobytes() for own in data.train.pixels]
    numbers = range(len(contents))
    share = 0.05 if given is not None else 0.1
    parts = split(numbers, lambda number: contents[number], share, 0 if given is not None else 0.1)
    names = data.train.names
    used = chosen(parts.train, options.examples, lambda number: names[int(data.train.labels[number])])
    where = options.data or "digits"
    classes_of(names, [names[int(data.train.labels[number])] for number in used], where)
    if given is not None and given.names != names:
        raise TaskError(f"{where}: the classes of the test images are not those of the training images")

    def some(rows: list[int]) -> Pictures:
        return Pictures(data.train.pixels[rows], data.train.labels[rows], names)

    return some(used), some(parts.validation), given or some(parts.test)


def _model(options: Images, train: Pictures, light: dict[str, list[float]]) -> Model:
    labels, classes = list(train.names), len(train.names)
    channels, height, width = train.pixels.shape[1:]
    if options.init_from is not None:
        model = begun_from(options, ImageClassifier, labels=labels, classes=classes, **light)
        if model.config["channels"] != channels:
            raise TaskError(f"{options.init_from}: expected a model of {channels} channels, as the images have")
        if isinstance(model, ViT):
            edge = model.config["patch_size"]
            if (model.grid[0] * edge, model.grid[1] * edge) != (height, width):
                model.resize([height, width])
        return model
    torch.manual_seed(options.seed)
    about: dict[str, Any] = {"channels": channels, "labels": labels, **light}
    if options.model == "resnet":
        stem = "cifar" if max(height, width) <= 64 else "imagenet"
        depths = _depths(options.depths)
        return ResNet(depths, classes, width=options.width, stem=stem, **about)
    if height % options.patch or width % options.patch:
        raise TaskError(f"patch: expected a divisor of the images' edges, {height} and {width}, got {options.patch}")
    return ViT(
        [height, width],
        options.patch,
        options.size,
        options.layers,
        options.heads,
        classes,
        pooling="mean",
        dropout=options.dropout,
        **about,
    )


def _depths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise TaskError(f"depths: expected numbers joined by commas, such as 3,3,3, got {text!r}") from None
