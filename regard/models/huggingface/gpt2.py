"""GPT-2. Its matrices are written transposed, and queries, keys and values already lie in one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import Architecture
from regard.models.huggingface.words import activation, demand, linear, refuse, their_activation
from regard.models.model import Model
from regard.models.tensors import Rule


def _arguments(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    refuse(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    tie_embeddings = config.get("tie_word_embeddings", True)
    return {
        "vocab_size": config["vocab_size"],
        "size": config["n_embd"],
        "layers": config["n_layer"],
        "heads": config["n_head"],
        "ffn_size": config.get("n_inner"),
        "max_positions": config["n_positions"],
        "activation": activation(config, "activation_function"),
        "epsilon": config["layer_norm_epsilon"],
        "tie_embeddings": tie_embeddings,
        "bos": config.get("bos_token_id"),
        "eos": config.get("eos_token_id"),
    }


def _rules(model: Model) -> dict[str, Rule]:
    rules = {
        "word.weight": Rule(("wte.weight",)),
        "position.weight": Rule(("wpe.weight",)),
        "output.weight": Rule(("lm_head.weight",)),
        **linear("norm", "ln_f"),
    }
    for number in range(model.config["layers"]):
        ours, theirs = f"blocks.{number}", f"h.{number}"
        rules |= linear(f"{ours}.mixer_norm", f"{theirs}.ln_1")
        rules |= linear(f"{ours}.mixer.in_proj.0", f"{theirs}.attn.c_attn", transposed=True)
        rules |= linear(f"{ours}.mixer.out_proj", f"{theirs}.attn.c_proj", transposed=True)
        rules |= linear(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
        rules |= linear(f"{ours}.feed_forward.in_proj", f"{theirs}.mlp.c_fc", transposed=True)
        rules |= linear(f"{ours}.feed_forward.out_proj", f"{theirs}.mlp.c_proj", transposed=True)
    return rules


def _ignored(name: str) -> bool:
    """Causal masks that old files hold, and a tied output layer once more."""
    return name == "lm_head.weight" or re.fullmatch(r"h\.\d+\.attn\.(masked_)?bias", name) is not None


def _config(model: Model) -> dict[str, Any]:
    own = model.config
    demand(own, positions="learned", mixer="attention", score=(None, "dot"), norm="layer", bias=True, classes=0)
    demand(
        own, attention_bias=(None, True), kv_heads=(None, own["heads"]), head_size=(None, own["size"] // own["heads"])
    )
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": own["vocab_size"],
        "n_embd": own["size"],
        "n_layer": own["layers"],
        "n_head": own["heads"],
        "n_inner": own["ffn_size"],
        "n_positions": own["max_positions"],
        "activation_function": their_activation(own["activation"]),
        "layer_norm_epsilon": own["epsilon"],
        "tie_word_embeddings": own["tie_embeddings"],
        "bos_token_id": own["bos"],
        "eos_token_id": own["eos"],
        **{f"{name}_pdrop": own["dropout"] for name in ("attn", "embd", "resid")},
    }


ARCHITECTURE = Architecture("LanguageModel", "transformer.", _arguments, _rules, _ignored, _config)
