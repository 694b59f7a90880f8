"""Images and their classes; accuracy. Images are decoded once, into a store, and batches are read from there."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy
import torch
from torch import Tensor
from torch.nn import functional

from regard.data.batches import Batches
from regard.data.image_files import ImageError, Shapes
from regard.data.images import (
    DigitImages,
    ImageSet,
    StoredImages,
    find_images,
    skipped_images,
    store_images,
    stored_part,
)
from regard.data.split import PARTS, divide
from regard.data.store import Store
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
from regard.training.tasks.classes import (
    balanced_rows,
    check_trained,
    class_metrics,
    class_numbers,
    counted_classes,
)
from regard.training.tasks.row_notes import storage_notes
from regard.training.transfer import load_pretrained

SAMPLES = 3
SHIFT = 8  # an image is shifted by its edge divided by this, at most
EVALUATED = 256  # images at a time
HELD_OUT = 5_000  # images for validation, and for the test, at most: an evaluation should not take long


@dataclass(frozen=True, kw_only=True)
class ImagesTask(Task):
    """Images of a store, and the number of each one's class."""

    train: StoredImages
    validation: StoredImages
    test: StoredImages
    options: ImagesOptions
    goal: ClassVar[Goal] = Goal("accuracy", higher_is_better=True)
    unit: ClassVar[str] = "images"

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        places = numpy.asarray(rows)[share]
        pixels = self.train.pixels(places)
        tops = lefts = flips = None
        if self.options.augment:
            tops, lefts = (_shifts(edge, len(rows), generator)[share] for edge in pixels.shape[2:])
        if self.options.flip:
            flips = (torch.rand(len(rows), generator=generator) < 0.5)[share]
        if self.options.augment or self.options.flip:
            pixels = augmented(pixels, tops, lefts, flips)
        return Batch((pixels,), self.train.labels(places), [1] * len(places))

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model(model.preprocess(*batch.inputs)), batch.targets, self.options.label_smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        return evaluate(model, self.validation if part == "validation" else self.test, world)

    def samples(self, model: Any) -> list[Sample]:
        chosen, names = slice(SAMPLES), self.validation.names
        outputs = model.classify(self.validation.pixels(chosen))
        labels = self.validation.labels(chosen).tolist()
        titles = self.validation.titles(chosen)
        return [
            Sample(title, names[label], str(output))
            for title, label, output in zip(titles, labels, outputs, strict=True)
        ]


def evaluate(model: ImageClassifier, images: StoredImages, world: World) -> dict[str, Any]:
    """Accuracy, F1, the confusion matrix, and the loss per image; every process computes a share of the images."""
    present = [name for name, count in zip(images.names, images.class_counts(), strict=True) if count]
    number_of = dict(zip(present, class_numbers(present, model.labels), strict=True))

    def outcomes(start: int) -> list[tuple[int, int, float]]:
        """Class, prediction and loss of the images of a block."""
        chosen = slice(start, start + EVALUATED)
        targets = torch.tensor([number_of[images.names[label]] for label in images.labels(chosen).tolist()])
        probabilities = model.probabilities(images.pixels(chosen)).cpu()
        losses = -probabilities[torch.arange(len(targets)), targets].double().clamp(min=1e-38).log()
        return list(zip(targets.tolist(), probabilities.argmax(1).tolist(), losses.tolist(), strict=True))

    starts = range(0, len(images), EVALUATED)
    blocks = world.collect([outcomes(start) for start in world.share(starts)])
    targets, predictions, losses = zip(*chain.from_iterable(blocks), strict=True)
    return class_metrics(targets, predictions, losses, model.labels)


def augmented(pixels: Tensor, tops: Tensor | None, lefts: Tensor | None, flips: Tensor | None) -> Tensor:
    """Each image (n, channels, height, width) cut from itself in a black frame at a top and a left, or mirrored.

    The middle one of the tops and lefts that `_shifts` gives leaves an image where it is. None does nothing.
    """
    count, _, height, width = pixels.shape
    down, across = (0, 0) if tops is None else (_furthest(height), _furthest(width))
    framed = functional.pad(pixels, (across, across, down, down)).numpy()
    moves = [[0] * count if move is None else move.tolist() for move in (tops, lefts, flips)]
    result = numpy.empty(pixels.shape, numpy.uint8)
    # Image by image: a tenth of the time that one index for every pixel takes.
    for row, (top, left, flip) in enumerate(zip(*moves, strict=True)):
        image = framed[row, :, top : top + height, left : left + width]
        result[row] = image[:, :, ::-1] if flip else image
    return torch.from_numpy(result)


def _furthest(edge: int) -> int:
    """How many pixels an image with this edge is shifted at most."""
    return max(1, edge // SHIFT)


def _shifts(edge: int, count: int, generator: torch.Generator) -> Tensor:
    """From 0 to twice the furthest, by chance."""
    return torch.randint(2 * _furthest(edge) + 1, (count,), generator=generator)


def prepare(options: ImagesOptions, tokenizers: Tokenizers) -> ImagesTask:
    """Decode the images, or find them decoded; build the model."""
    start = time.monotonic()
    images = ImageSet(DigitImages()) if options.data is None else find_images(Path(options.data))
    shapes = images.train.shapes
    size = choose_size(options.image_size, complete(options, edge=shapes.edge).image_size, shapes)
    options = dataclasses.replace(options, image_size=size)
    store = store_images(images, images.shape(options.image_size or None))
    notes = [*skipped_images(store, options.on_error).notes(), *storage_notes(store, time.monotonic() - start)]
    train, validation, test = _split(store, options)
    options = complete(options, examples=len(train), edge=min(train.shape[1:]), common=math.gcd(*train.shape[1:]))
    counts = f"{len(train):,} images of {len(train.names)} classes to train on, {len(validation):,} for validation"
    return ImagesTask(
        model=_build_model(options, train),
        batches=Batches(numpy.broadcast_to(1, len(train)), options.batch, options.seed),
        fingerprint=fingerprint(store.key, f"{options.examples}"),
        notes=[
            f"{counts}, {len(test):,} for the test, each of {'×'.join(map(str, train.shape[1:]))} pixels",
            f"to train on: {counted_classes(train.names, train.class_counts())}",
            *notes,
        ],
        train=train,
        validation=validation,
        test=test,
        options=options,
    )


def choose_size(given: int | None, default: int, shapes: Shapes) -> int:
    """The edge to which images are scaled, 0 if they stay as they are: as it is given, or follows from their edges."""
    if given is not None:
        return given
    if default or shapes.other is None:
        return default
    return max(8, shapes.edge // 8 * 8)  # small images of several sizes; most sizes of patches divide a multiple of 8


def _split(store: Store, options: ImagesOptions) -> tuple[StoredImages, StoredImages, StoredImages]:
    """Training, validation and test, by the content of the images; a test part that comes with the data is kept."""
    images, where = stored_part(store, "train"), options.data or "digits"
    present = [name for name, count in zip(images.names, images.class_counts(), strict=True) if count]
    if len(present) == 1:
        raise ImageError(f"{where}: expected two classes or more, all {len(images)} pictures are {present[0]!r}")
    has_test = "test" in store.facts["counts"]
    share = min(0.05 if has_test else 0.1, HELD_OUT / len(images))
    hashes = store.column("train.hashes").between(0, len(images))
    parts = divide(store.column("train.hashes"), share, 0 if has_test else share).parts(hashes)
    rows = numpy.flatnonzero(parts == PARTS.index("train"))
    rows = rows[balanced_rows(store.column("train.labels").take(rows), hashes[rows], options.examples)]
    train = dataclasses.replace(images, rows=rows)
    check_trained(train.names, train.class_counts(), where)
    validation, test = (
        dataclasses.replace(images, rows=numpy.flatnonzero(parts == PARTS.index(name)))
        for name in ("validation", "test")
    )
    return train, validation, stored_part(store, "test") if has_test else test


def _build_model(options: ImagesOptions, train: StoredImages) -> Model:
    channels, height, width = train.shape
    classes = len(train.names)
    mean, deviation = train.statistics()
    head: dict[str, Any] = {"labels": list(train.names), "mean": mean, "deviation": deviation}
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
    return new_model(options, (channels, height, width), classes, **head)


def new_model(options: ImagesOptions, shape: tuple[int, int, int], classes: int, **head: Any) -> Model:
    """The model that complete options describe for images of a shape (channels, height, width), untrained."""
    channels, height, width = shape
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
