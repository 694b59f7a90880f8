"""GPT-2; Llama, and its relatives Mistral, Qwen and Gemma, which are tables on top of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.arguments import check_positive, check_size
from regard.models.huggingface.architecture import USUAL, Architecture, Config, Shapes, check_exportable, same_in_all
from regard.models.tensors import FolderError, UnsupportedError

# Arguments of a LanguageModel that most architectures have with this value only.
PLAIN = {
    "mixer": "attention",
    "score": (None, "dot"),
    "score_scale": None,
    "score_softcap": None,
    "qk_norm": False,
    "window": None,
    "output_norms": False,
    "scale_embeddings": False,
    "logit_softcap": None,
    "classes": 0,
}
MARKS = {"bos": ("bos_token_id", None), "eos": ("eos_token_id", None)}


def _write_gpt2(arguments: Config) -> dict[str, Any]:
    check_exportable(arguments, head_size=arguments["size"] // arguments["heads"])
    return {}


GPT2 = Architecture(
    model="LanguageModel",
    kind="GPT2LMHeadModel",
    prefix="transformer.",
    entries={
        "vocab_size": "vocab_size",
        "size": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "max_positions": "n_positions",
        "epsilon": "layer_norm_epsilon",
        "ffn_size": ("n_inner", None),
        "tie_embeddings": ("tie_word_embeddings", True),
        **MARKS,
    },
    activation="activation_function",
    fixed={
        **PLAIN,
        "positions": "learned",
        "norm": "layer",
        "bias": True,
        "attention_bias": (None, True),
        "attention_output_bias": (None, True),
    },
    same={"kv_heads": "heads"},
    supported={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    dropouts=("attn_pdrop", "embd_pdrop", "resid_pdrop"),
    write=_write_gpt2,
    tensors={
        "token_embedding": "wte",
        "position_embedding": "wpe",
        "blocks.#.mixer_norm": "h.#.ln_1",
        "blocks.#.mixer.in_proj.0": "h.#.attn.c_attn",  # queries, keys and values already lie in one matrix
        "blocks.#.mixer.out_proj": "h.#.attn.c_proj",
        "blocks.#.feed_forward_norm": "h.#.ln_2",
        "blocks.#.feed_forward.in_proj": "h.#.mlp.c_fc",
        "blocks.#.feed_forward.out_proj": "h.#.mlp.c_proj",
        "norm": "ln_f",
        "output": "lm_head",
    },
    ignored=r"lm_head\.weight|h\.\d+\.attn\.(masked_)?bias",  # a tied output layer once more, old files' causal masks
    transposed=True,
)


# --------------------------------------------------------------------------------------------------------------- Llama


def _read_base(rope: Config, otherwise: float) -> float:
    """The base of rotary positions, which newer configs have here and older ones elsewhere."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UnsupportedError(f"rope_type {kind!r} is not supported, only 'default'")
    return float(rope.get("rope_theta", otherwise))


def _read_llama(config: Config, shapes: Shapes) -> dict[str, Any]:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {"rotary_base": _read_base(rope, config.get("rope_theta", 10_000.0))}


def _write_llama(arguments: Config) -> dict[str, Any]:
    if isinstance(arguments["rotary_base"], list):
        raise FolderError(f"rotary_base={arguments['rotary_base']!r}")
    return {"rope_parameters": {"rope_type": "default", "rope_theta": arguments["rotary_base"]}}


LLAMA = Architecture(
    model="LanguageModel",
    kind="LlamaForCausalLM",
    prefix="model.",
    entries={
        "vocab_size": "vocab_size",
        **USUAL,
        "max_positions": "max_position_embeddings",
        "epsilon": "rms_norm_eps",
        "kv_heads": ("num_key_value_heads", None),
        "head_size": ("head_dim", None),
        "bias": ("mlp_bias", False),
        "attention_bias": ("attention_bias", False),
        "tie_embeddings": ("tie_word_embeddings", False),
        **MARKS,
    },
    fixed={**PLAIN, "positions": "rotary", "norm": "rms", "activation": "swiglu"},
    same={"attention_output_bias": "attention_bias"},
    constant={"hidden_act": "silu"},
    dropouts=("attention_dropout",),
    read=_read_llama,
    write=_write_llama,
    tensors={
        "token_embedding": "embed_tokens",
        "blocks.#.mixer_norm": "layers.#.input_layernorm",
        "blocks.#.mixer.in_proj.0": "layers.#.self_attn.(q|k|v)_proj",
        "blocks.#.mixer.query_norm": "layers.#.self_attn.q_norm",
        "blocks.#.mixer.key_norm": "layers.#.self_attn.k_norm",
        "blocks.#.mixer.out_proj": "layers.#.self_attn.o_proj",
        "blocks.#.feed_forward_norm": "layers.#.post_attention_layernorm",
        "blocks.#.feed_forward.in_proj": "layers.#.mlp.(gate|up)_proj",
        "blocks.#.feed_forward.out_proj": "layers.#.mlp.down_proj",
        "norm": "norm",
        "output": "lm_head",
    },
    ignored=r"lm_head\.weight|.*rotary_emb\.inv_freq",  # a tied output layer once more, old files' frequencies
)


def _without(table: Config, *names: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}


def _write_mistral(arguments: Config) -> dict[str, Any]:
    if isinstance(arguments["window"], list):
        raise FolderError(f"window={arguments['window']!r}")
    return _write_llama(arguments)


MISTRAL = replace(  # all layers may have a sliding window
    LLAMA,
    kind="MistralForCausalLM",
    entries={**_without(LLAMA.entries, "bias", "attention_bias"), "window": ("sliding_window", 4_096)},
    fixed={**_without(LLAMA.fixed, "window"), "bias": False, "attention_bias": False},
    write=_write_mistral,
)


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


QWEN2 = replace(  # queries, keys and values have biases; the last layers may have a sliding window
    LLAMA,
    kind="Qwen2ForCausalLM",
    entries=_without(LLAMA.entries, "bias", "attention_bias"),
    fixed={**_without(LLAMA.fixed, "window"), "bias": False, "attention_bias": True, "attention_output_bias": False},
    same={},
    read=_read_qwen,
    write=_write_qwen,
)
QWEN3 = replace(  # norms of the queries and keys of each head; windows as in Qwen2
    LLAMA,
    kind="Qwen3ForCausalLM",
    entries={**_without(LLAMA.entries, "bias"), "head_size": ("head_dim", 128)},
    fixed={**_without(LLAMA.fixed, "window"), "qk_norm": True, "bias": False},
    read=_read_qwen,
    write=_write_qwen,
)


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
    every = config.get("sliding_window_pattern", 6)
    kinds = _layer_types(config, lambda number: (number + 1) % every > 0)
    rope = config.get("rope_parameters") or {}
    of_full = rope.get(FULL) or config.get("rope_scaling") or {}
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
    return {**entries, "rope_parameters": rope}


GEMMA2 = replace(  # more norms, capped scores and logits, scaled embeddings, and windows
    LLAMA,
    kind="Gemma2ForCausalLM",
    entries={
        **_without(LLAMA.entries, "bias"),
        "kv_heads": ("num_key_value_heads", 4),
        "head_size": ("head_dim", 256),
        "score_softcap": ("attn_logit_softcapping", 50.0),
        "logit_softcap": ("final_logit_softcapping", 30.0),
        "tie_embeddings": ("tie_word_embeddings", True),
    },
    fixed={
        **_without(LLAMA.fixed, "score_scale", "score_softcap", "logit_softcap", "window"),
        "activation": "geglu_tanh",
        "output_norms": True,
        "scale_embeddings": True,
        "bias": False,
    },
    constant={"hidden_activation": "gelu_pytorch_tanh"},
    read=_read_gemma2,
    write=_write_gemma2,
    tensors={
        **LLAMA.tensors,  # type: ignore[dict-item]
        "blocks.#.mixer_output_norm": "layers.#.post_attention_layernorm",
        "blocks.#.feed_forward_norm": "layers.#.pre_feedforward_layernorm",
        "blocks.#.feed_forward_output_norm": "layers.#.post_feedforward_layernorm",
    },
    norm_offset=1.0,  # their files hold what the weights of norms are more than 1
)
GEMMA3 = replace(  # of texts: norms of queries and keys, and rotary positions by kind of layer
    GEMMA2,
    kind="Gemma3ForCausalLM",
    entries={**_without(GEMMA2.entries, "score_softcap"), "logit_softcap": ("final_logit_softcapping", None)},
    fixed={**GEMMA2.fixed, "qk_norm": True, "score_softcap": None},
    constant={**GEMMA2.constant, "attn_logit_softcapping": None},
    read=_read_gemma3,
    write=_write_gemma3,
)
