"""Llama: rotary positions, RMS norm, gated feed-forward, grouped heads. Its relatives are written on top of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface.configs import PLAIN, check_exportable, linear
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, UnsupportedError

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
NORMS = {
    "mixer_norm": "input_layernorm",
    "mixer.query_norm": "self_attn.q_norm",
    "mixer.key_norm": "self_attn.k_norm",
    "feed_forward_norm": "post_attention_layernorm",
}


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {
        "kv_heads": config.get("num_key_value_heads"),
        "head_size": config.get("head_dim"),
        "positions": "rotary",
        "rotary_base": read_rotary_base(rope, config.get("rope_theta", 10_000.0)),
        "activation": "swiglu",
        "norm": "rms",
        "bias": config.get("mlp_bias", False),
        "attention_bias": config.get("attention_bias", False),
        "tie_embeddings": config.get("tie_word_embeddings", False),
        "bos": config.get("bos_token_id"),
        "eos": config.get("eos_token_id"),
    }


def read_rotary_base(rope: Mapping[str, Any], otherwise: float) -> float:
    """The base, which newer configs have here and older ones elsewhere."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UnsupportedError(f"rope_type {kind!r} is not supported, only 'default'")
    return float(rope.get("rope_theta", otherwise))


def tensor_rules(model: Model, norms: Mapping[str, str] = NORMS, norm_offset: float = 0.0) -> dict[str, Rule]:
    """Where each tensor of ours is in their files: of norms by this table, where theirs are less by the offset."""
    rules = {
        "token_embedding.weight": Rule(("embed_tokens.weight",)),
        "output.weight": Rule(("lm_head.weight",)),
        "norm.weight": Rule(("norm.weight",), offset=norm_offset),
    }
    for number in range(model.config["layers"]):
        ours, theirs = f"blocks.{number}", f"layers.{number}"
        block: Any = model.blocks[number]  # type: ignore[index]
        ffn_size = block.feed_forward.out_proj.in_features
        qkv = [f"{theirs}.self_attn.{name}_proj" for name in "qkv"]
        gate_and_up = [f"{theirs}.mlp.{name}_proj" for name in ("gate", "up")]
        for our_norm, their_norm in norms.items():
            rules[f"{ours}.{our_norm}.weight"] = Rule((f"{theirs}.{their_norm}.weight",), offset=norm_offset)
        rules |= linear(f"{ours}.mixer.in_proj.0", *qkv, heights=block.mixer.widths)
        rules |= linear(f"{ours}.mixer.out_proj", f"{theirs}.self_attn.o_proj")
        rules |= linear(f"{ours}.feed_forward.in_proj", *gate_and_up, heights=(ffn_size, ffn_size))
        rules |= linear(f"{ours}.feed_forward.out_proj", f"{theirs}.mlp.down_proj")
    return rules


def is_ignored(name: str) -> bool:
    """Frequencies that old files hold, and a tied output layer once more."""
    return name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq")


# Arguments that a Llama has with this value only; its relatives have some of them with others.
FIXED = PLAIN | {"positions": "rotary", "norm": "rms", "activation": "swiglu"}


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable(arguments, **FIXED, attention_output_bias=arguments["attention_bias"])
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "mlp_bias": arguments["bias"],
        "attention_bias": arguments["attention_bias"],
        "rope_parameters": write_rotary_base(arguments["rotary_base"]),
        **write_entries(arguments),
    }


def write_rotary_base(base: float | list[float]) -> dict[str, Any]:
    """The base of all layers; FolderError where they have several."""
    if isinstance(base, list):
        raise FolderError(f"rotary_base={base!r}")
    return {"rope_type": "default", "rope_theta": base}


def write_entries(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Entries that its relatives have as well."""
    return {
        "num_key_value_heads": arguments["kv_heads"],
        "head_dim": arguments["head_size"],
        "attention_dropout": arguments["dropout"],
        "tie_word_embeddings": arguments["tie_embeddings"],
        "bos_token_id": arguments["bos"],
        "eos_token_id": arguments["eos"],
    }
