"""Model folders for looking into: those that `regard.load` reads, and by transformers any other of Hugging Face's.

Nothing is downloaded, no code of a folder is run, and weights come from safetensors alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.models import folders
from regard.models.classifier import ImageClassifier
from regard.models.tensors import FolderError, Tensors, UnsupportedError, read_json

__all__ = ["load"]

OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def load(folder: str | Path) -> nn.Module:
    """The model in a folder, in evaluation mode, in float32, on the CPU; what reads text has a `tokenizer`.

    It is one of regard's where that can be, else one of transformers' (extra `hf`).
    """
    folder, has_transformers = Path(folder), importlib.util.find_spec("transformers") is not None
    try:
        model = folders.load(folder)
    except UnsupportedError:
        if not has_transformers:
            raise
        return _load_by_transformers(folder)
    readable = model.tokenizer is not None or isinstance(model, ImageClassifier)
    if readable or not has_transformers or "model_type" not in read_json(folder / folders.CONFIG):
        return model
    return _load_by_transformers(folder)  # which knows more kinds of files of tokenizers


def _load_by_transformers(folder: Path) -> nn.Module:
    import transformers

    if not any(folder.glob("*.safetensors")):
        Tensors.of(folder)  # says what is there instead
    with _transformers(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **OFFLINE)
        config._attn_implementation = None  # a config may name kernels to be downloaded
        options = {**OFFLINE, "config": config, "dtype": torch.float32, "use_safetensors": True}
        # What does not fit is in the report, and refused below.
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        model, report = _class(config).from_pretrained(folder, **options)
    if model.main_input_name != "input_ids":
        raise FolderError(f"{folder}: a {type(model).__name__} reads {model.main_input_name}, no text")
    # It would fill these with random numbers. What pools comes after all attention.
    absent = [key for key in report["missing_keys"] if "pooler" not in key] + [*report["mismatched_keys"]]
    if absent:
        raise FolderError(f"{folder}: {absent[0]} (of {len(absent)}) is missing in the files, or has another shape")
    if (folder / "tokenizer.json").exists():
        model.tokenizer = folders.read_tokenizer(folder / "tokenizer.json")
    else:
        with _transformers(folder):
            model.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **OFFLINE)
    module: nn.Module = model.eval()
    return module


def _class(config: Any) -> Any:
    """The class that the config names, with its head; the bare model where transformers has no such class."""
    import transformers

    kind: Any = getattr(transformers, (config.architectures or [""])[0], None)
    is_model = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    return kind if is_model and kind.config_class is type(config) else transformers.AutoModel


@contextmanager
def _transformers(folder: Path) -> Iterator[None]:
    """Within this block transformers shows no progress bars and no warnings, and what it raises becomes a line."""
    import transformers

    logging = transformers.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # of many kinds, some of other libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FolderError(f"{folder}: transformers {transformers.__version__} cannot read it: {reason}") from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
