"""Options of which no model can be made are refused before data are read."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from regard.training.options import (
    ImagesOptions,
    LanguageOptions,
    OptionError,
    Options,
    TextOptions,
    TranslateOptions,
)
from regard.training.tasks import images, language, text, translate

__all__ = ["check_shapes"]

VOCAB_SIZE = 16  # any number that has room for the special tokens
DIGITS = 8  # edge of the embedded images


def check_shapes(options: Options) -> None:
    """Refuse options whose model cannot be made.

    The model is made on the meta device, where it takes neither time nor memory. What the data decide is chosen to fit:
    options that contradict only the data are refused with them.
    """
    if options.init_from is not None:  # the model is that of the folder
        return
    if getattr(options, "max_length", 1) < 1:
        raise OptionError(f"max_length: expected more than 0, got {getattr(options, 'max_length', 1)}")
    try:
        with torch.device("meta"):
            _make_model(dataclasses.replace(options, **_fill(options)))
    except ValueError as error:
        raise OptionError(str(error)) from error


def _fill(options: Options) -> dict[str, Any]:
    """The smallest values that fit the others, for options that were not given."""
    heads = getattr(options, "heads", None) or 1
    smallest = {"heads": heads, "size": 2 * heads, "hidden_size": 2, "layers": 1, "context": 1, "dropout": 0.0}
    smallest |= {"patch_size": 1, "image_size": 0, "width": 1}
    return {name: value for name, value in smallest.items() if getattr(options, name, value) is None}


def _make_model(options: Options) -> None:
    match options:
        case TranslateOptions():
            translate.new_model(options, (VOCAB_SIZE, VOCAB_SIZE), share_embeddings=True)
        case LanguageOptions():
            language.new_model(options, VOCAB_SIZE)
        case TextOptions():
            text.new_model(options, VOCAB_SIZE, ["0", "1"])
        case ImagesOptions():
            images.new_model(options, (1, *_image_shape(options)), 2)


def _image_shape(options: ImagesOptions) -> tuple[int, int]:
    if options.data is None:
        if options.image_size:
            raise OptionError(
                f"image_size: applies to images that are read, and the embedded ones have {DIGITS} pixels"
            )
        return DIGITS, DIGITS
    edge = options.image_size or options.patch_size
    return edge, edge
