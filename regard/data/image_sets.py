"""Images with classes in files: a folder for each class, an .npz file, or MNIST's idx files.

What is common to them: names of classes, what headers claim, and pixels a block at a time. Sizes that a file claims are
checked before memory is taken for them, and nothing is ever unpickled.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import IO, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from regard.data.image_files import ImageError, Pixels, decode, fit, peek, reading, silent
from regard.data.store import FileState, advance, content_digest, prepared
from regard.data.streams import map_in_threads
from regard.files import digest, is_text

Array = NDArray[Any]
Names = tuple[str, ...]
Refuse = Callable[[str, ImageError], None]  # gets the file of an image that cannot be read, and the reason
BLOCK_BYTES = 1 << 22  # of pixels that are decoded at once
HIDDEN = {"thumbs.db", "desktop.ini", "__macosx"}  # what systems put beside pictures, and show to nobody
LAYOUT = "a folder of pictures per class, or the folders train and test with such folders"
EXPECTED = f"an .npz file, or a folder with {LAYOUT}, with train.npz, or with MNIST's idx files"
File = IO[bytes] | gzip.GzipFile
MAX_CLASSES = 1 << 16
MAX_BYTES = 4_000_000_000  # that a file may claim, or 16 times what it has: bombs claim a thousand times as much
RATIO = 16
IN_MEMORY = 1 << 28  # bytes of an array that is not read a block at a time
ARRAYS = {  # of an .npz file: what each has to be, with the kinds of its dtype and its numbers of dimensions
    "images": ("uint8 as (n, height, width) or (n, height, width, channels)", "u", (3, 4)),
    "labels": ("integers as (n,)", "iu", (1,)),
    "names": ("strings as (classes,)", "U", (1,)),
}
Opened = AbstractContextManager[tuple[tuple[int, ...], File]]  # a shape, and a file in which an array of it is next
Header = tuple[tuple[int, ...], bool, numpy.dtype[Any]]  # shape, whether the first axis is the fastest, dtype


@dataclass(frozen=True)
class Shapes:
    """What the headers of images claim."""

    count: int  # images that have a header
    channels: int  # 1 if all are grey, else 3
    edge: int  # the median of the smaller edges
    size: Sequence[int]  # (height, width) of the first one
    other: Sequence[int] | None = None  # another (height, width), if they are not all equal


class Block(NamedTuple):
    """A few images that are decoded."""

    pixels: Pixels  # (n, channels, height, width)
    labels: Array  # (n,), integers
    files: Sequence[str] = ()  # that they are from, unless many are in one file


def times(*sizes: int) -> str:
    """Sizes, for a message."""
    return "×".join(map(str, sizes))


def listed(names: Names) -> str:
    """The first names, for a message."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def check_names(path: Path, names: Names | None, train_names: Names | None) -> None:
    """The classes of a test part have to be those of the training part, if it names them."""
    if names is not None and train_names is not None and names != train_names:
        raise ImageError(f"{path}: expected the classes of train, {listed(train_names)}, got {listed(names)}")


# ------------------------------------------------------------------------------------------------- folders of images


class FolderImages:
    """A folder with a folder of pictures for each class. What is hidden does not count."""

    def __init__(self, path: Path, train_names: Names | None) -> None:
        self.path, self.names = path, tuple(folder.name for folder in folders(path))
        if not self.names:
            raise ImageError(f"{path}: no folders in it, expected {EXPECTED}")
        for name in self.names:
            if not is_text(name):
                raise ImageError(f"{path}: the folder {name!r} has no name in UTF-8: rename it")
        check_names(path, self.names, train_names)

    def _names(self) -> Iterator[tuple[int, str]]:
        """The class of each file, and its name with that of its folder; sorted by both."""
        for label, name in enumerate(self.names):
            files = _visible(self.path / name)
            if not files:
                raise ImageError(f"{self.path / name}: no pictures of this class: add some or delete the folder")
            for file in files:
                yield label, f"{name}/{file}"

    @property
    def others(self) -> Names:
        """The files beside the folders of the classes."""
        return tuple(name for name in _visible(self.path) if name not in self.names)

    @property
    def shapes(self) -> Shapes:
        """What the headers claim."""
        return Shapes(**self._scanned["shapes"])

    def digest(self) -> str:
        """The SHA-256 of the names of the files, and of what they hold."""
        return str(self._scanned["digest"])

    def blocks(self, shape: tuple[int, int, int], refuse: Refuse) -> Iterator[Block]:
        """All images in order, as (channels, height, width); of those that cannot be read, `refuse` is told."""
        state = self._state()
        count = max(1, BLOCK_BYTES // math.prod(shape))
        decoded = map_in_threads(partial(self._decode, shape=shape), self._names())
        while results := list(islice(decoded, count)):
            for _, name, pixels in results:
                if isinstance(pixels, ImageError):
                    refuse(f"{self.path / name}", pixels)
            if images := [result for result in results if not isinstance(result[2], ImageError)]:
                labels, names, arrays = zip(*images, strict=True)
                yield Block(numpy.stack(arrays), numpy.array(labels), names)
        if self._state() != state:
            raise ImageError(f"{self.path}: changed while it was read: start again when it is complete")

    @cached_property
    def _scanned(self) -> dict[str, Any]:
        """What `_scan` found, now or when the files were as they are."""
        state = self._state()
        if not state.is_settled:
            return self._scan(state.files)
        return prepared({"folder of images": state.digest}, lambda _: self._scan(state.files)).facts

    def _scan(self, count: int) -> dict[str, Any]:
        """What the headers claim, and the digest of the names and contents of all files, of which there are `count`."""
        total, channels, edges, broken = hashlib.sha256(), 1, Counter[int](), ""
        sizes: list[tuple[int, int]] = []  # the first one, and one that differs
        with silent():
            for number, (name, content, header) in enumerate(map_in_threads(self._look, self._names()), 1):
                advance("looking through pictures", number, count)
                total.update(f"{name}\0{content}\0".encode(errors="surrogatepass"))
                if isinstance(header, ImageError):
                    broken = broken or str(header)
                    continue
                channels = max(channels, header[0])
                edges[min(header[1])] += 1
                if len(sizes) < 2 and header[1] not in sizes:
                    sizes.append(header[1])
        if not sizes:
            raise ImageError(f"{broken}; no picture below {self.path} can be read: expected {LAYOUT}")
        shapes = Shapes(edges.total(), channels, median_low(edges.elements()), *sizes)
        return {"shapes": asdict(shapes), "digest": total.hexdigest()}

    def _state(self) -> FileState:
        home = os.path.realpath(self.path)
        return FileState.of(f"{home}/{name}" for _, name in self._names())

    def _look(self, item: tuple[int, str]) -> tuple[str, str, tuple[int, tuple[int, int]] | ImageError]:
        """The name of a file, its SHA-256, and what its header claims, or why it cannot be read."""
        path = self.path / item[1]
        try:
            header = peek(path)  # refuses a pipe, whose digest would be waited for
            return item[1], digest(path), header
        except OSError as error:
            return item[1], str(error.errno), ImageError(f"{path}: {error.strerror or error}")
        except ImageError as error:
            return item[1], digest(path) if path.is_file() else "", error

    def _decode(self, item: tuple[int, str], shape: tuple[int, int, int]) -> tuple[int, str, Pixels | ImageError]:
        """The class of a file, its name, and its pixels, or why there are none."""
        try:
            return *item, decode(self.path / item[1], shape[0], shape[1:])
        except ImageError as error:
            return *item, error


def folders(path: Path) -> list[Path]:
    """The folders in a folder, sorted."""
    return [path / name for name in _visible(path) if (path / name).is_dir()]


def _visible(folder: Path) -> list[str]:
    """The names of what is in a folder and not hidden, sorted."""
    try:
        return sorted(name for name in os.listdir(folder) if name[0] != "." and name.lower() not in HIDDEN)
    except OSError as error:
        raise ImageError(f"{folder}: {error.strerror or error}") from error


# -------------------------------------------------------------------------------------------------- arrays of images


class ArrayImages:
    """Images of an array (n, height, width[, channels]) and their labels (n,), like `FolderImages`.

    files: that they come from, the one with the images first. opened: its shape, and a file in which it is.
    """

    def __init__(
        self,
        files: Sequence[Path],
        opened: Callable[[], Opened],
        labels: Array,
        names: Names | None = None,
        train_names: Names | None = None,
    ) -> None:
        path = files[0]
        with opened() as (shape, _):
            pass
        if shape[0] != len(labels):
            raise ImageError(f"{path}: expected a label for every picture, got {shape[0]} and {len(labels)}")
        shape = shape if len(shape) == 4 else (*shape, 1)
        if shape[3] not in (1, 3) or not math.prod(shape):
            raise ImageError(f"{path}: expected pictures (n, height, width[, 1 or 3]), got {times(*shape)}")
        check_names(path, names, train_names)
        self.path, self.files, self.opened, self.shape, self.labels = path, files, opened, shape, labels
        self.names = train_names or names or tuple(map(str, range(min(max(int(labels.max()), 0) + 1, MAX_CLASSES))))
        for row in numpy.flatnonzero((labels < 0) | (labels >= len(self.names))):
            raise ImageError(f"{path}: row {row}: expected a label of 0 to {len(self.names) - 1}, got {labels[row]}")

    @property
    def shapes(self) -> Shapes:
        count, height, width, channels = self.shape
        return Shapes(count, channels, min(height, width), (height, width))

    def digest(self) -> str:
        return content_digest(self.files)

    def blocks(self, shape: tuple[int, int, int], refuse: Refuse) -> Iterator[Block]:
        if shape[0] != self.shape[3]:
            raise ImageError(f"{self.path}: expected pictures with {shape[0]} channels, got {self.shape[3]}")
        start = 0
        with self.opened() as (claimed, file):
            for rows in _contents(self.path, file, claimed, max(1, BLOCK_BYTES // math.prod(claimed[1:]))):
                images = rows.reshape(-1, *self.shape[1:])
                yield Block(_fit_all(images, shape[1:]), self.labels[start : start + len(images)])
                start += len(images)


def _fit_all(images: Pixels, size: tuple[int, int]) -> Pixels:
    """Pixels (n, channels, *size) of images (n, height, width, channels)."""
    from PIL import Image

    if images.shape[1:3] == size:
        return numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))
    pictures = (Image.fromarray(image[..., 0] if image.shape[2] == 1 else image) for image in images)
    return numpy.stack([fit(picture, size) for picture in pictures])


def _contents(path: Path, file: File, shape: tuple[int, ...], count: int) -> Iterator[Pixels]:
    """The rows of an array of bytes, `count` at a time; an error if there are fewer or more than it claims."""
    size, held = math.prod(shape[1:]), 0
    while content := _read_at_most(file, min(count * size, math.prod(shape) - held)):
        held += len(content)
        if len(content) % size == 0:
            yield numpy.frombuffer(content, numpy.uint8).reshape(-1, *shape[1:])
    if held != math.prod(shape) or file.read(1):
        got = held if held != math.prod(shape) else "more"
        raise ImageError(f"{path}: its header claims {times(*shape)} bytes, it holds {got}: get the file anew")


def _check_bytes(path: Path, shape: tuple[int, ...], itemsize: int, most: int) -> None:
    """Refuse what claims too much, before memory or disk is taken for it. most: bytes, or RATIO times the file's."""
    limit = max(most, RATIO * path.stat().st_size)
    if math.prod(shape) * itemsize > limit:
        raise ImageError(f"{path}: claims {times(*shape, itemsize)} bytes, expected {limit} at most: take fewer")


def _read_at_most(file: File, size: int) -> bytearray:
    """In chunks, so that memory is taken for what is there, and not for what a header claims."""
    content = bytearray()
    while chunk := file.read(min(1 << 20, size - len(content))):
        content += chunk
    return content


# ----------------------------------------------------------------------------------------------------------------- npz


def npz_images(path: Path, train_names: Names | None) -> ArrayImages:
    """The arrays `images` and `labels` of an .npz file, and `names` if they are there."""
    with reading(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy") for name in archive.namelist()}
        if not {"images", "labels"} <= members:
            got = listed(tuple(sorted(members)))
            raise ImageError(f"{path}: expected the arrays 'images' and 'labels', got {got}")
        with _member(path, archive, "images"):  # the larger one: what is wrong with it is said first
            labels = _whole(path, archive, "labels")
        names = tuple(_whole(path, archive, "names").tolist()) if "names" in members else None
        if names is not None:
            "".join(names).encode()  # refuses half characters, which could not be printed later
            if not names or len(set(names)) < len(names) or len(names) > MAX_CLASSES:
                got = listed(names)
                raise ImageError(f"{path}: names: expected 1 to {MAX_CLASSES} different ones, got {got}")
    return ArrayImages([path], partial(_npz_pixels, path), labels, names, train_names)


@contextmanager
def _npz_pixels(path: Path) -> Iterator[tuple[tuple[int, ...], File]]:
    with (
        reading(path, "an .npz file"),
        zipfile.ZipFile(path) as archive,
        _member(path, archive, "images") as ((shape, is_fortran, _), member),
    ):  # where the first pixels of all images come first, there are no images to read one by one
        yield shape, io.BytesIO(_whole(path, archive, "images").tobytes()) if is_fortran else member


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> AbstractContextManager[tuple[Header, IO[bytes]]]:
    """One array of an archive, once its header is as expected and agrees with the archive's: its data are next."""
    expected, kinds, dimensions = ARRAYS[name]

    def check(shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> None:
        if dtype.kind not in kinds or len(shape) not in dimensions or (name == "images" and dtype.itemsize != 1):
            raise ImageError(f"{path}: {name}: expected {expected}, got {dtype.name} as {shape}")
        _check_bytes(path, shape, dtype.itemsize, MAX_BYTES)

    return open_array(archive, name, check)


def _whole(path: Path, archive: zipfile.ZipFile, name: str) -> Array:
    with _member(path, archive, name) as ((shape, is_fortran, dtype), member):
        _check_bytes(path, shape, dtype.itemsize, IN_MEMORY)
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


def idx_images(path: Path, train_names: Names | None) -> ArrayImages:
    """The images of an idx file, and the labels of the one beside it."""
    part = path.name.split("-")[0]
    labels = idx_file(path.parent, part, "labels")
    if labels is None:
        raise ImageError(f"{path.parent}: no {part}-labels-idx1-ubyte beside {path.name}")
    with _opened(labels, 1) as (lengths, file):
        numbers = numpy.concatenate([numpy.empty(0, numpy.uint8), *_contents(labels, file, lengths, BLOCK_BYTES)])
    return ArrayImages([path, labels], partial(_opened, path, 3), numbers, None, train_names)


def idx_file(folder: Path, part: str, content: str) -> Path | None:
    """A file named as MNIST's are, packed or not."""
    kind = {"images": "idx3-ubyte", "labels": "idx1-ubyte"}[content]
    paths = (folder / f"{part}-{content}{mark}{kind}{ending}" for ending in ("", ".gz") for mark in "-.")
    return next((path for path in paths if path.exists()), None)


@contextmanager
def _opened(path: Path, dimensions: int) -> Iterator[tuple[tuple[int, ...], File]]:
    """The shape that an idx file claims, and the file behind its header: two zeros, the type, the dimensions, sizes."""
    with reading(path, "an idx file"), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        header = file.read(4 + 4 * dimensions)
        if len(header) != 4 + 4 * dimensions or header[:4] != bytes((0, 0, 8, dimensions)):
            raise ImageError(f"{path}: expected an idx file of bytes in {dimensions} dimensions, got another beginning")
        shape = tuple(numpy.frombuffer(header, ">u4", offset=4).tolist())
        _check_bytes(path, shape, 1, MAX_BYTES if dimensions > 1 else IN_MEMORY)  # labels are read at once
        yield shape, file
