"""Marian, the translators of the OPUS-MT project: a Transformer as in the paper, with one table of words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import Architecture
from regard.models.huggingface.words import activation, demand, linear, refuse, their_activation
from regard.models.model import Model
from regard.models.tensors import Rule


def _arguments(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    refuse(config, share_encoder_decoder_embeddings=True, tie_word_embeddings=True, static_position_embeddings=True)
    refuse(config, normalize_before=False, normalize_embedding=False, add_final_layer_norm=False)
    return {
        "source_vocab_size": config["vocab_size"],
        "target_vocab_size": config["vocab_size"],
        "size": config["d_model"],
        "layers": config["encoder_layers"],
        "heads": config["encoder_attention_heads"],
        "ffn_size": config["encoder_ffn_dim"],
        "decoder_layers": config["decoder_layers"],
        "decoder_heads": config["decoder_attention_heads"],
        "decoder_ffn_size": config["decoder_ffn_dim"],
        "max_positions": config["max_position_embeddings"],
        "positions": "sinusoidal_halves",
        "activation": activation(config, "activation_function"),
        "share_embeddings": True,
        "tie_embeddings": True,
        "scale_embeddings": config.get("scale_embedding", False),
        "output_bias": True,
        "bos": config["decoder_start_token_id"],
        "eos": config["eos_token_id"],
        "forbidden": [config["pad_token_id"]],
    }


def _rules(model: Model) -> dict[str, Rule]:
    own = model.config
    size = own["size"]
    rules = {"target_word.weight": Rule(("shared.weight",)), "output_bias": Rule(("final_logits_bias",))}
    for side, count in (("encoder", own["layers"]), ("decoder", own["decoder_layers"] or own["layers"])):
        for number in range(count):
            ours, theirs = f"{side}_blocks.{number}", f"{side}.layers.{number}"
            looks = {"mixer": "self_attn"} | ({"cross": "encoder_attn"} if side == "decoder" else {})
            for mine, yours in looks.items():
                parts = [f"{theirs}.{yours}.{name}_proj" for name in "qkv"]
                rules |= linear(f"{ours}.{mine}.in_proj.0", *parts, heights=(size, size, size))
                rules |= linear(f"{ours}.{mine}.out_proj", f"{theirs}.{yours}.out_proj")
                rules |= linear(f"{ours}.{mine}_norm", f"{theirs}.{yours}_layer_norm")
            rules |= linear(f"{ours}.feed_forward.in_proj", f"{theirs}.fc1")
            rules |= linear(f"{ours}.feed_forward.out_proj", f"{theirs}.fc2")
            rules |= linear(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm")
    return rules


def _ignored(name: str) -> bool:
    """Sinusoidal positions, which are computed, and the one table of words under its other names."""
    return name.endswith(("embed_positions.weight", "embed_tokens.weight")) or name == "lm_head.weight"


def _config(model: Model) -> dict[str, Any]:
    own = model.config
    demand(own | {"forbidden": list(own["forbidden"])}, epsilon=1e-5, forbidden=([], [own["bos"]]))
    demand(
        own,
        positions="sinusoidal_halves",
        score=(None, "dot"),
        pre_norm=False,
        share_embeddings=True,
        tie_embeddings=True,
        output_bias=True,
    )
    inner = own["ffn_size"] or 4 * own["size"]
    padding = own["forbidden"][0] if own["forbidden"] else own["bos"]
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": own["target_vocab_size"],
        "decoder_vocab_size": own["target_vocab_size"],
        "d_model": own["size"],
        "encoder_layers": own["layers"],
        "decoder_layers": own["decoder_layers"] or own["layers"],
        "encoder_attention_heads": own["heads"],
        "decoder_attention_heads": own["decoder_heads"] or own["heads"],
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": own["decoder_ffn_size"] or inner,
        "max_position_embeddings": own["max_positions"],
        "activation_function": their_activation(own["activation"]),
        "scale_embedding": own["scale_embeddings"],
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "dropout": own["dropout"],
        "attention_dropout": own["dropout"],
        "activation_dropout": own["dropout"],
        "decoder_start_token_id": own["bos"],
        "eos_token_id": own["eos"],
        "forced_eos_token_id": own["eos"],
        "pad_token_id": padding,
        "bos_token_id": None,
    }


ARCHITECTURE = Architecture("Transformer", "model.", _arguments, _rules, _ignored, _config)
