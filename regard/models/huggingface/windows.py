"""Sliding windows, which some of the layers have: `layer_types` in a config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from regard.arguments import check_size
from regard.models.huggingface.configs import same_in_all
from regard.models.tensors import FolderError, UnsupportedError

__all__ = ["FULL", "SLIDING", "layer_types", "read_windows", "write_windows"]

SLIDING, FULL = "sliding_attention", "full_attention"


def layer_types(config: Mapping[str, Any], is_sliding: Callable[[int], bool]) -> list[str]:
    """The kind of each layer, which older configs leave to a rule."""
    layers = check_size("layers", config["num_hidden_layers"])
    kinds: list[str] = config.get("layer_types") or [SLIDING if is_sliding(n) else FULL for n in range(layers)]
    for kind in kinds:
        if kind not in (SLIDING, FULL):
            raise UnsupportedError(f"layer_types {kind!r} is not supported, only {SLIDING!r} and {FULL!r}")
    return kinds


def read_windows(kinds: list[str], window: int | None) -> int | list[int | None] | None:
    """The argument `window`, for layers of these kinds."""
    windows: int | list[int | None] | None = same_in_all([window if kind == SLIDING else None for kind in kinds])
    return windows


def write_windows(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The way back; FolderError where layers have windows of different sizes."""
    window, layers = arguments["window"], arguments["layers"]
    windows = window if isinstance(window, list) else [window] * layers
    sizes = {size for size in windows if size is not None}
    if len(sizes) > 1:
        raise FolderError(f"window={window!r}")
    return {
        "sliding_window": next(iter(sizes), None),
        "layer_types": [FULL if size is None else SLIDING for size in windows],
    }
