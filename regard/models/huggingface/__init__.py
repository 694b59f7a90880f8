"""Hugging Face folders: read without `transformers`, and written for it. Architectures are tables."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.arguments import check_size
from regard.models.folders import MARK, build, write_folder
from regard.models.huggingface import encoders, generators
from regard.models.huggingface.architecture import Architecture, read_tables
from regard.models.huggingface.encoders import IMAGES, image_file, read_image_file, read_sentence_files, sentence_files
from regard.models.model import Model
from regard.models.tensors import FolderError, Tensors, UnsupportedError, fill
from regard.models.tokenizer_files import read_tokenizer

FUNCTIONS = encoders.FUNCTIONS | generators.FUNCTIONS
TABLES = sorted(read_tables().items())
# By the model_type of a config.json. A model is exported as the first of them that can express it.
ARCHITECTURES = {name: Architecture(**table, **FUNCTIONS.get(name, {})) for name, table in TABLES}
ELSEWHERE = "`regard look` and `regard explore` read it by transformers: pip install 'regard[hf]'"
# Heads stand beside the bare model, and so without its prefix.
HEADS = ("cls.", "classifier.", "pre_classifier.", "lm_head.", "vocab_", "final_logits_bias")


def load(folder: Path, config: Mapping[str, Any]) -> Model:
    """The model in a Hugging Face folder."""
    path = folder / "config.json"
    model_type = config["model_type"]
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        reason = f"model_type {model_type!r} is not supported, only {', '.join(ARCHITECTURES)}"
        raise UnsupportedError(f"{path}: {reason}; {ELSEWHERE}")
    architecture = ARCHITECTURES[model_type]
    tensors = Tensors.of(folder)
    tensors.rename(lambda name: _modern(name.removeprefix(architecture.prefix)))
    try:
        arguments = architecture.import_arguments(config, tensors.shapes)
        layers = check_size("layers", sum(arguments["depths"]) if "depths" in arguments else arguments["layers"])
    except UnsupportedError as error:
        raise UnsupportedError(f"{path}: {error}; {ELSEWHERE}") from error
    except KeyError as error:
        raise FolderError(f"{path}: {error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise FolderError(f"{path}: {error}") from error
    if layers > len(tensors.shapes):
        raise FolderError(f"{path}: says {layers} layers, but the files hold {len(tensors.shapes)} tensors")
    if architecture.model == "Encoder":
        arguments |= read_sentence_files(folder, arguments["max_positions"])
    if architecture.model in ("ResNet", "ViT") and (folder / IMAGES).exists():
        arguments |= read_image_file(folder / IMAGES, arguments)
    model = build(architecture.model, arguments, path)
    fill(model, tensors, architecture.tensor_rules(model), architecture.copies, architecture.ignored)
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
        state |= {part if part.startswith(HEADS) else architecture.prefix + part: parts[part] for part in parts}
    contents = {"config.json": config}
    if architecture.model == "Encoder":
        contents |= sentence_files(model.config)
    if architecture.model in ("ResNet", "ViT"):
        contents[IMAGES] = image_file(model.config)
    texts = {name: json.dumps(content, indent=2) + "\n" for name, content in contents.items()}
    if model.tokenizer is not None:
        texts["tokenizer.json"] = model.tokenizer.to_str(pretty=True) + "\n"
        texts["tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}) + "\n"
    write_folder(folder, state, texts)


def _choose_architecture(model: Model) -> tuple[Architecture, dict[str, Any]]:
    """The first architecture that can express this model, and its config."""
    name, reasons = type(model).__name__, []
    for model_type, architecture in ARCHITECTURES.items():
        if name == architecture.model and architecture.write is not None:
            try:
                config = architecture.export_config(model.config)
                return architecture, {"model_type": model_type, **config, MARK: "regard"}
            except FolderError as error:
                reasons.append(f"{model_type} has no {error}")
    if not reasons:
        raise FolderError(f"{name}: no Hugging Face architecture is supported for it")
    raise FolderError(f"{name}: cannot be written for transformers: {'; '.join(reasons)}")


def _modern(name: str) -> str:
    """Old files call a norm's weight and bias gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
