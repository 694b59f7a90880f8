"""Images and their classes; accuracy. Images are decoded once, into a store, and batches are read from there."""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy
import torch
from torch import Tensor
from torch.nn import functional

from regard.data.batches import Batches
from regard.data.image_files import ImageError
from regard.data.image_sets import FolderImages, listed
from regard.data.images import (
    DigitImages,
    ImageSet,
    StoredImages,
    find_images,
    skipped_images,
    store_images,
    stored_part,
)
from regard.data.split import PARTS, balanced_rows, divide
from regard.data.store import Store
from regard.models.classifier import ImageClassifier
from regard.models.model import Model
from regard.models.vision import ResNet, ViT
from regard.training.defaults import complete
from regard.training.metrics import Outcome, class_metrics, class_outcome
from regard.training.options import ImagesOptions
from regard.training.processes import World
from regard.training.task import Batch, Sample, Task, TaskError, Tokenizers, fingerprint
from regard.training.tasks import examples
from regard.training.transfer import load_pretrained

SAMPLES = 3
SHIFT = 8  # an image is shifted by its edge divided by this, at most
EVALUATED = 256  # images at a time
HELD_OUT = 5_000  # images for validation, and for the test, at most: an evaluation should not take long


@dataclass(frozen=True, kw_only=True)
class ImagesTask(Task):
    """Images of a store, and the number of each one's class."""

    options: ImagesOptions
    goal: ClassVar[str] = "accuracy"
    unit: ClassVar[str] = "images"

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        places = numpy.asarray(rows)[share]
        pixels = self.train.pixels(places)
        tops = lefts = flips = None
        if self.options.augment:
            furthest = [_furthest(edge) for edge in pixels.shape[2:]]
            tops, lefts = (torch.randint(2 * n + 1, (len(rows),), generator=generator)[share] for n in furthest)
        if self.options.flip:
            flips = (torch.rand(len(rows), generator=generator) < 0.5)[share]
        if self.options.augment or self.options.flip:
            pixels = augmented(pixels, tops, lefts, flips)
        return Batch((pixels,), self.train.labels(places), [1] * len(places))

    def logits(self, model: Any, batch: Batch) -> Tensor:
        logits: Tensor = model(model.preprocess(*batch.inputs))
        return logits

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        return _evaluate_images(model, getattr(self, part), world)

    def samples(self, model: Any) -> list[Sample]:
        chosen, images = slice(SAMPLES), self.validation
        outputs = map(str, model.classify(images.pixels(chosen)))
        labels = [images.names[label] for label in images.labels(chosen).tolist()]
        return list(map(Sample, images.titles(chosen), labels, outputs))


def evaluate(model: ImageClassifier, path: Path, on_error: str) -> dict[str, Any]:
    """The metrics on other images, those for the test if files say which, in the size that the model reads."""
    images, size = find_images(path), model.config.get("image_size")
    if size is None:  # a ResNet that was not trained here reads any size
        differ = images.train.shapes.other is not None
        shape = images.shape(images.train.shapes.edge if differ else None)
    else:
        height, width = (size, size) if isinstance(size, int) else size
        shape = (model.config["channels"], height, width)
    store = store_images(images, shape)
    skipped_images(store, on_error)
    return _evaluate_images(model, stored_part(store, "train" if images.test is None else "test"), World())


def _evaluate_images(model: ImageClassifier, images: StoredImages, world: World) -> dict[str, Any]:
    """Accuracy, F1, the confusion matrix, and the loss per image; every process computes a share of the images."""
    present = [name for name, count in zip(images.names, images.class_counts(), strict=True) if count]
    number_of = dict(zip(present, examples.class_numbers(present, model.labels), strict=True))

    def outcome(start: int) -> Outcome:
        chosen = slice(start, start + EVALUATED)
        targets = torch.tensor([number_of[images.names[label]] for label in images.labels(chosen).tolist()])
        probabilities = model.probabilities(images.pixels(chosen)).cpu()
        return class_outcome(probabilities.double().clamp(min=1e-38).log(), targets)

    outcomes = [outcome(start) for start in world.share(range(0, len(images), EVALUATED))]
    return class_metrics(world.collect(outcomes), model.labels)


def augmented(pixels: Tensor, tops: Tensor | None, lefts: Tensor | None, flips: Tensor | None) -> Tensor:
    """Each image (n, channels, height, width) cut from itself in a black frame at a top and a left, or mirrored.

    Tops and lefts go from 0 to twice the furthest shift; the middle one leaves an image where it is. None does nothing.
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


def prepare(options: ImagesOptions, tokenizers: Tokenizers, model: Model | None = None) -> ImagesTask:
    """Decode the images, or find them decoded; build the model."""
    start = time.monotonic()
    images = ImageSet(DigitImages()) if options.data is None else find_images(Path(options.data))
    shapes = images.train.shapes
    size: Any = options.image_size
    if size is None:
        size = complete(options, edge=shapes.edge).image_size
        if not size and shapes.other is not None:  # small images of several sizes
            size = max(8, shapes.edge // 8 * 8)  # most sizes of patches divide a multiple of 8
    options = dataclasses.replace(options, image_size=size)
    store = store_images(images, images.shape(size or None))
    notes = [*skipped_images(store, options.on_error).notes(), *examples.storage_notes(store, time.monotonic() - start)]
    parts = _split(store, options)
    train, validation, test = parts.values()
    options = complete(options, examples=len(train), edge=min(train.shape[1:]), common=math.gcd(*train.shape[1:]))
    counts = f"{len(train):,} images of {len(train.names)} classes to train on, {len(validation):,} for validation"
    return ImagesTask(
        model=model or _build_model(options, train),
        batches=Batches(numpy.broadcast_to(1, len(train)), options.batch, options.seed),
        fingerprint=fingerprint(store.key, f"{options.examples}"),
        notes=[
            f"{counts}, {len(test):,} for the test, each of {'×'.join(map(str, train.shape[1:]))} pixels",
            f"to train on: {examples.counted_classes(train.names, train.class_counts())}",
            *_notes(images, store),
            *notes,
        ],
        options=options,
        **parts,
    )


def _notes(images: ImageSet, store: Store) -> list[str]:
    """What may be wrong with the classes and the test part, and which files are in no class."""
    whole = {part: store.column(f"{part}.hashes").between(0, count) for part, count in store.facts["counts"].items()}
    labels = store.column("train.labels").between(0, len(whole["train"]))
    notes = examples.class_notes(store.facts["names"], whole["train"], labels, "images")
    if count := int(numpy.isin(whole.get("test", ()), whole["train"]).sum()):
        notes.append(f"{count:,} of the {len(whole['test']):,} images for the test are also among those to learn from")
    if isinstance(images.train, FolderImages) and (others := images.train.others):
        notes.append(f"left out, because they are in no folder of a class: {listed(others)}")
    return notes


def _split(store: Store, options: ImagesOptions) -> dict[str, StoredImages]:
    """Training, validation and test, by the content of the images; a test part that comes with the data is kept."""
    images, where = stored_part(store, "train"), options.data or "digits"
    present = [name for name, count in zip(images.names, images.class_counts(), strict=True) if count]
    if len(present) == 1:
        raise ImageError(f"{where}: expected two classes or more, all {len(images)} pictures are {present[0]!r}")
    has_test = "test" in store.facts["counts"]
    share = min(0.05 if has_test else 0.1, HELD_OUT / len(images))
    hashes = store.column("train.hashes").between(0, len(images))
    numbers = divide(store.column("train.hashes"), share, 0 if has_test else share).parts(hashes)  # of PARTS, (images,)
    parts: dict[str, StoredImages] = {
        name: dataclasses.replace(images, rows=numpy.flatnonzero(numbers == PARTS.index(name))) for name in PARTS
    }
    rows = parts["train"].rows
    rows = rows[balanced_rows(store.column("train.labels").take(rows), hashes[rows], options.examples)]
    parts["train"] = dataclasses.replace(images, rows=rows)
    examples.check_trained(images.names, parts["train"].class_counts(), where)
    if has_test:
        parts["test"] = stored_part(store, "test")
    return parts


def _build_model(options: ImagesOptions, train: StoredImages) -> Model:
    channels, height, width = train.shape
    mean, deviation = train.statistics()
    head: dict[str, Any] = {"labels": list(train.names), "mean": mean, "deviation": deviation}
    if options.init_from is None:
        torch.manual_seed(options.seed)
        return new_model(options, (channels, height, width), len(train.names), **head)
    model = load_pretrained(options, ImageClassifier, classes=len(train.names), labels=head["labels"])
    if model.config["channels"] != channels:
        raise TaskError(f"{options.init_from}: expected a model of {channels} channels, as the images have")
    model.config |= head
    if isinstance(model, ResNet):
        model.config["image_size"] = [height, width]  # of the images that it learns from now
    if isinstance(model, ViT):
        edge = model.config["patch_size"]
        if (model.grid[0] * edge, model.grid[1] * edge) != (height, width):
            model.resize([height, width])
    return model


def new_model(options: ImagesOptions, shape: tuple[int, int, int], classes: int, **head: Any) -> Model:
    """The model that complete options describe for images of a shape (channels, height, width), untrained."""
    channels, height, width = shape
    if options.model == "resnet":
        try:
            depths = [int(part) for part in options.depths.split(",")]
        except ValueError:
            text = options.depths
            raise TaskError(f"depths: expected numbers joined by commas, such as 3,3,3, got {text!r}") from None
        stem = "cifar" if max(height, width) <= 64 else "imagenet"
        # It could read files of any size, but they have to look as those that it learned from.
        head |= {"image_size": [height, width]}
        return ResNet(depths, classes, width=options.width, stem=stem, channels=channels, **head)
    patch = options.patch_size
    if height % patch or width % patch:
        raise TaskError(f"patch_size: expected a divisor of the images' edges, {height} and {width}, got {patch}")
    sizes = options.pick("patch_size", "size", "layers", "heads", "dropout")
    return ViT([height, width], classes=classes, pooling="mean", channels=channels, **sizes, **head)
