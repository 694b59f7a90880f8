"""`evaluate`: the metrics of a model on the test part of its data, or on other data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.encoder import Encoder
from regard.models.folders import load
from regard.models.language_model import LanguageModel
from regard.models.translator import Translator
from regard.training import tasks
from regard.training.folder import has_other_data, has_run, read_options
from regard.training.options import TranslateOptions
from regard.training.processes import World
from regard.training.task import TaskError


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
    policy, size = on_error or "stop", beam_size or TranslateOptions.beam_size

    def accept(*names: str) -> None:
        """Refuse options that would be ignored."""
        for name, value in given.items():
            if value is not None and name not in names:
                flag = "TARGET" if name == "target" else "--" + name.replace("_", "-")
                on = "the data it was trained with" if data is None else data
                raise TaskError(f"{folder}: {flag} means nothing for this model on {on}")

    if data is None:
        accept(*(["beam_size"] if isinstance(model, Translator) else []))
        return _evaluate_test_part(folder, model, size)
    data = Path(data)
    if isinstance(model, Translator):
        accept("target", "beam_size", "on_error")
        return tasks.translate.evaluate(model, data, None if target is None else Path(target), size, policy)
    if isinstance(model, TextClassifier) and model.config["classes"]:
        accept("text", "label", "on_error")
        return tasks.text.evaluate(model, data, text or "text", label or "label", policy)
    accept("on_error")
    if isinstance(model, ImageClassifier):
        return tasks.images.evaluate(model, data, policy)
    if isinstance(model, LanguageModel) or (isinstance(model, Encoder) and model.config["mlm_head"]):
        return tasks.language.evaluate(model, data, policy)
    raise TaskError(f"{folder}: a {type(model).__name__} has nothing that can be evaluated on data")


def _evaluate_test_part(folder: Path, model: Any, beam_size: int) -> dict[str, Any]:
    if not has_run(folder):
        raise TaskError(f"{folder}: was not trained by regard, so say which data to evaluate it on")
    name, options = read_options(folder)
    trained_on = getattr(options, "data", None)
    if trained_on is not None and not Path(trained_on).exists():
        raise TaskError(f"{folder}: was trained on {trained_on}, which is not there: say which data to evaluate it on")
    if isinstance(options, TranslateOptions):
        options = dataclasses.replace(options, beam_size=beam_size)
    task = tasks.prepare(name, options, model=model)
    if has_other_data(folder, task.fingerprint):  # then what it was trained on may be in the test part now
        raise TaskError(
            f"{folder}: {trained_on or 'the embedded data'}: changed since this model was trained on it, so its test "
            "part is another one: say which data to evaluate the model on"
        )
    return task.evaluate(model, "test", World())
