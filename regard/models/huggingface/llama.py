"""Llama: rotary positions, RMS norm, gated feed-forward, grouped heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import Architecture
from regard.models.huggingface.words import demand, linear, refuse
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule


def _arguments(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    refuse(config, hidden_act="silu")
    bias, attention_bias = config.get("mlp_bias", False), config.get("attention_bias", False)
    eos = config.get("eos_token_id")
    return {
        "vocab_size": config["vocab_size"],
        "size": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "kv_heads": config.get("num_key_value_heads"),
        "head_size": config.get("head_dim"),
        "ffn_size": config["intermediate_size"],
        "max_positions": config["max_position_embeddings"],
        "positions": "rotary",
        "rotary_base": _base(config),
        "activation": "swiglu",
        "norm": "rms",
        "epsilon": config["rms_norm_eps"],
        "bias": bias,
        "attention_bias": attention_bias,
        "tie_embeddings": config.get("tie_word_embeddings", False),
        "bos": config.get("bos_token_id"),
        "eos": eos[0] if isinstance(eos, list) and eos else eos,
    }


def _base(config: Mapping[str, Any]) -> float:
    """Where newer and older configs say how fast positions turn."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise FolderError(f"rope_type {kind!r} is not supported, only 'default'")
    return float(rope.get("rope_theta", config.get("rope_theta", 10_000.0)))


def _rules(model: Model) -> dict[str, Rule]:
    own = model.config
    bias = own["bias"]
    attention_bias = bias if own["attention_bias"] is None else own["attention_bias"]
    rules = {
        "word.weight": Rule(("embed_tokens.weight",)),
        "output.weight": Rule(("lm_head.weight",)),
        "norm.weight": Rule(("norm.weight",)),
    }
    for number in range(own["layers"]):
        ours, theirs = f"blocks.{number}", f"layers.{number}"
        widths = model.blocks[number].mixer.widths  # type: ignore[union-attr, index]
        looks = [f"{theirs}.self_attn.{name}_proj" for name in "qkv"]
        halves = [f"{theirs}.mlp.{name}_proj" for name in ("gate", "up")]
        inner = model.blocks[number].feed_forward.out_proj.in_features  # type: ignore[union-attr, index]
        rules[f"{ours}.mixer_norm.weight"] = Rule((f"{theirs}.input_layernorm.weight",))
        rules[f"{ours}.feed_forward_norm.weight"] = Rule((f"{theirs}.post_attention_layernorm.weight",))
        rules |= linear(f"{ours}.mixer.in_proj.0", *looks, heights=widths, bias=attention_bias)
        rules |= linear(f"{ours}.mixer.out_proj", f"{theirs}.self_attn.o_proj", bias=attention_bias)
        rules |= linear(f"{ours}.feed_forward.in_proj", *halves, heights=(inner, inner), bias=bias)
        rules |= linear(f"{ours}.feed_forward.out_proj", f"{theirs}.mlp.down_proj", bias=bias)
    return rules


def _ignored(name: str) -> bool:
    """Frequencies that old files hold, and a tied output layer once more."""
    return name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq")


def _config(model: Model) -> dict[str, Any]:
    own = model.config
    demand(own, positions="rotary", mixer="attention", score=(None, "dot"), norm="rms", activation="swiglu", classes=0)
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": own["vocab_size"],
        "hidden_size": own["size"],
        "num_hidden_layers": own["layers"],
        "num_attention_heads": own["heads"],
        "num_key_value_heads": own["kv_heads"] or own["heads"],
        "head_dim": own["head_size"] or own["size"] // own["heads"],
        "intermediate_size": own["ffn_size"] or 4 * own["size"],
        "max_position_embeddings": own["max_positions"],
        "rope_parameters": {"rope_type": "default", "rope_theta": own["rotary_base"]},
        "hidden_act": "silu",
        "rms_norm_eps": own["epsilon"],
        "mlp_bias": own["bias"],
        "attention_bias": own["bias"] if own["attention_bias"] is None else own["attention_bias"],
        "attention_dropout": own["dropout"],
        "tie_word_embeddings": own["tie_embeddings"],
        "bos_token_id": own["bos"],
        "eos_token_id": own["eos"],
    }


ARCHITECTURE = Architecture("LanguageModel", "model.", _arguments, _rules, _ignored, _config)
