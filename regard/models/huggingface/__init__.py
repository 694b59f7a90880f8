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
from regard.models.folders import MARK, build, model_class, read_tokenizer, write_folder
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, Tensors, fill, read_json

__all__ = ["ARCHITECTURES", "Architecture", "export", "load"]

# model_type of a config.json → the module that knows it.
ARCHITECTURES = ("bert", "gpt2", "llama", "marian", "vit")


@dataclass(frozen=True)
class Architecture:
    """What one architecture is in our words. `config` and `shapes` (of the files' tensors) are theirs."""

    model: str  # our class
    prefix: str  # in front of most names, unless the file holds the bare model
    arguments: Callable[[Mapping[str, Any], Mapping[str, tuple[int, ...]]], dict[str, Any]]
    rules: Callable[[Model], dict[str, Rule]]
    ignored: Callable[[str], bool]  # tensors that say nothing new
    config: Callable[[Model], dict[str, Any]]  # raises FolderError where they have no word for it


def architecture(model_type: str) -> Architecture:
    """The architecture of this model_type."""
    found: Architecture = importlib.import_module(f"regard.models.huggingface.{model_type}").ARCHITECTURE
    return found


def load(folder: Path, config: Mapping[str, Any]) -> Model:
    """The model in a Hugging Face folder."""
    where = folder / "config.json"
    model_type = config["model_type"]
    if model_type not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise FolderError(f"{where}: model_type {model_type!r} is not supported, only {known}")
    own = architecture(model_type)
    tensors = Tensors.of(folder)
    tensors.rename(lambda name: _modern(name.removeprefix(own.prefix)))
    try:
        arguments = own.arguments(config, tensors.shapes)
        layers = check_size("layers", arguments["layers"])
    except KeyError as error:
        raise FolderError(f"{where}: {error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise FolderError(f"{where}: {error}") from error
    if layers > len(tensors.shapes):
        raise FolderError(f"{where}: says {layers} layers, but the files hold {len(tensors.shapes)} tensors")
    model = build(model_class(own.model), arguments | _sentences(folder, arguments, own.model), where)
    fill(model, tensors, own.rules(model), own.ignored)
    model.tokenizer = _tokenizer(folder)
    return model


def export(model: Model, folder: Path) -> None:
    """Write a folder that `transformers` reads."""
    known = {name: architecture(name) for name in ARCHITECTURES}
    fitting = {name: own for name, own in known.items() if own.model == type(model).__name__}
    if not fitting:
        raise FolderError(f"{type(model).__name__}: no Hugging Face architecture is supported for it")
    own, config = _first_that_can(fitting, model)
    state: dict[str, Tensor] = {}
    rules = own.rules(model)
    for name, tensor in model.state_dict().items():
        state |= {_prefixed(own, part): each for part, each in rules[name].split(tensor).items()}
    texts = {"config.json": json.dumps(config | {MARK: "regard"}, indent=2) + "\n", **_sentence_files(model)}
    if model.tokenizer is not None:
        texts["tokenizer.json"] = model.tokenizer.to_str(pretty=True) + "\n"
        texts["tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}) + "\n"
    write_folder(folder, state, texts, {}, sealed=False)


def _first_that_can(fitting: Mapping[str, Architecture], model: Model) -> tuple[Architecture, dict[str, Any]]:
    reasons = []
    for name, own in fitting.items():
        try:
            return own, own.config(model)
        except FolderError as error:
            reasons.append(f"{name} has no {error}")
    raise FolderError(f"{type(model).__name__}: cannot be written for transformers: {'; '.join(reasons)}")


# Heads stand beside the bare model, and so without its prefix.
HEADS = ("cls.", "classifier.", "lm_head.", "final_logits_bias")


def _prefixed(own: Architecture, name: str) -> str:
    return name if name.startswith(HEADS) else own.prefix + name


def _modern(name: str) -> str:
    """Old files call a norm's weight and bias gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _tokenizer(folder: Path) -> Any:
    """From tokenizer.json; None where there is none."""
    path = folder / "tokenizer.json"
    return read_tokenizer(path) if path.exists() else None


# ------------------------------------------------------------------------------------ what sentence-transformers adds

POOLING, MODULES, TEXTS = "1_Pooling/config.json", "modules.json", "sentence_bert_config.json"
POOLINGS = {"cls_token": "first", "mean_tokens": "mean", "max_tokens": "max"}
MODULE = "sentence_transformers.models."


def _sentences(folder: Path, arguments: dict[str, Any], model: str) -> dict[str, Any]:
    """How an encoder pools, whether its vectors have length 1, and how long a text may be."""
    if model != "Encoder" or not (folder / POOLING).exists():
        return {}
    chosen = read_json(folder / POOLING)
    found = [name for name, value in chosen.items() if name.startswith("pooling_mode_") and value is True]
    names = [name.removeprefix("pooling_mode_") for name in found]
    if len(names) != 1 or names[0] not in POOLINGS:
        raise FolderError(f"{folder / POOLING}: expected one of {', '.join(POOLINGS)}, got {names or 'none'}")
    longest = read_json(folder / TEXTS).get("max_seq_length") if (folder / TEXTS).exists() else None
    return {
        "pooling": POOLINGS[names[0]],
        "normalized": "Normalize" in _modules(folder / MODULES),
        "max_length": min(longest, arguments["max_positions"]) if isinstance(longest, int) else None,
    }


def _modules(path: Path) -> list[str]:
    """The steps of a sentence encoder, by the last part of their names."""
    if not path.exists():
        return []
    steps = read_json(path, list)
    kinds = [str(step.get("type", "")).rpartition(".")[2] if isinstance(step, dict) else "" for step in steps]
    for kind in kinds:
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise FolderError(f"{path}: a step {kind!r} is not supported, only Transformer, Pooling and Normalize")
    return kinds


def _sentence_files(model: Model) -> dict[str, str]:
    """The way back."""
    if type(model).__name__ != "Encoder":
        return {}
    own = model.config
    pooling: dict[str, Any] = {f"pooling_mode_{name}": ours == own["pooling"] for name, ours in POOLINGS.items()}
    kinds = ["Transformer", "Pooling", *(["Normalize"] if own["normalized"] else [])]
    steps = [
        {"idx": number, "name": str(number), "path": f"{number}_{kind}" if number else "", "type": MODULE + kind}
        for number, kind in enumerate(kinds)
    ]
    files: dict[str, Any] = {
        POOLING: {"word_embedding_dimension": own["size"], **pooling},
        MODULES: steps,
        TEXTS: {"max_seq_length": own["max_length"] or own["max_positions"], "do_lower_case": False},
    }
    return {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()}
