"""BERT and its smaller kin (MiniLM), with heads for words and classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.huggingface import Architecture
from regard.models.huggingface.words import activation, demand, labels, linear, refuse, their_activation, their_labels
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule

KINDS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification")


def _arguments(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    refuse(config, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    refuse(config, tie_word_embeddings=True)
    for kind in config.get("architectures") or []:
        if kind.startswith("Bert") and kind.removeprefix("Bert") not in KINDS:
            raise FolderError(f"architecture {kind!r} is not supported, only Bert with {', '.join(KINDS)}")
    classes = shapes["classifier.weight"][0] if "classifier.weight" in shapes else 0
    return {
        "vocab_size": config["vocab_size"],
        "size": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "ffn_size": config["intermediate_size"],
        "max_positions": config["max_position_embeddings"],
        "token_types": config["type_vocab_size"],
        "activation": activation(config, "hidden_act"),
        "epsilon": config["layer_norm_eps"],
        "mlm_head": "cls.predictions.bias" in shapes,
        "pooler": "pooler.dense.weight" in shapes,
        "classes": classes,
        "labels": labels(config, classes),
    }


def _rules(model: Model) -> dict[str, Rule]:
    size, layers = model.config["size"], model.config["layers"]
    rules = {
        "word.weight": Rule(("embeddings.word_embeddings.weight",)),
        "position.weight": Rule(("embeddings.position_embeddings.weight",)),
        "token_types.weight": Rule(("embeddings.token_type_embeddings.weight",)),
        "guesser.bias": Rule(("cls.predictions.bias",)),
        **linear("norm", "embeddings.LayerNorm"),
        **linear("guesser.dense", "cls.predictions.transform.dense"),
        **linear("guesser.norm", "cls.predictions.transform.LayerNorm"),
        **linear("pooler", "pooler.dense"),
        **linear("classifier", "classifier"),
    }
    for number in range(layers):
        ours, theirs = f"blocks.{number}", f"encoder.layer.{number}"
        looks = [f"{theirs}.attention.self.{name}" for name in ("query", "key", "value")]
        rules |= linear(f"{ours}.mixer.in_proj.0", *looks, heights=(size, size, size))
        rules |= linear(f"{ours}.mixer.out_proj", f"{theirs}.attention.output.dense")
        rules |= linear(f"{ours}.mixer_norm", f"{theirs}.attention.output.LayerNorm")
        rules |= linear(f"{ours}.feed_forward.in_proj", f"{theirs}.intermediate.dense")
        rules |= linear(f"{ours}.feed_forward.out_proj", f"{theirs}.output.dense")
        rules |= linear(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return rules


def _ignored(name: str) -> bool:
    """Numbered places, the tied output layer again, and the head for next sentences, which nothing of ours uses."""
    return name == "embeddings.position_ids" or name.startswith(("cls.predictions.decoder.", "cls.seq_relationship."))


def _config(model: Model) -> dict[str, Any]:
    own = model.config
    demand(own, positions="learned", mixer="attention", score=(None, "dot"), pre_norm=False)
    if not own["token_types"]:
        raise FolderError("token_types=0 (make the Encoder with token_types=1 or 2)")
    kind = "ForMaskedLM" if own["mlm_head"] else "ForSequenceClassification" if own["classes"] else "Model"
    if own["classes"]:
        demand(own, pooler=True, mlm_head=False)
    return {
        "model_type": "bert",
        "architectures": [f"Bert{kind}"],
        "vocab_size": own["vocab_size"],
        "hidden_size": own["size"],
        "num_hidden_layers": own["layers"],
        "num_attention_heads": own["heads"],
        "intermediate_size": own["ffn_size"] or 4 * own["size"],
        "max_position_embeddings": own["max_positions"],
        "type_vocab_size": own["token_types"],
        "hidden_act": their_activation(own["activation"]),
        "layer_norm_eps": own["epsilon"],
        "hidden_dropout_prob": own["dropout"],
        "attention_probs_dropout_prob": own["dropout"],
        "id2label": their_labels(own, own["classes"] or 2),
    }


ARCHITECTURE = Architecture("Encoder", "bert.", _arguments, _rules, _ignored, _config)
