"""ViT for image classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import Architecture
from regard.models.huggingface.words import activation, demand, labels, linear, their_activation, their_labels
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule


def _arguments(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    if "classifier.weight" not in shapes:
        raise FolderError("the files hold no classifier; expected those of a ViTForImageClassification")
    return {
        "image_size": config["image_size"],
        "patch_size": config["patch_size"],
        "size": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "classes": shapes["classifier.weight"][0],
        "labels": labels(config, shapes["classifier.weight"][0]),
        "channels": config["num_channels"],
        "ffn_size": config["intermediate_size"],
        "activation": activation(config, "hidden_act"),
        "epsilon": config["layer_norm_eps"],
        "query_bias": config.get("qkv_bias", True),
    }


def _rules(model: Model) -> dict[str, Rule]:
    own = model.config
    size = own["size"]
    rules = {
        "token": Rule(("embeddings.cls_token",)),
        "position": Rule(("embeddings.position_embeddings",)),
        **linear("patch", "embeddings.patch_embeddings.projection"),
        **linear("norm", "layernorm"),
        **linear("classifier", "classifier"),
    }
    for number in range(own["layers"]):
        ours, theirs = f"blocks.{number}", f"encoder.layer.{number}"
        looks = [f"{theirs}.attention.attention.{name}" for name in ("query", "key", "value")]
        rules |= linear(f"{ours}.mixer_norm", f"{theirs}.layernorm_before")
        rules |= linear(f"{ours}.mixer.in_proj.0", *looks, heights=(size, size, size), bias=own["query_bias"])
        rules |= linear(f"{ours}.mixer.out_proj", f"{theirs}.attention.output.dense")
        rules |= linear(f"{ours}.feed_forward_norm", f"{theirs}.layernorm_after")
        rules |= linear(f"{ours}.feed_forward.in_proj", f"{theirs}.intermediate.dense")
        rules |= linear(f"{ours}.feed_forward.out_proj", f"{theirs}.output.dense")
    return rules


def _ignored(name: str) -> bool:
    """The pooler, which classification does not use, and the token that stood for hidden patches."""
    return name.startswith("pooler.") or name == "embeddings.mask_token"


def _config(model: Model) -> dict[str, Any]:
    own = model.config
    demand(own, positions="learned", pooling="class", score=(None, "dot"))
    return {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "image_size": own["image_size"],
        "patch_size": own["patch_size"],
        "num_channels": own["channels"],
        "hidden_size": own["size"],
        "num_hidden_layers": own["layers"],
        "num_attention_heads": own["heads"],
        "intermediate_size": own["ffn_size"] or 4 * own["size"],
        "hidden_act": their_activation(own["activation"]),
        "layer_norm_eps": own["epsilon"],
        "qkv_bias": own["query_bias"],
        "hidden_dropout_prob": own["dropout"],
        "attention_probs_dropout_prob": own["dropout"],
        "id2label": their_labels(own, own["classes"]),
    }


ARCHITECTURE = Architecture("ViT", "vit.", _arguments, _rules, _ignored, _config)
