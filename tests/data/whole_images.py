"""Sets of images that are read as a whole, into memory: what their stores are compared with."""

from typing import NamedTuple

import numpy
import torch

from regard.data.image_files import silent
from regard.data.images import find_images


class Images(NamedTuple):
    pixels: torch.Tensor  # (n, channels, height, width), uint8
    labels: torch.Tensor  # (n,), int64: indices into names
    names: tuple[str, ...]


class Parts(NamedTuple):
    train: Images
    test: Images | None


def read_images(path, size=None):
    """The images of a file or folder; with a size, each is scaled and cropped at its centre to size × size."""
    images = find_images(path)
    shape = images.shape(size)
    return Parts(_read(images.train, shape), None if images.test is None else _read(images.test, shape))


def _read(part, shape):
    def refuse(file, error):
        raise error

    with silent():
        blocks = [(block.pixels, block.labels) for block in part.blocks(shape, refuse)]
    pixels, labels = (torch.from_numpy(numpy.concatenate(arrays)) for arrays in zip(*blocks, strict=True))
    return Images(pixels, labels.long(), part.names)
