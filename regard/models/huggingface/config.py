"""What the config.json of several architectures have in common, in their names and in ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.tensors import FolderError, Rule

# Theirs → ours; the first of several names is the one that is exported.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def import_arguments(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ours from entries of theirs, by a table of names: ours → theirs."""
    return {ours: config[theirs] for ours, theirs in names.items()}


def export_arguments(arguments: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The way back. Every config of theirs has a size of the feed-forward nets."""
    sizes = {"ffn_size": arguments["ffn_size"] or 4 * arguments["size"]}
    return {theirs: sizes.get(ours, arguments[ours]) for ours, theirs in names.items()}


def import_activation(name: str, value: Any) -> str:
    """Our name of an activation of theirs, which the entry `name` holds."""
    if value not in ACTIVATIONS:
        raise FolderError(f"{name} {value!r} is not supported, only {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def export_activation(activation: str) -> str:
    """Their name of an activation of ours."""
    for theirs, ours in ACTIVATIONS.items():
        if ours == activation:
            return theirs
    raise FolderError(f"activation {activation!r}")


def import_labels(config: Mapping[str, Any], classes: int) -> list[str]:
    """The names of the classes; none where the config has only the names that are there by default."""
    by_id = config.get("id2label")
    if not isinstance(by_id, dict) or len(by_id) != classes:
        return []
    names = [by_id.get(str(number), by_id.get(number)) for number in range(classes)]
    if not all(isinstance(name, str) for name in names) or names == _numbered(classes) or len(set(names)) < classes:
        return []
    return [str(name) for name in names]


def export_labels(labels: list[str], classes: int) -> dict[str, str]:
    """The way back: a config always has names."""
    return dict(zip(map(str, range(classes)), list(labels) or _numbered(classes), strict=True))


def _numbered(classes: int) -> list[str]:
    return [f"LABEL_{number}" for number in range(classes)]


def check_supported(config: Mapping[str, Any], **supported: Any) -> None:
    """A FolderError where the config asks for something else than these values."""
    for name, value in supported.items():
        if config.get(name, value) != value:
            raise FolderError(f"{name} {config[name]!r} is not supported, only {value!r}")


def check_exportable(arguments: Mapping[str, Any], **supported: Any) -> None:
    """The same for arguments of ours; a tuple holds several values that can be exported."""
    for name, value in supported.items():
        values = value if isinstance(value, tuple) else (value,)
        if arguments[name] not in values:
            raise FolderError(f"{name}={arguments[name]!r}")


def linear(
    ours: str, *theirs: str, heights: tuple[int, ...] = (), bias: bool = True, transposed: bool = False
) -> dict[str, Rule]:
    """Weight and bias of a layer: ours from one or several of theirs."""
    rules = {f"{ours}.weight": Rule(tuple(f"{name}.weight" for name in theirs), heights, transposed)}
    if bias:
        rules[f"{ours}.bias"] = Rule(tuple(f"{name}.bias" for name in theirs), heights)
    return rules
