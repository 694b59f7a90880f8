"""Gemma 3, of texts: a Gemma 2 with norms of queries and keys, and rotary positions by kind of layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import gemma2, llama
from regard.models.huggingface.configs import check_exportable, same_in_all
from regard.models.huggingface.gemma2 import (
    ACTIVATION,
    MODEL,
    NAMES,
    PREFIX,
    is_ignored,
    read_entries,
    tensor_rules,
    write_entries,
)
from regard.models.huggingface.windows import FULL, SLIDING, layer_types, read_windows
from regard.models.tensors import FolderError

__all__ = ["ACTIVATION", "MODEL", "NAMES", "PREFIX", "is_ignored", "tensor_rules"]  # as those of Gemma 2

SUPPORTED = {**gemma2.SUPPORTED, "attn_logit_softcapping": None}
CAPS = {"attn_logit_softcapping": None, "final_logit_softcapping": None}  # unless the config says otherwise


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    every = config.get("sliding_window_pattern", 6)
    kinds, bases = layer_types(config, lambda number: (number + 1) % every > 0), _read_rotary_bases(config)
    basics = llama.read_config({**config, "rope_parameters": None, "rope_scaling": None}, shapes)
    return {
        **basics,
        **read_entries(CAPS | dict(config)),
        "qk_norm": True,
        "window": read_windows(kinds, config.get("sliding_window", 4_096)),
        "rotary_base": same_in_all([bases[kind] for kind in kinds]),
    }


def _read_rotary_bases(config: Mapping[str, Any]) -> dict[str, float]:
    """The base of each kind of layer."""
    rope = config.get("rope_parameters") or {}
    of_full = rope.get(FULL) or config.get("rope_scaling") or {}
    return {
        FULL: llama.read_rotary_base(of_full, config.get("rope_theta", 1_000_000.0)),
        SLIDING: llama.read_rotary_base(rope.get(SLIDING) or {}, config.get("rope_local_base_freq", 10_000.0)),
    }


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable(arguments, qk_norm=True, score_softcap=None)
    entries = write_entries(arguments)
    return {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "rope_parameters": _write_rotary_bases(arguments["rotary_base"], entries["layer_types"]),
        **entries,
    }


def _write_rotary_bases(bases: float | list[float], kinds: list[str]) -> dict[str, Any]:
    """The way back; FolderError where layers of one kind have several."""
    by_layer = bases if isinstance(bases, list) else [bases] * len(kinds)
    by_kind = dict(zip(kinds, by_layer, strict=True))
    if [by_kind[kind] for kind in kinds] != by_layer:
        raise FolderError(f"rotary_base={bases!r}")
    return {kind: llama.write_rotary_base(by_kind.get(kind, by_layer[0])) for kind in (FULL, SLIDING)}
