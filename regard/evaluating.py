"""`regard evaluate`: how good a model is, on the part of its data that it never saw, or on other data."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
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
from regard.training.command import DATA_ERRORS
from regard.training.folder import has_run, read_options
from regard.training.report import told
from regard.training.task import Tokenizers
from regard.training.tasks import images, language, prepare, text, translate
from regard.using import UseError

__all__ = ["Request", "run"]


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    model: Path
    data: Path | None = None
    target: Path | None = None
    text: str | None = None
    label: str | None = None
    beam: int | None = None
    as_json: bool = False

    def only(self, *names: str) -> None:
        """Refuse options other than these: they would change nothing."""
        for name, flag in (
            ("target", "TARGET"),
            ("text", "--text"),
            ("label", "--label"),
            ("beam_size", "--beam-size"),
        ):
            if getattr(self, name) is not None and name not in names:
                on = "the data it was trained with" if self.data is None else self.data
                raise UseError(f"{self.model}: {flag} means nothing for this model on {on}")


def run(request: Request) -> int:
    """Measure and tell. Exit code 2 where model and data do not fit."""
    try:
        metrics = measured(request)
    except (*DATA_ERRORS, UseError, ValueError) as error:
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(json.dumps(metrics, ensure_ascii=False) if request.as_json else told(metrics))
    if "signature" in metrics and not request.as_json:
        print(f"sacreBLEU {metrics['signature']}")
    return 0


def measured(request: Request) -> dict[str, Any]:
    """The metrics of a model on data, or on the test part of what it was trained on."""
    model: Any = load(request.model)
    beam = 1 if request.beam is None else request.beam
    if request.data is None:
        if not has_run(request.model):
            raise UseError(f"{request.model}: was not trained by regard, so say which data to evaluate it on")
        request.only(*(["beam_size"] if isinstance(model, Translator) else []))
        task, options = read_options(request.model)
        kept = Tokenizers(model.tokenizer, model.target_tokenizer)
        ready: Any = prepare(task, dataclasses.replace(options, init_from=None), kept)
        if isinstance(model, Translator):
            return translate.measured(model, ready.parts.test, beam_size=beam)
        metrics: dict[str, Any] = ready.evaluate(model, "test")
        return metrics
    if isinstance(model, Translator):
        request.only("target", "beam_size")
        return translate.measured(model, read_pairs(request.data, request.target), beam_size=beam)
    if isinstance(model, ImageClassifier):
        request.only()
        data = read_images(request.data, _edge(model))
        return images.measured(model, data.test or data.train)
    if isinstance(model, TextClassifier) and model.config["classes"]:
        request.only("text", "label")
        columns = {name: own for name in ("text", "label") if (own := getattr(request, name)) is not None}
        return text.measured(model, read_labelled(request.data, **columns))
    if isinstance(model, LanguageModel) or (isinstance(model, Encoder) and model.mlm_head is not None):
        request.only()
        return language.measured(model, read_documents(request.data))
    raise UseError(f"{request.model}: a {type(model).__name__} has nothing that can be evaluated on data")


def _edge(model: ImageClassifier) -> int | None:
    """To which images are brought; those of a model that is not square have to fit as they are."""
    size = model.config.get("image_size")
    sides = set(size) if isinstance(size, list) else {size}
    return sides.pop() if len(sides) == 1 else None
