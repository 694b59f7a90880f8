"""Llama: rotary positions, RMS norm, gated feed-forward, grouped heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface.configs import check_exportable, linear
from regard.models.model import Model
from regard.models.tensors import Rule, UnsupportedError

MODEL, PREFIX, ACTIVATION = "LanguageModel", "model.", None
SUPPORTED = {"hidden_act": "silu"}
NAMES = {
    "vocab_size": "vocab_size",
    "size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "epsilon": "rms_norm_eps",
}


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    eos = config.get("eos_token_id")
    return {
        "kv_heads": config.get("num_key_value_heads"),
        "head_size": config.get("head_dim"),
        "positions": "rotary",
        "rotary_base": _rotary_base(config),
        "activation": "swiglu",
        "norm": "rms",
        "bias": config.get("mlp_bias", False),
        "attention_bias": config.get("attention_bias", False),
        "tie_embeddings": config.get("tie_word_embeddings", False),
        "bos": config.get("bos_token_id"),
        "eos": eos[0] if isinstance(eos, list) and eos else eos,
    }


def _rotary_base(config: Mapping[str, Any]) -> float:
    """Newer and older configs say it in different entries."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UnsupportedError(f"rope_type {kind!r} is not supported, only 'default'")
    return float(rope.get("rope_theta", config.get("rope_theta", 10_000.0)))


def _biases(arguments: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether feed-forward nets have biases, and whether attention has."""
    bias, attention_bias = arguments["bias"], arguments["attention_bias"]
    return bias, bias if attention_bias is None else attention_bias


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    bias, attention_bias = _biases(model.config)
    rules = {
        "token_embedding.weight": Rule(("embed_tokens.weight",)),
        "output.weight": Rule(("lm_head.weight",)),
        "norm.weight": Rule(("norm.weight",)),
    }
    for number in range(model.config["layers"]):
        ours, theirs = f"blocks.{number}", f"layers.{number}"
        block: Any = model.blocks[number]  # type: ignore[index]
        ffn_size = block.feed_forward.out_proj.in_features
        qkv = [f"{theirs}.self_attn.{name}_proj" for name in "qkv"]
        gate_and_up = [f"{theirs}.mlp.{name}_proj" for name in ("gate", "up")]
        rules[f"{ours}.mixer_norm.weight"] = Rule((f"{theirs}.input_layernorm.weight",))
        rules[f"{ours}.feed_forward_norm.weight"] = Rule((f"{theirs}.post_attention_layernorm.weight",))
        rules |= linear(f"{ours}.mixer.in_proj.0", *qkv, heights=block.mixer.widths, bias=attention_bias)
        rules |= linear(f"{ours}.mixer.out_proj", f"{theirs}.self_attn.o_proj", bias=attention_bias)
        rules |= linear(f"{ours}.feed_forward.in_proj", *gate_and_up, heights=(ffn_size, ffn_size), bias=bias)
        rules |= linear(f"{ours}.feed_forward.out_proj", f"{theirs}.mlp.down_proj", bias=bias)
    return rules


def is_ignored(name: str) -> bool:
    """Frequencies that old files hold, and a tied output layer once more."""
    return name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq")


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable(arguments, positions="rotary", mixer="attention", score=(None, "dot"), norm="rms")
    check_exportable(arguments, activation="swiglu", classes=0)
    bias, attention_bias = _biases(arguments)
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_key_value_heads": arguments["kv_heads"] or arguments["heads"],
        "head_dim": arguments["head_size"] or arguments["size"] // arguments["heads"],
        "rope_parameters": {"rope_type": "default", "rope_theta": arguments["rotary_base"]},
        "hidden_act": "silu",
        "mlp_bias": bias,
        "attention_bias": attention_bias,
        "attention_dropout": arguments["dropout"],
        "tie_word_embeddings": arguments["tie_embeddings"],
        "bos_token_id": arguments["bos"],
        "eos_token_id": arguments["eos"],
    }
