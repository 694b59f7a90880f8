"""Handwritten digits that come with scikit-learn: 1,797 images of 8×8, small enough to learn from in seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from regard.data.image_arrays import fit_all
from regard.data.image_parts import Block, ImagePart, Refuse, Shapes
from regard.data.images import ImageData, LabelledImages

__all__ = ["DigitImages", "digits"]


def digits() -> ImageData:
    """The digits, light on dark; no part of them is set aside."""
    import torch
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = torch.from_numpy(data.images * (255 / 16)).round().to(torch.uint8)  # ink from 0 to 16
    names = tuple(str(name) for name in data.target_names)
    return ImageData(LabelledImages(pixels[:, None], torch.from_numpy(data.target).to(torch.int64), names), None)


class DigitImages(ImagePart):
    """The same, as other sets of images are."""

    def __init__(self) -> None:
        self.images = digits().train
        self.path, self.names = Path("digits"), self.images.names

    @property
    def shapes(self) -> Shapes:
        count, channels, height, width = self.images.pixels.shape
        return Shapes(count, channels, min(height, width), (height, width))

    def digest(self) -> str:
        return hashlib.sha256(self.images.pixels.numpy().tobytes()).hexdigest()

    def blocks(self, shape: tuple[int, int, int], refuse: Refuse) -> Iterator[Block]:
        pixels = fit_all(self.images.pixels.permute(0, 2, 3, 1).numpy(), shape[1:])
        yield Block(pixels, self.images.labels.numpy(), [])
