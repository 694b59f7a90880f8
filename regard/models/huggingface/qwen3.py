"""Qwen3: a Llama with norms of the queries and keys of each head; windows as in Qwen2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import llama
from regard.models.huggingface.configs import check_exportable
from regard.models.huggingface.llama import ACTIVATION, MODEL, NAMES, PREFIX, SUPPORTED, is_ignored, tensor_rules
from regard.models.huggingface.qwen2 import read_window, write_entries

__all__ = ["ACTIVATION", "MODEL", "NAMES", "PREFIX", "SUPPORTED", "is_ignored", "tensor_rules"]  # as those of Llama


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    norms = {"qk_norm": True, "head_size": config.get("head_dim", 128)}
    return {**llama.read_config(config, shapes), **norms, "bias": False, "window": read_window(config)}


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    fixed = llama.FIXED | {"window": arguments["window"], "qk_norm": True, "bias": False}
    check_exportable(arguments, **fixed, attention_output_bias=arguments["attention_bias"])
    return {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": arguments["attention_bias"],
        **write_entries(arguments),
    }
