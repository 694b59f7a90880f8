"""Pictures with a class each, from what people have: a folder per class, an .npz file, or MNIST's idx files.

A file's claims about its size are checked before memory is taken for them, and nothing is ever unpickled.
"""

from __future__ import annotations

import gzip
import math
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from regard.data.image_files import ImageError, Pixels, decode, fit, peek, read_image, reading

if TYPE_CHECKING:
    import torch

__all__ = ["ImageData", "ImageError", "Images", "read_image", "read_images"]

Array = NDArray[Any]
Names = tuple[str, ...]

MOST = 4_000_000_000  # bytes of all pictures together
MOST_CLASSES = 1 << 16
EXPECTED = "an .npz file, or a folder with a folder of pictures per class, with train.npz, or with MNIST's idx files"
ARRAYS = {  # of an .npz file: what has to be in it, which kinds of dtype and how many dimensions that is
    "images": ("uint8 as (n, height, width) or (n, height, width, channels)", "u", (3, 4)),
    "labels": ("integers as (n,)", "iu", (1,)),
    "names": ("strings as (classes,)", "U", (1,)),
}


@dataclass(frozen=True)
class Images:
    """Pictures, and which class each belongs to."""

    pixels: torch.Tensor  # (n, channels, height, width), uint8
    labels: torch.Tensor  # (n,), int64: places in names
    names: Names


@dataclass(frozen=True)
class ImageData:
    """Pictures to learn from, and those set aside for the test, where the files say which."""

    train: Images
    test: Images | None


def read_images(path: Path, size: int | None = None) -> ImageData:
    """The pictures of a file or folder; with a size, each is scaled and its middle cut out to size × size."""
    if size is not None and size < 1:
        raise ImageError(f"--image-size: expected 1 or more, got {size}")
    read, train_path, test_path = _parts(path)
    train = read(train_path, size, None)
    first = train.labels[0]
    if (train.labels == first).all():
        name = train.names[int(first)]
        raise ImageError(f"{train_path}: expected two classes or more, all {len(train.labels)} pictures are {name!r}")
    if test_path is None:
        return ImageData(train, None)
    test = read(test_path, size, train.names)
    if test.pixels.shape[1:] != train.pixels.shape[1:]:
        got, expected = (_times(*part.pixels.shape[1:]) for part in (test, train))
        raise ImageError(f"{test_path}: expected pictures of {expected} as in {train_path.name}, got {got}")
    return ImageData(train, test)


def _parts(path: Path) -> tuple[Callable[[Path, int | None, Names | None], Images], Path, Path | None]:
    """The function that reads the pictures, where those to learn from are, and those for the test if any."""
    if path.is_file() and path.suffix.lower() == ".npz":
        return _npz, path, None
    if not path.is_dir():
        raise ImageError(f"{path}: {'is a file' if path.exists() else 'does not exist'}, expected {EXPECTED}")
    if (path / "train.npz").exists():
        test = path / "test.npz"
        return _npz, path / "train.npz", test if test.exists() else None
    if idx := _idx_file(path, "train", "images"):
        return _idx, idx, _idx_file(path, "t10k", "images") or _idx_file(path, "test", "images")
    if {folder.name for folder in _folders(path)} == {"train", "test"}:
        return _classes, path / "train", path / "test"
    return _classes, path, None


def _times(*sizes: int) -> str:
    return "×".join(map(str, sizes))


def _check_room(path: Path, shape: tuple[int, ...], bytes_each: int = 1) -> None:
    if math.prod(shape) * bytes_each > MOST:
        raise ImageError(f"{path}: claims {_times(*shape, bytes_each)} bytes, expected {MOST} at most: take fewer")


# A folder per class


def _classes(path: Path, size: int | None, names: Names | None) -> Images:
    import torch

    folders = _folders(path)
    own = tuple(folder.name for folder in folders)
    if not own:
        raise ImageError(f"{path}: no folders in it, expected {EXPECTED}")
    if names not in (None, own):
        raise ImageError(f"{path}: expected the classes of train, {_listed(names)}, got {_listed(own)}")
    files = [(file, label) for label, folder in enumerate(folders) for file in _files(folder)]
    channels, shape = _common(path, [file for file, _ in files], size)
    _check_room(path, (len(files), channels, *shape))
    pixels = torch.empty((len(files), channels, *shape), dtype=torch.uint8)
    for row, (file, _) in enumerate(files):
        pixels[row] = torch.from_numpy(decode(file, channels, shape))
    return Images(pixels, torch.tensor([label for _, label in files]), own)


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise ImageError(f"{folder}: {error.strerror or error}") from error


def _folders(path: Path) -> list[Path]:
    return [folder for folder in _visible(path) if folder.is_dir()]


def _files(folder: Path) -> list[Path]:
    files = _visible(folder)
    if not files:
        raise ImageError(f"{folder}: no pictures of this class: add some or delete the folder")
    for file in files:
        if not file.is_file():
            raise ImageError(f"{file}: expected a picture, got a folder")
    return files


def _common(path: Path, files: list[Path], size: int | None) -> tuple[int, tuple[int, int]]:
    """The channels and (height, width) for all pictures; from the files' beginnings, before any is decoded."""
    found = [peek(file) for file in files]
    channels = max(each for each, _ in found)
    if size is not None:
        return channels, (size, size)
    (shape, count), *others = Counter(each for _, each in found).most_common()
    if others:
        raise ImageError(
            f"{path}: the pictures have {1 + len(others)} sizes ({count} of {len(files)} are {_times(*shape)}): "
            f"pass --image-size, such as --image-size {min(shape)}"
        )
    return channels, shape


# Arrays, and what they have to agree on


def _from_arrays(
    path: Path, images: Array, labels: Array, size: int | None, own: Names | None, names: Names | None
) -> Images:
    """From images (n, height, width[, channels]) and labels (n,); own names are the file's, names those of train."""
    import torch

    if len(images) != len(labels):
        raise ImageError(f"{path}: expected a label for every picture, got {len(images)} and {len(labels)}")
    images = images if images.ndim == 4 else images[..., None]
    if images.shape[3] not in (1, 3) or not images.size:
        raise ImageError(f"{path}: expected pictures (n, height, width[, 1 or 3]), got {_times(*images.shape)}")
    if None not in (own, names) and own != names:
        raise ImageError(f"{path}: expected the classes of train, {_listed(names)}, got {_listed(own)}")
    names = names or own or tuple(map(str, range(min(max(int(labels.max()), 0) + 1, MOST_CLASSES))))
    wrong = numpy.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(wrong):
        row = int(wrong[0])
        raise ImageError(f"{path}: row {row}: expected a label of 0 to {len(names) - 1}, got {labels[row]}")
    pixels = _resized(path, images, size)
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels.astype(numpy.int64)), names)


def _resized(path: Path, images: Array, size: int | None) -> Pixels:
    """Pixels (n, channels, height, width) of images (n, height, width, channels)."""
    from PIL import Image

    count, *shape, channels = images.shape
    if size is None or shape == [size, size]:
        return numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))
    _check_room(path, (count, channels, size, size))
    pixels = numpy.empty((count, channels, size, size), dtype=numpy.uint8)
    for row, image in enumerate(images):
        pixels[row] = fit(Image.fromarray(image[..., 0] if channels == 1 else image), (size, size))
    return pixels


def _listed(names: Names | None) -> str:
    """Some names, for a message."""
    shown = ", ".join(repr(name) for name in (names or ())[:5])
    return shown + (f" and {len(names) - 5} more" if names and len(names) > 5 else "")


def _content(file: IO[bytes] | gzip.GzipFile, size: int) -> bytearray:
    """At most so many bytes. Taken piece by piece: a claim costs no memory, only what is there does."""
    content = bytearray()
    while piece := file.read(min(1 << 20, size - len(content))):
        content += piece
    return content


# .npz


def _npz(path: Path, size: int | None, names: Names | None) -> Images:
    with reading(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy") for name in archive.namelist()}
        if not {"images", "labels"} <= members:
            raise ImageError(
                f"{path}: expected the arrays 'images' and 'labels', got {_listed(tuple(sorted(members)))}"
            )
        arrays = {name: _array(path, archive, name) for name in ARRAYS if name in members}
        own = _names(path, arrays["names"]) if "names" in arrays else None
    return _from_arrays(path, arrays["images"], arrays["labels"], size, own, names)


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> Array:
    """One array of an archive, once its header is what is expected and agrees with the archive's own."""
    from numpy.lib import format as npy

    expected, kinds, dimensions = ARRAYS[name]
    headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    with archive.open(f"{name}.npy") as member:
        version = npy.read_magic(member)
        if version not in headers:
            raise ImageError(f"{path}: {name}: expected version 1 or 2 of .npy, got {version}")
        shape, fortran, dtype = headers[version](member)
        if dtype.kind not in kinds or len(shape) not in dimensions or (name == "images" and dtype.itemsize != 1):
            raise ImageError(f"{path}: {name}: expected {expected}, got {dtype.name} as {shape}")
        _check_room(path, shape, dtype.itemsize)
        size, held = math.prod(shape) * dtype.itemsize, archive.getinfo(f"{name}.npy").file_size - member.tell()
        if size != held:
            raise ImageError(f"{path}: {name}: its header claims {size} bytes, the archive {held}: make the file anew")
        content = _content(member, size)
    return numpy.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _names(path: Path, array: Array) -> Names:
    names = tuple(array.tolist())
    for name in names:
        name.encode()  # half characters are refused here: they cannot be printed later
    if not names or len(set(names)) < len(names) or len(names) > MOST_CLASSES:
        raise ImageError(f"{path}: names: expected 1 to {MOST_CLASSES} different ones, got {_listed(names)}")
    return names


# idx


def _idx_file(folder: Path, part: str, content: str) -> Path | None:
    """A file named as MNIST's are, packed or not."""
    kind = {"images": "idx3-ubyte", "labels": "idx1-ubyte"}[content]
    paths = (folder / f"{part}-{content}{mark}{kind}{ending}" for ending in ("", ".gz") for mark in "-.")
    return next((path for path in paths if path.exists()), None)


def _idx(path: Path, size: int | None, names: Names | None) -> Images:
    part = path.name.split("-")[0]
    labels = _idx_file(path.parent, part, "labels")
    if labels is None:
        raise ImageError(f"{path.parent}: no {part}-labels-idx1-ubyte beside {path.name}")
    return _from_arrays(path, _idx_array(path, 3), _idx_array(labels, 1), size, None, names)


def _idx_array(path: Path, dimensions: int) -> Array:
    """The array of an idx file: two zeros, the type, the dimensions, their sizes, and as many bytes."""
    with reading(path, "an idx file"), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        header = file.read(4 + 4 * dimensions)
        if len(header) != 4 + 4 * dimensions or header[:4] != bytes((0, 0, 8, dimensions)):
            raise ImageError(f"{path}: expected an idx file of bytes in {dimensions} dimensions, got another beginning")
        shape = tuple(numpy.frombuffer(header, ">u4", offset=4).tolist())
        _check_room(path, shape)
        content = _content(file, math.prod(shape) + 1)
    if len(content) != math.prod(shape):
        held = len(content) if len(content) < math.prod(shape) else "more"
        raise ImageError(f"{path}: its header claims {_times(*shape)} bytes, it holds {held}: get the file anew")
    return numpy.frombuffer(content, numpy.uint8).reshape(shape)
