"""ViT and ResNet for image classification, and preprocessor_config.json: how image files become what a model reads."""

import math
from pathlib import Path
from typing import Any

from regard.arguments import check_sizes
from regard.models.classifier import check_image_size, check_normalization
from regard.models.huggingface.architecture import Config, Shapes, export_labels, import_classes
from regard.models.tensors import FolderError, UnsupportedError, read_json


def _import_classes(config: Config, shapes: Shapes, kind: str, classifier: str) -> dict[str, Any]:
    if classifier not in shapes:
        raise FolderError(f"the files hold no classifier; expected those of a {kind}")
    return import_classes(config, shapes, classifier)


def _export_classes(arguments: Config) -> dict[str, Any]:
    return {"id2label": export_labels(arguments["labels"], arguments["classes"])}


def _read_vit(config: Config, shapes: Shapes) -> dict[str, Any]:
    return _import_classes(config, shapes, "ViTForImageClassification", "classifier.weight")


EXPANSIONS = {"basic": 1, "bottleneck": 4}  # how much deeper a block's output is than its first convolution


def _hidden_sizes(width: int, stages: int, kind: str) -> list[int]:
    return [width * EXPANSIONS[kind] * 2**stage for stage in range(stages)]


def _read_resnet(config: Config, shapes: Shapes) -> dict[str, Any]:
    classes = _import_classes(config, shapes, "ResNetForImageClassification", "classifier.1.weight")
    kind, depths = config["layer_type"], config["depths"]
    if kind not in EXPANSIONS:
        raise UnsupportedError(f"layer_type {kind!r} is not supported, only {', '.join(EXPANSIONS)}")
    check_sizes(layers=len(depths), width=config["embedding_size"])  # before powers of 2 are taken
    sizes = _hidden_sizes(config["embedding_size"], len(depths), kind)
    if list(config["hidden_sizes"]) != sizes:
        raise UnsupportedError(f"hidden_sizes {config['hidden_sizes']} is not supported, only {sizes}")
    bottleneck = kind == "bottleneck"
    stride_first = bottleneck and config.get("downsample_in_bottleneck", False)
    return {**classes, "bottleneck": bottleneck, "stride_first": stride_first}


def _write_resnet(arguments: Config) -> dict[str, Any]:
    kind = "bottleneck" if arguments["bottleneck"] else "basic"
    return {
        **_export_classes(arguments),
        "layer_type": kind,
        "hidden_sizes": _hidden_sizes(arguments["width"], len(arguments["depths"]), kind),
        "downsample_in_bottleneck": arguments["stride_first"],
    }


def _place(arguments: Config, number: int) -> str:
    """Their blocks are counted in each stage."""
    places = [(stage, layer) for stage, depth in enumerate(arguments["depths"]) for layer in range(depth)]
    return "stages.{}.layers.{}".format(*places[number])


FUNCTIONS: dict[str, dict[str, Any]] = {
    "vit": {"read": _read_vit, "write": _export_classes},
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
    height, width = (None, None) if size is None else check_image_size(size)
    numbers = {name: list(arguments[name]) * (channels // len(arguments[name])) for name in ("mean", "deviation")}
    return {
        "image_processor_type": "ViTImageProcessor",  # it does no more than this
        "do_resize": size is not None,
        **({} if size is None else {"size": {"height": height, "width": width}}),
        "do_rescale": True,
        "rescale_factor": RESCALED,
        "do_normalize": True,
        "image_mean": numbers["mean"],
        "image_std": numbers["deviation"],
    }
