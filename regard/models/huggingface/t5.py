"""T5: a Transformer with relative positions, RMS norms, no biases, and dot products that are not scaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.block import Block
from regard.models.huggingface.configs import check_exportable, linear
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, UnsupportedError

MODEL, PREFIX, ACTIVATION = "Transformer", "", None
SUPPORTED = {"is_encoder_decoder": True}
NAMES = {
    "source_vocab_size": "vocab_size",
    "size": "d_model",
    "layers": "num_layers",
    "heads": "num_heads",
    "head_size": "d_kv",
    "ffn_size": "d_ff",
    "epsilon": "layer_norm_epsilon",
    "relative_buckets": "relative_attention_num_buckets",
    "eos": "eos_token_id",
}
ACTIVATIONS = {"relu": "relu", "gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}
POSITIONS = 1 << 20  # relative ones have no end
FIXED = {
    **dict.fromkeys(("share_embeddings", "pre_norm"), True),
    **dict.fromkeys(("bias", "output_bias", "scale_embeddings"), False),
    **dict.fromkeys(("decoder_heads", "decoder_ffn_size"), None),
    "positions": "relative",
    "norm": "rms",
    "score": (None, "dot"),
    "score_scale": 1.0,
}


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    activation = config.get("feed_forward_proj", "relu")
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"feed_forward_proj {activation!r} is not supported, only {', '.join(ACTIVATIONS)}")
    # Those of the first version have one embedding for all, and say nothing; later ones have an output layer.
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    return {
        **{name: value for name, value in FIXED.items() if name != "score"},
        "target_vocab_size": config["vocab_size"],
        "decoder_layers": config.get("num_decoder_layers"),
        "max_positions": POSITIONS,
        "relative_distance": config.get("relative_attention_max_distance", 128),
        "activation": ACTIVATIONS[activation],
        "tie_embeddings": scaled or "lm_head.weight" not in shapes,
        "scale_output": scaled,
        "bos": config.get("decoder_start_token_id", config.get("pad_token_id", 0)),
    }


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    arguments = model.config
    rules = {
        "target_embedding.weight": Rule(("shared.weight",)),
        "output.weight": Rule(("lm_head.weight",)),
    }
    for side, count in (("encoder", arguments["layers"]), ("decoder", arguments["decoder_layers"])):
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rules |= {f"{side}_relative.weight": Rule((first,))}
        rules |= {f"{side}_norm.weight": Rule((f"{side}.final_layer_norm.weight",))}
        for number in range(count or arguments["layers"]):
            block: Block = getattr(model, f"{side}_blocks")[number]
            rules |= _block_rules(block, f"{side}_blocks.{number}", f"{side}.block.{number}.layer")
    return rules


def _block_rules(block: Block, ours: str, theirs: str) -> dict[str, Rule]:
    ffn_size = block.feed_forward.out_proj.in_features
    attentions = {"mixer": "SelfAttention"} | ({} if block.cross is None else {"cross": "EncDecAttention"})
    rules: dict[str, Rule] = {}
    for number, (our_name, their_name) in enumerate(attentions.items()):
        qkv = [f"{theirs}.{number}.{their_name}.{name}" for name in "qkv"]
        rules |= linear(f"{ours}.{our_name}.in_proj.0", *qkv, heights=getattr(block, our_name).widths)
        rules |= linear(f"{ours}.{our_name}.out_proj", f"{theirs}.{number}.{their_name}.o")
        rules |= linear(f"{ours}.{our_name}_norm", f"{theirs}.{number}.layer_norm")
    last = f"{theirs}.{len(attentions)}"
    gated = [f"{last}.DenseReluDense.wi_0", f"{last}.DenseReluDense.wi_1"]
    if block.feed_forward.gated:
        rules |= linear(f"{ours}.feed_forward.in_proj", *gated, heights=(ffn_size, ffn_size))
    else:
        rules |= linear(f"{ours}.feed_forward.in_proj", f"{last}.DenseReluDense.wi")
    rules |= linear(f"{ours}.feed_forward.out_proj", f"{last}.DenseReluDense.wo")
    return rules | linear(f"{ours}.feed_forward_norm", f"{last}.layer_norm")


def is_ignored(name: str) -> bool:
    """The one embedding under its other names, and a table that cross-attention does not use."""
    return name in ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight") or name.endswith(
        "EncDecAttention.relative_attention_bias.weight"
    )


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable({**arguments, "forbidden": list(arguments["forbidden"])}, **FIXED, forbidden=[])
    check_exportable(arguments, scale_output=(False, arguments["tie_embeddings"]))
    names = [theirs for theirs, ours in ACTIVATIONS.items() if ours == arguments["activation"]]
    if not names:
        raise FolderError(f"activation={arguments['activation']!r}")
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "num_decoder_layers": arguments["decoder_layers"] or arguments["layers"],
        "relative_attention_max_distance": arguments["relative_distance"],
        "feed_forward_proj": names[0],
        "dropout_rate": arguments["dropout"],
        "tie_word_embeddings": arguments["tie_embeddings"],
        "scale_decoder_outputs": arguments["scale_output"],
        "decoder_start_token_id": arguments["bos"],
        "pad_token_id": arguments["bos"],
    }
