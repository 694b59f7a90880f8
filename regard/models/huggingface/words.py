"""Words that configs share, in theirs and in ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.tensors import FolderError, Rule

# Theirs → ours; the first of several names is the one that we write.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def activation(config: Mapping[str, Any], name: str) -> str:
    """Our name of an activation of theirs."""
    if config[name] not in ACTIVATIONS:
        raise FolderError(f"{name} {config[name]!r} is not supported, only {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[config[name]]


def their_activation(name: str) -> str:
    """Their name of an activation of ours."""
    found = [theirs for theirs, ours in ACTIVATIONS.items() if ours == name]
    if not found:
        raise FolderError(f"activation {name!r}")
    return found[0]


def labels(config: Mapping[str, Any], classes: int) -> list[str]:
    """The names of the classes, where the config has names that somebody chose."""
    found = config.get("id2label")
    if not isinstance(found, dict) or len(found) != classes:
        return []
    names = [found.get(str(number), found.get(number)) for number in range(classes)]
    if not all(isinstance(name, str) for name in names) or names == _numbered(classes) or len(set(names)) < classes:
        return []
    return [str(name) for name in names]


def their_labels(own: Mapping[str, Any], classes: int) -> dict[str, str]:
    """The way back: a config always has names."""
    return dict(zip(map(str, range(classes)), list(own["labels"]) or _numbered(classes), strict=True))


def _numbered(classes: int) -> list[str]:
    return [f"LABEL_{number}" for number in range(classes)]


def refuse(config: Mapping[str, Any], **expected: Any) -> None:
    """A FolderError where the config says something that is not built here: only these values are."""
    for name, value in expected.items():
        if config.get(name, value) != value:
            raise FolderError(f"{name} {config[name]!r} is not supported, only {value!r}")


def demand(config: Mapping[str, Any], **expected: Any) -> None:
    """The same for a config of ours that is to be exported."""
    for name, value in expected.items():
        values = value if isinstance(value, tuple) else (value,)
        if config[name] not in values:
            raise FolderError(f"{name}={config[name]!r}")


def linear(
    ours: str, *theirs: str, heights: tuple[int, ...] = (), bias: bool = True, transposed: bool = False
) -> dict[str, Rule]:
    """Weight and bias of a linear layer, of ours from one or several of theirs."""
    rules = {f"{ours}.weight": Rule(tuple(f"{name}.weight" for name in theirs), heights, transposed)}
    if bias:
        rules[f"{ours}.bias"] = Rule(tuple(f"{name}.bias" for name in theirs), heights)
    return rules
