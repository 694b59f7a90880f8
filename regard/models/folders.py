"""Models in folders: `save` writes one, `load` reads one, whoever wrote it.

    config.json            which model, and the arguments of its constructor
    model.safetensors      its tensors; not a pickle, which can run code
    tokenizer.json         if it has one (target_tokenizer.json: if the target has another)
    README.md              a model card
    manifest.json          the SHA-256 of the others, except for the card: a folder with a changed file is refused

Whatever is wrong with a folder is one FolderError that names the file and the reason, before memory is taken.
"""

import functools
import importlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import files
from regard.models.model import Model
from regard.models.tensors import TENSORS, FolderError, Rule, Tensors, fill, read_json, write_tensors
from regard.models.tokenizer_files import read_tokenizer

FORMAT = 2  # of folders; 1 had other names of arguments and tensors
# The module of each model that a config may name, and a call that uses it, for its card.
MODELS = {
    "Encoder": ("regard.models.encoder", "embed('a text')"),
    "LanguageModel": ("regard.models.language_model", "generate('a beginning')"),
    "ResNet": ("regard.models.vision", "classify('picture.png')"),
    "Seq2Seq": ("regard.models.seq2seq", "translate('a sentence')"),
    "Transformer": ("regard.models.transformer", "translate('a sentence')"),
    "ViT": ("regard.models.vision", "classify('picture.png')"),
}
# Files of others without a config.json, and the function of foreign.py that reads each.
READERS = {"model.bin": "load_llama2c", "checkpoint20.npz": "load_g2p"}
CONFIG, CARD, MANIFEST = "config.json", "README.md", "manifest.json"
TOKENIZERS = {"tokenizer": "tokenizer.json", "target_tokenizer": "target_tokenizer.json"}
# Every file that regard may write into a folder, its exports for transformers included.
WRITTEN = (
    *(CONFIG, TENSORS, *TOKENIZERS.values(), CARD, MANIFEST, "tokenizer_config.json"),
    *("1_Pooling/config.json", "modules.json", "sentence_bert_config.json", "preprocessor_config.json"),
)
MARK = "exported_by"  # in a config.json that was written for others


def load(folder: str | Path) -> Model:
    """The model in a folder: regard's own, Hugging Face's (docs/models.md has the families), llama2.c's or g2p's.

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
            f"{folder}: expected a folder with a model, {'got a file' if folder.exists() else 'found none'}; "
            "`regard train` makes one, and `regard data fetch MiniLM` brings one"
        )
    if (folder / CONFIG).exists():
        config = read_json(folder / CONFIG)
        if "regard" in config:
            return _load_saved(folder, config)
        if "model_type" in config:
            from regard.models.huggingface import load as load_huggingface

            return load_huggingface(folder, config)
        raise FolderError(f"{folder / CONFIG}: says neither that regard wrote it nor a Hugging Face model_type")
    for file, reader in READERS.items():
        if (folder / file).exists():
            model: Model = getattr(importlib.import_module("regard.models.foreign"), reader)(folder)
            return model
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
    raise FolderError(f"{folder}: not a model folder: expected {CONFIG} and {TENSORS}, found {names}")


def save(model: Model, folder: Path) -> None:
    """Write a model as a folder of its own; each file gets its name only when it is complete."""
    name = type(model).__name__
    if name not in MODELS:
        raise FolderError(f"{name}: expected one of {', '.join(MODELS)}")
    for argument, value in model.config.items():
        try:
            json.dumps(value)
        except TypeError:
            raise FolderError(
                f"{argument}: a {name} with a {type(value).__name__} of your own cannot be saved by name; "
                "use one that has a name, or save its state_dict yourself"
            ) from None
    texts = {CONFIG: json.dumps({"regard": FORMAT, "model": name, "arguments": model.config}, indent=2) + "\n"}
    for attribute, file in TOKENIZERS.items():
        tokenizer = getattr(model, attribute)
        if tokenizer is not None:
            texts[file] = tokenizer.to_str(pretty=True) + "\n"
    write_folder(folder, model.state_dict(), texts, _card(model))


def write_folder(folder: Path, state: Mapping[str, Tensor], texts: Mapping[str, str], card: str | None = None) -> None:
    """Write tensors and texts; with a card, which may be edited later, also a manifest of the others.

    What regard wrote there before is replaced; other files are not touched.
    """
    refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = dict(texts) if card is None else {**texts, CARD: card}
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as work:
        # Everything is on disk before anything of the model that was here is touched.
        beside = Path(work)
        files.write(beside / TENSORS, functools.partial(write_tensors, state))
        for file, text in contents.items():
            (beside / file).parent.mkdir(exist_ok=True)
            files.write(beside / file, text)
        if card is not None:
            write_manifest(beside, [*texts, TENSORS])
        (folder / MANIFEST).unlink(missing_ok=True)  # from here until the new one comes this is not a model of ours
        for file in (CONFIG, *(name for name in contents if name != CONFIG), TENSORS):
            (folder / file).parent.mkdir(exist_ok=True)
            (beside / file).replace(folder / file)  # the config first: it says that regard wrote the folder
        for file in set(WRITTEN) - {*contents, TENSORS}:
            (folder / file).unlink(missing_ok=True)  # of the model that was here before
        if card is not None:
            (beside / MANIFEST).replace(folder / MANIFEST)


def refuse_foreign(folder: Path) -> None:
    """A FolderError where saving a model would replace files that regard did not write."""
    existing = [name for name in WRITTEN if (folder / name).exists()]
    if not existing:
        return
    try:
        config = read_json(folder / CONFIG)
    except FolderError:
        config = {}
    if "regard" not in config and config.get(MARK) != "regard":
        raise FolderError(f"{folder}: holds {existing[0]}, which regard did not write: choose another folder")


def _load_saved(folder: Path, config: dict[str, Any]) -> Model:
    """The model in a folder that `save` wrote."""
    path, version = folder / CONFIG, config["regard"]
    if version != FORMAT:
        older = isinstance(version, int) and version < FORMAT
        reason = "was written by an older regard: train the model again, or convert it again" if older else "is unknown"
        raise FolderError(f"{path}: format {version!r} {reason} (this regard reads format {FORMAT})")
    digests = check_manifest(folder, CONFIG, TENSORS)
    name, arguments = config.get("model"), config.get("arguments")
    if not isinstance(arguments, dict) or not isinstance(name, str) or name not in MODELS:
        raise FolderError(f"{path}: expected one of {', '.join(MODELS)} with arguments, got {name!r}")
    tensors = Tensors.of(folder)
    model = build(name, arguments, path)
    fill(model, tensors, {tensor: Rule((tensor,)) for tensor in model.state_dict()})
    for attribute, file in TOKENIZERS.items():
        if file in digests:
            setattr(model, attribute, read_tokenizer(folder / file))
    return model


def write_manifest(folder: Path, names: Iterable[str]) -> None:
    """Write manifest.json, with the SHA-256 of these files."""
    digests = {file: files.digest(folder / file) for file in sorted(names)}
    files.write(folder / MANIFEST, json.dumps({"sha256": digests}, indent=2) + "\n")


def check_manifest(folder: Path, *required: str) -> dict[str, str]:
    """The digests in a manifest, these among them, which have to be those of the files."""
    path = folder / MANIFEST
    digests = read_json(path).get("sha256")
    if not isinstance(digests, dict) or not {*required} <= digests.keys():
        raise FolderError(f"{path}: expected the SHA-256 of {' and '.join(required)}")
    for file, digest in digests.items():
        if Path(file).name != file:
            raise FolderError(f"{path}: expected names of files in this folder, got {file!r}")
        if not (folder / file).is_file():
            raise FolderError(f"{folder / file}: no such file, though {MANIFEST} lists it")
        if files.digest(folder / file) != digest:
            raise FolderError(
                f"{folder / file}: is not the file that was saved (its SHA-256 is not that of {MANIFEST})"
            )
    return digests


def _card(model: Model) -> str:
    """README.md: what this is, how big, how to use it."""
    name = type(model).__name__
    classifies_texts = name in ("Encoder", "LanguageModel") and model.config["classes"]
    example = "classify('a text')" if classifies_texts else MODELS[name][1]
    arguments = "\n".join(f"| {name} | {json.dumps(value)} |" for name, value in model.config.items())
    return (
        f"# {name}\n\n"
        f"A model of regard with {model.parameter_count:,} parameters.\n\n"
        f"```python\nimport regard\n\nmodel = regard.load('this folder')\nprint(model.{example})\n```\n\n"
        f"| argument | value |\n|---|---|\n{arguments}\n"
    )


# --------------------------------------------------------------------------------------------- what all readers share


def build(name: str, arguments: Mapping[str, Any], file: Path) -> Model:
    """The model that a file describes, on the meta device: its shapes are known, and no memory is taken."""
    kind: type[Model] = getattr(importlib.import_module(MODELS[name][0]), name)
    try:
        with torch.device("meta"):
            model = kind(**arguments)
    except (TypeError, ValueError, RuntimeError) as error:  # the last: shapes beyond what PyTorch can count
        raise FolderError(f"{file}: {str(error).splitlines()[0]}") from error
    return model.eval()
