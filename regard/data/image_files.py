"""One picture from a file, decoded without trust: its claimed size is looked at before memory is taken for it."""

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

__all__ = ["ImageError", "Pixels", "decode", "fit", "peek", "read_image", "reading"]

Pixels = NDArray[numpy.uint8]  # (channels, height, width), or (n, channels, height, width)

MOST_PIXELS = 64_000_000
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # not all of Pillow's: EPS would start Ghostscript
CAMERAS = ("JPEG", "MPO")  # formats in which cameras say how they were held
ORIENTATION = 0x0112  # where they say it, in EXIF

logging.getLogger("PIL").addHandler(logging.NullHandler())  # what it logs of broken files, the errors here say


class ImageError(RegardError, ValueError):
    """The pictures cannot be used; the message says which and why."""


def read_image(path: Path, channels: int, size: tuple[int, int] | None = None) -> torch.Tensor:
    """One picture (channels, height, width), uint8; brought to size (height, width) if it is given, see `fit`."""
    import torch

    return torch.from_numpy(decode(path, channels, size or peek(path)[1]))


def peek(path: Path) -> tuple[int, tuple[int, int]]:
    """How many channels (1 where it is grey, else 3) and which (height, width) a picture says it has."""
    with _opened(path) as image:
        grey = image.mode in ("1", "L", "LA") or _is_deep(image)
        width, height = image.size
        sideways = image.format in CAMERAS and image.getexif().get(ORIENTATION) in (5, 6, 7, 8)
        return 1 if grey else 3, (width, height) if sideways else (height, width)


def decode(path: Path, channels: int, size: tuple[int, int]) -> Pixels:
    """The pixels (channels, height, width) of a file, in 1 channel or 3; what is transparent lies on white."""
    from PIL import Image, ImageOps

    if channels not in (1, 3):
        raise ImageError(f"{path}: expected 1 channel (grey) or 3 (colour), got {channels}")
    with _opened(path) as opened:
        if opened.mode in ("I", "F"):
            raise ImageError(f"{path}: expected 8 or 16 bits a channel, got 32: save it with fewer")
        image = ImageOps.exif_transpose(opened) if opened.format in CAMERAS else opened
        if _is_deep(image):
            image = Image.fromarray((numpy.asarray(image) >> 8).astype(numpy.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return fit(image.convert("L" if channels == 1 else "RGB"), size)


def fit(image: Image, size: tuple[int, int]) -> Pixels:
    """A picture's pixels; one of another size is scaled, and what then stands out on two sides is cut off."""
    from PIL import ImageOps

    height, width = size
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height))
    pixels = numpy.array(image).reshape(height, width, -1)
    return numpy.ascontiguousarray(pixels.transpose(2, 0, 1))


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Broken files make decoders raise and warn whatever comes to them: here all of it becomes one ImageError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ImageError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"{path}: cannot be read as {kind}: {reason}") from error


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """A picture of which only the beginning is read yet, and which is not too large."""
    from PIL import Image, UnidentifiedImageError

    with reading(path, "a picture"):
        try:
            with Image.open(path, formats=FORMATS) as image:
                if math.prod(image.size) > MOST_PIXELS:
                    raise Image.DecompressionBombError
                yield image
        except Image.DecompressionBombError as error:
            raise ImageError(f"{path}: claims more than {MOST_PIXELS} pixels: make it smaller") from error
        except UnidentifiedImageError as error:
            raise ImageError(f"{path}: is no picture: expected {', '.join(FORMATS)}") from error


def _is_deep(image: Image) -> bool:
    """Whether it has 16 bits a pixel, which Pillow would cut off rather than scale."""
    return image.mode.startswith("I;16")
