"""BERT and its smaller relatives (MiniLM), RoBERTa and DistilBERT, and what sentence-transformers adds to them; ViT and
ResNet for image classification, and preprocessor_config.json: how image files become what a model reads."""

import math
from pathlib import Path
from typing import Any

from regard.arguments import check_sizes
from regard.models.classifier import check_image_size, check_normalization
from regard.models.huggingface.architecture import Config, Shapes, check_exportable
from regard.models.tensors import FolderError, UnsupportedError, read_json


def _write_bert(arguments: Config) -> dict[str, Any]:
    if not arguments["token_types"]:
        raise FolderError("token_types=0 (make the Encoder with token_types=1 or 2)")
    if arguments["classes"]:
        check_exportable(arguments, pooler=True, pooler_activation="tanh", mlm_head=False)
    return {}


def _read_roberta(config: Config, shapes: Shapes) -> dict[str, Any]:
    if "lm_head.bias" in shapes and config["hidden_act"] != "gelu":
        raise UnsupportedError(f"hidden_act {config['hidden_act']!r} is not supported with a head for masked tokens")
    return {"pooler": "classifier.out_proj.weight" in shapes or "pooler.dense.weight" in shapes}


def _roberta_tensors(arguments: Config) -> dict[str, str]:
    return {"pooler": "classifier.dense"} if arguments["classes"] else {}


def _read_distilbert(config: Config, shapes: Shapes) -> dict[str, Any]:
    return {"pooler": "classifier.weight" in shapes, "pooler_activation": "relu"}


def _write_distilbert(arguments: Config) -> dict[str, Any]:
    check_exportable(arguments, pooler=bool(arguments["classes"]))
    if arguments["classes"]:
        check_exportable(arguments, pooler_activation="relu", mlm_head=False)
    return {}


# ------------------------------------------------------------------------------------ what sentence-transformers adds

POOLING, MODULES, TEXTS = "1_Pooling/config.json", "modules.json", "sentence_bert_config.json"
POOLINGS = {"cls_token": "first", "mean_tokens": "mean", "max_tokens": "max"}
STEPS = ("Transformer", "Pooling", "Normalize")


def read_sentence_files(folder: Path, max_positions: Any) -> dict[str, Any]:
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
    if not isinstance(max_length, int) or not isinstance(max_positions, int):  # the model refuses the latter
        max_length = None
    return {
        "pooling": POOLINGS[modes[0]],
        "normalized": "Normalize" in steps,
        "max_length": None if max_length is None else min(max_length, max_positions),
    }


def sentence_files(arguments: Config) -> dict[str, Any]:
    """The way back: files and their contents."""
    modes = {f"pooling_mode_{theirs}": ours == arguments["pooling"] for theirs, ours in POOLINGS.items()}
    steps = enumerate(STEPS if arguments["normalized"] else STEPS[:2])
    types = [(number, f"{number}_{step}", f"sentence_transformers.models.{step}") for number, step in steps]
    return {
        POOLING: {"word_embedding_dimension": arguments["size"], **modes},
        MODULES: [{"idx": n, "name": str(n), "path": path if n else "", "type": kind} for n, path, kind in types],
        TEXTS: {"max_seq_length": arguments["max_length"] or arguments["max_positions"], "do_lower_case": False},
    }


# ------------------------------------------------------------------------------------------------------------- pictures

EXPANSIONS = {"basic": 1, "bottleneck": 4}  # how much deeper a block's output is than its first convolution


def _hidden_sizes(width: int, stages: int, kind: str) -> list[int]:
    return [width * EXPANSIONS[kind] * 2**stage for stage in range(stages)]


def _read_resnet(config: Config, shapes: Shapes) -> dict[str, Any]:
    kind, depths = config["layer_type"], config["depths"]
    if kind not in EXPANSIONS:
        raise UnsupportedError(f"layer_type {kind!r} is not supported, only {', '.join(EXPANSIONS)}")
    check_sizes(layers=len(depths), width=config["embedding_size"])  # before powers of 2 are taken
    sizes = _hidden_sizes(config["embedding_size"], len(depths), kind)
    if list(config["hidden_sizes"]) != sizes:
        raise UnsupportedError(f"hidden_sizes {config['hidden_sizes']} is not supported, only {sizes}")
    bottleneck = kind == "bottleneck"
    stride_first = bottleneck and config.get("downsample_in_bottleneck", False)
    return {"bottleneck": bottleneck, "stride_first": stride_first}


def _write_resnet(arguments: Config) -> dict[str, Any]:
    kind = "bottleneck" if arguments["bottleneck"] else "basic"
    return {
        "layer_type": kind,
        "hidden_sizes": _hidden_sizes(arguments["width"], len(arguments["depths"]), kind),
        "downsample_in_bottleneck": arguments["stride_first"],
    }


def _place(arguments: Config, number: int) -> str:
    """Their blocks are counted in each stage."""
    places = [(stage, layer) for stage, depth in enumerate(arguments["depths"]) for layer in range(depth)]
    return "stages.{}.layers.{}".format(*places[number])


FUNCTIONS: dict[str, dict[str, Any]] = {
    "bert": {"write": _write_bert},
    "roberta": {"read": _read_roberta, "write": None, "more_tensors": _roberta_tensors},
    "distilbert": {"read": _read_distilbert, "write": _write_distilbert},
    "resnet": {"read": _read_resnet, "write": _write_resnet, "place": _place},
}


# --------------------------------------------------------------------------------------------- preprocessor_config.json

IMAGES = "preprocessor_config.json"
RESCALED = 1 / 255


def read_image_file(path: Path, arguments: Config) -> dict[str, Any]:
    """Mean, deviation and size of the images; a model that reads one size only has it among its arguments already."""
    config = read_json(path)
    factor = config.get("rescale_factor", RESCALED) if config.get("do_rescale", True) else None
    if not isinstance(factor, float) or not math.isclose(factor, RESCALED, rel_tol=1e-3):
        raise UnsupportedError(f"{path}: only images that are divided by 255 are supported")
    try:
        numbers = {"mean": config["image_mean"], "deviation": config["image_std"]}
        if not config.get("do_normalize", True):
            numbers = {"mean": [0.0], "deviation": [1.0]}
        check_normalization(**numbers, channels=arguments["channels"])
        return numbers | ({} if "image_size" in arguments else {"image_size": _read_image_size(config)})
    except KeyError as error:
        raise FolderError(f"{path}: {error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise FolderError(f"{path}: {error}") from error


def _read_image_size(config: Config) -> list[int] | None:
    """Height and width; one number, or the shortest edge, stands for a square."""
    if not config.get("do_resize", True):
        return None
    size = config["size"]
    if isinstance(size, dict):
        size = size["shortest_edge"] if "shortest_edge" in size else [size["height"], size["width"]]
    return list(check_image_size(size))


def image_file(arguments: Config) -> dict[str, Any]:
    """The way back."""
    size, channels = arguments["image_size"], arguments["channels"]
    sides = {} if size is None else {"size": dict(zip(("height", "width"), check_image_size(size), strict=True))}
    mean, deviation = (list(arguments[name]) * (channels // len(arguments[name])) for name in ("mean", "deviation"))
    return {
        "image_processor_type": "ViTImageProcessor",  # it does no more than this
        "do_resize": size is not None,
        **sides,
        "do_rescale": True,
        "rescale_factor": RESCALED,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": deviation,
    }
