"""Marian, the translators of the OPUS-MT project: a Transformer as in the paper, with one embedding for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface.configs import check_exportable, linear
from regard.models.model import Model
from regard.models.tensors import Rule

MODEL, PREFIX, ACTIVATION = "Transformer", "model.", "activation_function"
SUPPORTED = {
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}
NAMES = {
    "source_vocab_size": "vocab_size",
    "size": "d_model",
    "layers": "encoder_layers",
    "heads": "encoder_attention_heads",
    "ffn_size": "encoder_ffn_dim",
    "max_positions": "max_position_embeddings",
    "bos": "decoder_start_token_id",
    "eos": "eos_token_id",
}
# As those of the encoder, unless they are given.
DECODER_NAMES = {"layers": "decoder_layers", "heads": "decoder_attention_heads", "ffn_size": "decoder_ffn_dim"}


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    return {
        "target_vocab_size": config["vocab_size"],
        **{f"decoder_{ours}": config[theirs] for ours, theirs in DECODER_NAMES.items()},
        "positions": "sinusoidal_halves",
        "share_embeddings": True,
        "tie_embeddings": True,
        "scale_embeddings": config.get("scale_embedding", False),
        "output_bias": True,
        "forbidden": [config["pad_token_id"]],
    }


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    arguments = model.config
    size, layers = arguments["size"], arguments["layers"]
    rules = {"target_embedding.weight": Rule(("shared.weight",)), "output_bias": Rule(("final_logits_bias",))}
    for side, count in (("encoder", layers), ("decoder", arguments["decoder_layers"] or layers)):
        for number in range(count):
            ours, theirs = f"{side}_blocks.{number}", f"{side}.layers.{number}"
            attentions = {"mixer": "self_attn"} | ({"cross": "encoder_attn"} if side == "decoder" else {})
            for our_name, their_name in attentions.items():
                qkv = [f"{theirs}.{their_name}.{name}_proj" for name in "qkv"]
                rules |= linear(f"{ours}.{our_name}.in_proj.0", *qkv, heights=(size, size, size))
                rules |= linear(f"{ours}.{our_name}.out_proj", f"{theirs}.{their_name}.out_proj")
                rules |= linear(f"{ours}.{our_name}_norm", f"{theirs}.{their_name}_layer_norm")
            rules |= linear(f"{ours}.feed_forward.in_proj", f"{theirs}.fc1")
            rules |= linear(f"{ours}.feed_forward.out_proj", f"{theirs}.fc2")
            rules |= linear(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm")
    return rules


def is_ignored(name: str) -> bool:
    """Sinusoidal positions, which are computed, and the one embedding under its other names."""
    return name.endswith(("embed_positions.weight", "embed_tokens.weight")) or name == "lm_head.weight"


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    bos, eos, forbidden = arguments["bos"], arguments["eos"], list(arguments["forbidden"])
    check_exportable({"forbidden": forbidden}, forbidden=([], [bos]))
    check_exportable(arguments, epsilon=1e-5, positions="sinusoidal_halves", score=(None, "dot"), pre_norm=False)
    check_exportable(arguments, share_embeddings=True, tie_embeddings=True, output_bias=True)
    encoder = {**arguments, "ffn_size": arguments["ffn_size"] or 4 * arguments["size"]}
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        **{theirs: arguments[f"decoder_{ours}"] or encoder[ours] for ours, theirs in DECODER_NAMES.items()},
        "decoder_vocab_size": arguments["target_vocab_size"],
        "scale_embedding": arguments["scale_embeddings"],
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), arguments["dropout"]),
        "forced_eos_token_id": eos,
        "pad_token_id": forbidden[0] if forbidden else bos,
        "bos_token_id": None,
    }
