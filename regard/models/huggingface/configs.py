"""Between their config.json and the arguments of our models, by the tables of an architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models.tensors import FolderError, Rule, UnsupportedError

__all__ = [
    "PLAIN",
    "check_exportable",
    "export_config",
    "export_labels",
    "import_arguments",
    "import_labels",
    "linear",
    "same_in_all",
]

Config = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]

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
# What most architectures have of a LanguageModel.
PLAIN = {
    "mixer": "attention",
    "score": (None, "dot"),
    "score_scale": None,
    "score_softcap": None,
    "qk_norm": False,
    "window": None,
    "output_norms": False,
    "scale_embeddings": False,
    "logit_softcap": None,
    "classes": 0,
}


def import_arguments(architecture: Any, config: Config, shapes: Shapes) -> dict[str, Any]:
    """Arguments of our model, from their config.json and the shapes of the tensors in their files."""
    for name, value in architecture.SUPPORTED.items():
        if config.get(name, value) != value:
            raise UnsupportedError(f"{name} {config[name]!r} is not supported, only {value!r}")
    arguments = {ours: config[theirs] for ours, theirs in architecture.NAMES.items()}
    entry = architecture.ACTIVATION
    if entry is not None:
        if config[entry] not in ACTIVATIONS:
            raise UnsupportedError(f"{entry} {config[entry]!r} is not supported, only {', '.join(ACTIVATIONS)}")
        arguments["activation"] = ACTIVATIONS[config[entry]]
    arguments.update(architecture.read_config(config, shapes))
    return arguments | _read_marks(arguments)


def _read_marks(arguments: Config) -> dict[str, Any]:
    """The first of several ids. Those outside the vocabulary mark nothing: defaults are of another vocabulary."""
    vocab_size = arguments.get("target_vocab_size", arguments.get("vocab_size"))
    marks: dict[str, Any] = {}
    for name in {"bos", "eos", "forbidden"} & arguments.keys():
        given = arguments[name] if isinstance(arguments[name], list) else [arguments[name]]
        ids = [mark for mark in given if not _is_outside(mark, vocab_size)]
        marks[name] = ids if name == "forbidden" else ids[0] if ids else None
    return marks


def _is_outside(mark: object, vocab_size: object) -> bool:
    """Whether it is an id, but not of this vocabulary."""
    return isinstance(mark, int) and isinstance(vocab_size, int) and not 0 <= mark < vocab_size


def export_config(architecture: Any, arguments: Config) -> dict[str, Any]:
    """The way back; FolderError where they cannot express our model."""
    arguments = _resolve(arguments)
    rest: dict[str, Any] = architecture.write_config(arguments)
    config = {theirs: arguments[ours] for ours, theirs in architecture.NAMES.items()}
    if architecture.ACTIVATION is not None:
        names = [theirs for theirs, ours in ACTIVATIONS.items() if ours == arguments["activation"]]
        if not names:
            raise FolderError(f"activation {arguments['activation']!r}")
        config[architecture.ACTIVATION] = names[0]
    return config | rest


def _resolve(arguments: Config) -> dict[str, Any]:
    """The arguments, with what those that are not given stand for, and one value where all layers have the same."""
    values = dict(arguments)
    if "ffn_size" in arguments:
        values["ffn_size"] = arguments["ffn_size"] or 4 * arguments["size"]
    if "head_size" in arguments:
        values["head_size"] = arguments["head_size"] or arguments["size"] // arguments["heads"]
    if "kv_heads" in arguments:
        values["kv_heads"] = arguments["kv_heads"] or arguments["heads"]
        for name, otherwise in (("attention_bias", "bias"), ("attention_output_bias", "attention_bias")):
            values[name] = values[otherwise] if arguments[name] is None else arguments[name]
        values |= {name: same_in_all(arguments[name]) for name in ("rotary_base", "window")}
    return values


def same_in_all(value: Any) -> Any:
    """What all layers have, where it is the same; else the list."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values[0] if len(set(values)) == 1 else values


def check_exportable(arguments: Config, **exportable: Any) -> None:
    """FolderError where an argument has another value than this, or than one of these."""
    for name, value in exportable.items():
        if arguments[name] not in (value if isinstance(value, tuple) else (value,)):
            raise FolderError(f"{name}={arguments[name]!r}")


def import_labels(config: Config, classes: int) -> list[str]:
    """The names of the classes; none where the config has only the default names."""
    by_id = config.get("id2label")
    if not isinstance(by_id, dict) or len(by_id) != classes:
        return []
    names = [by_id.get(str(number), by_id.get(number)) for number in range(classes)]
    if not all(isinstance(name, str) for name in names) or names == _numbered(classes) or len(set(names)) < classes:
        return []
    return [str(name) for name in names]


def export_labels(labels: list[str], classes: int) -> dict[str, str]:
    """The way back: a config names all classes."""
    return dict(zip(map(str, range(classes)), list(labels) or _numbered(classes), strict=True))


def _numbered(classes: int) -> list[str]:
    return [f"LABEL_{number}" for number in range(classes)]


def linear(
    ours: str, *theirs: str, heights: tuple[int, ...] = (), bias: bool = True, transposed: bool = False
) -> dict[str, Rule]:
    """Weight and bias of a layer: ours from one or several of theirs."""
    rules = {f"{ours}.weight": Rule(tuple(f"{name}.weight" for name in theirs), heights, transposed)}
    if bias:
        rules[f"{ours}.bias"] = Rule(tuple(f"{name}.bias" for name in theirs), heights)
    return rules
