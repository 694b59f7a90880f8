"""Images in arrays: an .npz file, or MNIST's idx files. They are read a block at a time.

Sizes that a file claims are checked before memory is taken for them, and nothing is ever unpickled.
"""

from __future__ import annotations

import gzip
import math
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy
from numpy.typing import NDArray

from regard.data.image_files import (
    BLOCK_BYTES,
    MAX_BYTES,
    RATIO,
    Block,
    ImageError,
    ImagePart,
    Names,
    Pixels,
    Refuse,
    Shapes,
    check_bytes,
    check_names,
    fit,
    listed,
    reading,
    times,
)
from regard.data.store import content_digest

Array = NDArray[Any]
MAX_CLASSES = 1 << 16
IN_MEMORY = 1 << 28  # bytes of an array that is not read a block at a time
ARRAYS = {  # of an .npz file: what each has to be, with the kinds of its dtype and its numbers of dimensions
    "images": ("uint8 as (n, height, width) or (n, height, width, channels)", "u", (3, 4)),
    "labels": ("integers as (n,)", "iu", (1,)),
    "names": ("strings as (classes,)", "U", (1,)),
}
Header = tuple[tuple[int, ...], bool, numpy.dtype[Any]]  # shape, whether the first axis is the fastest, dtype


class ArrayImages(ImagePart):
    """Images (n, height, width[, channels]) and labels (n,)."""

    def __init__(
        self, path: Path, shape: tuple[int, ...], labels: Array, names: Names | None, train_names: Names | None
    ) -> None:
        if shape[0] != len(labels):
            raise ImageError(f"{path}: expected a label for every picture, got {shape[0]} and {len(labels)}")
        shape = shape if len(shape) == 4 else (*shape, 1)
        if shape[3] not in (1, 3) or not math.prod(shape):
            raise ImageError(f"{path}: expected pictures (n, height, width[, 1 or 3]), got {times(*shape)}")
        check_names(path, names, train_names)
        self.path, self.shape, self.labels = path, shape, labels
        self.names = train_names or names or tuple(map(str, range(min(max(int(labels.max()), 0) + 1, MAX_CLASSES))))
        wrong = numpy.flatnonzero((labels < 0) | (labels >= len(self.names)))
        if len(wrong):
            row = int(wrong[0])
            raise ImageError(f"{path}: row {row}: expected a label of 0 to {len(self.names) - 1}, got {labels[row]}")

    @property
    def shapes(self) -> Shapes:
        count, height, width, channels = self.shape
        return Shapes(count, channels, min(height, width), (height, width))

    def blocks(self, shape: tuple[int, int, int], refuse: Refuse) -> Iterator[Block]:
        if shape[0] != self.shape[3]:
            raise ImageError(f"{self.path}: expected pictures with {shape[0]} channels, got {self.shape[3]}")
        start = 0
        for images in self.rows(max(1, BLOCK_BYTES // math.prod(self.shape[1:]))):
            labels = self.labels[start : start + len(images)]
            start += len(images)
            yield Block(fit_all(images.reshape(-1, *self.shape[1:]), shape[1:]), labels, [])

    @abstractmethod
    def rows(self, count: int) -> Iterator[Array]:
        """All images, `count` at a time."""


def fit_all(images: Array, size: tuple[int, ...]) -> Pixels:
    """Pixels (n, channels, *size) of images (n, height, width, channels)."""
    from PIL import Image

    if images.shape[1:3] == size:
        return numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))
    pictures = (Image.fromarray(image[..., 0] if image.shape[2] == 1 else image) for image in images)
    return numpy.stack([fit(picture, (size[0], size[1])) for picture in pictures])


def _limit(path: Path) -> int:
    return max(MAX_BYTES, RATIO * path.stat().st_size)


def _read_at_most(file: IO[bytes] | gzip.GzipFile, size: int) -> bytearray:
    """In chunks, so that memory is taken for what is there, and not for what a header claims."""
    content = bytearray()
    while chunk := file.read(min(1 << 20, size - len(content))):
        content += chunk
    return content


# ----------------------------------------------------------------------------------------------------------------- npz


class NpzImages(ArrayImages):
    """The arrays `images` and `labels` of an .npz file, and `names` if they are there."""

    def __init__(self, path: Path, train_names: Names | None) -> None:
        with reading(path, "an .npz file"), zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy") for name in archive.namelist()}
            if not {"images", "labels"} <= members:
                got = listed(tuple(sorted(members)))
                raise ImageError(f"{path}: expected the arrays 'images' and 'labels', got {got}")
            with _member(path, archive, "images") as ((shape, self.is_fortran, _), _):
                pass
            labels = _whole(path, archive, "labels")
            names = tuple(_whole(path, archive, "names").tolist()) if "names" in members else None
            if names is not None:
                "".join(names).encode()  # refuses half characters, which could not be printed later
                if not names or len(set(names)) < len(names) or len(names) > MAX_CLASSES:
                    got = listed(names)
                    raise ImageError(f"{path}: names: expected 1 to {MAX_CLASSES} different ones, got {got}")
        super().__init__(path, shape, labels, names, train_names)

    def digest(self) -> str:
        return content_digest([self.path])

    def rows(self, count: int) -> Iterator[Array]:
        with reading(self.path, "an .npz file"), zipfile.ZipFile(self.path) as archive:
            if self.is_fortran:  # the first pixels of all images come first, so there are no rows to read one by one
                images = _whole(self.path, archive, "images")
                yield from (images[start : start + count] for start in range(0, len(images), count))
                return
            size = math.prod(self.shape[1:])
            with _member(self.path, archive, "images") as (_, member):
                while content := _read_at_most(member, count * size):
                    yield numpy.frombuffer(content, numpy.uint8).reshape(-1, *self.shape[1:])


@contextmanager
def _member(path: Path, archive: zipfile.ZipFile, name: str) -> Iterator[tuple[Header, IO[bytes]]]:
    """One array of an archive, once its header is as expected and agrees with the archive's: its data are next."""
    expected, kinds, dimensions = ARRAYS[name]

    def check(shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> None:
        if dtype.kind not in kinds or len(shape) not in dimensions or (name == "images" and dtype.itemsize != 1):
            raise ImageError(f"{path}: {name}: expected {expected}, got {dtype.name} as {shape}")
        check_bytes(path, shape, dtype.itemsize, limit=_limit(path))

    with open_array(archive, name, check) as opened:
        yield opened


def _whole(path: Path, archive: zipfile.ZipFile, name: str) -> Array:
    with _member(path, archive, name) as ((shape, is_fortran, dtype), member):
        check_bytes(path, shape, dtype.itemsize, limit=max(IN_MEMORY, RATIO * path.stat().st_size))
        content = _read_at_most(member, math.prod(shape) * dtype.itemsize)
    return numpy.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")


@contextmanager
def open_array(
    archive: zipfile.ZipFile, name: str, check: Callable[[tuple[int, ...], numpy.dtype[Any]], None]
) -> Iterator[tuple[Header, IO[bytes]]]:
    """An array of an .npz file that passes `check`, and whose header claims as many bytes as the archive has: next."""
    from numpy.lib import format as npy

    headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    with archive.open(f"{name}.npy") as member:
        version = npy.read_magic(member)
        if version not in headers:
            raise ValueError(f"{name}: expected version 1 or 2 of .npy, got {version}")
        shape, is_fortran, dtype = headers[version](member)
        check(shape, dtype)
        size, held = math.prod(shape) * dtype.itemsize, archive.getinfo(f"{name}.npy").file_size - member.tell()
        if size != held:
            raise ValueError(f"{name}: its header claims {size} bytes, the archive {held}: make the file anew")
        yield (shape, is_fortran, dtype), member


# ----------------------------------------------------------------------------------------------------------------- idx


class IdxImages(ArrayImages):
    """The images of an idx file, and the labels of the one beside it."""

    def __init__(self, path: Path, train_names: Names | None) -> None:
        part = path.name.split("-")[0]
        labels = idx_file(path.parent, part, "labels")
        if labels is None:
            raise ImageError(f"{path.parent}: no {part}-labels-idx1-ubyte beside {path.name}")
        self.labels_path = labels
        with _opened(path, 3) as (shape, _):
            pass
        with _opened(labels, 1) as (lengths, file):
            numbers = numpy.concatenate([numpy.empty(0, numpy.uint8), *_contents(labels, file, lengths, BLOCK_BYTES)])
        super().__init__(path, shape, numbers, None, train_names)

    def digest(self) -> str:
        return content_digest([self.path, self.labels_path])

    def rows(self, count: int) -> Iterator[Array]:
        with _opened(self.path, 3) as (shape, file):
            yield from _contents(self.path, file, shape, count)


def idx_file(folder: Path, part: str, content: str) -> Path | None:
    """A file named as MNIST's are, packed or not."""
    kind = {"images": "idx3-ubyte", "labels": "idx1-ubyte"}[content]
    paths = (folder / f"{part}-{content}{mark}{kind}{ending}" for ending in ("", ".gz") for mark in "-.")
    return next((path for path in paths if path.exists()), None)


@contextmanager
def _opened(path: Path, dimensions: int) -> Iterator[tuple[tuple[int, ...], IO[bytes] | gzip.GzipFile]]:
    """The shape that an idx file claims, and the file behind its header: two zeros, the type, the dimensions, sizes."""
    with reading(path, "an idx file"), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        header = file.read(4 + 4 * dimensions)
        if len(header) != 4 + 4 * dimensions or header[:4] != bytes((0, 0, 8, dimensions)):
            raise ImageError(f"{path}: expected an idx file of bytes in {dimensions} dimensions, got another beginning")
        shape = tuple(numpy.frombuffer(header, ">u4", offset=4).tolist())
        check_bytes(path, shape, limit=_limit(path))
        yield shape, file


def _contents(
    path: Path, file: IO[bytes] | gzip.GzipFile, shape: tuple[int, ...], count: int
) -> Iterator[NDArray[numpy.uint8]]:
    """The rows of an idx file, `count` at a time; an error if there are fewer or more than it claims."""
    size, held = math.prod(shape[1:]), 0
    while content := _read_at_most(file, min(count * size, math.prod(shape) - held)):
        held += len(content)
        if len(content) % max(size, 1) == 0:
            yield numpy.frombuffer(content, numpy.uint8).reshape(-1, *shape[1:])
    if held != math.prod(shape) or file.read(1):
        got = held if held != math.prod(shape) else "more"
        raise ImageError(f"{path}: its header claims {times(*shape)} bytes, it holds {got}: get the file anew")
