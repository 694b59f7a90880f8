"""How good a model is: on the part of its data that it was not trained with, or on other data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from regard.data.images import read_images
from regard.data.labelled import read_labelled
from regard.data.pairs import read_pairs
from regard.data.texts import read_documents
from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.encoder import Encoder
from regard.models.folders import load
from regard.models.language_model import LanguageModel
from regard.models.translator import Translator
from regard.training.folder import has_run, read_options
from regard.training.task import TaskError, Tokenizers
from regard.training.tasks import images, language, prepare, translate
from regard.training.tasks import text as texts

__all__ = ["evaluate"]


def evaluate(
    folder: Path,
    data: Path | None = None,
    target: Path | None = None,
    *,
    text: str | None = None,
    label: str | None = None,
    beam_size: int | None = None,
) -> dict[str, Any]:
    """The metrics of a model on data, or on the test part of what it was trained on.

    folder: a model folder. data, target: files as for `train`. text, label: columns of a table of texts. beam_size: for
    a translator.
    """
    model: Any = load(folder)
    options = {"TARGET": target, "--text": text, "--label": label, "--beam-size": beam_size}

    def allow(*names: str) -> None:
        """Refuse other options than these: they would change nothing."""
        for name, value in options.items():
            if value is not None and name not in names:
                on = "the data it was trained with" if data is None else data
                raise TaskError(f"{folder}: {name} means nothing for this model on {on}")

    beam_size = 1 if beam_size is None else beam_size
    if data is None:
        if not has_run(folder):
            raise TaskError(f"{folder}: was not trained by regard, so say which data to evaluate it on")
        allow(*(["--beam-size"] if isinstance(model, Translator) else []))
        name, trained_with = read_options(folder)
        tokenizers = Tokenizers(model.tokenizer, model.target_tokenizer)
        task: Any = prepare(name, dataclasses.replace(trained_with, init_from=None), tokenizers)
        if isinstance(model, Translator):
            return translate.measured(model, task.parts.test, beam_size=beam_size)
        metrics: dict[str, Any] = task.evaluate(model, "test")
        return metrics
    if isinstance(model, Translator):
        allow("TARGET", "--beam-size")
        return translate.measured(model, read_pairs(data, target), beam_size=beam_size)
    if isinstance(model, ImageClassifier):
        allow()
        pictures = read_images(data, _edge(model))
        return images.measured(model, pictures.test or pictures.train)
    if isinstance(model, TextClassifier) and model.config["classes"]:
        allow("--text", "--label")
        return texts.measured(model, read_labelled(data, text or "text", label or "label"))
    if isinstance(model, LanguageModel) or (isinstance(model, Encoder) and model.guesser is not None):
        allow()
        return language.measured(model, read_documents(data))
    raise TaskError(f"{folder}: a {type(model).__name__} has nothing that can be evaluated on data")


def _edge(model: ImageClassifier) -> int | None:
    """To which images are brought; those of a model that is not square have to fit as they are."""
    size = model.config.get("image_size")
    sides = set(size) if isinstance(size, list) else {size}
    return sides.pop() if len(sides) == 1 else None
