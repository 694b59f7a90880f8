"""BERT and its smaller relatives (MiniLM), RoBERTa and DistilBERT, and what sentence-transformers adds to them."""

from pathlib import Path
from typing import Any

from regard.models.huggingface.architecture import Config, Shapes, check_exportable, export_labels, import_classes
from regard.models.tensors import FolderError, UnsupportedError, read_json


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


def _read_roberta(config: Config, shapes: Shapes) -> dict[str, Any]:
    _check_heads(config, "Roberta")
    mlm_head = "lm_head.bias" in shapes
    if mlm_head and config["hidden_act"] != "gelu":
        raise UnsupportedError(f"hidden_act {config['hidden_act']!r} is not supported with a head for masked tokens")
    classes = import_classes(config, shapes, "classifier.out_proj.weight")
    return {**classes, "mlm_head": mlm_head, "pooler": bool(classes["classes"]) or "pooler.dense.weight" in shapes}


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


def _roberta_tensors(arguments: Config) -> dict[str, str]:
    return {"pooler": "classifier.dense"} if arguments["classes"] else {}


FUNCTIONS: dict[str, dict[str, Any]] = {
    "bert": {"read": _read_bert, "write": _write_bert},
    "roberta": {"read": _read_roberta, "write": None, "more_tensors": _roberta_tensors},
    "distilbert": {"read": _read_distilbert, "write": _write_distilbert},
}


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
