"""ResNet for image classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.arguments import check_sizes
from regard.models.huggingface.configs import check_exportable, export_labels, import_labels, linear
from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, UnsupportedError

MODEL, PREFIX, ACTIVATION = "ResNet", "resnet.", None
SUPPORTED = {"hidden_act": "relu", "downsample_in_first_stage": False}
NAMES = {"depths": "depths", "width": "embedding_size", "channels": "num_channels"}
EXPANSIONS = {"basic": 1, "bottleneck": 4}  # how much deeper a block's output is than its first convolution
NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def read_config(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The other arguments."""
    if "classifier.1.weight" not in shapes:
        raise FolderError("the files hold no classifier; expected those of a ResNetForImageClassification")
    kind, depths = config["layer_type"], config["depths"]
    if kind not in EXPANSIONS:
        raise UnsupportedError(f"layer_type {kind!r} is not supported, only {', '.join(EXPANSIONS)}")
    check_sizes(layers=len(depths), width=config["embedding_size"])  # before powers of 2 are taken
    sizes = _hidden_sizes(config["embedding_size"], len(depths), kind)
    if list(config["hidden_sizes"]) != sizes:
        raise UnsupportedError(f"hidden_sizes {config['hidden_sizes']} is not supported, only {sizes}")
    classes = shapes["classifier.1.weight"][0]
    return {
        "classes": classes,
        "labels": import_labels(config, classes),
        "bottleneck": kind == "bottleneck",
        "stride_first": kind == "bottleneck" and config.get("downsample_in_bottleneck", False),
    }


def tensor_rules(model: Model) -> dict[str, Rule]:
    """Where each tensor of ours is in their files."""
    rules = linear("classifier", "classifier.1") | _convolution("stem", "embedder.embedder")
    places = [(stage, layer) for stage, depth in enumerate(model.config["depths"]) for layer in range(depth)]
    for number, (stage, layer) in enumerate(places):
        ours, theirs = f"blocks.{number}", f"encoder.stages.{stage}.layers.{layer}"
        rules |= _convolution(f"{ours}.shortcut", f"{theirs}.shortcut")
        for index in range(3 if model.config["bottleneck"] else 2):
            rules |= _convolution(f"{ours}.convolutions.{index}", f"{theirs}.layer.{index}")
    return rules


def is_ignored(name: str) -> bool:
    """Nothing: all of theirs is in ours."""
    return False


def write_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The other entries."""
    check_exportable(arguments, stem="imagenet")
    kind = "bottleneck" if arguments["bottleneck"] else "basic"
    return {
        "model_type": "resnet",
        "architectures": ["ResNetForImageClassification"],
        "layer_type": kind,
        "hidden_sizes": _hidden_sizes(arguments["width"], len(arguments["depths"]), kind),
        "hidden_act": "relu",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": arguments["stride_first"],
        "id2label": export_labels(arguments["labels"], arguments["classes"]),
    }


def _hidden_sizes(width: int, stages: int, kind: str) -> list[int]:
    return [width * EXPANSIONS[kind] * 2**stage for stage in range(stages)]


def _convolution(ours: str, theirs: str) -> dict[str, Rule]:
    """A convolution and the batch norm behind it."""
    rules = {f"{ours}.1.{name}": Rule((f"{theirs}.normalization.{name}",)) for name in NORM}
    return rules | {f"{ours}.0.weight": Rule((f"{theirs}.convolution.weight",))}
