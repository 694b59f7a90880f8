"""The tasks: one file each."""

import dataclasses
from typing import Any

import torch

from regard.data.split import SplitError
from regard.errors import RegardError
from regard.training.options import ImagesOptions, LanguageOptions, OptionError, Options, TextOptions, TranslateOptions
from regard.training.task import Task, TaskError, Tokenizers
from regard.training.tasks import images, language, text, translate

MODULES: dict[str, Any] = {"translate": translate, "language": language, "text": text, "images": images}
VOCAB_SIZE = 16  # any number that has room for the special tokens
DIGITS = 8  # edge of the embedded images


def prepare(name: str, options: Options, tokenizers: Tokenizers | None = None, model: Any = None) -> Task:
    """Read the data that the options name, and build the model that they describe.

    tokenizers: those of the run that is resumed; without them new ones are trained.
    model: one that is trained already, to evaluate; without it an untrained one is built.
    """
    try:
        task: Task = MODULES[name].prepare(options, tokenizers or Tokenizers(), model)
    except SplitError as error:
        raise TaskError(f"{getattr(options, 'data', name)}: {error}") from error
    except RegardError:
        raise
    except ValueError as error:  # of a model's constructor, which refuses what the options say
        raise TaskError(str(error)) from error
    return task


def check_shapes(options: Options) -> None:
    """Refuse options of which no model can be made, before data are read.

    The model is made on the meta device, where it takes neither time nor memory. What the data decide is chosen to fit:
    options that contradict only the data are refused with them.
    """
    if options.init_from is not None:  # the model is that of the folder
        return
    if getattr(options, "max_length", 1) < 1:
        raise OptionError(f"max_length: expected more than 0, got {getattr(options, 'max_length', 1)}")
    heads = getattr(options, "heads", None) or 1
    smallest: dict[str, Any] = {"heads": heads, "size": 2 * heads, "hidden_size": 2, "layers": 1, "width": 1}
    smallest |= {"context": 1, "patch_size": 1, "image_size": 0, "dropout": 0.0}
    missing = {name: value for name, value in smallest.items() if getattr(options, name, value) is None}
    try:
        with torch.device("meta"):
            _make_model(dataclasses.replace(options, **missing))
    except ValueError as error:
        raise OptionError(str(error)) from error


def _make_model(options: Options) -> None:
    match options:
        case TranslateOptions():
            translate.new_model(options, (VOCAB_SIZE, VOCAB_SIZE), share_embeddings=True)
        case LanguageOptions():
            language.new_model(options, VOCAB_SIZE)
        case TextOptions():
            text.new_model(options, VOCAB_SIZE, ["0", "1"])
        case ImagesOptions(data=None, image_size=size) if size:
            raise OptionError(
                f"image_size: applies to images that are read, and the embedded ones have {DIGITS} pixels"
            )
        case ImagesOptions():
            edge = DIGITS if options.data is None else options.image_size or options.patch_size
            images.new_model(options, (1, edge, edge), 2)
