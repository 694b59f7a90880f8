"""BERT and its smaller relatives (MiniLM), with heads for masked tokens and classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface.configs import check_exportable, export_labels, import_labels, linear
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, UnsupportedError

MODEL, PREFIX, ACTIVATION = "Encoder", "bert.", "hidden_act"
SUPPORTED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
HEADS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification")
NAMES = {
    "vocab_size": "vocab_size",
    "size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "token_types": "type_vocab_size",
    "epsilon": "layer_norm_eps",
}
BLOCK = {
    "mixer.out_proj": "attention.output.dense",
    "mixer_norm": "attention.output.LayerNorm",
    "feed_forward.in_proj": "intermediate.dense",
    "feed_forward.out_proj": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    check_heads(config, "Bert", HEADS)
    classes = shapes["classifier.weight"][0] if "classifier.weight" in shapes else 0
    return {
        "mlm_head": "cls.predictions.bias" in shapes,
        "pooler": "pooler.dense.weight" in shapes,
        "classes": classes,
        "labels": import_labels(config, classes),
    }


def check_heads(config: Mapping[str, Any], family: str, heads: tuple[str, ...]) -> None:
    """UnsupportedError for a class of this family with another head."""
    for kind in config.get("architectures") or []:
        if kind.startswith(family) and kind.removeprefix(family) not in heads:
            raise UnsupportedError(f"architecture {kind!r} is not supported, only {family} with {', '.join(heads)}")


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    size = model.config["size"]
    rules = {
        "token_embedding.weight": Rule(("embeddings.word_embeddings.weight",)),
        "position_embedding.weight": Rule(("embeddings.position_embeddings.weight",)),
        "token_type_embedding.weight": Rule(("embeddings.token_type_embeddings.weight",)),
        "mlm_head.bias": Rule(("cls.predictions.bias",)),
        **linear("embedding_norm", "embeddings.LayerNorm"),
        **linear("mlm_head.dense", "cls.predictions.transform.dense"),
        **linear("mlm_head.norm", "cls.predictions.transform.LayerNorm"),
        **linear("pooler", "pooler.dense"),
        **linear("classifier", "classifier"),
    }
    for number in range(model.config["layers"]):
        qkv = [f"encoder.layer.{number}.attention.self.{name}" for name in ("query", "key", "value")]
        rules |= linear(f"blocks.{number}.mixer.in_proj.0", *qkv, heights=(size, size, size))
        for ours, theirs in BLOCK.items():
            rules |= linear(f"blocks.{number}.{ours}", f"encoder.layer.{number}.{theirs}")
    return rules


def is_ignored(name: str) -> bool:
    """Position ids, the tied output layer again, and the head for next sentences, which an Encoder does not have."""
    return name == "embeddings.position_ids" or name.startswith(("cls.predictions.decoder.", "cls.seq_relationship."))


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable(arguments, positions="learned", mixer="attention", score=(None, "dot"), pre_norm=False)
    if not arguments["token_types"]:
        raise FolderError("token_types=0 (make the Encoder with token_types=1 or 2)")
    classes = arguments["classes"]
    if classes:
        check_exportable(arguments, pooler=True, pooler_activation="tanh", mlm_head=False)
    head = "ForMaskedLM" if arguments["mlm_head"] else "ForSequenceClassification" if classes else "Model"
    return {
        "model_type": "bert",
        "architectures": [f"Bert{head}"],
        "hidden_dropout_prob": arguments["dropout"],
        "attention_probs_dropout_prob": arguments["dropout"],
        "id2label": export_labels(arguments["labels"], classes or 2),
    }
