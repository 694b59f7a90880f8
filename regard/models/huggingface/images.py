"""preprocessor_config.json: how image files become what a model reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.models.classifier import check_image_size, check_normalization
from regard.models.tensors import FolderError, UnsupportedError, read_json

__all__ = ["IMAGES", "image_file", "read_image_file"]

IMAGES = "preprocessor_config.json"
RESCALED = 1 / 255


def read_image_file(path: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Mean, deviation and size of the images; a model that reads one size only has it among its arguments already."""
    config = read_json(path)
    factor = config.get("rescale_factor", RESCALED) if config.get("do_rescale", True) else None
    if not isinstance(factor, float) or not math.isclose(factor, RESCALED, rel_tol=1e-3):
        raise UnsupportedError(f"{path}: only images that are divided by 255 are supported")
    try:
        numbers = {"mean": config["image_mean"], "deviation": config["image_std"]}
        if not config.get("do_normalize", True):
            numbers = {"mean": [0.0], "deviation": [1.0]}
        check_normalization(**numbers, channels=arguments["channels"])
        return numbers | ({} if "image_size" in arguments else {"image_size": _size(config)})
    except KeyError as error:
        raise FolderError(f"{path}: {error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise FolderError(f"{path}: {error}") from error


def _size(config: Mapping[str, Any]) -> list[int] | None:
    """Height and width; one number, or the shortest edge, stands for a square."""
    if not config.get("do_resize", True):
        return None
    size = config["size"]
    if isinstance(size, dict):
        size = size["shortest_edge"] if "shortest_edge" in size else [size["height"], size["width"]]
    return list(check_image_size(size))


def image_file(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The way back."""
    size, channels = arguments["image_size"], arguments["channels"]
    height, width = (None, None) if size is None else check_image_size(size)
    numbers = {name: list(arguments[name]) * (channels // len(arguments[name])) for name in ("mean", "deviation")}
    return {
        "image_processor_type": "ViTImageProcessor",  # it does no more than this
        "do_resize": size is not None,
        **({} if size is None else {"size": {"height": height, "width": width}}),
        "do_rescale": True,
        "rescale_factor": RESCALED,
        "do_normalize": True,
        "image_mean": numbers["mean"],
        "image_std": numbers["deviation"],
    }
