"""`regard translate`, `generate` and `classify`: a model at work on what the command line or stdin brings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.attention.observers import AttentionCall, watching
from regard.data.image_files import ImageError
from regard.errors import RegardError
from regard.models.alignment import align
from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.folders import load
from regard.models.generation import Sampling
from regard.models.language_model import LanguageModel
from regard.models.model import Model
from regard.models.tensors import FolderError
from regard.models.texts import encode
from regard.models.translator import Translator
from regard.models.vision import ViT
from regard.view.terminal import print_map, shown

__all__ = ["UseError", "loaded", "run_classify", "run_generate", "run_translate"]

TOGETHER = 64  # lines that are read from stdin before they are worked on
LONGEST_LINE = 1 << 20  # characters
SHOWN = 24  # tokens of a picture of attention


class UseError(RegardError, ValueError):
    """A model and an input that do not fit together; the message says why."""


ERRORS = (FolderError, ImageError, UseError, ValueError, UnicodeDecodeError)
Kind = TypeVar("Kind", bound=Model)


@dataclass(frozen=True)
class Request:
    """What the command line asked for: a model, and texts (or pictures); none means that they come from stdin."""

    model: Path
    inputs: Sequence[str]
    as_json: bool
    show: bool
    options: dict[str, Any]


def run_translate(request: Request) -> int:
    """One line of translation for each line."""

    def work() -> None:
        model = loaded(request.model, Translator, "translates: train one with `regard train translate`")
        if request.show and getattr(model, "score", True) is None:
            raise UseError(f"{request.model}: this model has no attention to show")
        for texts in _groups(request.inputs):
            for text, found in zip(texts, _translated(model, texts, request.options), strict=True):
                _tell(request, {"source": text, "translation": found}, found)
                if request.show and found:
                    (own,) = align(model, [text], [found])
                    print_map(own.weights, own.target, own.source, file=sys.stderr)

    return _guarded(work)


def _translated(model: Translator, texts: Sequence[str], options: dict[str, Any]) -> list[str]:
    """Translations; a blank line stays one."""
    places = [place for place, text in enumerate(texts) if text.strip()]
    found = [""] * len(texts)
    for place, text in zip(places, model.translate([texts[place] for place in places], **options), strict=True):
        found[place] = text
    return found


def run_generate(request: Request) -> int:
    """Prompts written on, piece by piece."""

    def work() -> None:
        model = loaded(request.model, LanguageModel, "writes: train one with `regard train language`")
        most = request.options["max_new_tokens"]
        choice = Sampling(**{name: value for name, value in request.options.items() if name != "max_new_tokens"})
        for prompt in _lines(request.inputs):
            written = ""
            shown_as = (lambda text: None) if request.as_json else _print_on
            shown_as(prompt)
            for piece in model.stream(prompt, max_new_tokens=most, sampling=choice):
                shown_as(piece)
                written += piece
            _tell(request, {"prompt": prompt, "text": written}, "")
            if request.show:
                _show_looks(model, prompt + written)

    return _guarded(work)


def _print_on(text: str) -> None:
    print(text, end="", flush=True)


def run_classify(request: Request) -> int:
    """One class for each line, or for each picture."""

    def work() -> None:
        model = load(request.model)
        if not isinstance(model, ImageClassifier | TextClassifier) or not model.config["classes"]:
            raise UseError(
                f"{request.model}: expected a model that classifies (`regard train text` or `images`), "
                f"got a {type(model).__name__} without classes"
            )
        for lines in _groups(request.inputs):
            inputs = [line for line in lines if line.strip()]
            if len(inputs) < len(lines):
                print(f"regard: {len(lines) - len(inputs)} blank lines are passed over", file=sys.stderr)
            found = model.probabilities(inputs) if inputs else torch.empty(0, len(model.labels))
            for given, row, label in zip(inputs, found.tolist(), model.best_labels(found), strict=True):
                chances = {str(name): chance for name, chance in zip(model.labels, row, strict=True)}
                line = f"{label}\t{max(row):.1%}\t{given}"
                _tell(request, {"input": given, "label": label, "probabilities": chances}, line)
                if request.show:
                    _show_looks(model, given)

    return _guarded(work)


def loaded(folder: Path, kind: type[Kind], what: str) -> Kind:
    """The model of a folder, which has to be of this kind."""
    model = load(folder)
    if not isinstance(model, kind):
        raise UseError(f"{folder}: expected a model that {what}; got a {type(model).__name__}")
    return model


def _guarded(work: Callable[[], None]) -> int:
    try:
        work()
    except ERRORS as error:
        sys.stdout.flush()
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _tell(request: Request, record: dict[str, Any], line: str) -> None:
    print(json.dumps(record, ensure_ascii=False) if request.as_json else line, flush=True)


# ------------------------------------------------------------------------------------------------------------- input


def _groups(inputs: Sequence[str]) -> Iterator[list[str]]:
    """The inputs, some at a time; a person at the keyboard gets an answer for each line."""
    together = 1 if not inputs and sys.stdin.isatty() else TOGETHER
    lines = _lines(inputs)
    while some := list(islice(lines, together)):
        yield some


def _lines(inputs: Sequence[str]) -> Iterator[str]:
    """The inputs, or else the lines of stdin."""
    if inputs:
        yield from inputs
        return
    if sys.stdin.isatty():
        print("a line at a time; Ctrl-D ends", file=sys.stderr)
    number = 0
    try:
        while line := sys.stdin.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise UseError(f"stdin: line {number} is longer than {LONGEST_LINE} characters")
            yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise UseError(f"stdin: line {number + 1}: not UTF-8 ({error.reason})") from error


# ----------------------------------------------------------------------------------------------------------- showing


def _show_looks(model: Model, given: str) -> None:
    """What the last layer looks at: the mean over its heads, of the last tokens, or over the places of an image."""
    looks: list[Tensor] = []

    def see(look: AttentionCall) -> None:
        looks[:] = [look.weights().mean((0, 1))]  # (n, m), of the last one

    with torch.no_grad(), watching(see):
        if isinstance(model, ImageClassifier):
            model.probabilities([given])
            names: list[str] = []
        else:
            tokenizer = model.need_tokenizer()
            (ids,) = encode(tokenizer, [given], model.config["max_positions"])
            names = [shown(tokenizer.decode([number], skip_special_tokens=False)) for number in ids]
            model(torch.tensor([ids]))
    if not looks:
        raise UseError(f"a {type(model).__name__} has no attention to show")
    (weights,) = looks
    if isinstance(model, ViT):
        _print_patches(model, weights)
    else:
        print_map(weights[-SHOWN:, -SHOWN:], names[-SHOWN:], names[-SHOWN:], file=sys.stderr)


def _print_patches(model: ViT, weights: Tensor) -> None:
    """How much each place of an image is looked at, as a share of the most."""
    received = weights.mean(0)[0 if model.class_token is None else 1 :].unflatten(0, model.grid)
    rows, columns = (list(map(str, range(count))) for count in model.grid)
    print_map(received / received.max(), rows, columns, legend="rows and columns of the image", file=sys.stderr)
