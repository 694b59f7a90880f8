"""Handwritten digits that come with scikit-learn: 1,797 images of 8×8, small enough to learn from in seconds."""

from __future__ import annotations

from regard.data.images import ImageData, LabelledImages

__all__ = ["digits"]


def digits() -> ImageData:
    """The digits, light on dark; no part of them is set aside."""
    import torch
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = torch.from_numpy(data.images * (255 / 16)).round().to(torch.uint8)  # ink from 0 to 16
    names = tuple(str(name) for name in data.target_names)
    return ImageData(LabelledImages(pixels[:, None], torch.from_numpy(data.target).to(torch.int64), names), None)
