"""DistilBERT: a BERT without token types, with other heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface.bert import check_heads
from regard.models.huggingface.configs import check_exportable, export_labels, import_labels, linear
from regard.models.model import Model
from regard.models.tensors import Rule

MODEL, PREFIX, ACTIVATION = "Encoder", "distilbert.", "activation"
SUPPORTED = {"sinusoidal_pos_embds": False, "tie_word_embeddings": True}
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification")
NAMES = {
    "vocab_size": "vocab_size",
    "size": "dim",
    "layers": "n_layers",
    "heads": "n_heads",
    "ffn_size": "hidden_dim",
    "max_positions": "max_position_embeddings",
}
BLOCK = {
    "mixer.out_proj": "attention.out_lin",
    "mixer_norm": "sa_layer_norm",
    "feed_forward.in_proj": "ffn.lin1",
    "feed_forward.out_proj": "ffn.lin2",
    "feed_forward_norm": "output_layer_norm",
}


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    check_heads(config, "DistilBert", HEADS)
    classes = shapes["classifier.weight"][0] if "classifier.weight" in shapes else 0
    return {
        "epsilon": 1e-12,
        "mlm_head": "vocab_projector.bias" in shapes,
        "pooler": bool(classes),
        "pooler_activation": "relu",
        "classes": classes,
        "labels": import_labels(config, classes),
    }


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    size = model.config["size"]
    rules = {
        "token_embedding.weight": Rule(("embeddings.word_embeddings.weight",)),
        "position_embedding.weight": Rule(("embeddings.position_embeddings.weight",)),
        "mlm_head.bias": Rule(("vocab_projector.bias",)),
        **linear("embedding_norm", "embeddings.LayerNorm"),
        **linear("mlm_head.dense", "vocab_transform"),
        **linear("mlm_head.norm", "vocab_layer_norm"),
        **linear("pooler", "pre_classifier"),
        **linear("classifier", "classifier"),
    }
    for number in range(model.config["layers"]):
        qkv = [f"transformer.layer.{number}.attention.{name}_lin" for name in "qkv"]
        rules |= linear(f"blocks.{number}.mixer.in_proj.0", *qkv, heights=(size, size, size))
        for ours, theirs in BLOCK.items():
            rules |= linear(f"blocks.{number}.{ours}", f"transformer.layer.{number}.{theirs}")
    return rules


def is_ignored(name: str) -> bool:
    """The tied output layer again."""
    return name == "vocab_projector.weight"


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    classes = arguments["classes"]
    check_exportable(arguments, positions="learned", mixer="attention", score=(None, "dot"), pre_norm=False)
    check_exportable(arguments, token_types=0, epsilon=1e-12, pooler=bool(classes))
    if classes:
        check_exportable(arguments, pooler_activation="relu", mlm_head=False)
    head = "ForMaskedLM" if arguments["mlm_head"] else "ForSequenceClassification" if classes else "Model"
    return {
        "model_type": "distilbert",
        "architectures": [f"DistilBert{head}"],
        **dict.fromkeys(("dropout", "attention_dropout", "seq_classif_dropout"), arguments["dropout"]),
        "id2label": export_labels(arguments["labels"], classes or 2),
    }
