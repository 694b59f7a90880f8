"""What the tables of Marian and T5 cannot say: activations, marks, and embeddings that are also the output layer."""

from __future__ import annotations

from typing import Any

from regard.models.huggingface.architecture import Config, Shapes, check_exportable
from regard.models.tensors import FolderError, UnsupportedError

ACTIVATIONS = {"relu": "relu", "gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}
POSITIONS = 1 << 20  # relative ones have no end


def _read_marian(config: Config, shapes: Shapes) -> dict[str, Any]:
    return {"forbidden": [config["pad_token_id"]]}


def _write_marian(arguments: Config) -> dict[str, Any]:
    bos, forbidden = arguments["bos"], arguments["forbidden"]
    check_exportable(arguments, forbidden=([], [bos]), head_size=arguments["size"] // arguments["heads"])
    return {
        "decoder_vocab_size": arguments["target_vocab_size"],
        "forced_eos_token_id": arguments["eos"],
        "pad_token_id": forbidden[0] if forbidden else bos,
        "bos_token_id": None,
    }


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
    """Gated feed-forward nets have two matrices."""
    if arguments["activation"] == "relu":
        return {}
    layers = {"encoder": "encoder.block.#.layer.1", "decoder": "decoder.block.#.layer.2"}
    return {
        f"{side}_blocks.#.feed_forward.in_proj": f"{layer}.DenseReluDense.(wi_0|wi_1)" for side, layer in layers.items()
    }


FUNCTIONS: dict[str, dict[str, Any]] = {
    "marian": {"read": _read_marian, "write": _write_marian},
    "t5": {"read": _read_t5, "write": _write_t5, "more_tensors": _t5_tensors},
}
