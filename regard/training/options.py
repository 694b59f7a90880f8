"""The options of `regard train`: one dataclass for each task. Defaults, then a YAML file, then flags, in this order.

Nothing heavy is imported here: `regard train TASK --help` is made from these fields, without torch. A new option is one
new field.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError

__all__ = [
    *("BEAM_SIZE", "EMBEDDED", "TASKS", "ImagesOptions", "LanguageOptions", "OptionError", "Options", "TextOptions"),
    *("TranslateOptions", "kind_of", "read_yaml", "resolve"),
]


class OptionError(RegardError, ValueError):
    """An unknown option, or a value that an option does not accept."""


def option(
    default: Any,
    text: str,
    choices: tuple[str, ...] = (),
    *,
    shape: bool = False,
    mutable: bool = False,
    only: str | None = None,
) -> Any:
    """A dataclass field with what a flag needs, in `field.metadata`:

    help: the text of --help, without the default.
    choices: the values that are accepted; empty for any value of the field's type (see `kind_of`).
    shape: whether it decides the model's shape; then it cannot be given together with init_from.
    mutable: whether it may change when a run is resumed.
    only: the one kind of model (the option `model`) that it applies to; None for all.
    """
    metadata = {"help": text, "choices": choices, "shape": shape, "mutable": mutable, "only": only}
    return dataclasses.field(default=default, metadata=metadata)


BEAM_SIZE = 5  # of translations on the command line and of tests; evaluations on the way are greedy
TOKENIZERS = ("bpe", "character", "word")
SCORES = ("additive", "bilinear", "cosine", "dot", "gaussian")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of every task."""

    steps: int = option(2_000, "number of optimizer steps", mutable=True)
    minutes: float | None = option(
        None, "stop after this many minutes of training, evaluations not counted", mutable=True
    )
    batch: int = option(4_096, "number of tokens in a batch, padding included")
    accumulate: int = option(1, "number of batches for each optimizer step")
    learning_rate: float = option(1e-3, "peak of the learning rate, after the warm-up")
    warmup: int = option(100, "number of steps in which the learning rate grows from 0")
    schedule: str = option("cosine", "learning-rate schedule after the warm-up", ("constant", "cosine", "inverse-root"))
    weight_decay: float = option(0.01, "weight decay of matrices, per step and learning rate")
    clip: float = option(1.0, "maximum norm of the gradient; 0: no clipping")
    label_smoothing: float = option(0.0, "share of each target that is spread over all classes")
    dropout: float = option(0.1, "probability of dropout")
    evaluate_every: int = option(250, "number of steps between evaluations", mutable=True)
    save_every: int = option(250, "number of steps between checkpoints", mutable=True)
    patience: int = option(0, "stop after this many evaluations without a better one; 0: never", mutable=True)
    seed: int = option(0, "random seed")
    threads: int = option(0, "number of threads of this process; 0: PyTorch's choice", mutable=True)
    device: str = option("cpu", "device to compute on: cpu, cuda …", mutable=True)
    shard: bool = option(False, "split the model over the processes (FSDP2) instead of copying it (DDP)", mutable=True)
    init_from: str | None = option(None, "model folder to start from, with its weights and tokenizer", mutable=True)
    freeze: str | None = option(None, "layers that are not trained: prefixes of their names, joined by commas")
    layer_decay: float = option(1.0, "factor of the learning rate for each layer further from the output")
    tensorboard: bool = option(False, "write events for TensorBoard as well", mutable=True)
    widths: bool = option(False, "log the effective width of each head at each evaluation", mutable=True)


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(Options):
    """`regard train translate`: from sentences and their translations."""

    data: str | None = option(None, "TSV file, or the source's text file; default: an embedded grammar", mutable=True)
    target: str | None = option(None, "text file with the translation of each line of the source's file", mutable=True)
    language: str = option("fr", "target language of the embedded grammar", ("fr", "zh"))
    model: str = option("rnn", "kind of model", ("rnn", "transformer"), shape=True)
    attention: str | None = option(
        "additive", "score of the attention, or none", (*SCORES, "none"), shape=True, only="rnn"
    )
    cell: str = option("gru", "kind of recurrent cell", ("gru", "lstm"), shape=True, only="rnn")
    size: int = option(256, "size of the word vectors, and of the Transformer's layers", shape=True)
    hidden_size: int = option(512, "size of the hidden states", shape=True, only="rnn")
    layers: int = option(1, "number of layers of the encoder, and of the decoder", shape=True)
    heads: int = option(4, "number of heads", shape=True, only="transformer")
    tokenizer: str = option("bpe", "kind of tokens", TOKENIZERS, shape=True)
    vocab_size: int = option(8_000, "maximum number of tokens", shape=True)
    lowercase: bool = option(False, "lowercase the source", shape=True)
    max_length: int = option(64, "maximum number of tokens of a sentence; longer pairs are left out")
    learning_rate: float = option(1e-3, "peak of the learning rate, after the warm-up")
    label_smoothing: float = option(0.1, "share of each target that is spread over all words")
    dropout: float = option(0.2, "probability of dropout")
    evaluate_pairs: int = option(500, "number of sentences translated at each evaluation; 0: all", mutable=True)


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(Options):
    """`regard train language`: from text."""

    data: str | None = option(None, "text file, or a folder of them; default: Python's own manual", mutable=True)
    model: str = option("causal", "predict the next word, or masked words", ("causal", "masked"), shape=True)
    size: int = option(192, "size of the layers", shape=True)
    layers: int = option(4, "number of layers", shape=True)
    heads: int = option(6, "number of heads", shape=True)
    context: int = option(128, "number of tokens that the model sees at once", shape=True)
    positions: str = option("learned", "kind of position encoding", ("learned", "none", "sinusoidal"), shape=True)
    tokenizer: str = option("bpe", "kind of tokens", TOKENIZERS, shape=True)
    vocab_size: int = option(4_096, "maximum number of tokens", shape=True)
    steps: int = option(1_000, "number of optimizer steps", mutable=True)
    dropout: float = option(0.0, "probability of dropout; it makes attention slower")


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """`regard train text`: from texts with classes."""

    data: str | None = option(None, "CSV, TSV or JSONL file", mutable=True)
    text: str = option("text", "name of the column with the texts")
    label: str = option("label", "name of the column with the classes")
    examples: int = option(0, "number of examples to train on; 0: all")
    size: int = option(128, "size of the layers", shape=True)
    layers: int = option(2, "number of layers", shape=True)
    heads: int = option(4, "number of heads", shape=True)
    tokenizer: str = option("bpe", "kind of tokens", TOKENIZERS, shape=True)
    vocab_size: int = option(4_096, "maximum number of tokens", shape=True)
    max_length: int = option(128, "maximum number of tokens of a text; longer texts are cut")
    steps: int = option(600, "number of optimizer steps", mutable=True)
    learning_rate: float = option(5e-4, "peak of the learning rate, after the warm-up")
    evaluate_every: int = option(100, "number of steps between evaluations", mutable=True)


@dataclass(frozen=True, kw_only=True)
class ImagesOptions(Options):
    """`regard train images`: from images with classes."""

    data: str | None = option(
        None, "folder with a folder for each class, idx files, or npz; default: digits", mutable=True
    )
    model: str = option("vit", "kind of model", ("resnet", "vit"), shape=True)
    image_size: int = option(0, "edge in pixels to which images are scaled; 0: as they are", shape=True)
    patch_size: int = option(4, "edge of a patch in pixels", shape=True, only="vit")
    size: int = option(192, "size of the layers", shape=True, only="vit")
    layers: int = option(6, "number of layers", shape=True, only="vit")
    heads: int = option(6, "number of heads", shape=True, only="vit")
    depths: str = option("3,3,3", "number of blocks of each stage", shape=True, only="resnet")
    width: int = option(16, "number of channels of the first stage", shape=True, only="resnet")
    examples: int = option(0, "number of examples to train on; 0: all")
    augment: bool = option(True, "shift the training images a little")
    flip: bool = option(False, "mirror half of the training images")
    batch: int = option(128, "number of images in a batch")
    weight_decay: float = option(0.05, "weight decay of matrices, per step and learning rate")


TASKS: dict[str, type[Options]] = {
    "translate": TranslateOptions,
    "language": LanguageOptions,
    "text": TextOptions,
    "images": ImagesOptions,
}

# Defaults for the embedded data, which are smaller than the files that the defaults above are for.
EMBEDDED: dict[str, dict[str, Any]] = {
    "translate": {
        "tokenizer": "word",
        "lowercase": True,
        "size": 128,
        "hidden_size": 192,
        "steps": 1_000,
        "batch": 2_500,
        "learning_rate": 5e-3,
        "label_smoothing": 0.0,
        "dropout": 0.1,
        "evaluate_pairs": 200,
    },
    "language": {"vocab_size": 2_048, "dropout": 0.1},
    "text": {},
    "images": {"patch_size": 2, "size": 64, "layers": 4, "heads": 4, "steps": 600, "width": 8, "evaluate_every": 100},
}

POSITIVE = ("steps", "batch", "accumulate", "learning_rate", "evaluate_every", "save_every", "layer_decay", "minutes")
SHARES = ("label_smoothing", "dropout")
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def resolve(task: str, given: Mapping[str, Any]) -> Options:
    """The options of a task: the given ones, checked, and defaults for the others."""
    kind = TASKS.get(task)
    if kind is None:
        raise OptionError(f"task: expected one of {', '.join(TASKS)}, got {task!r}")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in given:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            raise OptionError(f"{name}: no option of {task}" + (f"; did you mean {near[0]}?" if near else ""))
    defaults = EMBEDDED[task] if given.get("data") is None else {}
    options = kind(**{**defaults, **{name: _convert(fields[name], kind, value) for name, value in given.items()}})
    for field in fields.values():
        _check_range(field, getattr(options, field.name))
    _check_applicable(options, given, kind(**defaults))
    return options


def kind_of(field: dataclasses.Field[Any], owner: type) -> tuple[type, bool]:
    """The type of a field of an options class, and whether it may be None."""
    hint = typing.get_type_hints(owner)[field.name]
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next(part for part in parts if part is not type(None)), type(None) in parts


def _convert(field: dataclasses.Field[Any], owner: type[Options], value: Any) -> Any:
    """A value of the field's type, and one of its choices if it has some."""
    kind, optional = kind_of(field, owner)
    choices = field.metadata["choices"]
    if choices and value is not None and value not in choices:
        raise OptionError(f"{field.name}: expected one of {', '.join(choices)}, got {value!r}")
    if optional and value in (None, "none"):
        return None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is str and isinstance(value, Path):
        value = str(value)
    if type(value) is not kind:
        raise OptionError(f"{field.name}: expected {TYPE_NAMES[kind]}, got {value!r}")
    return value


def _check_range(field: dataclasses.Field[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    positive = field.name in POSITIVE or (field.metadata["shape"] and field.name != "image_size")
    if not value > 0 if positive else not value >= 0:  # NaN is neither
        raise OptionError(f"{field.name}: expected {'more than 0' if positive else '0 or more'}, got {value}")
    if field.name in SHARES and value >= 1:
        raise OptionError(f"{field.name}: expected a share below 1, got {value}")


def _check_applicable(options: Options, given: Mapping[str, Any], defaults: Options) -> None:
    """Refuse what was given and would be ignored."""
    for field in dataclasses.fields(options):
        only, model = field.metadata["only"], getattr(options, "model", None)
        changed = field.name in given and getattr(options, field.name) != getattr(defaults, field.name)
        if only not in (None, model) and changed:
            raise OptionError(f"{field.name}: applies to model {only} only, and this model is {model}")
    if (
        isinstance(options, TranslateOptions)
        and options.data is not None
        and options.language != TranslateOptions.language
    ):
        raise OptionError("language: applies to the embedded grammar only, and data are given")


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
