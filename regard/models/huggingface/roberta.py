"""RoBERTa: a BERT with other heads, whose first two positions are not for tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import bert
from regard.models.huggingface.bert import ACTIVATION, MODEL, NAMES, SUPPORTED
from regard.models.huggingface.configs import import_labels, linear
from regard.models.model import Model
from regard.models.tensors import Rule, UnsupportedError

__all__ = ["ACTIVATION", "MODEL", "NAMES", "SUPPORTED"]  # as those of BERT

PREFIX = "roberta."
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification")
FIRST = 2  # the position of the first token: 0 is never used, 1 is that of padding


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    bert.check_heads(config, "Roberta", HEADS)
    mlm_head = "lm_head.bias" in shapes
    if mlm_head and config["hidden_act"] != "gelu":
        raise UnsupportedError(f"hidden_act {config['hidden_act']!r} is not supported with a head for masked tokens")
    if config.get("pad_token_id", 1) != FIRST - 1:
        raise UnsupportedError(f"pad_token_id {config['pad_token_id']!r} is not supported, only {FIRST - 1}")
    classes = shapes["classifier.out_proj.weight"][0] if "classifier.out_proj.weight" in shapes else 0
    return {
        "max_positions": config["max_position_embeddings"] - FIRST,
        "mlm_head": mlm_head,
        "pooler": bool(classes) or "pooler.dense.weight" in shapes,
        "classes": classes,
        "labels": import_labels(config, classes),
    }


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    return {
        **bert.tensor_rules(model),
        "position_embedding.weight": Rule(("embeddings.position_embeddings.weight",), skipped=FIRST),
        "mlm_head.bias": Rule(("lm_head.bias",)),
        **linear("mlm_head.dense", "lm_head.dense"),
        **linear("mlm_head.norm", "lm_head.layer_norm"),
        **linear("pooler", "classifier.dense" if model.config["classes"] else "pooler.dense"),
        **linear("classifier", "classifier.out_proj"),
    }


def is_ignored(name: str) -> bool:
    """Position ids, and the tied output layer again."""
    return name == "embeddings.position_ids" or name.startswith("lm_head.decoder.")
