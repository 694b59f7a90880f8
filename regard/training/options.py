"""The options of `regard train`: one dataclass for each task, which says in its docstring what is learned.

Defaults, then a YAML file, then flags, in this order.

Nothing heavy is imported here: `regard train TASK --help` is made from these fields, without torch. A new option is one
new field.
"""

import contextlib
import dataclasses
import difflib
import functools
import numbers
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files import ContentError, is_text, parse_yaml, read_file


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
    basic: bool = False,
) -> Any:
    """A dataclass field with what a flag needs, in `field.metadata`:

    default: None for what follows from the data (defaults.py): such an option has a type that None does not fit.
    help: the text of --help-all, without the default; --help shows what stands before its first semicolon.
    choices: the values that are accepted; empty for any value of the field's type (see `kind_of`).
    shape: whether it decides the model's shape, and nothing else; then it cannot be given together with init_from.
    mutable: whether it may change when a run is resumed.
    only: the one kind of model (the option `model`) that it applies to; None for all.
    basic: whether --help shows it; --help-all shows the others as well.
    """
    metadata = {"help": text, "choices": choices, "shape": shape, "mutable": mutable, "only": only, "basic": basic}
    return dataclasses.field(default=default, metadata=metadata)


TOKENIZERS = ("bpe", "character", "word")
SCORES = ("additive", "bilinear", "cosine", "dot", "gaussian")
SCHEDULES = ("constant", "cosine", "inverse-root", "linear")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of every task."""

    steps: int = option(None, "number of optimizer steps", mutable=True, basic=True)
    minutes: float | None = option(
        None, "end after this many minutes; the learning rate is planned for them", mutable=True, basic=True
    )
    batch: int = option(None, "number of tokens in a batch, padding included", basic=True)
    accumulate: int = option(1, "number of batches for each optimizer step")
    learning_rate: float = option(None, "peak of the learning rate, after the warm-up", basic=True)
    warmup: int = option(None, "number of steps in which the learning rate grows from 0")
    schedule: str = option("cosine", "learning-rate schedule after the warm-up", SCHEDULES)
    weight_decay: float = option(0.01, "weight decay of matrices, per step and learning rate")
    clip: float = option(1.0, "maximum norm of the gradient; 0: no clipping")
    average: float = option(
        None, "decay of a moving average of the weights, which is what is evaluated and saved; 0: none"
    )
    label_smoothing: float = option(0.0, "share of each target that is spread over all classes")
    dropout: float = option(None, "probability of dropout")
    evaluate_every: int = option(None, "number of steps between evaluations", mutable=True)
    save_every: int = option(None, "number of steps between checkpoints", mutable=True)
    patience: int = option(10, "stop after this many evaluations without a better one; 0: never", mutable=True)
    seed: int = option(0, "random seed", basic=True)
    on_error: str = option(
        "stop", "rows or images that cannot be read; the run stops, or skips them", ("stop", "skip"), basic=True
    )
    threads: int = option(0, "number of threads of this process; 0: PyTorch's choice", mutable=True)
    workers: int = option(0, "number of processes that prepare batches ahead", mutable=True)
    device: str = option("cpu", "device to compute on: cpu, cuda …", mutable=True)
    precision: str = option("float32", "numbers in products: float32, or bf16 (autocast)", ("float32", "bf16"))
    compile: bool = option(False, "compile the model (torch.compile)", mutable=True)
    checkpoint_activations: bool = option(
        False, "compute the activations of blocks again in the backward pass: less memory, more time", mutable=True
    )
    shard: bool = option(False, "split the model over the processes (FSDP2) instead of copying it (DDP)", mutable=True)
    init_from: str | None = option(
        None, "model folder to start from; its weights and tokenizer are used", mutable=True, basic=True
    )
    lora: int = option(0, "rank of low-rank adapters (LoRA) that are trained instead of the weights; 0: none")
    freeze: str | None = option(None, "layers that are not trained: prefixes of their names, joined by commas")
    layer_decay: float = option(1.0, "factor of the learning rate for each layer further from the output")
    tensorboard: bool = option(False, "write events for TensorBoard as well", mutable=True)
    wandb: str | None = option(None, "project of Weights & Biases to log to as well", mutable=True)
    widths: bool = option(False, "log the effective width of each head at each evaluation", mutable=True)

    def pick(self, *names: str) -> dict[str, Any]:
        """Some options by name, as arguments of a model: they are called the same there."""
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(Options):
    """Learn to translate, from a TSV file or from two text files side by side."""

    data: str | None = option(
        None, "TSV file, or the source's text file; default: an embedded grammar", mutable=True, basic=True
    )
    target: str | None = option(None, "text file with the translations of its lines", mutable=True, basic=True)
    language: str = option("fr", "target language of the embedded grammar", ("fr", "zh"), basic=True)
    model: str = option("rnn", "kind of model", ("rnn", "transformer"), shape=True, basic=True)
    attention: str | None = option(
        "additive", "score of the attention, or none", (*SCORES, "none"), shape=True, only="rnn", basic=True
    )
    input_feeding: bool = option(
        True,
        "the new state attends, not the one before: better translations, alignments less so",
        shape=True,
        only="rnn",
    )
    cell: str = option("gru", "kind of recurrent cell", ("gru", "lstm"), shape=True, only="rnn")
    size: int = option(None, "size of the word vectors; and of the Transformer's layers", shape=True, basic=True)
    hidden_size: int = option(None, "size of the hidden states", shape=True, only="rnn")
    layers: int = option(
        None, "number of layers; the encoder and the decoder have so many each", shape=True, basic=True
    )
    heads: int = option(None, "number of heads", shape=True, only="transformer")
    tokenizer: str = option("bpe", "kind of tokens", TOKENIZERS, shape=True)
    vocab_size: int = option(None, "maximum number of tokens", shape=True)
    lowercase: bool = option(False, "lowercase the source", shape=True)
    max_length: int = option(64, "maximum number of tokens of a sentence; longer pairs are left out")
    label_smoothing: float = option(0.1, "share of each target that is spread over all words")
    evaluate_pairs: int = option(500, "number of sentences translated at each evaluation; 0: all", mutable=True)
    beam_size: int = option(5, "hypotheses of the beam search of the test at the end", mutable=True)


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(Options):
    """Learn a language, from a text file or a folder of them."""

    data: str | None = option(
        None, "text file, or a folder of them; default: Python's own manual", mutable=True, basic=True
    )
    model: str = option("causal", "predict the next word, or masked words", ("causal", "masked"), basic=True)
    size: int = option(None, "size of the layers", shape=True, basic=True)
    layers: int = option(None, "number of layers", shape=True, basic=True)
    heads: int = option(None, "number of heads", shape=True)
    context: int = option(None, "number of tokens that the model sees at once", basic=True)
    positions: str = option("learned", "kind of position encoding", ("learned", "none", "sinusoidal"), shape=True)
    tokenizer: str = option("bpe", "kind of tokens", TOKENIZERS, shape=True, basic=True)
    vocab_size: int = option(None, "maximum number of tokens", shape=True)


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """Learn to classify texts, from a CSV, TSV or JSONL file with named columns."""

    data: str | None = option(None, "CSV, TSV or JSONL file", mutable=True, basic=True)
    text: str = option("text", "column of the texts", basic=True)
    label: str = option("label", "column of the classes", basic=True)
    examples: int = option(0, "number of examples to train on; 0: all")
    size: int = option(None, "size of the layers", shape=True, basic=True)
    layers: int = option(None, "number of layers", shape=True, basic=True)
    heads: int = option(None, "number of heads", shape=True)
    tokenizer: str = option("bpe", "kind of tokens", TOKENIZERS, shape=True)
    vocab_size: int = option(None, "maximum number of tokens", shape=True)
    max_length: int = option(128, "maximum number of tokens of a text; longer texts are cut", basic=True)


@dataclass(frozen=True, kw_only=True)
class ImagesOptions(Options):
    """Learn to classify images, from a folder for each class, idx files or an npz file."""

    data: str | None = option(
        None, "folder with a folder for each class, idx files, or npz; default: digits", mutable=True, basic=True
    )
    model: str = option("vit", "kind of model", ("resnet", "vit"), shape=True, basic=True)
    image_size: int = option(None, "edge in pixels to which images are scaled; 0: as they are", basic=True)
    patch_size: int = option(None, "edge of a patch in pixels", shape=True, only="vit", basic=True)
    size: int = option(None, "size of the layers", shape=True, only="vit")
    layers: int = option(None, "number of layers", shape=True, only="vit")
    heads: int = option(None, "number of heads", shape=True, only="vit")
    depths: str = option("3,3,3", "number of blocks of each stage", shape=True, only="resnet")
    width: int = option(None, "number of channels of the first stage", shape=True, only="resnet")
    examples: int = option(0, "number of examples to train on; 0: all")
    augment: bool = option(True, "shift the training images a little")
    flip: bool = option(False, "mirror half of the training images")
    batch: int = option(None, "number of images in a batch", basic=True)
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
        "input_feeding": False,
        "size": 128,
        "hidden_size": 192,
        "steps": 1_800,
        "batch": 900,
        "learning_rate": 4e-3,
        "label_smoothing": 0.0,
        "dropout": 0.1,
        "warmup": 100,
        "evaluate_every": 600,
        "evaluate_pairs": 200,
    },
    "language": {"vocab_size": 2_048, "dropout": 0.1},
    "text": {},
    "images": {"patch_size": 2, "batch": 128, "steps": 600, "width": 8, "evaluate_every": 100},
}

PACE = ("steps", "minutes", "evaluate_every", "save_every")
POSITIVE = (*PACE, "batch", "accumulate", "learning_rate", "layer_decay", "context")
SHARES = ("label_smoothing", "dropout", "average")
PATHS = ("data", "target", "init_from")
# Threads and processes beyond any machine end in a crash of the process; seeds are PyTorch's, of 64 bits.
MOST = {"threads": 1_024, "workers": 1_024, "seed": 2**63 - 1}
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


_type_hints = functools.cache(typing.get_type_hints)  # it evaluates those of all fields every time


def kind_of(field: dataclasses.Field[Any], owner: type) -> tuple[type, bool]:
    """The type of a field of an options class, and whether it may be None."""
    hint = _type_hints(owner)[field.name]
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next(part for part in parts if part is not type(None)), type(None) in parts


def _convert(field: dataclasses.Field[Any], owner: type[Options], value: Any) -> Any:
    """A value of the field's type, and one of its choices if it has some."""
    kind, optional = kind_of(field, owner)
    choices = field.metadata["choices"]
    if choices and value is not None and value not in choices:
        raise OptionError(f"{field.name}: expected one of {', '.join(choices)}, got {value!r}")
    if (optional and value in (None, "none")) or (value is None and field.default is None):
        return None
    # Numbers of NumPy are numbers, and PyYAML reads 1e-3 as a text.
    accepted: Any = {int: numbers.Integral, float: (numbers.Real, str)}.get(kind, ())
    if isinstance(value, accepted) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):
            value = kind(value)
    if kind is str and isinstance(value, Path):
        value = str(value)
    if type(value) is not kind:
        raise OptionError(f"{field.name}: expected {TYPE_NAMES[kind]}, got {value!r}")
    if field.name in PATHS and value == "":  # of an unset variable of a shell, and the working folder to Python
        raise OptionError(f"{field.name}: expected a name, got an empty one")
    if isinstance(value, str) and not is_text(value):  # training.yaml could not hold it
        raise OptionError(f"{field.name}: expected a name in UTF-8, got {value!r}: rename it")
    return value


def _check_range(field: dataclasses.Field[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    positive = field.name in POSITIVE or field.metadata["shape"]
    if not value > 0 if positive else not value >= 0:  # NaN is neither
        raise OptionError(f"{field.name}: expected {'more than 0' if positive else '0 or more'}, got {value}")
    if value > MOST.get(field.name, value):
        raise OptionError(f"{field.name}: expected {MOST[field.name]:,} at most, got {value:,}")
    if field.name in SHARES and value >= 1:
        raise OptionError(f"{field.name}: expected a share below 1, got {value}")


def applies(options: Options, name: str) -> bool:
    """Whether an option means anything for the kind of model that the options name."""
    return options.__dataclass_fields__[name].metadata["only"] in (None, getattr(options, "model", None))


def _check_applicable(options: Options, given: Mapping[str, Any], defaults: Options) -> None:
    """Refuse what was given and would be ignored, or makes no sense."""
    if options.lora and options.init_from is None:
        raise OptionError("lora: expected a model to start from (init_from): adapters change one that is trained")
    for name in given:
        if not applies(options, name) and getattr(options, name) != getattr(defaults, name):
            only, model = options.__dataclass_fields__[name].metadata["only"], getattr(options, "model", None)
            raise OptionError(f"{name}: applies to model {only} only, and this model is {model}")
    if isinstance(options, TranslateOptions) and options.data and options.language != TranslateOptions.language:
        raise OptionError("language: applies to the embedded grammar only, and data are given")


LARGEST_YAML = 1 << 17  # bytes: reading takes a second for each megabyte or so


def read_yaml(path: Path) -> dict[str, Any]:
    """Options from a file."""
    try:
        content = parse_yaml(read_file(path, LARGEST_YAML))
    except ContentError as error:
        raise OptionError(f"{path}: not readable as YAML: {error}") from error
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror or error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise OptionError(f"{path}: expected lines such as `steps: 1000`, got {type(content).__name__}")
    return {name.replace("-", "_"): value for name, value in content.items()}
