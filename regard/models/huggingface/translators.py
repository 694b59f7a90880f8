"""Marian, the translators of the OPUS-MT project, and T5."""

from __future__ import annotations

from typing import Any

from regard.models.huggingface.architecture import Architecture, Config, Shapes, check_exportable
from regard.models.tensors import FolderError, UnsupportedError

# -------------------------------------------------------------------------------------------------------------- Marian


def _marian_side(side: str) -> dict[str, str]:
    block, layer = f"{side}_blocks.#", f"{side}.layers.#"
    names = {
        f"{block}.feed_forward.in_proj": f"{layer}.fc1",
        f"{block}.feed_forward.out_proj": f"{layer}.fc2",
        f"{block}.feed_forward_norm": f"{layer}.final_layer_norm",
    }
    for ours, theirs in (("mixer", "self_attn"), ("cross", "encoder_attn")):
        names[f"{block}.{ours}.in_proj.0"] = f"{layer}.{theirs}.(q|k|v)_proj"
        names[f"{block}.{ours}.out_proj"] = f"{layer}.{theirs}.out_proj"
        names[f"{block}.{ours}_norm"] = f"{layer}.{theirs}_layer_norm"
    return names


def _write_marian(arguments: Config) -> dict[str, Any]:
    bos, forbidden = arguments["bos"], arguments["forbidden"]
    check_exportable(arguments, forbidden=([], [bos]), head_size=arguments["size"] // arguments["heads"])
    return {
        "decoder_vocab_size": arguments["target_vocab_size"],
        "forced_eos_token_id": arguments["eos"],
        "pad_token_id": forbidden[0] if forbidden else bos,
        "bos_token_id": None,
    }


MARIAN = Architecture(  # a Transformer as in the paper, with one embedding for all
    model="Transformer",
    kind="MarianMTModel",
    prefix="model.",
    entries={
        "source_vocab_size": "vocab_size",
        "target_vocab_size": "vocab_size",
        "size": "d_model",
        "layers": "encoder_layers",
        "heads": "encoder_attention_heads",
        "ffn_size": "encoder_ffn_dim",
        "decoder_layers": "decoder_layers",
        "decoder_heads": "decoder_attention_heads",
        "decoder_ffn_size": "decoder_ffn_dim",
        "max_positions": "max_position_embeddings",
        "scale_embeddings": ("scale_embedding", False),
        "bos": "decoder_start_token_id",
        "eos": "eos_token_id",
    },
    activation="activation_function",
    fixed={
        "epsilon": 1e-5,
        "positions": "sinusoidal_halves",
        "score": (None, "dot"),
        "score_scale": None,
        "norm": "layer",
        "pre_norm": False,
        "bias": True,
        "share_embeddings": True,
        "tie_embeddings": True,
        "scale_output": False,
        "output_bias": True,
    },
    constant={"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True},
    supported={
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
    },
    dropouts=("dropout", "attention_dropout", "activation_dropout"),
    read=lambda config, shapes: {"forbidden": [config["pad_token_id"]]},
    write=_write_marian,
    tensors={
        "target_embedding": "shared",
        "output_bias": "final_logits_bias",
        **_marian_side("encoder"),
        **_marian_side("decoder"),
    },
    # Sinusoidal positions, which are computed, and the one embedding under its other names.
    ignored=r".*(embed_positions|embed_tokens)\.weight|lm_head\.weight",
)


# ------------------------------------------------------------------------------------------------------------------ T5

ACTIVATIONS = {"relu": "relu", "gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}
POSITIONS = 1 << 20  # relative ones have no end


def _read_t5(config: Config, shapes: Shapes) -> dict[str, Any]:
    activation = config.get("feed_forward_proj", "relu")
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"feed_forward_proj {activation!r} is not supported, only {', '.join(ACTIVATIONS)}")
    # Those of the first version have one embedding for all, and say nothing; later ones have an output layer.
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    return {
        "max_positions": POSITIONS,
        "activation": ACTIVATIONS[activation],
        "tie_embeddings": scaled or "lm_head.weight" not in shapes,
        "scale_output": scaled,
        "bos": config.get("decoder_start_token_id", config.get("pad_token_id", 0)),
    }


def _write_t5(arguments: Config) -> dict[str, Any]:
    check_exportable(arguments, forbidden=[], scale_output=(False, arguments["tie_embeddings"]))
    names = [theirs for theirs, ours in ACTIVATIONS.items() if ours == arguments["activation"]]
    if not names:
        raise FolderError(f"activation={arguments['activation']!r}")
    return {
        "feed_forward_proj": names[0],
        "tie_word_embeddings": arguments["tie_embeddings"],
        "scale_decoder_outputs": arguments["scale_output"],
        "decoder_start_token_id": arguments["bos"],
        "pad_token_id": arguments["bos"],
    }


def _t5_tensors(arguments: Config) -> dict[str, str]:
    names = {"target_embedding": "shared", "output": "lm_head"}
    for side, parts in (("encoder", ("mixer",)), ("decoder", ("mixer", "cross"))):
        block, layer = f"{side}_blocks.#", f"{side}.block.#.layer"
        names[f"{side}_relative"] = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names[f"{side}_norm"] = f"{side}.final_layer_norm"
        for number, (ours, theirs) in enumerate(zip(parts, ("SelfAttention", "EncDecAttention"), strict=False)):
            names[f"{block}.{ours}.in_proj.0"] = f"{layer}.{number}.{theirs}.(q|k|v)"
            names[f"{block}.{ours}.out_proj"] = f"{layer}.{number}.{theirs}.o"
            names[f"{block}.{ours}_norm"] = f"{layer}.{number}.layer_norm"
        last, gated = f"{layer}.{len(parts)}", arguments["activation"] != "relu"
        names[f"{block}.feed_forward.in_proj"] = f"{last}.DenseReluDense.{'(wi_0|wi_1)' if gated else 'wi'}"
        names[f"{block}.feed_forward.out_proj"] = f"{last}.DenseReluDense.wo"
        names[f"{block}.feed_forward_norm"] = f"{last}.layer_norm"
    return names


T5 = Architecture(  # a Transformer with relative positions, RMS norms, no biases, and dot products that are not scaled
    model="Transformer",
    kind="T5ForConditionalGeneration",
    prefix="",
    entries={
        "source_vocab_size": "vocab_size",
        "target_vocab_size": "vocab_size",
        "size": "d_model",
        "layers": "num_layers",
        "decoder_layers": ("num_decoder_layers", None),
        "heads": "num_heads",
        "head_size": "d_kv",
        "ffn_size": "d_ff",
        "epsilon": "layer_norm_epsilon",
        "relative_buckets": "relative_attention_num_buckets",
        "relative_distance": ("relative_attention_max_distance", 128),
        "eos": "eos_token_id",
    },
    fixed={
        **dict.fromkeys(("share_embeddings", "pre_norm"), True),
        **dict.fromkeys(("bias", "output_bias", "scale_embeddings"), False),
        "positions": "relative",
        "norm": "rms",
        "score": (None, "dot"),
        "score_scale": 1.0,
    },
    same={"decoder_heads": "heads", "decoder_ffn_size": "ffn_size"},
    constant={"is_encoder_decoder": True},
    dropouts=("dropout_rate",),
    read=_read_t5,
    write=_write_t5,
    tensors=_t5_tensors,
    # The one embedding under its other names, and a table that cross-attention never used.
    ignored=r"lm_head\.weight|(en|de)coder\.embed_tokens\.weight|.*EncDecAttention\.relative_attention_bias\.weight",
)
