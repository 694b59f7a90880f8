"""What an architecture of Hugging Face is: tables between its config.json, its tensors, and a model of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.models.model import Model
from regard.models.tensors import FolderError, Rule, UnsupportedError

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
# Arguments → entries of many configs.
USUAL = {
    "size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One `model_type`. Arguments are those of our model, entries those of their config.json."""

    model: str  # the class of ours
    kind: str  # the class of theirs
    prefix: str  # of the names of most tensors, unless a file holds the model without its head
    entries: Mapping[str, str | tuple[str, Any]]  # arguments → entries, with what they are where a config lacks them
    activation: str | None = None  # the entry that holds the activation; None: there is only one
    fixed: Config = field(default_factory=dict)  # arguments with one value only, or one of a tuple: the first is read
    same: Mapping[str, str] = field(default_factory=dict)  # arguments that have to be the same as others
    constant: Config = field(default_factory=dict)  # entries with one value only
    supported: Config = field(default_factory=dict)  # entries that can be read with this value only, and aren't written
    dropouts: tuple[str, ...] = ()  # entries that are the dropout when they are written; it is not read
    read: Callable[[Config, Shapes], dict[str, Any]] = lambda config, shapes: {}  # the other arguments
    # The other entries; FolderError where they cannot express the model. None: the architecture is read only, as
    # another one expresses whatever it does.
    write: Callable[[Config], dict[str, Any]] | None = lambda arguments: {}
    # Layers or tensors, ours → theirs. # is the number of a block; (a|b) are two of theirs that are one of ours.
    tensors: Mapping[str, str] | Callable[[Config], Mapping[str, str]]
    place: Callable[[Config, int], str] = lambda arguments, number: str(number)  # of a block: what # stands for
    ignored: str = "(?!)"  # a pattern of tensors of theirs that hold nothing new
    transposed: bool = False  # matrices of blocks are written so
    norm_offset: float = 0.0  # what their norms' weights are less than ours
    first_position: int = 0  # of a token: rows of learned positions before it are not used

    def import_arguments(self, config: Config, shapes: Shapes) -> dict[str, Any]:
        """Arguments of our model, from their config.json and the shapes of the tensors in their files."""
        for name, value in {**self.supported, **self.constant}.items():
            if config.get(name, value) != value:
                raise UnsupportedError(f"{name} {config[name]!r} is not supported, only {value!r}")
        arguments = {name: value[0] if isinstance(value, tuple) else value for name, value in self.fixed.items()}
        for ours, entry in self.entries.items():
            arguments[ours] = config[entry] if isinstance(entry, str) else config.get(*entry)
        if self.activation is not None:
            activation = config[self.activation]
            if activation not in ACTIVATIONS:
                names = ", ".join(ACTIVATIONS)
                raise UnsupportedError(f"{self.activation} {activation!r} is not supported, only {names}")
            arguments["activation"] = ACTIVATIONS[activation]
        arguments |= self.read(config, shapes)
        return arguments | _read_marks(arguments)

    def export_config(self, arguments: Config) -> dict[str, Any]:
        """The way back; FolderError where they cannot express our model."""
        assert self.write is not None
        arguments = _resolve(arguments)
        check_exportable(arguments, **self.fixed)
        check_exportable(arguments, **{name: arguments[other] for name, other in self.same.items()})
        rest = self.write(arguments)
        config: dict[str, Any] = {"architectures": [self.kind], **self.constant}
        for ours, entry in self.entries.items():
            config[entry if isinstance(entry, str) else entry[0]] = arguments[ours]
        if self.activation is not None:
            names = [theirs for theirs, ours in ACTIVATIONS.items() if ours == arguments["activation"]]
            if not names:
                raise FolderError(f"activation {arguments['activation']!r}")
            config[self.activation] = names[0]
        return config | dict.fromkeys(self.dropouts, arguments.get("dropout")) | rest

    def tensor_rules(self, model: Model) -> dict[str, Rule]:
        """Where each tensor of ours is in their files."""
        table = self.tensors(model.config) if callable(self.tensors) else self.tensors
        rules = {}
        for name, tensor in model.state_dict().items():
            numbers = re.findall(r"blocks\.(\d+)\.", name)
            pattern = re.sub(r"blocks\.\d+\.", "blocks.#.", name)
            layer, _, part = pattern.rpartition(".")
            theirs = table[pattern] if pattern in table else f"{table[layer]}.{part}"
            for number in numbers:
                theirs = theirs.replace("#", self.place(model.config, int(number)))
            before, *alternatives = re.split(r"\((.+)\)", theirs)
            names, heights = [theirs], ()
            if alternatives:
                names = [f"{before}{middle}{alternatives[1]}" for middle in alternatives[0].split("|")]
                heights = model.get_submodule(name.partition(".in_proj")[0]).widths  # type: ignore[assignment]
            rules[name] = Rule(
                tuple(names),
                heights,
                transposed=self.transposed and bool(numbers) and tensor.dim() == 2,
                skipped=self.first_position if name == "position_embedding.weight" else 0,
                offset=self.norm_offset if "norm" in name else 0.0,
            )
        return rules

    def is_ignored(self, name: str) -> bool:
        """Whether a tensor of theirs holds nothing new."""
        return re.fullmatch(self.ignored, name) is not None


def _read_marks(arguments: Config) -> dict[str, Any]:
    """The first of several ids. Those outside the vocabulary mark nothing: defaults are of another vocabulary."""
    vocab_size = arguments.get("target_vocab_size", arguments.get("vocab_size"))
    marks: dict[str, Any] = {}
    for name in {"bos", "eos", "forbidden"} & arguments.keys():
        given = arguments[name] if isinstance(arguments[name], list) else [arguments[name]]
        is_size = isinstance(vocab_size, int)
        ids = [mark for mark in given if not (is_size and isinstance(mark, int) and not 0 <= mark < vocab_size)]
        marks[name] = ids if name == "forbidden" else ids[0] if ids else None
    return marks


def _resolve(arguments: Config) -> dict[str, Any]:
    """The arguments, with what those that are not given stand for, and one value where all layers have the same."""
    values = dict(arguments)
    if "ffn_size" in arguments:
        values["ffn_size"] = arguments["ffn_size"] or 4 * arguments["size"]
    if "head_size" in arguments:
        values["head_size"] = arguments["head_size"] or arguments["size"] // arguments["heads"]
    for name in ("layers", "heads", "ffn_size"):
        if f"decoder_{name}" in arguments:
            values[f"decoder_{name}"] = arguments[f"decoder_{name}"] or values[name]
    if "kv_heads" in arguments:
        values["kv_heads"] = arguments["kv_heads"] or arguments["heads"]
        for name, otherwise in (("attention_bias", "bias"), ("attention_output_bias", "attention_bias")):
            values[name] = values[otherwise] if arguments[name] is None else arguments[name]
        values |= {name: same_in_all(arguments[name]) for name in ("rotary_base", "window")}
    if "forbidden" in arguments:
        values["forbidden"] = list(arguments["forbidden"])
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


def import_classes(config: Config, shapes: Shapes, classifier: str = "classifier.weight") -> dict[str, Any]:
    """How many classes the tensor `classifier` has, and their names; none where a config has only the default ones."""
    classes = shapes[classifier][0] if classifier in shapes else 0
    by_id = config.get("id2label")
    if not isinstance(by_id, dict) or len(by_id) != classes:
        return {"classes": classes, "labels": []}
    names = [by_id.get(str(number), by_id.get(number)) for number in range(classes)]
    different = all(isinstance(name, str) for name in names) and len(set(names)) == classes
    return {"classes": classes, "labels": names if different and names != _numbered(classes) else []}


def export_labels(labels: list[str], classes: int) -> dict[str, str]:
    """The way back: a config always has names."""
    return dict(zip(map(str, range(classes)), list(labels) or _numbered(classes), strict=True))


def _numbered(classes: int) -> list[str]:
    return [f"LABEL_{number}" for number in range(classes)]
