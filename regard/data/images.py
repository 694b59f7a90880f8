"""Sets of images with a class each: a folder per class, an .npz file, or MNIST's idx files.

Sizes that a file claims are checked before memory is taken for them, and nothing is ever unpickled.
`regard.data.image_files` reads a single image.
"""

from __future__ import annotations

import gzip
import math
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from regard.data.image_files import ImageError, Pixels, decode, fit, peek, reading

if TYPE_CHECKING:
    import torch

__all__ = ["ImageData", "LabelledImages", "read_images"]

Array = NDArray[Any]
Names = tuple[str, ...]

MAX_BYTES = 4_000_000_000  # of all images together
MAX_CLASSES = 1 << 16
EXPECTED = "an .npz file, or a folder with a folder of pictures per class, with train.npz, or with MNIST's idx files"
ARRAYS = {  # of an .npz file: what each has to be, with the kinds of its dtype and its numbers of dimensions
    "images": ("uint8 as (n, height, width) or (n, height, width, channels)", "u", (3, 4)),
    "labels": ("integers as (n,)", "iu", (1,)),
    "names": ("strings as (classes,)", "U", (1,)),
}


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


def read_images(path: Path, size: int | None = None) -> ImageData:
    """The images of a file or folder; with a size, each is scaled and cropped at its centre to size × size."""
    if size is not None and size < 1:
        raise ImageError(f"--image-size: expected 1 or more, got {size}")
    train_path, test_path = _parts(path)
    train = _read_part(train_path, size, None)
    first = train.labels[0]
    if (train.labels == first).all():
        name = train.names[int(first)]
        raise ImageError(f"{train_path}: expected two classes or more, all {len(train.labels)} pictures are {name!r}")
    if test_path is None:
        return ImageData(train, None)
    test = _read_part(test_path, size, train.names)
    if test.pixels.shape[1:] != train.pixels.shape[1:]:
        got, expected = (_times(*part.pixels.shape[1:]) for part in (test, train))
        raise ImageError(f"{test_path}: expected pictures of {expected} as in {train_path.name}, got {got}")
    return ImageData(train, test)


def _parts(path: Path) -> tuple[Path, Path | None]:
    """The file or folder to learn from, and the one for the test if there is any."""
    if path.is_file() and path.suffix.lower() == ".npz":
        return path, None
    if not path.is_dir():
        raise ImageError(f"{path}: {'is a file' if path.exists() else 'does not exist'}, expected {EXPECTED}")
    if (path / "train.npz").exists():
        test = path / "test.npz"
        return path / "train.npz", test if test.exists() else None
    if idx := _idx_file(path, "train", "images"):
        return idx, _idx_file(path, "t10k", "images") or _idx_file(path, "test", "images")
    if {folder.name for folder in _folders(path)} == {"train", "test"}:
        return path / "train", path / "test"
    return path, None


def _read_part(path: Path, size: int | None, train_names: Names | None) -> LabelledImages:
    """The images of one part; in a test part, the labels mean the classes of the training part."""
    if path.is_dir():
        return _read_folders(path, size, train_names)
    read = _read_npz if path.suffix.lower() == ".npz" else _read_idx
    images, labels, names = read(path)
    return _from_arrays(path, images, labels, size, names, train_names)


def _times(*sizes: int) -> str:
    return "×".join(map(str, sizes))


def _listed(names: Names) -> str:
    """The first names, for a message."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def _check_bytes(path: Path, shape: tuple[int, ...], itemsize: int = 1) -> None:
    if math.prod(shape) * itemsize > MAX_BYTES:
        claim = _times(*shape, itemsize)
        raise ImageError(f"{path}: claims {claim} bytes, expected {MAX_BYTES} at most: take fewer")


def _check_names(path: Path, names: Names | None, train_names: Names | None) -> None:
    if names is not None and train_names is not None and names != train_names:
        raise ImageError(f"{path}: expected the classes of train, {_listed(train_names)}, got {_listed(names)}")


# -------------------------------------------------------------------------------------------------- a folder per class


def _read_folders(path: Path, size: int | None, train_names: Names | None) -> LabelledImages:
    import torch

    folders = _folders(path)
    names = tuple(folder.name for folder in folders)
    if not names:
        raise ImageError(f"{path}: no folders in it, expected {EXPECTED}")
    _check_names(path, names, train_names)
    files = [(file, label) for label, folder in enumerate(folders) for file in _files(folder)]
    channels, shape = _common_shape(path, [file for file, _ in files], size)
    _check_bytes(path, (len(files), channels, *shape))
    pixels = torch.empty((len(files), channels, *shape), dtype=torch.uint8)
    for row, (file, _) in enumerate(files):
        pixels[row] = torch.from_numpy(decode(file, channels, shape))
    return LabelledImages(pixels, torch.tensor([label for _, label in files]), names)


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
    return files


def _common_shape(path: Path, files: list[Path], size: int | None) -> tuple[int, tuple[int, int]]:
    """The channels and (height, width) for all images, from the headers, before any image is decoded."""
    headers = [peek(file) for file in files]
    channels = max(channels for channels, _ in headers)
    if size is not None:
        return channels, (size, size)
    (shape, count), *others = Counter(shape for _, shape in headers).most_common()
    if others:
        raise ImageError(
            f"{path}: the pictures have {1 + len(others)} sizes ({count} of {len(files)} are {_times(*shape)}): "
            f"pass --image-size, such as --image-size {min(shape)}"
        )
    return channels, shape


# -------------------------------------------------------------------------------------------------------------- arrays


def _from_arrays(
    path: Path, images: Array, labels: Array, size: int | None, names: Names | None, train_names: Names | None
) -> LabelledImages:
    """From images (n, height, width[, channels]), labels (n,), and the file's names if it has any."""
    import torch

    if len(images) != len(labels):
        raise ImageError(f"{path}: expected a label for every picture, got {len(images)} and {len(labels)}")
    images = images if images.ndim == 4 else images[..., None]
    if images.shape[3] not in (1, 3) or not images.size:
        raise ImageError(f"{path}: expected pictures (n, height, width[, 1 or 3]), got {_times(*images.shape)}")
    _check_names(path, names, train_names)
    names = train_names or names or tuple(map(str, range(min(max(int(labels.max()), 0) + 1, MAX_CLASSES))))
    wrong = numpy.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(wrong):
        row = int(wrong[0])
        raise ImageError(f"{path}: row {row}: expected a label of 0 to {len(names) - 1}, got {labels[row]}")
    pixels = torch.from_numpy(_resize(path, images, size))
    return LabelledImages(pixels, torch.from_numpy(labels.astype(numpy.int64)), names)


def _resize(path: Path, images: Array, size: int | None) -> Pixels:
    """Pixels (n, channels, height, width) of images (n, height, width, channels)."""
    from PIL import Image

    count, *shape, channels = images.shape
    if size is None or shape == [size, size]:
        return numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))
    _check_bytes(path, (count, channels, size, size))
    pixels = numpy.empty((count, channels, size, size), dtype=numpy.uint8)
    for row, image in enumerate(images):
        pixels[row] = fit(Image.fromarray(image[..., 0] if channels == 1 else image), (size, size))
    return pixels


def _read_at_most(file: IO[bytes] | gzip.GzipFile, size: int) -> bytearray:
    """In chunks, so that memory is taken for what is there, and not for what a header claims."""
    content = bytearray()
    while chunk := file.read(min(1 << 20, size - len(content))):
        content += chunk
    return content


def _read_npz(path: Path) -> tuple[Array, Array, Names | None]:
    with reading(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy") for name in archive.namelist()}
        if not {"images", "labels"} <= members:
            got = _listed(tuple(sorted(members)))
            raise ImageError(f"{path}: expected the arrays 'images' and 'labels', got {got}")
        arrays = {name: _npz_array(path, archive, name) for name in ARRAYS if name in members}
        if "names" not in arrays:
            return arrays["images"], arrays["labels"], None
        names = tuple(arrays["names"].tolist())
        for name in names:
            name.encode()  # refuses half characters, which could not be printed later
    if not names or len(set(names)) < len(names) or len(names) > MAX_CLASSES:
        raise ImageError(f"{path}: names: expected 1 to {MAX_CLASSES} different ones, got {_listed(names)}")
    return arrays["images"], arrays["labels"], names


def _npz_array(path: Path, archive: zipfile.ZipFile, name: str) -> Array:
    """One array of an archive, once its header is as expected and agrees with the archive's."""
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
        _check_bytes(path, shape, dtype.itemsize)
        size, held = math.prod(shape) * dtype.itemsize, archive.getinfo(f"{name}.npy").file_size - member.tell()
        if size != held:
            raise ImageError(f"{path}: {name}: its header claims {size} bytes, the archive {held}: make the file anew")
        content = _read_at_most(member, size)
    return numpy.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _idx_file(folder: Path, part: str, content: str) -> Path | None:
    """A file named as MNIST's are, packed or not."""
    kind = {"images": "idx3-ubyte", "labels": "idx1-ubyte"}[content]
    paths = (folder / f"{part}-{content}{mark}{kind}{ending}" for ending in ("", ".gz") for mark in "-.")
    return next((path for path in paths if path.exists()), None)


def _read_idx(path: Path) -> tuple[Array, Array, None]:
    part = path.name.split("-")[0]
    labels = _idx_file(path.parent, part, "labels")
    if labels is None:
        raise ImageError(f"{path.parent}: no {part}-labels-idx1-ubyte beside {path.name}")
    return _idx_array(path, 3), _idx_array(labels, 1), None


def _idx_array(path: Path, dimensions: int) -> Array:
    """The array of an idx file: two zeros, the type, the dimensions, their sizes, and as many bytes."""
    with reading(path, "an idx file"), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        header = file.read(4 + 4 * dimensions)
        if len(header) != 4 + 4 * dimensions or header[:4] != bytes((0, 0, 8, dimensions)):
            raise ImageError(f"{path}: expected an idx file of bytes in {dimensions} dimensions, got another beginning")
        shape = tuple(numpy.frombuffer(header, ">u4", offset=4).tolist())
        _check_bytes(path, shape)
        size = math.prod(shape)
        content = _read_at_most(file, size + 1)
    if len(content) != size:
        held = len(content) if len(content) < size else "more"
        raise ImageError(f"{path}: its header claims {_times(*shape)} bytes, it holds {held}: get the file anew")
    return numpy.frombuffer(content, numpy.uint8).reshape(shape)
