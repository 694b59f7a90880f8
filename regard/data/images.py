"""Sets of images with a class each: a folder per class, an .npz file, MNIST's idx files, or the digits of scikit-learn.

`find_images` says what there is, without decoding; `store_images` decodes any number into a store, of which a few are
in memory at a time. Its columns, of the part `train` and of `test` if the files set one aside:

    PART.pixels     (channels, height, width), uint8
    PART.labels     numbers of the classes
    PART.hashes     the first 64 bits of the SHA-256 of the pixels, which decide between training and validation
    PART.moments    (2, channels): the sum of each channel's pixels, and of their squares
    PART.files      the names of the files, if each has its own
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from regard.data.image_files import ImageError, silent
from regard.data.image_sets import EXPECTED, ArrayImages, FolderImages, folders, idx_file, idx_images, npz_images, times
from regard.data.split import content_hash
from regard.data.store import Store, StoreWriter, advance, prepared, prepared_folder
from regard.data.texts import Skipped

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
ImagePart = FolderImages | ArrayImages
UNIT = "picture"
VERSION = 1  # of how images are decoded and of the columns: a store of another version is made anew
ROWS = 1 << 16  # of small columns that are read at once


@dataclass(frozen=True)
class ImageSet:
    """The files of the images to learn from, and of those set aside for the test, if there are any."""

    train: ImagePart
    test: ImagePart | None = None

    def shape(self, size: int | None) -> tuple[int, int, int]:
        """(channels, height, width) of all images: scaled to size × size, or as they are, if they are alike."""
        shapes, path = self.train.shapes, self.train.path
        if size is not None and size < 1:
            raise ImageError(f"--image-size: expected 1 or more, got {size}")
        if size is None and shapes.other is not None:
            sizes = f"several sizes, such as {times(*shapes.size)} and {times(*shapes.other)}"
            raise ImageError(
                f"{path}: the pictures have {sizes}: pass --image-size, such as --image-size {shapes.edge}"
            )
        height, width = shapes.size if size is None else (size, size)
        shape = shapes.channels, height, width
        if self.test is not None:  # it has to fit, as far as it is not made to: files are decoded with as many channels
            got = self.test.shapes
            channels = shape[0] if isinstance(self.test, FolderImages) else got.channels
            for test_size in (got.size, got.other or got.size):
                if (channels, *(test_size if size is None else shape[1:])) != shape:
                    expected, claimed = f"{times(*shape)} as in {path.name}", times(channels, *test_size)
                    raise ImageError(f"{self.test.path}: expected pictures of {expected}, got {claimed}")
        return shape


def find_images(path: Path) -> ImageSet:
    """The images of a file or folder. Folders are looked through; nothing is decoded."""

    def part(path: Path, train_names: tuple[str, ...] | None) -> ImagePart:
        read = FolderImages if path.is_dir() else npz_images if path.suffix.lower() == ".npz" else idx_images
        return read(path, train_names)

    train_path, test_path = _parts(path)
    train = part(train_path, None)
    return ImageSet(train, None if test_path is None else part(test_path, train.names))


def _parts(path: Path) -> tuple[Path, Path | None]:
    """The file or folder to learn from, and the one for the test if there is any."""
    if path.is_file() and path.suffix.lower() == ".npz":
        return path, None
    if not path.is_dir():
        raise ImageError(f"{path}: {'is a file' if path.exists() else 'does not exist'}, expected {EXPECTED}")
    if (path / "train.npz").exists():
        test = path / "test.npz"
        return path / "train.npz", test if test.exists() else None
    if idx := idx_file(path, "train", "images"):
        return idx, idx_file(path, "t10k", "images") or idx_file(path, "test", "images")
    if {folder.name for folder in folders(path)} == {"train", "test"}:
        return path / "train", path / "test"
    return path, None


# -------------------------------------------------------------------------------------------------------------- digits


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Handwritten digits that come with scikit-learn, light on dark: 1,797 images (n, 1, 8, 8), uint8, and their labels
    (n,)."""
    import torch
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = torch.from_numpy(data.images * (255 / 16)).round().to(torch.uint8)  # ink from 0 to 16
    return pixels[:, None], torch.from_numpy(data.target).to(torch.int64)


class DigitImages(ArrayImages):
    """The same, as other sets of images are; no part is set aside."""

    def __init__(self) -> None:
        pixels, labels = digits()
        self.shape, self.content = tuple(pixels[:, 0].shape), pixels.numpy().tobytes()
        super().__init__([Path("digits")], self._opened, labels.numpy(), tuple("0123456789"))

    def _opened(self) -> nullcontext[tuple[tuple[int, ...], io.BytesIO]]:
        return nullcontext((self.shape, io.BytesIO(self.content)))

    def digest(self) -> str:
        """The SHA-256 of the pixels."""
        return hashlib.sha256(self.content).hexdigest()


# -------------------------------------------------------------------------------------------------------------- stores


@dataclass(frozen=True)
class StoredImages:
    """Some of the images of a store, by their numbers, and the class of each. Nothing of them is in memory."""

    store: Store
    part: str  # of the store: train or test
    rows: Array  # (n,), int64
    names: tuple[str, ...]  # of the classes

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
            names = self.store.ragged(f"{self.part}.files").texts(self.rows[places])
            return [os.fsencode(name).decode(errors="replace") for name in names]  # some may be no text
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
        return prepared(key, lambda writer: _write(writer, parts, shape))


def skipped_images(store: Store, policy: str) -> Skipped:
    """What could not be read; an error if the policy is to stop."""
    skipped = Skipped(policy, UNIT, store.facts["skipped"])
    skipped.check(sum(store.facts["counts"].values()))
    return skipped


def stored_part(store: Store, part: str) -> StoredImages:
    """All images of a part of a store."""
    return StoredImages(store, part, numpy.arange(store.facts["counts"][part]), tuple(store.facts["names"]))


def _write(writer: StoreWriter, parts: Mapping[str, ImagePart], shape: tuple[int, int, int]) -> dict[str, Any]:
    total = sum(part.shapes.count for part in parts.values())
    needed, folder = total * int(numpy.prod(shape)), prepared_folder()
    free = shutil.disk_usage(folder).free
    if needed > free:
        expected = f"expected {needed:,} bytes free for the decoded pictures in {folder}, got {free:,}"
        cure = "choose a smaller --image-size, or a folder on another disk by REGARD_PREPARED"
        raise ImageError(f"{parts['train'].path}: {expected}: {cure}")
    skipped, counts = Skipped("skip", UNIT), dict.fromkeys(parts, 0)

    def refuse(file: str, error: ImageError) -> None:
        skipped.add(file, None, str(error).removeprefix(f"{file}: "))

    for name, part in parts.items():
        for block in part.blocks(shape, refuse):
            pixels = block.pixels
            writer.column(f"{name}.pixels", pixels)
            writer.column(f"{name}.labels", block.labels.astype(numpy.int32))
            hashes = [content_hash(image.tobytes()) for image in pixels]
            writer.column(f"{name}.hashes", numpy.array(hashes, dtype=numpy.uint64))
            values = pixels.reshape(*pixels.shape[:2], -1).astype(numpy.int32)  # (n, channels, height · width)
            moments = [values.sum(2, dtype=numpy.int64), numpy.square(values).sum(2, dtype=numpy.int64)]
            writer.column(f"{name}.moments", numpy.stack(moments, 1))
            if block.files:
                writer.texts(f"{name}.files", block.files)
            counts[name] += len(pixels)
            advance("reading pictures", sum(counts.values()) + skipped.count, total)
        skipped.check(counts[name])
    return {"names": parts["train"].names, "counts": counts, "skipped": skipped.facts()}
