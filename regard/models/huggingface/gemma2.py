"""Gemma 2: a Llama with more norms, capped scores and logits, scaled embeddings, and a window in every other layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from regard.arguments import check_positive
from regard.models.huggingface import llama
from regard.models.huggingface.configs import check_exportable
from regard.models.huggingface.llama import ACTIVATION, MODEL, NAMES, PREFIX, is_ignored
from regard.models.huggingface.windows import layer_types, read_windows, write_windows
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, UnsupportedError

__all__ = ["ACTIVATION", "MODEL", "NAMES", "PREFIX", "is_ignored"]  # as those of Llama

SUPPORTED = {"hidden_activation": "gelu_pytorch_tanh"}
NORMS = {
    "mixer_norm": "input_layernorm",
    "mixer.query_norm": "self_attn.q_norm",
    "mixer.key_norm": "self_attn.k_norm",
    "mixer_output_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_output_norm": "post_feedforward_layernorm",
}
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}  # unless the config says otherwise


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    windows = read_windows(layer_types(config, lambda number: number % 2 == 0), config.get("sliding_window", 4_096))
    return {**llama.read_config(config, shapes), **read_entries(CAPS | dict(config)), "window": windows}


def read_entries(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that Gemma 3 has as well."""
    if config.get("use_bidirectional_attention"):
        raise UnsupportedError("use_bidirectional_attention True is not supported, only False")
    return {
        "kv_heads": config.get("num_key_value_heads", 4),
        "head_size": config.get("head_dim", 256),
        "score_scale": check_positive("query_pre_attn_scalar", config.get("query_pre_attn_scalar", 256)) ** -0.5,
        "score_softcap": config["attn_logit_softcapping"],
        "logit_softcap": config["final_logit_softcapping"],
        "activation": "geglu_tanh",
        "output_norms": True,
        "bias": False,
        "scale_embeddings": True,
        "tie_embeddings": config.get("tie_word_embeddings", True),
    }


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files, which hold what the weights of norms are more than 1."""
    return llama.tensor_rules(model, NORMS, norm_offset=1.0)


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable(arguments, qk_norm=False)
    return {
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "rope_parameters": llama.write_rotary_base(arguments["rotary_base"]),
        **write_entries(arguments),
    }


FREE = ("qk_norm", "score_scale", "score_softcap", "logit_softcap", "window")


def write_entries(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Entries that Gemma 3 has as well."""
    fixed = {name: value for name, value in llama.FIXED.items() if name not in FREE}
    check_exportable(arguments, **fixed | {"activation": "geglu_tanh", "output_norms": True, "scale_embeddings": True})
    check_exportable(arguments, bias=False, attention_output_bias=arguments["attention_bias"])
    scale = arguments["head_size"] ** -0.5 if arguments["score_scale"] is None else arguments["score_scale"]
    scalar = round(scale**-2) if scale else 0
    if not scalar or not math.isclose(scalar**-0.5, scale):
        raise FolderError(f"score_scale={scale!r}")
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": arguments["attention_bias"],
        "query_pre_attn_scalar": scalar,
        "attn_logit_softcapping": arguments["score_softcap"],
        "final_logit_softcapping": arguments["logit_softcap"],
        **write_windows(arguments),
        **llama.write_entries(arguments),
    }
