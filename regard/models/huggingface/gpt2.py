"""GPT-2. Its matrices are written transposed, and queries, keys and values already lie in one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from regard.models.huggingface.configs import PLAIN, check_exportable, linear
from regard.models.model import Model
from regard.models.tensors import Rule

MODEL, PREFIX, ACTIVATION = "LanguageModel", "transformer.", "activation_function"
SUPPORTED = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
NAMES = {
    "vocab_size": "vocab_size",
    "size": "n_embd",
    "layers": "n_layer",
    "heads": "n_head",
    "max_positions": "n_positions",
    "epsilon": "layer_norm_epsilon",
}
BLOCK = {
    "mixer_norm": "ln_1",
    "mixer.in_proj.0": "attn.c_attn",
    "mixer.out_proj": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.in_proj": "mlp.c_fc",
    "feed_forward.out_proj": "mlp.c_proj",
}


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    return {
        "ffn_size": config.get("n_inner"),
        "tie_embeddings": config.get("tie_word_embeddings", True),
        "bos": config.get("bos_token_id"),
        "eos": config.get("eos_token_id"),
    }


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    rules = {
        "token_embedding.weight": Rule(("wte.weight",)),
        "position_embedding.weight": Rule(("wpe.weight",)),
        "output.weight": Rule(("lm_head.weight",)),
        **linear("norm", "ln_f"),
    }
    for number in range(model.config["layers"]):
        for ours, theirs in BLOCK.items():
            is_matrix = "norm" not in ours
            rules |= linear(f"blocks.{number}.{ours}", f"h.{number}.{theirs}", transposed=is_matrix)
    return rules


def is_ignored(name: str) -> bool:
    """Causal masks that old files hold, and a tied output layer once more."""
    return name == "lm_head.weight" or re.fullmatch(r"h\.\d+\.attn\.(masked_)?bias", name) is not None


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    size, heads = arguments["size"], arguments["heads"]
    check_exportable(arguments, **PLAIN, positions="learned", norm="layer", bias=True, attention_bias=True)
    check_exportable(arguments, attention_output_bias=True, kv_heads=heads, head_size=size // heads)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_inner": arguments["ffn_size"],
        "tie_word_embeddings": arguments["tie_embeddings"],
        "bos_token_id": arguments["bos"],
        "eos_token_id": arguments["eos"],
        **{f"{name}_pdrop": arguments["dropout"] for name in ("attn", "embd", "resid")},
    }
