"""Qwen2: a Llama whose queries, keys and values have biases; its last layers may have a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import llama
from regard.models.huggingface.configs import check_exportable
from regard.models.huggingface.llama import ACTIVATION, MODEL, NAMES, PREFIX, SUPPORTED, is_ignored, tensor_rules
from regard.models.huggingface.windows import layer_types, read_windows, write_windows

__all__ = ["ACTIVATION", "MODEL", "NAMES", "PREFIX", "SUPPORTED", "is_ignored", "tensor_rules"]  # as those of Llama


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    biases = {"bias": False, "attention_bias": True, "attention_output_bias": False}
    return {**llama.read_config(config, shapes), **biases, "window": read_window(config)}


def read_window(config: Mapping[str, Any]) -> int | list[int | None] | None:
    """The argument `window`: layers from max_window_layers on have one, unless layer_types says which."""
    window = config.get("sliding_window", 4_096) if config.get("use_sliding_window", False) else None
    first = config.get("max_window_layers", 28)
    return read_windows(layer_types(config, lambda number: window is not None and number >= first), window)


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable(arguments, **llama.FIXED | {"window": arguments["window"]}, bias=False)
    check_exportable(arguments, attention_bias=True, attention_output_bias=False)
    return {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **write_entries(arguments)}


def write_entries(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Entries that Qwen3 has as well."""
    windows = write_windows(arguments)
    return {
        "hidden_act": "silu",
        "use_sliding_window": windows["sliding_window"] is not None,
        "rope_parameters": llama.write_rotary_base(arguments["rotary_base"]),
        **windows,
        **llama.write_entries(arguments),
    }
