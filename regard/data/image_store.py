"""Images that were decoded once, into a store: any number of them, of which a few are in memory at a time.

Columns, of the part `train` and of `test` if the files set one aside:

    PART.pixels     (channels, height, width), uint8
    PART.labels     numbers of the classes
    PART.hashes     the first 64 bits of the SHA-256 of the pixels, which decide between training and validation
    PART.moments    (2, channels): the sum of each channel's pixels, and of their squares
    PART.files      the names of the files, if each has its own
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from regard.data.image_files import ImageError, Pixels, silent
from regard.data.image_parts import ImagePart, Names
from regard.data.images import ImageSet
from regard.data.store import Store, StoreWriter, advance, prepared, prepared_folder
from regard.data.texts import Skipped

if TYPE_CHECKING:
    import torch

__all__ = ["StoredImages", "skipped_images", "store_images", "stored_part"]

Array = NDArray[Any]
UNIT = "picture"
VERSION = 1  # of how images are decoded and of the columns: a store of another version is made anew
ROWS = 1 << 16  # of small columns that are read at once


@dataclass(frozen=True)
class StoredImages:
    """Some of the images of a store, by their numbers, and the class of each. Nothing of them is in memory."""

    store: Store
    part: str  # of the store: train or test
    rows: Array  # (n,), int64
    names: Names  # of the classes

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """(channels, height, width) of each image."""
        return self.store.column(f"{self.part}.pixels").shape

    def pixels(self, places: Array | slice) -> torch.Tensor:
        """The pixels of the images in these places, (n, channels, height, width), uint8."""
        return self._take("pixels", places)

    def labels(self, places: Array | slice) -> torch.Tensor:
        """The numbers of their classes, (n,), int64."""
        return self._take("labels", places).long()

    def titles(self, places: Array | slice) -> list[str]:
        """The files that they are from, or their numbers, where many are in one file."""
        if f"{self.part}.files.values" in self.store.columns:
            return self.store.ragged(f"{self.part}.files").texts(self.rows[places])
        return [f"image {row}" for row in self.rows[places].tolist()]

    def class_counts(self) -> list[int]:
        """How many images each class has."""
        counts = numpy.zeros(len(self.names), numpy.int64)
        for labels in self._blocks("labels"):
            counts += numpy.bincount(labels, minlength=len(counts))
        return [int(count) for count in counts]

    def statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel, of pixels from 0 to 1."""
        total, squares = sum(moments.sum(0) for moments in self._blocks("moments"))  # (channels,) each, whole numbers
        count = len(self) * self.shape[1] * self.shape[2]
        mean = total / (255 * count)
        deviation = numpy.sqrt(numpy.maximum(squares / (255**2 * count) - mean**2, 1e-6))
        return [round(number, 4) for number in mean.tolist()], [round(number, 4) for number in deviation.tolist()]

    def _take(self, column: str, places: Array | slice) -> torch.Tensor:
        import torch

        return torch.from_numpy(self.store.column(f"{self.part}.{column}").take(self.rows[places]))

    def _blocks(self, column: str) -> Iterator[Array]:
        for start in range(0, len(self), ROWS):
            yield self.store.column(f"{self.part}.{column}").take(self.rows[start : start + ROWS])


def store_images(images: ImageSet, shape: tuple[int, int, int]) -> Store:
    """The store of these images, each scaled and cropped to `shape` (channels, height, width); made if it is not there.

    Those that cannot be read are left out, and counted: `skipped_images`.
    """
    parts = {"train": images.train, **({} if images.test is None else {"test": images.test})}
    digests = {name: part.digest() for name, part in parts.items()}
    key = {"images": digests, "shape": shape, "names": images.train.names, "version": VERSION}
    with silent():
        return prepared(key, lambda writer: _build(writer, parts, shape))


def skipped_images(store: Store, policy: str) -> Skipped:
    """What could not be read; an error if the policy is to stop."""
    skipped = Skipped(policy, UNIT, store.facts["skipped"])
    skipped.check(sum(store.facts["counts"].values()))
    return skipped


def stored_part(store: Store, part: str) -> StoredImages:
    """All images of a part of a store."""
    return StoredImages(store, part, numpy.arange(store.facts["counts"][part]), tuple(store.facts["names"]))


def _build(writer: StoreWriter, parts: Mapping[str, ImagePart], shape: tuple[int, int, int]) -> dict[str, Any]:
    total = sum(part.shapes.count for part in parts.values())
    _check_disk(parts["train"], total * int(numpy.prod(shape)))
    skipped = Skipped("skip", UNIT)
    counts = dict.fromkeys(parts, 0)
    for name, part in parts.items():
        for block in part.blocks(shape, partial(_refuse, skipped, part)):
            _write(writer, name, block.pixels, block.labels)
            if block.files:
                writer.texts(f"{name}.files", block.files)
            counts[name] += len(block.pixels)
            advance("reading pictures", sum(counts.values()) + skipped.count, total)
        skipped.check(counts[name])
    return {"names": parts["train"].names, "counts": counts, "skipped": skipped.facts()}


def _refuse(skipped: Skipped, part: ImagePart, file: str, error: ImageError) -> None:
    path = part.path / file
    skipped.add(path, None, str(error).removeprefix(f"{path}: "))


def _write(writer: StoreWriter, part: str, pixels: Pixels, labels: Array) -> None:
    writer.column(f"{part}.pixels", pixels)
    writer.column(f"{part}.labels", labels.astype(numpy.int32))
    hashes = [int.from_bytes(hashlib.sha256(image.tobytes()).digest()[:8], "big") for image in pixels]
    writer.column(f"{part}.hashes", numpy.array(hashes, dtype=numpy.uint64))
    values = pixels.reshape(*pixels.shape[:2], -1).astype(numpy.int32)  # (n, channels, height · width)
    moments = numpy.stack([values.sum(2, dtype=numpy.int64), numpy.square(values).sum(2, dtype=numpy.int64)], 1)
    writer.column(f"{part}.moments", moments)


def _check_disk(part: ImagePart, needed: int) -> None:
    folder = prepared_folder()
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ImageError(
            f"{part.path}: expected {needed:,} bytes free for the decoded pictures in {folder}, got {free:,}: "
            "choose a smaller --image-size, or a folder on another disk by REGARD_PREPARED"
        )
