"""Marian, the translators of the OPUS-MT project: a Transformer as in the paper, with one embedding for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import Architecture
from regard.models.huggingface.config import (
    check_exportable,
    check_supported,
    export_activation,
    export_arguments,
    import_activation,
    import_arguments,
    linear,
)
from regard.models.model import Model
from regard.models.tensors import Rule

NAMES = {
    "source_vocab_size": "vocab_size",
    "size": "d_model",
    "layers": "encoder_layers",
    "heads": "encoder_attention_heads",
    "ffn_size": "encoder_ffn_dim",
    "max_positions": "max_position_embeddings",
    "scale_embeddings": "scale_embedding",
    "bos": "decoder_start_token_id",
    "eos": "eos_token_id",
}
# As those of the encoder, unless they are given.
DECODER_NAMES = {"layers": "decoder_layers", "heads": "decoder_attention_heads", "ffn_size": "decoder_ffn_dim"}


def _arguments(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    check_supported(config, share_encoder_decoder_embeddings=True, tie_word_embeddings=True)
    check_supported(config, static_position_embeddings=True)
    check_supported(config, normalize_before=False, normalize_embedding=False, add_final_layer_norm=False)
    return import_arguments({"scale_embedding": False, **config}, NAMES) | {
        "target_vocab_size": config["vocab_size"],
        **{f"decoder_{ours}": config[theirs] for ours, theirs in DECODER_NAMES.items()},
        "positions": "sinusoidal_halves",
        "activation": import_activation("activation_function", config["activation_function"]),
        "share_embeddings": True,
        "tie_embeddings": True,
        "output_bias": True,
        "forbidden": [config["pad_token_id"]],
    }


def _rules(model: Model) -> dict[str, Rule]:
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


def _ignored(name: str) -> bool:
    """Sinusoidal positions, which are computed, and the one embedding under its other names."""
    return name.endswith(("embed_positions.weight", "embed_tokens.weight")) or name == "lm_head.weight"


def _config(model: Model) -> dict[str, Any]:
    arguments = model.config | {"forbidden": list(model.config["forbidden"])}
    bos, forbidden = arguments["bos"], arguments["forbidden"]
    check_exportable(arguments, epsilon=1e-5, forbidden=([], [bos]), positions="sinusoidal_halves", pre_norm=False)
    check_exportable(arguments, score=(None, "dot"), share_embeddings=True, tie_embeddings=True, output_bias=True)
    config = export_arguments(arguments, NAMES)
    decoder = {theirs: arguments[f"decoder_{ours}"] or config[NAMES[ours]] for ours, theirs in DECODER_NAMES.items()}
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        **config,
        **decoder,
        "decoder_vocab_size": arguments["target_vocab_size"],
        "activation_function": export_activation(arguments["activation"]),
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "dropout": arguments["dropout"],
        "attention_dropout": arguments["dropout"],
        "activation_dropout": arguments["dropout"],
        "forced_eos_token_id": arguments["eos"],
        "pad_token_id": forbidden[0] if forbidden else bos,
        "bos_token_id": None,
    }


ARCHITECTURE = Architecture("Transformer", "model.", _arguments, _rules, _ignored, _config)
