"""What an architecture of Hugging Face is: tables between its config.json, its tensors, and a model of ours, which are
in architectures.toml."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
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


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One `model_type`: a table of architectures.toml, and functions for what a table cannot say.

    Arguments are those of our model, entries those of their config.json.
    """

    model: str
    kind: str
    prefix: str
    entries: Mapping[str, str]
    tensors: Mapping[str, str]
    kinds: Sequence[str] = ()
    activation: str | None = None
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS)
    heads: Mapping[str, str] = field(default_factory=dict)
    classes: str | None = None
    dropouts: Sequence[str] = ()
    optional: Sequence[str] = ()
    missing: Config = field(default_factory=dict)
    fixed: Config = field(default_factory=dict)
    unset: Sequence[str] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    constant: Config = field(default_factory=dict)
    supported: Config = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    ignored: str = "(?!)"
    transposed: bool = False
    norm_offset: float = 0.0
    first_position: int = 0
    read: Callable[[Config, Shapes], dict[str, Any]] = lambda config, shapes: {}  # the other arguments
    # The other entries; FolderError where they cannot express the model. None: the architecture is read only, as
    # another one expresses whatever it does.
    write: Callable[[Config], dict[str, Any]] | None = lambda arguments: {}
    more_tensors: Callable[[Config], dict[str, str]] = lambda arguments: {}  # by arguments
    place: Callable[[Config, int], str] = lambda arguments, number: str(number)  # of a block: what # stands for

    def import_arguments(self, config: Config, shapes: Shapes) -> dict[str, Any]:
        """Arguments of our model, from their config.json and the shapes of the tensors in their files."""
        for name, value in {**self.supported, **self.constant}.items():
            if config.get(name, value) != value:
                raise UnsupportedError(f"{name} {config[name]!r} is not supported, only {value!r}")
        for kind in (config.get("architectures") or ()) if self.kinds else ():
            if kind.startswith(self.family) and kind.removeprefix(self.family) not in self.kinds:
                known = ", ".join(self.kinds)
                raise UnsupportedError(f"architecture {kind!r} is not supported, only {self.family} with {known}")
        arguments: dict[str, Any] = {**dict.fromkeys(self.unset), **self.fixed}
        for ours, entry in self.entries.items():
            left_out = entry not in config and (entry in self.optional or entry in self.missing)
            arguments[ours] = self.missing.get(entry) if left_out else config[entry]
        if self.first_position:
            arguments["max_positions"] -= self.first_position
        if self.activation is not None:
            activation = (config if self.activation in config else self.missing)[self.activation]
            if activation not in self.activations:
                names = ", ".join(self.activations)
                raise UnsupportedError(f"{self.activation} {activation!r} is not supported, only {names}")
            arguments["activation"] = self.activations[activation]
        arguments |= {head: tensor in shapes for head, tensor in self.heads.items()}
        if self.classes is not None:
            arguments |= self._import_classes(config, shapes.get(self.classes, (0,))[0])
        arguments |= self.read(config, shapes)
        return arguments | _read_marks(arguments)

    def export_config(self, arguments: Config) -> dict[str, Any]:
        """The way back; FolderError where they cannot express our model."""
        assert self.write is not None
        arguments = _resolve(arguments)
        check_exportable(arguments, **dict.fromkeys(self.unset), **self.fixed)
        check_exportable(arguments, **{name: arguments[other] for name, other in self.same.items()})
        rest = self.write(arguments)
        config: dict[str, Any] = {"architectures": [self.kind], **self.constant}
        config |= {entry: arguments[ours] for ours, entry in self.entries.items()}
        if self.activation is not None:
            names = [theirs for theirs, ours in self.activations.items() if ours == arguments["activation"]]
            if not names:
                raise FolderError(f"activation={arguments['activation']!r}")
            config[self.activation] = names[0]
        if self.kinds:
            head = "ForMaskedLM" if arguments["mlm_head"] else "ForSequenceClassification"
            has_head = arguments["mlm_head"] or arguments["classes"]
            config["architectures"] = [self.family + head if has_head else self.kind]
        if self.classes is not None:
            count = arguments["classes"] or 2  # as many as a config has that says nothing
            labels = list(arguments["labels"]) or _numbered(count)
            config["id2label"] = dict(zip(map(str, range(count)), labels, strict=True))
        return config | dict.fromkeys(self.dropouts, arguments.get("dropout")) | rest

    @property
    def family(self) -> str:
        """How the names of its classes begin, whatever their heads."""
        return self.kind.removesuffix("Model")

    def _import_classes(self, config: Config, classes: int) -> dict[str, Any]:
        """How many classes there are, and their names; none where a config has only the default ones."""
        if not classes and not self.kinds:
            raise FolderError(f"the files hold no classifier; expected those of a {self.kind}")
        by_id = config.get("id2label")
        if not isinstance(by_id, dict) or len(by_id) != classes:
            return {"classes": classes, "labels": []}
        names = [by_id.get(str(number), by_id.get(number)) for number in range(classes)]
        different = all(isinstance(name, str) for name in names) and len(set(names)) == classes
        return {"classes": classes, "labels": names if different and names != _numbered(classes) else []}

    def tensor_rules(self, model: Model) -> dict[str, Rule]:
        """Where each tensor of ours is in their files."""
        table = {**self.tensors, **self.more_tensors(model.config)}
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


def read_tables() -> dict[str, dict[str, Any]]:
    """architectures.toml, with what architectures that are like others have from them."""
    tables = tomllib.loads(resources.files(__package__).joinpath("architectures.toml").read_text(encoding="utf-8"))
    for table in tables.values():
        without = table.pop("without", ())
        for name, given in tables[table.pop("like")].items() if "like" in table else ():
            if isinstance(given, dict):
                kept = {key: value for key, value in given.items() if key not in without}
                table[name] = kept | table.get(name, {})
            elif isinstance(given, list):
                table[name] = [key for key in given if key not in without] + table.get(name, [])
            else:
                table.setdefault(name, given)
    return tables


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
        values["size / heads"] = arguments["size"] // arguments["heads"]
        values["head_size"] = arguments["head_size"] or values["size / heads"]
    for name in ("layers", "heads", "ffn_size"):
        if f"decoder_{name}" in arguments:
            values[f"decoder_{name}"] = arguments[f"decoder_{name}"] or values[name]
    if "kv_heads" in arguments:
        values["kv_heads"] = arguments["kv_heads"] or arguments["heads"]
        for name, otherwise in (("attention_bias", "bias"), ("attention_output_bias", "attention_bias")):
            values[name] = values[otherwise] if arguments[name] is None else arguments[name]
        values |= {name: same_in_all(arguments[name]) for name in ("rotary_base", "window")}
    if arguments.get("score") == "dot":
        values["score"] = None  # which is the same
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


def _numbered(classes: int) -> list[str]:
    return [f"LABEL_{number}" for number in range(classes)]
