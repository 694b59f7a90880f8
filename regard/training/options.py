"""What a training run can be told: one dataclass for each task, from defaults, a YAML file and flags, in this order.

Nothing heavy is imported here: `regard train --help` is made from these fields. A new option is one field.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import RegardError

__all__ = ["TASKS", "Images", "Language", "OptionError", "Options", "Text", "Translate", "read_yaml", "resolved"]


class OptionError(RegardError, ValueError):
    """An option that cannot be, and why."""


def option(
    default: Any,
    text: str,
    choices: tuple[str, ...] = (),
    *,
    shape: bool = False,
    later: bool = False,
    only: str | None = None,
) -> Any:
    """A field with its help.

    `shape`: it decides the model's shape; `later`: it may change when a run is resumed; `only`: the one kind of model
    that it means something for.
    """
    metadata = {"help": text, "choices": choices, "shape": shape, "later": later, "only": only}
    return field(default=default, metadata=metadata)


TOKENIZERS = ("bpe", "character", "word")
SCORES = ("additive", "bilinear", "cosine", "dot", "gaussian")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every task understands."""

    steps: int = option(2_000, "how often the weights change", later=True)
    minutes: float | None = option(None, "stop after this time of training, evaluations not counted", later=True)
    batch: int = option(4_096, "tokens (images: images) in a batch, padding included")
    accumulate: int = option(1, "batches for each change of the weights")
    learning_rate: float = option(1e-3, "the highest, after the warm-up")
    warmup: int = option(100, "steps in which the learning rate grows from 0")
    schedule: str = option("cosine", "how the rate falls after the warm-up", ("constant", "cosine", "inverse-root"))
    weight_decay: float = option(0.01, "of matrices, per step and learning rate")
    clip: float = option(1.0, "longest gradient; 0: any")
    smoothing: float = option(0.0, "share of each target that all classes get")
    dropout: float = option(0.1, "share of the numbers that training leaves out")
    evaluate_every: int = option(250, "steps between evaluations", later=True)
    save_every: int = option(250, "steps between checkpoints", later=True)
    patience: int = option(0, "stop after this many evaluations that were no better; 0: never", later=True)
    seed: int = option(0, "of everything that is random")
    threads: int = option(0, "of this process; 0: as many as PyTorch chooses", later=True)
    device: str = option("cpu", "where to compute: cpu, cuda …", later=True)
    shard: bool = option(False, "split the model over the processes (FSDP2) instead of copying it (DDP)", later=True)
    init_from: str | None = option(None, "a model folder to begin with: its layers, its tokenizer", later=True)
    freeze: str | None = option(None, "layers that stay as they are: beginnings of names, joined by commas")
    layer_decay: float = option(1.0, "factor of the learning rate for each layer further from the output")
    tensorboard: bool = option(False, "write events for TensorBoard as well", later=True)
    widths: bool = option(False, "write into the log how wide each head looks, at each evaluation", later=True)


@dataclass(frozen=True, kw_only=True)
class Translate(Options):
    """`regard train translate`: from sentences and their translations."""

    data: str | None = option(None, "a TSV file, or the source's text file; without it a grammar", later=True)
    target: str | None = option(None, "the target's text file, line by line beside the source's", later=True)
    language: str = option("fr", "of the embedded grammar", ("fr", "zh"))
    model: str = option("rnn", "which kind", ("rnn", "transformer"), shape=True)
    attention: str | None = option("additive", "score, or none", (*SCORES, "none"), shape=True, only="rnn")
    cell: str = option("gru", "kind of cell", ("gru", "lstm"), shape=True, only="rnn")
    size: int = option(256, "of the word vectors, and of the Transformer's layers", shape=True)
    hidden: int = option(512, "size of the states", shape=True, only="rnn")
    layers: int = option(1, "of the encoder and of the decoder", shape=True)
    heads: int = option(4, "how many", shape=True, only="transformer")
    tokenizer: str = option("bpe", "what a token is", TOKENIZERS, shape=True)
    vocab_size: int = option(8_000, "most tokens", shape=True)
    lowercase: bool = option(False, "read the source without capitals", shape=True)
    max_length: int = option(64, "tokens of a sentence; pairs with more are left out")
    learning_rate: float = option(1e-3, "the highest, after the warm-up")
    smoothing: float = option(0.1, "share of each target that all words get")
    dropout: float = option(0.2, "share of the numbers that training leaves out")
    evaluate_pairs: int = option(500, "sentences that are translated at each evaluation; 0: all", later=True)


@dataclass(frozen=True, kw_only=True)
class Language(Options):
    """`regard train language`: from text."""

    data: str | None = option(None, "a text file, or a folder of them; without it Python's own manual", later=True)
    model: str = option("causal", "guess the next word, or words behind masks", ("causal", "masked"), shape=True)
    size: int = option(192, "of the layers", shape=True)
    layers: int = option(4, "how many", shape=True)
    heads: int = option(6, "how many", shape=True)
    context: int = option(128, "tokens that the model sees at once", shape=True)
    positions: str = option("learned", "kind of positions", ("learned", "none", "sinusoidal"), shape=True)
    tokenizer: str = option("bpe", "what a token is", TOKENIZERS, shape=True)
    vocab_size: int = option(4_096, "most tokens", shape=True)
    steps: int = option(1_000, "how often the weights change", later=True)
    dropout: float = option(0.0, "share of the numbers that training leaves out; it makes attention slower")


@dataclass(frozen=True, kw_only=True)
class Text(Options):
    """`regard train text`: from texts with classes."""

    data: str | None = option(None, "a CSV, TSV or JSONL file", later=True)
    text: str = option("text", "the column of the texts")
    label: str = option("label", "the column of the classes")
    examples: int = option(0, "train on this many of the examples only; 0: all")
    size: int = option(128, "of the layers", shape=True)
    layers: int = option(2, "how many", shape=True)
    heads: int = option(4, "how many", shape=True)
    tokenizer: str = option("bpe", "what a token is", TOKENIZERS, shape=True)
    vocab_size: int = option(4_096, "most tokens", shape=True)
    max_length: int = option(128, "tokens of a text; what comes after them is not read")
    steps: int = option(600, "how often the weights change", later=True)
    learning_rate: float = option(5e-4, "the highest, after the warm-up")
    evaluate_every: int = option(100, "steps between evaluations", later=True)


@dataclass(frozen=True, kw_only=True)
class Images(Options):
    """`regard train images`: from images with classes."""

    data: str | None = option(None, "a folder for each class, idx files or npz; without it digits", later=True)
    model: str = option("vit", "which kind", ("resnet", "vit"), shape=True)
    image_size: int = option(0, "edge to which images are brought; 0: as they are", shape=True)
    patch: int = option(4, "edge of a patch", shape=True, only="vit")
    size: int = option(192, "of the layers", shape=True, only="vit")
    layers: int = option(6, "how many", shape=True, only="vit")
    heads: int = option(6, "how many", shape=True, only="vit")
    depths: str = option("3,3,3", "blocks of each stage", shape=True, only="resnet")
    width: int = option(16, "of the first stage", shape=True, only="resnet")
    examples: int = option(0, "train on this many of the examples only; 0: all")
    augment: bool = option(True, "shift the training images a little")
    flip: bool = option(False, "mirror half of the training images")
    batch: int = option(128, "images in a batch")
    weight_decay: float = option(0.05, "of matrices, per step and learning rate")


TASKS: dict[str, type[Options]] = {"translate": Translate, "language": Language, "text": Text, "images": Images}

# What suits the embedded data better than the defaults, which are for files of one's own.
EMBEDDED: dict[str, dict[str, Any]] = {
    "translate": {
        "tokenizer": "word",
        "lowercase": True,
        "size": 128,
        "hidden": 192,
        "steps": 1_000,
        "batch": 2_500,
        "learning_rate": 5e-3,
        "smoothing": 0.0,
        "dropout": 0.1,
        "evaluate_pairs": 200,
    },
    "language": {"vocab_size": 2_048, "dropout": 0.1},
    "text": {},
    "images": {"patch": 2, "size": 64, "layers": 4, "heads": 4, "steps": 600, "width": 8, "evaluate_every": 100},
}


def resolved(task: str, given: Mapping[str, Any]) -> Options:
    """The options of a task: what was given, and the defaults for the rest."""
    kind = TASKS.get(task)
    if kind is None:
        raise OptionError(f"task: expected one of {', '.join(TASKS)}, got {task!r}")
    names = [own.name for own in dataclasses.fields(kind)]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise OptionError(f"{name}: no option of {task}" + (f"; did you mean {near[0]}?" if near else ""))
    embedded = EMBEDDED[task] if given.get("data") is None else {}
    options = kind(**{**embedded, **{name: _checked(kind, name, value) for name, value in given.items()}})
    _check(options)
    _check_used(options, given, kind(**embedded))
    return options


def _check_used(options: Options, given: Mapping[str, Any], defaults: Options) -> None:
    """Nothing that was chosen may mean nothing."""
    for own in dataclasses.fields(options):
        only, model = own.metadata["only"], getattr(options, "model", None)
        chosen = own.name in given and getattr(options, own.name) != getattr(defaults, own.name)
        if only not in (None, model) and chosen:
            raise OptionError(f"{own.name}: is for model {only}, and this one is a {model}")
    if isinstance(options, Translate) and options.data is not None and options.language != Translate.language:
        raise OptionError("language: is of the embedded grammar, and there is data of your own")


def kind_of(own: dataclasses.Field[Any], owner: type) -> tuple[type, bool]:
    """The type of a field, and whether it may be None."""
    hint = typing.get_type_hints(owner)[own.name]
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next(part for part in parts if part is not type(None)), type(None) in parts


def _checked(owner: type[Options], name: str, value: Any) -> Any:
    """A value of the right type, and one of the choices where there are some."""
    own = next(own for own in dataclasses.fields(owner) if own.name == name)
    kind, optional = kind_of(own, owner)
    choices = own.metadata["choices"]
    if choices and value is not None and value not in choices:
        raise OptionError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
    if optional and value in (None, "none"):
        return None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is str and isinstance(value, Path):
        value = str(value)
    if type(value) is not kind:
        raise OptionError(f"{name}: expected {_called(kind)}, got {value!r}")
    return value


def _called(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]


POSITIVE = ("steps", "batch", "accumulate", "learning_rate", "evaluate_every", "save_every", "layer_decay", "minutes")
SHARES = ("smoothing", "dropout")


def _check(options: Options) -> None:
    for own in dataclasses.fields(options):
        value = getattr(options, own.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        positive = own.name in POSITIVE or (own.metadata["shape"] and own.name != "image_size")
        if not value > 0 if positive else not value >= 0:
            raise OptionError(f"{own.name}: expected {'more than 0' if positive else '0 or more'}, got {value}")
        if own.name in SHARES and value >= 1:
            raise OptionError(f"{own.name}: expected a share below 1, got {value}")


def read_yaml(path: Path) -> dict[str, Any]:
    """Options from a file."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror or error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise OptionError(f"{path}: expected lines such as `steps: 1000`, got {type(content).__name__}")
    return {name.replace("-", "_"): value for name, value in content.items()}
