"""Hugging Face folders: read without `transformers`, and written for it.

Each architecture is a module here, with

    MODEL           the class of ours
    PREFIX          of the names of most tensors, unless a file holds the model without its head
    NAMES           arguments of ours → entries of their config.json
    ACTIVATION      the entry that holds the activation; None: there is only one
    SUPPORTED       entries that can be read with this value only
    read_config     the other arguments, from their config.json and the shapes of the tensors in their files
    write_config    the other entries, from the arguments; FolderError where they cannot express the model. Modules
                    without it are read only: another architecture expresses whatever they do
    tensor_rules    where each tensor of ours is in their files
    is_ignored      which tensors of theirs hold nothing new
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from regard.arguments import check_size
from regard.models.folders import MARK, build, read_tokenizer, write_folder
from regard.models.huggingface.configs import export_config, import_arguments
from regard.models.huggingface.images import IMAGES, image_file, read_image_file
from regard.models.model import Model
from regard.models.tensors import FolderError, Tensors, UnsupportedError, fill, read_json

__all__ = ["ARCHITECTURES", "export", "load"]

# The model_type of a config.json, and the name of its module.
ARCHITECTURES = (
    "bert",
    "distilbert",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "llama",
    "marian",
    "mistral",
    "qwen2",
    "qwen3",
    "resnet",
    "roberta",
    "t5",
    "vit",
)
ELSEWHERE = "`regard look` and `regard explore` read it by transformers: pip install 'regard[hf]'"
# Heads stand beside the bare model, and so without its prefix.
HEADS = ("cls.", "classifier.", "pre_classifier.", "lm_head.", "vocab_", "final_logits_bias")


def load(folder: Path, config: Mapping[str, Any]) -> Model:
    """The model in a Hugging Face folder."""
    path = folder / "config.json"
    model_type = config["model_type"]
    if model_type not in ARCHITECTURES:
        reason = f"model_type {model_type!r} is not supported, only {', '.join(ARCHITECTURES)}"
        raise UnsupportedError(f"{path}: {reason}; {ELSEWHERE}")
    architecture = _architecture(model_type)
    tensors = Tensors.of(folder)
    tensors.rename(lambda name: _modern(name.removeprefix(architecture.PREFIX)))
    try:
        arguments = import_arguments(architecture, config, tensors.shapes)
        layers = check_size("layers", sum(arguments["depths"]) if "depths" in arguments else arguments["layers"])
    except UnsupportedError as error:
        raise UnsupportedError(f"{path}: {error}; {ELSEWHERE}") from error
    except KeyError as error:
        raise FolderError(f"{path}: {error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise FolderError(f"{path}: {error}") from error
    if layers > len(tensors.shapes):
        raise FolderError(f"{path}: says {layers} layers, but the files hold {len(tensors.shapes)} tensors")
    if architecture.MODEL == "Encoder":
        arguments |= _read_sentence_files(folder, arguments["max_positions"])
    if architecture.MODEL in ("ResNet", "ViT") and (folder / IMAGES).exists():
        arguments |= read_image_file(folder / IMAGES, arguments)
    model = build(architecture.MODEL, arguments, path)
    fill(model, tensors, architecture.tensor_rules(model), architecture.is_ignored)
    if (folder / "tokenizer.json").exists():
        model.tokenizer = read_tokenizer(folder / "tokenizer.json")
    return model


def export(model: Model, folder: Path) -> None:
    """Write a folder that `transformers` reads."""
    architecture, config = _choose_architecture(model)
    state: dict[str, Tensor] = {}
    rules = architecture.tensor_rules(model)
    for name, tensor in model.state_dict().items():
        parts = rules[name].split(tensor)
        state |= {part if part.startswith(HEADS) else architecture.PREFIX + part: parts[part] for part in parts}
    contents = {"config.json": config | {MARK: "regard"}}
    if architecture.MODEL == "Encoder":
        contents |= _sentence_files(model.config)
    if architecture.MODEL in ("ResNet", "ViT"):
        contents[IMAGES] = image_file(model.config)
    texts = {name: json.dumps(content, indent=2) + "\n" for name, content in contents.items()}
    if model.tokenizer is not None:
        texts["tokenizer.json"] = model.tokenizer.to_str(pretty=True) + "\n"
        texts["tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}) + "\n"
    write_folder(folder, state, texts)


def _architecture(model_type: str) -> ModuleType:
    return importlib.import_module(f"regard.models.huggingface.{model_type}")


def _choose_architecture(model: Model) -> tuple[ModuleType, dict[str, Any]]:
    """The first architecture that can express this model, and its config."""
    name, reasons = type(model).__name__, []
    for model_type in ARCHITECTURES:
        architecture = _architecture(model_type)
        if name == architecture.MODEL and hasattr(architecture, "write_config"):
            try:
                return architecture, export_config(architecture, model.config)
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
