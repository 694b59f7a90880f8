"""What the tables of models that generate cannot say: rotary positions, windows of layers, marks, tied embeddings."""

import math
from collections.abc import Callable
from typing import Any

from regard.arguments import check_positive, check_size
from regard.models.huggingface.architecture import Config, Shapes, check_exportable, same_in_all
from regard.models.tensors import FolderError, UnsupportedError

# --------------------------------------------------------------------------------------------------------------- Llama


def _read_base(rope: Config, otherwise: float) -> float:
    """The base of rotary positions, which newer configs have here and older ones elsewhere."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UnsupportedError(f"rope_type {kind!r} is not supported, only 'default'")
    return float(rope.get("rope_theta", otherwise))


def _read_llama(config: Config, shapes: Shapes) -> dict[str, Any]:
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}  # transformers heeds the older one first
    return {"rotary_base": _read_base(rope, config.get("rope_theta", 10_000.0))}


def _write_llama(arguments: Config) -> dict[str, Any]:
    if isinstance(arguments["rotary_base"], list):
        raise FolderError(f"rotary_base={arguments['rotary_base']!r}")
    return {"rope_parameters": {"rope_type": "default", "rope_theta": arguments["rotary_base"]}}


def _write_mistral(arguments: Config) -> dict[str, Any]:
    if isinstance(arguments["window"], list):
        raise FolderError(f"window={arguments['window']!r}")
    return _write_llama(arguments)


# ------------------------------------------------------------------------------------------- windows of some layers

SLIDING, FULL = "sliding_attention", "full_attention"


def _layer_types(config: Config, is_sliding: Callable[[int], bool]) -> list[str]:
    """The kind of each layer, which older configs leave to a rule."""
    layers = check_size("layers", config["num_hidden_layers"])
    kinds: list[str] = config.get("layer_types") or [SLIDING if is_sliding(n) else FULL for n in range(layers)]
    for kind in kinds:
        if kind not in (SLIDING, FULL):
            raise UnsupportedError(f"layer_types {kind!r} is not supported, only {SLIDING!r} and {FULL!r}")
    return kinds


def _read_windows(kinds: list[str], window: int | None) -> dict[str, Any]:
    return {"window": same_in_all([window if kind == SLIDING else None for kind in kinds])}


def _write_windows(arguments: Config) -> dict[str, Any]:
    """The way back; FolderError where layers have windows of different sizes."""
    window, layers = arguments["window"], arguments["layers"]
    windows = window if isinstance(window, list) else [window] * layers
    sizes = {size for size in windows if size is not None}
    if len(sizes) > 1:
        raise FolderError(f"window={window!r}")
    kinds = [FULL if size is None else SLIDING for size in windows]
    return {"sliding_window": next(iter(sizes), None), "layer_types": kinds}


# ---------------------------------------------------------------------------------------------------------------- Qwen


def _read_qwen(config: Config, shapes: Shapes) -> dict[str, Any]:
    """Layers from max_window_layers on have a window, unless layer_types says which."""
    window = config.get("sliding_window", 4_096) if config.get("use_sliding_window", False) else None
    first = config.get("max_window_layers", 28)
    kinds = _layer_types(config, lambda number: window is not None and number >= first)
    return _read_llama(config, shapes) | _read_windows(kinds, window)


def _write_qwen(arguments: Config) -> dict[str, Any]:
    windows = _write_windows(arguments)
    return {**_write_llama(arguments), **windows, "use_sliding_window": windows["sliding_window"] is not None}


# --------------------------------------------------------------------------------------------------------------- Gemma


def _read_gemma(config: Config) -> dict[str, Any]:
    """What both versions have."""
    if config.get("use_bidirectional_attention"):
        raise UnsupportedError("use_bidirectional_attention True is not supported, only False")
    scalar = check_positive("query_pre_attn_scalar", config.get("query_pre_attn_scalar", 256))
    return {"score_scale": scalar**-0.5}


def _write_gemma(arguments: Config) -> dict[str, Any]:
    scale = arguments["head_size"] ** -0.5 if arguments["score_scale"] is None else arguments["score_scale"]
    scalar = round(scale**-2) if scale else 0
    if not scalar or not math.isclose(scalar**-0.5, scale):
        raise FolderError(f"score_scale={scale!r}")
    return {"query_pre_attn_scalar": scalar, **_write_windows(arguments)}


def _read_gemma2(config: Config, shapes: Shapes) -> dict[str, Any]:
    """Every other layer has a window."""
    windows = _read_windows(_layer_types(config, lambda number: number % 2 == 0), config.get("sliding_window", 4_096))
    return _read_llama(config, shapes) | _read_gemma(config) | windows


def _write_gemma2(arguments: Config) -> dict[str, Any]:
    return {**_write_llama(arguments), **_write_gemma(arguments)}


def _read_gemma3(config: Config, shapes: Shapes) -> dict[str, Any]:
    """Five of six layers have a window, and another base of their rotary positions."""
    if config.get("attn_logit_softcapping") is not None:
        cap = config["attn_logit_softcapping"]
        raise UnsupportedError(f"attn_logit_softcapping {cap!r} is not supported, only None")
    every = config.get("sliding_window_pattern", 6)
    kinds = _layer_types(config, lambda number: (number + 1) % every > 0)
    rope = config.get("rope_parameters") or {}
    of_full = {**(rope.get(FULL) or {}), **(config.get("rope_scaling") or {})}
    bases = {
        FULL: _read_base(of_full, config.get("rope_theta", 1_000_000.0)),
        SLIDING: _read_base(rope.get(SLIDING) or {}, config.get("rope_local_base_freq", 10_000.0)),
    }
    windows = _read_windows(kinds, config.get("sliding_window", 4_096))
    return {**_read_gemma(config), **windows, "rotary_base": same_in_all([bases[kind] for kind in kinds])}


def _write_gemma3(arguments: Config) -> dict[str, Any]:
    """FolderError where layers of one kind have several bases."""
    entries, bases = _write_gemma(arguments), arguments["rotary_base"]
    kinds = entries["layer_types"]
    by_layer = bases if isinstance(bases, list) else [bases] * len(kinds)
    by_kind = dict(zip(kinds, by_layer, strict=True))
    if [by_kind[kind] for kind in kinds] != by_layer:
        raise FolderError(f"rotary_base={bases!r}")
    thetas = {kind: by_kind.get(kind, by_layer[0]) for kind in (FULL, SLIDING)}
    rope = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
    return {**entries, "rope_parameters": rope, "attn_logit_softcapping": None}


# ------------------------------------------------------------------------------------------------------ Marian and T5

POSITIONS = 1 << 20  # relative ones have no end


def _write_marian(arguments: Config) -> dict[str, Any]:
    bos, forbidden = arguments["bos"], arguments["forbidden"]
    check_exportable(arguments, forbidden=([], [bos]))
    return {
        "decoder_vocab_size": arguments["target_vocab_size"],
        "forced_eos_token_id": arguments["eos"],
        "pad_token_id": forbidden[0] if forbidden else bos,
        "bos_token_id": None,
    }


def _read_t5(config: Config, shapes: Shapes) -> dict[str, Any]:
    # Those of the first version have one embedding for all, and say nothing; later ones have an output layer.
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    return {
        "max_positions": POSITIONS,
        "tie_embeddings": scaled or "lm_head.weight" not in shapes,
        "scale_output": scaled,
        "bos": config.get("decoder_start_token_id", config.get("pad_token_id", 0)),
    }


def _write_t5(arguments: Config) -> dict[str, Any]:
    check_exportable(arguments, forbidden=[], scale_output=(False, arguments["tie_embeddings"]))
    return {
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
    "llama": {"read": _read_llama, "write": _write_llama},
    "mistral": {"read": _read_llama, "write": _write_mistral},
    "qwen2": {"read": _read_qwen, "write": _write_qwen},
    "qwen3": {"read": _read_qwen, "write": _write_qwen},
    "gemma2": {"read": _read_gemma2, "write": _write_gemma2},
    "gemma3_text": {"read": _read_gemma3, "write": _write_gemma3},
    "marian": {"write": _write_marian},
    "t5": {"read": _read_t5, "write": _write_t5, "more_tensors": _t5_tensors},
}
