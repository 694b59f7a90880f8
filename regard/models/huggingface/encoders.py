"""BERT and its smaller relatives (MiniLM), RoBERTa and DistilBERT, and what sentence-transformers adds to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.models.huggingface.architecture import (
    USUAL,
    Architecture,
    Config,
    Shapes,
    check_exportable,
    export_labels,
    import_classes,
)
from regard.models.tensors import FolderError, UnsupportedError, read_json

FIXED = {"positions": "learned", "mixer": "attention", "score": (None, "dot"), "pre_norm": False}
FIRST = 2  # RoBERTa's position of the first token: 0 is never used, 1 is that of padding


def _check_heads(config: Config, family: str, *more: str) -> None:
    """UnsupportedError for a class of this family with another head."""
    heads = ("Model", "ForMaskedLM", *more, "ForSequenceClassification")
    for kind in config.get("architectures") or []:
        if kind.startswith(family) and kind.removeprefix(family) not in heads:
            raise UnsupportedError(f"architecture {kind!r} is not supported, only {family} with {', '.join(heads)}")


def _write_heads(family: str, arguments: Config) -> dict[str, Any]:
    classes = arguments["classes"]
    if classes:
        check_exportable(arguments, mlm_head=False)
    head = "ForMaskedLM" if arguments["mlm_head"] else "ForSequenceClassification" if classes else "Model"
    return {"architectures": [family + head], "id2label": export_labels(arguments["labels"], classes or 2)}


# ---------------------------------------------------------------------------------------------------------------- BERT


def _read_bert(config: Config, shapes: Shapes) -> dict[str, Any]:
    _check_heads(config, "Bert", "ForPreTraining")
    heads = {"mlm_head": "cls.predictions.bias" in shapes, "pooler": "pooler.dense.weight" in shapes}
    return heads | import_classes(config, shapes)


def _write_bert(arguments: Config) -> dict[str, Any]:
    if not arguments["token_types"]:
        raise FolderError("token_types=0 (make the Encoder with token_types=1 or 2)")
    if arguments["classes"]:
        check_exportable(arguments, pooler=True, pooler_activation="tanh")
    return _write_heads("Bert", arguments)


BERT = Architecture(
    model="Encoder",
    kind="BertModel",
    prefix="bert.",
    entries={
        "vocab_size": "vocab_size",
        **USUAL,
        "max_positions": "max_position_embeddings",
        "token_types": "type_vocab_size",
        "epsilon": "layer_norm_eps",
    },
    activation="hidden_act",
    fixed=FIXED,
    supported={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    dropouts=("hidden_dropout_prob", "attention_probs_dropout_prob"),
    read=_read_bert,
    write=_write_bert,
    tensors={
        "token_embedding": "embeddings.word_embeddings",
        "position_embedding": "embeddings.position_embeddings",
        "token_type_embedding": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "blocks.#.mixer.in_proj.0": "encoder.layer.#.attention.self.(query|key|value)",
        "blocks.#.mixer.out_proj": "encoder.layer.#.attention.output.dense",
        "blocks.#.mixer_norm": "encoder.layer.#.attention.output.LayerNorm",
        "blocks.#.feed_forward.in_proj": "encoder.layer.#.intermediate.dense",
        "blocks.#.feed_forward.out_proj": "encoder.layer.#.output.dense",
        "blocks.#.feed_forward_norm": "encoder.layer.#.output.LayerNorm",
        "mlm_head": "cls.predictions",
        "mlm_head.dense": "cls.predictions.transform.dense",
        "mlm_head.norm": "cls.predictions.transform.LayerNorm",
        "pooler": "pooler.dense",
        "classifier": "classifier",
    },
    # Position ids, the tied output layer again, and the head for next sentences, which an Encoder does not have.
    ignored=r"embeddings\.position_ids|cls\.predictions\.decoder\..*|cls\.seq_relationship\..*",
)


# ------------------------------------------------------------------------------------------------------------- RoBERTa


def _read_roberta(config: Config, shapes: Shapes) -> dict[str, Any]:
    _check_heads(config, "Roberta")
    mlm_head = "lm_head.bias" in shapes
    if mlm_head and config["hidden_act"] != "gelu":
        raise UnsupportedError(f"hidden_act {config['hidden_act']!r} is not supported with a head for masked tokens")
    if config.get("pad_token_id", 1) != FIRST - 1:
        raise UnsupportedError(f"pad_token_id {config['pad_token_id']!r} is not supported, only {FIRST - 1}")
    classes = import_classes(config, shapes, "classifier.out_proj.weight")
    return {
        **classes,
        "max_positions": config["max_position_embeddings"] - FIRST,
        "mlm_head": mlm_head,
        "pooler": bool(classes["classes"]) or "pooler.dense.weight" in shapes,
    }


def _roberta_tensors(arguments: Config) -> dict[str, str]:
    return {
        **BERT.tensors,  # type: ignore[dict-item]
        "mlm_head": "lm_head",
        "mlm_head.dense": "lm_head.dense",
        "mlm_head.norm": "lm_head.layer_norm",
        "pooler": "classifier.dense" if arguments["classes"] else "pooler.dense",
        "classifier": "classifier.out_proj",
    }


ROBERTA = replace(  # a BERT with other heads, whose first two positions are not for tokens
    BERT,
    prefix="roberta.",
    read=_read_roberta,
    write=None,
    tensors=_roberta_tensors,
    ignored=r"embeddings\.position_ids|lm_head\.decoder\..*",  # position ids, and the tied output layer again
    first_position=FIRST,
)


# ---------------------------------------------------------------------------------------------------------- DistilBERT


def _read_distilbert(config: Config, shapes: Shapes) -> dict[str, Any]:
    _check_heads(config, "DistilBert")
    classes = import_classes(config, shapes)
    heads = {"mlm_head": "vocab_projector.bias" in shapes, "pooler": bool(classes["classes"])}
    return {**classes, **heads, "pooler_activation": "relu"}


def _write_distilbert(arguments: Config) -> dict[str, Any]:
    check_exportable(arguments, pooler=bool(arguments["classes"]))
    if arguments["classes"]:
        check_exportable(arguments, pooler_activation="relu")
    return _write_heads("DistilBert", arguments)


DISTILBERT = Architecture(  # a BERT without token types, with other heads
    model="Encoder",
    kind="DistilBertModel",
    prefix="distilbert.",
    entries={
        "vocab_size": "vocab_size",
        "size": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "ffn_size": "hidden_dim",
        "max_positions": "max_position_embeddings",
    },
    activation="activation",
    fixed={**FIXED, "token_types": 0, "epsilon": 1e-12},
    supported={"sinusoidal_pos_embds": False, "tie_word_embeddings": True},
    dropouts=("dropout", "attention_dropout", "seq_classif_dropout"),
    read=_read_distilbert,
    write=_write_distilbert,
    tensors={
        "token_embedding": "embeddings.word_embeddings",
        "position_embedding": "embeddings.position_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "blocks.#.mixer.in_proj.0": "transformer.layer.#.attention.(q|k|v)_lin",
        "blocks.#.mixer.out_proj": "transformer.layer.#.attention.out_lin",
        "blocks.#.mixer_norm": "transformer.layer.#.sa_layer_norm",
        "blocks.#.feed_forward.in_proj": "transformer.layer.#.ffn.lin1",
        "blocks.#.feed_forward.out_proj": "transformer.layer.#.ffn.lin2",
        "blocks.#.feed_forward_norm": "transformer.layer.#.output_layer_norm",
        "mlm_head": "vocab_projector",
        "mlm_head.dense": "vocab_transform",
        "mlm_head.norm": "vocab_layer_norm",
        "pooler": "pre_classifier",
        "classifier": "classifier",
    },
    ignored=r"vocab_projector\.weight",  # the tied output layer again
)


# ------------------------------------------------------------------------------------ what sentence-transformers adds

POOLING, MODULES, TEXTS = "1_Pooling/config.json", "modules.json", "sentence_bert_config.json"
POOLINGS = {"cls_token": "first", "mean_tokens": "mean", "max_tokens": "max"}
STEPS = ("Transformer", "Pooling", "Normalize")


def read_sentence_files(folder: Path, max_positions: int) -> dict[str, Any]:
    """How an encoder pools, whether its vectors have length 1, and how long a text may be."""
    if not (folder / POOLING).exists():
        return {"pooling": "mean", "normalized": False}  # as sentence-transformers reads such a folder
    prefix = "pooling_mode_"
    config = read_json(folder / POOLING)
    modes = [name.removeprefix(prefix) for name, on in config.items() if name.startswith(prefix) and on is True]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise UnsupportedError(f"{folder / POOLING}: expected one of {', '.join(POOLINGS)}, got {modes or 'none'}")
    modules = read_json(folder / MODULES, list) if (folder / MODULES).exists() else []
    steps = [str(step.get("type", "")).rpartition(".")[2] if isinstance(step, dict) else "" for step in modules]
    for step in steps:
        if step not in STEPS:
            raise UnsupportedError(f"{folder / MODULES}: a step {step!r} is not supported, only {', '.join(STEPS)}")
    max_length = read_json(folder / TEXTS).get("max_seq_length") if (folder / TEXTS).exists() else None
    return {
        "pooling": POOLINGS[modes[0]],
        "normalized": "Normalize" in steps,
        "max_length": min(max_length, max_positions) if isinstance(max_length, int) else None,
    }


def sentence_files(arguments: Config) -> dict[str, Any]:
    """The way back: files and their contents."""
    modes = {f"pooling_mode_{theirs}": ours == arguments["pooling"] for theirs, ours in POOLINGS.items()}
    steps = enumerate(STEPS if arguments["normalized"] else STEPS[:2])
    paths = [(str(number), f"{number}_{step}" if number else "", step) for number, step in steps]
    return {
        POOLING: {"word_embedding_dimension": arguments["size"], **modes},
        MODULES: [
            {"idx": int(name), "name": name, "path": path, "type": f"sentence_transformers.models.{step}"}
            for name, path, step in paths
        ],
        TEXTS: {"max_seq_length": arguments["max_length"] or arguments["max_positions"], "do_lower_case": False},
    }
