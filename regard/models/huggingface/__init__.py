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

from regard.models.folders import build, model_class, read_tokenizer
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, Tensors, fill, in_place, write_tensors

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
    except KeyError as error:
        raise FolderError(f"{where}: {error.args[0]} is missing") from error
    except FolderError as error:
        raise FolderError(f"{where}: {error}") from error
    if arguments["layers"] > len(tensors.shapes):
        raise FolderError(
            f"{where}: says {arguments['layers']} layers, but the files hold {len(tensors.shapes)} tensors"
        )
    model = build(model_class(own.model), arguments | _sentences(folder, own.model), where)
    fill(model, tensors, own.rules(model), own.ignored)
    model.tokenizer = _tokenizer(folder)
    return model


def export(model: Model, folder: Path) -> None:
    """Write a folder that `transformers` reads."""
    known = [architecture(name) for name in ARCHITECTURES]
    fitting = [own for own in known if own.model == type(model).__name__]
    if not fitting:
        raise FolderError(f"{type(model).__name__}: no Hugging Face architecture is supported for it")
    own, config = _first_that_can(fitting, model)
    state: dict[str, Tensor] = {}
    rules = own.rules(model)
    for name, tensor in model.state_dict().items():
        state |= {_prefixed(own, part): each for part, each in rules[name].split(tensor).items()}
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"config.json": json.dumps(config, indent=2) + "\n"}
    if model.tokenizer is not None:
        texts["tokenizer.json"] = model.tokenizer.to_str(pretty=True) + "\n"
        texts["tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}) + "\n"
    in_place(folder / "model.safetensors", lambda path: write_tensors(state, path))
    for file, text in texts.items():
        in_place(folder / file, lambda path, text=text: path.write_text(text, encoding="utf-8"))  # type: ignore[misc]


def _first_that_can(fitting: list[Architecture], model: Model) -> tuple[Architecture, dict[str, Any]]:
    reasons = []
    for own in fitting:
        try:
            return own, own.config(model)
        except FolderError as error:
            reasons.append(str(error))
    raise FolderError(f"{type(model).__name__}: cannot be written for transformers: {'; '.join(reasons)}")


# Heads stand beside the bare model, and so without its prefix.
HEADS = ("cls.", "classifier.", "lm_head.", "final_logits_bias")


def _prefixed(own: Architecture, name: str) -> str:
    return name if name.startswith(HEADS) else own.prefix + name


def _modern(name: str) -> str:
    """Old files call a norm's weight and bias gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _tokenizer(folder: Path) -> Any:
    """From tokenizer.json, or from the vocabulary files that were there before it; None where there is neither."""
    if (folder / "tokenizer.json").exists():
        return read_tokenizer(folder / "tokenizer.json")
    return None


def _sentences(folder: Path, model: str) -> dict[str, Any]:
    """What sentence-transformers says of an encoder: how it pools, and how long a text may be."""
    pooling, texts = folder / "1_Pooling" / "config.json", folder / "sentence_bert_config.json"
    if model != "Encoder" or not pooling.exists():
        return {}
    from regard.models.tensors import read_json

    modes = {"cls": "first", "mean": "mean", "max": "max"}
    chosen = read_json(pooling)
    found = [name for name in modes if chosen.get(f"pooling_mode_{name}_token{'' if name == 'cls' else 's'}")]
    if len(found) != 1 or chosen.get("pooling_mode_mean_sqrt_len_tokens"):
        raise FolderError(f"{pooling}: expected one of {', '.join(modes)} for pooling, got {found or 'another'}")
    modules = folder / "modules.json"
    normalized = modules.exists() and "Normalize" in modules.read_text(encoding="utf-8")
    longest = read_json(texts).get("max_seq_length") if texts.exists() else None
    return {"pooling": modes[found[0]], "normalized": normalized, "longest_text": longest}
