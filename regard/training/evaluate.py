"""`evaluate`: the metrics of a model on the test part of its data, or on other data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.images import StoredImages, find_images, skipped_images, store_images, stored_part
from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.encoder import Encoder
from regard.models.folders import load
from regard.models.language_model import LanguageModel
from regard.models.translator import Translator
from regard.training import tasks
from regard.training.folder import has_run, read_options
from regard.training.options import LanguageOptions, TextOptions, TranslateOptions
from regard.training.processes import World
from regard.training.task import TaskError, Tokenizers

__all__ = ["evaluate"]

BEAM_SIZE: int = TranslateOptions.beam_size


def evaluate(
    folder: str | Path,
    data: str | Path | None = None,
    target: str | Path | None = None,
    *,
    text: str | None = None,
    label: str | None = None,
    beam_size: int | None = None,
    on_error: str | None = None,
) -> dict[str, Any]:
    """The metrics of the model in a folder.

    data: a file or a folder, as for `regard train`; None for the test part of the data that it was trained on.
    target: the target's text file, if data is the source's (translators).
    text, label: the columns of data (classifiers of texts); "text" and "label" unless given.
    beam_size: hypotheses of the beam search (translators); 5 unless given.
    on_error: "stop" if bad rows, lines or images are an error, as they are unless given, "skip" to leave them out.
    """
    folder = Path(folder)
    model: Any = load(folder)
    given = {"target": target, "text": text, "label": label, "beam_size": beam_size, "on_error": on_error}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if data is None:
        _refuse_others(folder, data, options, ("beam_size",) if isinstance(model, Translator) else ())
        return _evaluate_test_part(folder, model, options)
    data = Path(data)
    if isinstance(model, Translator):
        _refuse_others(folder, data, options, ("target", "beam_size", "on_error"))
        other = None if target is None else Path(target)
        return tasks.translate.evaluate_files(model, data, other, beam_size or BEAM_SIZE, on_error or "stop")
    if isinstance(model, TextClassifier) and model.config["classes"]:
        _refuse_others(folder, data, options, ("text", "label", "on_error"))
        return tasks.text.evaluate_file(model, data, text or "text", label or "label", on_error or "stop")
    if isinstance(model, ImageClassifier):
        _refuse_others(folder, data, options, ("on_error",))
        return tasks.images.evaluate(model, _images(folder, model, data, on_error or "stop"), World())
    if isinstance(model, LanguageModel) or (isinstance(model, Encoder) and model.config["mlm_head"]):
        _refuse_others(folder, data, options, ("on_error",))
        return tasks.language.evaluate(model, data, on_error or "stop")
    raise TaskError(f"{folder}: a {type(model).__name__} has nothing that can be evaluated on data")


def _evaluate_test_part(folder: Path, model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    if not has_run(folder):
        raise TaskError(f"{folder}: was not trained by regard, so say which data to evaluate it on")
    name, trained_with = read_options(folder)
    if isinstance(trained_with, LanguageOptions):
        return tasks.language.evaluate_test_part(model, trained_with)
    if isinstance(trained_with, TextOptions):
        return tasks.text.evaluate_test_part(model, trained_with)
    if isinstance(trained_with, TranslateOptions):
        return tasks.translate.evaluate_test_part(model, trained_with, options.get("beam_size", BEAM_SIZE))
    tokenizers = Tokenizers(model.tokenizer, model.target_tokenizer)
    task: Any = tasks.prepare(name, dataclasses.replace(trained_with, init_from=None), tokenizers)
    metrics: dict[str, Any] = task.evaluate(model, "test", World())
    return metrics


def _images(folder: Path, model: ImageClassifier, data: Path, on_error: str) -> StoredImages:
    """The images of other data, for the test if files say which, in the size that the model reads or was trained on."""
    images, size = find_images(data), model.config.get("image_size")
    if size is None:  # a ResNet reads any size
        trained_with: Any = read_options(folder)[1] if has_run(folder) else None
        differ = images.train.shapes.other is not None
        size = (trained_with and trained_with.image_size) or (images.train.shapes.edge if differ else None)
        shape = images.shape(size)
    else:
        height, width = (size, size) if isinstance(size, int) else size
        shape = (model.config["channels"], height, width)
    store = store_images(images, shape)
    skipped_images(store, on_error)
    return stored_part(store, "train" if images.test is None else "test")


def _refuse_others(folder: Path, data: Path | None, options: Mapping[str, Any], accepted: Sequence[str]) -> None:
    """Refuse options that would be ignored."""
    for name in options:
        if name not in accepted:
            flag = "TARGET" if name == "target" else "--" + name.replace("_", "-")
            on = "the data it was trained with" if data is None else data
            raise TaskError(f"{folder}: {flag} means nothing for this model on {on}")
