"""ViT for image classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface.configs import check_exportable, export_labels, import_labels, linear
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule

MODEL, PREFIX, ACTIVATION = "ViT", "vit.", "hidden_act"
SUPPORTED: dict[str, Any] = {}
NAMES = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "channels": "num_channels",
    "size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "epsilon": "layer_norm_eps",
}
BLOCK = {
    "mixer_norm": "layernorm_before",
    "mixer.out_proj": "attention.output.dense",
    "feed_forward_norm": "layernorm_after",
    "feed_forward.in_proj": "intermediate.dense",
    "feed_forward.out_proj": "output.dense",
}


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    if "classifier.weight" not in shapes:
        raise FolderError("the files hold no classifier; expected those of a ViTForImageClassification")
    classes = shapes["classifier.weight"][0]
    return {
        "classes": classes,
        "labels": import_labels(config, classes),
        "query_bias": config.get("qkv_bias", True),
    }


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    size, query_bias = model.config["size"], model.config["query_bias"]
    rules = {
        "class_token": Rule(("embeddings.cls_token",)),
        "position_embedding": Rule(("embeddings.position_embeddings",)),
        **linear("patch_embedding", "embeddings.patch_embeddings.projection"),
        **linear("norm", "layernorm"),
        **linear("classifier", "classifier"),
    }
    for number in range(model.config["layers"]):
        qkv = [f"encoder.layer.{number}.attention.attention.{name}" for name in ("query", "key", "value")]
        rules |= linear(f"blocks.{number}.mixer.in_proj.0", *qkv, heights=(size, size, size), bias=query_bias)
        for ours, theirs in BLOCK.items():
            rules |= linear(f"blocks.{number}.{ours}", f"encoder.layer.{number}.{theirs}")
    return rules


def is_ignored(name: str) -> bool:
    """The pooler, which classification does not use, and the token that stood for hidden patches."""
    return name.startswith("pooler.") or name == "embeddings.mask_token"


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable(arguments, positions="learned", pooling="class", score=(None, "dot"))
    return {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "qkv_bias": arguments["query_bias"],
        "hidden_dropout_prob": arguments["dropout"],
        "attention_probs_dropout_prob": arguments["dropout"],
        "id2label": export_labels(arguments["labels"], arguments["classes"]),
    }
