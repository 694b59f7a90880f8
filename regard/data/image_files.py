"""Images from files, decoded without trust: the size they claim is checked before memory is taken for them.

One image; what sets of images have in common: names of classes, what headers claim, pixels a block at a time; and a
folder of images for each class, of which a few are in memory at a time, and the file names of one class.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from regard.data.store import FileState, advance, prepared
from regard.data.streams import map_in_threads
from regard.errors import RegardError
from regard.files import digest, is_text

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

Pixels = NDArray[numpy.uint8]  # (channels, height, width), or (n, channels, height, width)

MAX_BYTES = 4_000_000_000  # that a file may claim, or 16 times what it has: bombs claim a thousand times as much
RATIO = 16
BLOCK_BYTES = 1 << 22  # of pixels that are decoded at once

Array = NDArray[Any]
Names = tuple[str, ...]
Refuse = Callable[[str, "ImageError"], None]  # gets the file of an image that cannot be read, and the reason
Header = tuple[int, tuple[int, int]]  # channels, (height, width)
HIDDEN = {"thumbs.db", "desktop.ini", "__macosx"}  # what systems put beside pictures, and show to nobody
LAYOUT = "a folder of pictures per class, or the folders train and test with such folders"
MAX_PIXELS = 64_000_000
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # not all of Pillow's: EPS would start Ghostscript
CAMERA_FORMATS = ("JPEG", "MPO")  # in which cameras write how they were held
ORIENTATION = 0x0112  # the EXIF tag of it
SIDEWAYS = (5, 6, 7, 8)  # its values for a camera that was held upright
GAP = 2  # a photo is decoded at this many times the size that is wanted, or larger, and scaled down from there

logging.getLogger("PIL").addHandler(logging.NullHandler())  # the errors here say what it logs of broken files


class ImageError(RegardError, ValueError):
    """An image cannot be used; the message says which one and why."""


def read_image(path: Path, channels: int, size: tuple[int, int] | None = None) -> torch.Tensor:
    """One image (channels, height, width), uint8; scaled and cropped to size (height, width) if it is given."""
    import torch

    with silent():
        return torch.from_numpy(decode(path, channels, size or peek(path)[1]))


def peek(path: Path) -> tuple[int, tuple[int, int]]:
    """The channels (1 if it is grey, else 3) and the (height, width) that an image claims in its header."""
    with _opened(path) as image:
        grey = image.mode in ("1", "L", "LA") or _is_deep(image)
        width, height = image.size
        return 1 if grey else 3, (width, height) if _is_sideways(image) else (height, width)


def decode(path: Path, channels: int, size: tuple[int, int]) -> Pixels:
    """The pixels (channels, height, width) of a file, in 1 channel or 3; transparency is shown on white.

    Of a JPEG that is much larger than the size, only the coarse part is decoded: an eighth of the edges at least.
    """
    from PIL import Image, ImageOps

    if channels not in (1, 3):
        raise ImageError(f"{path}: expected 1 channel (grey) or 3 (colour), got {channels}")
    with _opened(path) as opened:
        if opened.mode in ("I", "F"):
            raise ImageError(f"{path}: expected 8 or 16 bits a channel, got 32: save it with fewer")
        if opened.format in CAMERA_FORMATS:
            height, width = (GAP * edge for edge in size)
            opened.draft(None, (height, width) if _is_sideways(opened) else (width, height))
        image = ImageOps.exif_transpose(opened) if opened.format in CAMERA_FORMATS else opened
        if _is_deep(image):
            image = Image.fromarray((numpy.asarray(image) >> 8).astype(numpy.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return fit(image.convert("L" if channels == 1 else "RGB"), size)


def fit(image: Image, size: tuple[int, int]) -> Pixels:
    """An image's pixels; one of another size is scaled, and cropped at its centre to the other aspect ratio."""
    from PIL import ImageOps

    height, width = size
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height))
    pixels = numpy.array(image).reshape(height, width, -1)
    return numpy.ascontiguousarray(pixels.transpose(2, 0, 1))


@contextmanager
def silent() -> Iterator[None]:
    """Silences warnings of decoders. Python's filters belong to all threads: whoever starts threads silences them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turns whatever a decoder raises on a broken file into an ImageError."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"{path}: cannot be read as {kind}: {reason}") from error


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """An image that is not too large; only its header has been read yet."""
    from PIL import Image, UnidentifiedImageError

    with reading(path, "a picture"):
        if not path.is_file() and path.exists():
            raise ImageError(f"{path}: expected a regular file, got a folder, a pipe or a device")
        try:
            with Image.open(path, formats=FORMATS) as image:
                if math.prod(image.size) > MAX_PIXELS:
                    raise Image.DecompressionBombError
                yield image
        except Image.DecompressionBombError as error:
            raise ImageError(f"{path}: claims more than {MAX_PIXELS} pixels: make it smaller") from error
        except UnidentifiedImageError as error:
            raise ImageError(f"{path}: is no picture: expected {', '.join(FORMATS)}") from error


def _is_sideways(image: Image) -> bool:
    return image.format in CAMERA_FORMATS and image.getexif().get(ORIENTATION) in SIDEWAYS


def _is_deep(image: Image) -> bool:
    """Whether it has 16 bits per pixel, which Pillow would clip rather than scale."""
    return image.mode.startswith("I;16")


# ---------------------------------------------------------------------------------------------------- sets of images


@dataclass(frozen=True)
class Shapes:
    """What the headers of images claim.

    count: images that have a header · channels: 1 if all are grey, else 3 · edge: the median of the smaller edges ·
    size: (height, width) of the first one · other: another (height, width), if they are not all equal
    """

    count: int
    channels: int
    edge: int
    size: tuple[int, int]
    other: tuple[int, int] | None = None


@dataclass(frozen=True)
class Block:
    """A few images that are decoded."""

    pixels: Pixels  # (n, channels, height, width)
    labels: Array  # (n,), integers
    files: list[str]  # that they are from: empty where many are in one file


class ImagePart(ABC):
    """Images with classes in files: those to learn from, or those for the test."""

    path: Path
    names: Names  # of the classes

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """What the headers claim."""

    @abstractmethod
    def digest(self) -> str:
        """The SHA-256 of what the files hold."""

    @abstractmethod
    def blocks(self, shape: tuple[int, int, int], refuse: Refuse) -> Iterator[Block]:
        """All images in order, as (channels, height, width); of those that cannot be read, `refuse` is told."""


def times(*sizes: int) -> str:
    """Sizes, for a message."""
    return "×".join(map(str, sizes))


def listed(names: Names) -> str:
    """The first names, for a message."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def check_bytes(path: Path, shape: tuple[int, ...], itemsize: int = 1, *, limit: int = MAX_BYTES) -> None:
    """Refuse what claims too much, before memory or disk is taken for it."""
    if math.prod(shape) * itemsize > limit:
        raise ImageError(f"{path}: claims {times(*shape, itemsize)} bytes, expected {limit} at most: take fewer")


def check_names(path: Path, names: Names | None, train_names: Names | None) -> None:
    """The classes of a test part have to be those of the training part, if it names them."""
    if names is not None and train_names is not None and names != train_names:
        raise ImageError(f"{path}: expected the classes of train, {listed(train_names)}, got {listed(names)}")


# ------------------------------------------------------------------------------------------------- folders of images


class FolderImages(ImagePart):
    """A folder with a folder of pictures for each class. What is hidden does not count."""

    def __init__(self, path: Path, train_names: Names | None, expected: str = LAYOUT) -> None:
        self.path, self.names = path, tuple(folder.name for folder in folders(path))
        if not self.names:
            raise ImageError(f"{path}: no folders in it, expected {expected}")
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
        shapes = self._scanned["shapes"]
        size, other = (shapes[name] and (shapes[name][0], shapes[name][1]) for name in ("size", "other"))
        return Shapes(shapes["count"], shapes["channels"], shapes["edge"], size, other)

    def digest(self) -> str:
        return str(self._scanned["digest"])

    def blocks(self, shape: tuple[int, int, int], refuse: Refuse) -> Iterator[Block]:
        state = self._state()
        count = max(1, BLOCK_BYTES // int(numpy.prod(shape)))
        decoded = map_in_threads(partial(self._decode, shape=shape), self._names())
        while results := list(islice(decoded, count)):
            images = []
            for label, name, pixels in results:
                if isinstance(pixels, ImageError):
                    refuse(name, pixels)
                else:
                    images.append((label, name, pixels))
            if images:
                labels, names, arrays = zip(*images, strict=True)
                yield Block(numpy.stack(arrays), numpy.array(labels), list(names))
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
        return {
            "shapes": asdict(Shapes(edges.total(), channels, median_low(edges.elements()), *sizes)),
            "digest": total.hexdigest(),
        }

    def _state(self) -> FileState:
        """What the file system says about all files."""
        home = os.path.realpath(self.path)
        return FileState.of(f"{home}/{name}" for _, name in self._names())

    def _look(self, item: tuple[int, str]) -> tuple[str, str, Header | ImageError]:
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
