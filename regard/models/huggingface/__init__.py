"""Hugging Face folders: read without `transformers`, and written for it. One file for each architecture.

An architecture says which arguments of ours a config.json of theirs means, and the way back; and where each of our
tensors is in their files. Reading and writing follow from that.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.arguments import check_size
from regard.models.folders import MARK, build, read_tokenizer, write_folder
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, Tensors, fill, read_json

__all__ = ["ARCHITECTURES", "Architecture", "export", "load"]

# The model_type of a config.json, and the module that knows it.
ARCHITECTURES = ("bert", "gpt2", "llama", "marian", "vit")
# Heads stand beside the bare model, and so without its prefix.
HEADS = ("cls.", "classifier.", "lm_head.", "final_logits_bias")


@dataclass(frozen=True)
class Architecture:
    """How one architecture of theirs maps to a model of ours."""

    model: str  # the class of ours
    prefix: str  # of most tensor names, unless the file holds the model without its head
    # arguments of ours, from their config and the shapes of the tensors in their files
    arguments: Callable[[Mapping[str, Any], Mapping[str, tuple[int, ...]]], dict[str, Any]]
    rules: Callable[[Model], dict[str, Rule]]  # where each tensor of ours is in their files
    ignored: Callable[[str], bool]  # tensors that hold nothing new
    config: Callable[[Model], dict[str, Any]]  # their config; raises FolderError where it cannot express the model


def load(folder: Path, config: Mapping[str, Any]) -> Model:
    """The model in a Hugging Face folder."""
    path = folder / "config.json"
    model_type = config["model_type"]
    if model_type not in ARCHITECTURES:
        raise FolderError(f"{path}: model_type {model_type!r} is not supported, only {', '.join(ARCHITECTURES)}")
    architecture = _architecture(model_type)
    tensors = Tensors.of(folder)
    tensors.rename(lambda name: _modern(name.removeprefix(architecture.prefix)))
    try:
        arguments = architecture.arguments(config, tensors.shapes)
        layers = check_size("layers", arguments["layers"])
    except KeyError as error:
        raise FolderError(f"{path}: {error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise FolderError(f"{path}: {error}") from error
    if layers > len(tensors.shapes):
        raise FolderError(f"{path}: says {layers} layers, but the files hold {len(tensors.shapes)} tensors")
    if architecture.model == "Encoder" and (folder / POOLING).exists():
        arguments |= _read_sentence_files(folder, arguments["max_positions"])
    model = build(architecture.model, arguments, path)
    fill(model, tensors, architecture.rules(model), architecture.ignored)
    if (folder / "tokenizer.json").exists():
        model.tokenizer = read_tokenizer(folder / "tokenizer.json")
    return model


def export(model: Model, folder: Path) -> None:
    """Write a folder that `transformers` reads."""
    architecture, config = _choose_architecture(model)
    state: dict[str, Tensor] = {}
    rules = architecture.rules(model)
    for name, tensor in model.state_dict().items():
        parts = rules[name].split(tensor)
        state |= {part if part.startswith(HEADS) else architecture.prefix + part: parts[part] for part in parts}
    contents = {"config.json": config | {MARK: "regard"}}
    if architecture.model == "Encoder":
        contents |= _sentence_files(model.config)
    texts = {name: json.dumps(content, indent=2) + "\n" for name, content in contents.items()}
    if model.tokenizer is not None:
        texts["tokenizer.json"] = model.tokenizer.to_str(pretty=True) + "\n"
        texts["tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}) + "\n"
    write_folder(folder, state, texts)


def _architecture(model_type: str) -> Architecture:
    module = importlib.import_module(f"regard.models.huggingface.{model_type}")
    return module.ARCHITECTURE  # type: ignore[no-any-return]


def _choose_architecture(model: Model) -> tuple[Architecture, dict[str, Any]]:
    """The first architecture that can express this model, and its config."""
    name, reasons = type(model).__name__, []
    for model_type in ARCHITECTURES:
        architecture = _architecture(model_type)
        if architecture.model == name:
            try:
                return architecture, architecture.config(model)
            except FolderError as error:
                reasons.append(f"{model_type} has no {error}")
    if not reasons:
        raise FolderError(f"{name}: no Hugging Face architecture is supported for it")
    raise FolderError(f"{name}: cannot be written for transformers: {'; '.join(reasons)}")


def _modern(name: str) -> str:
    """Old files call a norm's weight and bias gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


# ------------------------------------------------------------------------------------ what sentence-transformers adds

POOLING, MODULES, TEXTS = "1_Pooling/config.json", "modules.json", "sentence_bert_config.json"
POOLINGS = {"cls_token": "first", "mean_tokens": "mean", "max_tokens": "max"}
STEPS = ("Transformer", "Pooling", "Normalize")


def _read_sentence_files(folder: Path, max_positions: int) -> dict[str, Any]:
    """How an encoder pools, whether its vectors have length 1, and how long a text may be."""
    prefix = "pooling_mode_"
    config = read_json(folder / POOLING)
    modes = [name.removeprefix(prefix) for name, on in config.items() if name.startswith(prefix) and on is True]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise FolderError(f"{folder / POOLING}: expected one of {', '.join(POOLINGS)}, got {modes or 'none'}")
    modules = read_json(folder / MODULES, list) if (folder / MODULES).exists() else []
    steps = [str(step.get("type", "")).rpartition(".")[2] if isinstance(step, dict) else "" for step in modules]
    for step in steps:
        if step not in STEPS:
            raise FolderError(f"{folder / MODULES}: a step {step!r} is not supported, only {', '.join(STEPS)}")
    max_length = read_json(folder / TEXTS).get("max_seq_length") if (folder / TEXTS).exists() else None
    return {
        "pooling": POOLINGS[modes[0]],
        "normalized": "Normalize" in steps,
        "max_length": min(max_length, max_positions) if isinstance(max_length, int) else None,
    }


def _sentence_files(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The way back: files and their contents."""
    modes = {f"pooling_mode_{theirs}": ours == arguments["pooling"] for theirs, ours in POOLINGS.items()}
    max_length = arguments["max_length"] or arguments["max_positions"]
    return {
        POOLING: {"word_embedding_dimension": arguments["size"], **modes},
        MODULES: [
            {
                "idx": number,
                "name": str(number),
                "path": f"{number}_{step}" if number else "",
                "type": f"sentence_transformers.models.{step}",
            }
            for number, step in enumerate(STEPS if arguments["normalized"] else STEPS[:2])
        ],
        TEXTS: {"max_seq_length": max_length, "do_lower_case": False},
    }
