"""Models in folders: `save` writes one, `load` reads one, whoever wrote it.

    config.json            which model, and the arguments it is made with
    model.safetensors      its numbers; never a pickle, which can run code
    tokenizer.json         if it has one (target_tokenizer.json: if the target has another)
    README.md              a card for people
    manifest.json          the SHA-256 of the others, but for the card: a folder that was changed is refused

Whatever is wrong with a folder is one FolderError that names the file and the reason, before memory is taken.
"""

from __future__ import annotations

import functools
import importlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard import files
from regard.models.model import Model
from regard.models.tensors import WHOLE, FolderError, Rule, Tensors, fill, read_json, write_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["FolderError", "load", "save"]

# Where each model lives: what a config may name.
HOMES = {
    "Encoder": "regard.models.encoder",
    "LanguageModel": "regard.models.language_model",
    "ResNet": "regard.models.resnet",
    "Seq2Seq": "regard.models.seq2seq",
    "Transformer": "regard.models.transformer",
    "ViT": "regard.models.vision",
}
TOKENIZERS = {"tokenizer": "tokenizer.json", "target_tokenizer": "target_tokenizer.json"}
MANIFEST = "manifest.json"


def load(folder: str | Path) -> Model:
    """The model in a folder: regard's own, Hugging Face's (BERT, GPT-2, Llama, ViT, Marian), or llama2.c's.

    Nothing is downloaded. The model is in evaluation mode, in float32, on the CPU; its tokenizer comes along.

    >>> import regard, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     regard.Encoder(vocab_size=31, size=16, layers=2, heads=4).save(folder)
    ...     model = regard.load(folder)
    >>> model.config["size"]
    16
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FolderError(
            f"{folder}: expected a folder with a model, " + ("got a file" if folder.exists() else "found none")
        )
    if (folder / "config.json").exists():
        config = read_json(folder / "config.json")
        if "regard" in config:
            return _load_own(folder, config)
        if "model_type" in config:
            from regard.models.huggingface import load as load_huggingface

            return load_huggingface(folder, config)
        raise FolderError(f"{folder / 'config.json'}: says neither that regard wrote it nor a Hugging Face model_type")
    if (folder / "model.bin").exists():
        from regard.models.llama2c import load as load_llama2c

        return load_llama2c(folder)
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
    raise FolderError(f"{folder}: not a model folder: expected config.json and model.safetensors, found {found}")


def save(model: Model, folder: Path) -> None:
    """Write a model as a folder of its own, file by file under its final name only when it is complete."""
    name = type(model).__name__
    if name not in HOMES:
        raise FolderError(f"{name}: expected one of {', '.join(HOMES)}")
    _check_plain(name, model.config)
    texts = {"config.json": json.dumps({"regard": 1, "model": name, "arguments": model.config}, indent=2) + "\n"}
    for attribute, file in TOKENIZERS.items():
        tokenizer = getattr(model, attribute)
        if tokenizer is not None:
            texts[file] = tokenizer.to_str(pretty=True) + "\n"
    write_folder(folder, model.state_dict(), texts, {"README.md": _card(model)}, sealed=True)


# Every file that regard may write into a folder.
WRITTEN = (
    *("config.json", "model.safetensors", *TOKENIZERS.values(), "README.md", MANIFEST, "tokenizer_config.json"),
    *("1_Pooling/config.json", "modules.json", "sentence_bert_config.json"),
)
MARK = "exported_by"  # in a config.json that was written for others


def write_folder(
    folder: Path, state: Mapping[str, Tensor], texts: Mapping[str, str], notes: Mapping[str, str], *, sealed: bool
) -> None:
    """Write tensors and texts, and where it is sealed a manifest of them, without the notes, which may be edited.

    What regard wrote there before is replaced, what anybody else wrote is not.
    """
    refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {**texts, **notes}
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as work:
        # Everything is on disk before anything of the model that was here is touched.
        beside = Path(work)
        files.write(beside / WHOLE, functools.partial(write_tensors, state))
        for file, text in contents.items():
            (beside / file).parent.mkdir(exist_ok=True)
            files.write(beside / file, text)
        if sealed:
            digests = {file: files.digest(beside / file) for file in sorted([*texts, WHOLE])}
            content = json.dumps({"sha256": digests}, indent=2) + "\n"
            files.write(beside / MANIFEST, content)
        (folder / MANIFEST).unlink(missing_ok=True)  # from here until the new one comes this is not a model of ours
        for file in ("config.json", *(name for name in contents if name != "config.json"), WHOLE):
            (folder / file).parent.mkdir(exist_ok=True)
            (beside / file).replace(folder / file)  # the config first: it says that the folder is ours
        for file in set(WRITTEN) - {*contents, WHOLE}:
            (folder / file).unlink(missing_ok=True)  # of the model that was here before
        if sealed:
            (beside / MANIFEST).replace(folder / MANIFEST)


def refuse_foreign(folder: Path) -> None:
    """A FolderError where a model cannot be written because of files that somebody else wrote."""
    foreign = [name for name in WRITTEN if (folder / name).exists()]
    if foreign and not _is_ours(folder):
        raise FolderError(f"{folder}: holds {foreign[0]}, which regard did not write: choose another folder")


def _is_ours(folder: Path) -> bool:
    """Whether regard wrote this folder."""
    try:
        config = read_json(folder / "config.json")
    except FolderError:
        return False
    return "regard" in config or config.get(MARK) == "regard"


def _load_own(folder: Path, config: dict[str, Any]) -> Model:
    listed = read_json(folder / MANIFEST).get("sha256")
    if not isinstance(listed, dict) or not {"config.json", "model.safetensors"} <= listed.keys():
        raise FolderError(f"{folder / MANIFEST}: expected the SHA-256 of config.json and model.safetensors")
    for file, expected in listed.items():
        if Path(file).name != file:
            raise FolderError(f"{folder / MANIFEST}: expected names of files in this folder, got {file!r}")
        if not (folder / file).is_file():
            raise FolderError(f"{folder / file}: no such file, though {MANIFEST} lists it")
        if files.digest(folder / file) != expected:
            raise FolderError(
                f"{folder / file}: is not the file that was saved (its SHA-256 is not that of {MANIFEST})"
            )
    name, arguments = config.get("model"), config.get("arguments")
    if config["regard"] != 1 or not isinstance(arguments, dict) or not isinstance(name, str) or name not in HOMES:
        raise FolderError(f"{folder / 'config.json'}: expected one of {', '.join(HOMES)} with arguments, got {name!r}")
    tensors = Tensors.of(folder)
    model = build(model_class(name), arguments, folder / "config.json")
    fill(model, tensors, {own: Rule((own,)) for own in model.state_dict()}, lambda name: False)
    for attribute, file in TOKENIZERS.items():
        if file in listed:
            setattr(model, attribute, read_tokenizer(folder / file))
    return model


# --------------------------------------------------------------------------------------------- what all readers share


def model_class(name: str) -> type[Model]:
    """The class of this name."""
    kind: type[Model] = getattr(importlib.import_module(HOMES[name]), name)
    return kind


def build(kind: type[Model], arguments: Mapping[str, Any], file: Path) -> Model:
    """The model that a file describes, on the meta device: its shapes are known, and no memory is taken."""
    try:
        with torch.device("meta"):
            model = kind(**arguments)
    except (TypeError, ValueError, RuntimeError) as error:  # the last: shapes beyond what PyTorch can count
        raise FolderError(f"{file}: {str(error).splitlines()[0]}") from error
    return model.eval()


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer.json."""
    from tokenizers import Tokenizer

    try:
        tokenizer: Tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more particular
        raise FolderError(f"{path}: not a readable tokenizer: {error}") from error
    return tokenizer


def _check_plain(name: str, arguments: Mapping[str, Any]) -> None:
    """Arguments that JSON can hold, or an error that names the one it cannot."""
    for argument, value in arguments.items():
        try:
            json.dumps(value)
        except TypeError:
            raise FolderError(
                f"{argument}: a {name} with a {type(value).__name__} of your own cannot be saved by name; "
                "use one that has a name, or save its state_dict yourself"
            ) from None


def _card(model: Model) -> str:
    """README.md: what this is, how big, how to use it."""
    arguments = "\n".join(f"| {name} | {json.dumps(value)} |" for name, value in model.config.items())
    return (
        f"# {type(model).__name__}\n\n"
        f"A model of regard with {model.parameter_count:,} parameters.\n\n"
        f"```python\nimport regard\n\nmodel = regard.load('this folder')\nprint(model.{model.example})\n```\n\n"
        f"| argument | value |\n|---|---|\n{arguments}\n"
    )
