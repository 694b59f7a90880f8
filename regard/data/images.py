"""Sets of images with a class each: a folder per class, an .npz file, or MNIST's idx files.

`find_images` says what there is, without decoding; `read_images` holds all of them in memory, `regard.data.image_store`
any number on disk. `regard.data.image_files` reads a single image.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from regard.data.image_arrays import IdxImages, NpzImages, idx_file
from regard.data.image_files import ImageError, silent
from regard.data.image_folders import FolderImages, folders
from regard.data.image_parts import ImagePart, Names, check_bytes, times

if TYPE_CHECKING:
    import torch

__all__ = ["ImageData", "ImageSet", "LabelledImages", "find_images", "read_images"]

EXPECTED = "an .npz file, or a folder with a folder of pictures per class, with train.npz, or with MNIST's idx files"
IN_MEMORY = 4_000_000_000  # bytes of pixels


@dataclass(frozen=True)
class LabelledImages:
    """Images, and the class of each."""

    pixels: torch.Tensor  # (n, channels, height, width), uint8
    labels: torch.Tensor  # (n,), int64: indices into names
    names: Names


@dataclass(frozen=True)
class ImageData:
    """Images to learn from, and those set aside for the test, if the files say which."""

    train: LabelledImages
    test: LabelledImages | None


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
            raise ImageError(
                f"{path}: the pictures have several sizes, such as {times(*shapes.size)} and {times(*shapes.other)}: "
                f"pass --image-size, such as --image-size {shapes.edge}"
            )
        shape = (shapes.channels, *(shapes.size if size is None else (size, size)))
        self._check_test(shape, scaled=size is not None)
        return shape

    def _check_test(self, shape: tuple[int, int, int], *, scaled: bool) -> None:
        """A test part has to fit, as far as it is not made to: of files, all are decoded with as many channels."""
        if self.test is None:
            return
        got = self.test.shapes
        channels = shape[0] if isinstance(self.test, FolderImages) else got.channels
        for size in (got.size, got.other or got.size):
            if (channels, *(shape[1:] if scaled else size)) != shape:
                expected = f"{times(*shape)} as in {self.train.path.name}"
                raise ImageError(f"{self.test.path}: expected pictures of {expected}, got {times(channels, *size)}")


def find_images(path: Path) -> ImageSet:
    """The images of a file or folder. Folders are looked through; nothing is decoded."""
    train_path, test_path = _parts(path)
    train = _part(train_path, None)
    return ImageSet(train, None if test_path is None else _part(test_path, train.names))


def read_images(path: Path, size: int | None = None) -> ImageData:
    """The images of a file or folder; with a size, each is scaled and cropped at its centre to size × size."""
    images = find_images(path)
    shape = images.shape(size)
    train = _read(images.train, shape)
    first = train.labels[0]
    if (train.labels == first).all():
        name = train.names[int(first)]
        raise ImageError(
            f"{images.train.path}: expected two classes or more, all {len(train.labels)} pictures are {name!r}"
        )
    return ImageData(train, None if images.test is None else _read(images.test, shape))


def _read(part: ImagePart, shape: tuple[int, int, int]) -> LabelledImages:
    import torch

    check_bytes(part.path, (part.shapes.count, *shape), limit=IN_MEMORY)
    with silent():
        blocks = list(part.blocks(shape, _raise))
    pixels, labels = (numpy.concatenate(arrays) for arrays in zip(*((b.pixels, b.labels) for b in blocks), strict=True))
    return LabelledImages(torch.from_numpy(pixels), torch.from_numpy(labels.astype(numpy.int64)), part.names)


def _raise(file: str, error: ImageError) -> None:
    raise error


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


def _part(path: Path, train_names: Names | None) -> ImagePart:
    if path.is_dir():
        return FolderImages(path, train_names, EXPECTED)
    return (NpzImages if path.suffix.lower() == ".npz" else IdxImages)(path, train_names)
