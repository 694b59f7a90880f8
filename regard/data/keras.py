"""Keras' ResNet with its ImageNet head, in the format of TensorFlow.js: read, and written as a Hugging Face folder.

    model.json      the layers, and a manifest: names and shapes of the tensors, in the order of their numbers
    shards          float32 numbers, to be put end to end

Convolutions have a bias there, and batch norm another epsilon. Both go into the statistics of batch norm:

    γ (W x + b − μ) / √(σ² + ε) + β  =  γ (W x − μ′) / √(σ′² + ε′) + β        μ′ = μ − b,  σ′² = σ² + ε − ε′
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["convert"]

EPSILON = 1e-5  # of PyTorch's batch norm
MEAN = (123.68, 116.779, 103.939)  # of the training images in red, green and blue, from 0 to 255
DEVIATION = (0.229, 0.224, 0.225)  # from 0 to 1; Keras does not divide by it
IMAGE_SIZE = 224
BRANCHES = {"2a": "layer.0", "2b": "layer.1", "2c": "layer.2", "1": "shortcut"}
Arrays = dict[str, "NDArray[Any]"]


def convert(description: bytes, shards: Mapping[str, bytes], labels: Sequence[str], folder: Path) -> None:
    """Write the folder, from model.json, the contents of the shards by name, and the names of the classes."""
    from safetensors.numpy import save_file

    model = json.loads(description)
    layers = model["modelTopology"]["model_config"]["config"]["layers"]
    arrays = _read_arrays(model["weightsManifest"], shards)
    # Blocks are called 2a, 2b, … in the first stage, 3a, 3b, … in the second.
    blocks = sorted(name[3:5] for name in arrays if re.fullmatch(r"res\d[a-z]_branch2a/kernel", name))
    state = _state(arrays, blocks, {layer["name"]: layer["config"].get("epsilon") for layer in layers})
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    texts = {
        "config.json": json.dumps(_config(arrays, blocks, labels), indent=2),
        "preprocessor_config.json": json.dumps(_preprocessing(), indent=2),
        "README.md": "ResNet-50 of Keras, trained on ImageNet. Converted from TensorFlow.js.",
    }
    for name, text in texts.items():
        (folder / name).write_text(text + "\n", encoding="utf-8", newline="")


def _read_arrays(manifest: Sequence[Mapping[str, Any]], shards: Mapping[str, bytes]) -> Arrays:
    arrays: Arrays = {}
    for group in manifest:
        numbers, start = numpy.frombuffer(b"".join(shards[path] for path in group["paths"]), "<f4"), 0
        for entry in group["weights"]:
            end = start + int(numpy.prod(entry["shape"]))
            arrays[entry["name"]] = numbers[start:end].reshape(entry["shape"])
            start = end
    return arrays


def _state(arrays: Arrays, blocks: Sequence[str], epsilons: Mapping[str, float]) -> Arrays:
    """All tensors under Hugging Face's names."""
    stem = "resnet.embedder.embedder"
    state = _convolution(arrays, "conv1", "bn_conv1", epsilons, stem)
    # Images are blue, green, red there; here red, green, blue, and divided by 255 and by their deviation.
    scale = 255 * numpy.array(DEVIATION, "f4").reshape(-1, 1, 1)
    state[f"{stem}.convolution.weight"] = state[f"{stem}.convolution.weight"][:, ::-1] * scale
    for block in blocks:
        place = f"resnet.encoder.stages.{int(block[0]) - 2}.layers.{ord(block[1]) - ord('a')}"
        for branch, name in BRANCHES.items():
            layer = f"{block}_branch{branch}"
            if f"res{layer}/kernel" in arrays:  # a shortcut is not everywhere
                state |= _convolution(arrays, f"res{layer}", f"bn{layer}", epsilons, f"{place}.{name}")
    state |= {"classifier.1.weight": arrays["fc1000/kernel"].T, "classifier.1.bias": arrays["fc1000/bias"]}
    return {name: numpy.array(array, order="C") for name, array in state.items()}


def _convolution(arrays: Arrays, convolution: str, norm: str, epsilons: Mapping[str, float], name: str) -> Arrays:
    """A convolution without bias, and its batch norm with PyTorch's epsilon."""
    kernel = arrays[f"{convolution}/kernel"]  # (height, width, inputs, outputs)
    return {
        f"{name}.convolution.weight": kernel.transpose(3, 2, 0, 1),
        f"{name}.normalization.weight": arrays[f"{norm}/gamma"],
        f"{name}.normalization.bias": arrays[f"{norm}/beta"],
        f"{name}.normalization.running_mean": arrays[f"{norm}/moving_mean"] - arrays[f"{convolution}/bias"],
        f"{name}.normalization.running_var": arrays[f"{norm}/moving_variance"]
        + numpy.float32(epsilons[norm] - EPSILON),
        f"{name}.normalization.num_batches_tracked": numpy.zeros((), numpy.int64),
    }


def _config(arrays: Arrays, blocks: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    depths = list(Counter(block[0] for block in blocks).values())
    width = arrays["conv1/bias"].shape[0]
    counts = Counter(labels)
    # Two classes may have one name (crane is a bird and a machine): the number of the class tells them apart.
    names = {str(number): label if counts[label] == 1 else f"{label}_{number}" for number, label in enumerate(labels)}
    return {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "num_channels": 3,
        "embedding_size": width,
        "hidden_sizes": [4 * width * 2**stage for stage in range(len(depths))],
        "depths": depths,
        "layer_type": "bottleneck",
        "hidden_act": "relu",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": True,
        "id2label": names,
    }


def _preprocessing() -> dict[str, Any]:
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [number / 255 for number in MEAN],
        "image_std": list(DEVIATION),
    }
