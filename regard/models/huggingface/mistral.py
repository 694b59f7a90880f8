"""Mistral: a Llama whose layers may all have a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import llama
from regard.models.huggingface.configs import check_exportable
from regard.models.huggingface.llama import ACTIVATION, MODEL, NAMES, PREFIX, SUPPORTED, is_ignored, tensor_rules
from regard.models.tensors import FolderError

__all__ = ["ACTIVATION", "MODEL", "NAMES", "PREFIX", "SUPPORTED", "is_ignored", "tensor_rules"]  # as those of Llama


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    arguments = llama.read_config(config, shapes)
    return arguments | {"bias": False, "attention_bias": False, "window": config.get("sliding_window", 4_096)}


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    window = arguments["window"]
    if isinstance(window, list):
        raise FolderError(f"window={window!r}")
    check_exportable(arguments, **llama.FIXED | {"window": window}, bias=False)
    check_exportable(arguments, attention_bias=False, attention_output_bias=False)
    return {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "hidden_act": "silu",
        "sliding_window": window,
        "rope_parameters": llama.write_rotary_base(arguments["rotary_base"]),
        **llama.write_entries(arguments),
    }
