"""One image from a file, decoded without trust: the size it claims is checked before memory is taken for it."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
from numpy.typing import NDArray

from regard.errors import RegardError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

Pixels = NDArray[numpy.uint8]  # (channels, height, width), or (n, channels, height, width)
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
    if math.prod(size) > MAX_PIXELS:  # a model's folder may ask for any size
        raise ImageError(f"{path}: expected a size of at most {MAX_PIXELS} pixels, got {size[0]}×{size[1]}")
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
