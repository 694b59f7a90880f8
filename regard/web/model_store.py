"""The models of the page: those it was given, those it trained, and the small ones that come with regard; and the last
displays of what they attended to."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel
from regard.models.translator import Translator
from regard.view.attention import AttentionDisplay
from regard.view.foreign import load
from regard.web.training import RECIPES, is_trained, trained_folder

__all__ = ["Kept", "ModelStore"]

DISPLAYS = 8  # that are kept: a few steps back
# They come with regard, so that no part of the page is empty; `python -m experiments.embedded` makes them.
SMALL = {f"small {name}": Path(str(files("regard.web"))) / "models" / name for name in ("language", "translator", "vit", "resnet")}


@dataclass
class Kept:
    """A text that was read, and what came of it: what has to be computed later starts from here."""

    model: str
    text: str
    target: str | None
    display: AttentionDisplay
    logits: dict[frozenset[tuple[int, int]], Tensor] = field(default_factory=dict)  # by the heads that were cut


class ModelStore:
    """Models by name, loaded when they are first used, and displays by number.

    folders: model folders. Each is named as its folder is, or by its path where two have one name; all are loaded at
    once, so that errors come before the page is served.
    live: modules with their tokenizers, by name
    """

    def __init__(self, folders: Sequence[Path] = (), live: Mapping[str, tuple[nn.Module, Any]] | None = None) -> None:
        names = [folder.resolve().name for folder in folders]
        self.folders = {
            str(folder) if names.count(name) > 1 else name: folder for name, folder in zip(names, folders, strict=True)
        }
        self.live = dict(live or {})
        self.given = [*self.live, *self.folders]
        self.models: dict[str, nn.Module] = {name: model for name, (model, _) in self.live.items()}
        self.displays: OrderedDict[int, Kept] = OrderedDict()
        self.display_count = 0
        self.lock = threading.Lock()
        for name in self.given:
            kind_of(self.model(name))

    def model(self, name: str) -> nn.Module:
        """A model by its name."""
        with self.lock:
            if name not in self.models:
                folder = {**self.folders, **SMALL}.get(name)
                if folder is None:
                    names = ", ".join([*self.given, *SMALL])
                    raise ValueError(f"model: expected one of {names}, got {name!r}")
                self.models[name] = load(folder).eval()
            return self.models[name]

    def tokenizer(self, name: str) -> Any:
        """The tokenizer that a live module came with; None: the model's own."""
        return self.live[name][1] if name in self.live else None

    def list_models(self) -> list[dict[str, Any]]:
        """What the page offers: given models first, then those it has trained, now or earlier, then the small ones."""
        with self.lock:
            for name in (name for recipes in RECIPES.values() for name in recipes):
                if is_trained(name):
                    self.folders.setdefault(f"embedded {name}", trained_folder(name))
        listed = []
        for name in dict.fromkeys([*self.given, *self.folders, *SMALL]):
            model = self.model(name)
            count = sum(parameter.numel() for parameter in model.parameters())
            given = {"given": name in self.given, "parameters": count}
            listed.append({"name": name, "kind": kind_of(model), "class": type(model).__name__, **given})
        return listed

    def keep(self, kept: Kept) -> int:
        """Keep a display for a while; the number by which `display` finds it."""
        with self.lock:
            self.display_count += 1
            self.displays[self.display_count] = kept
            while len(self.displays) > DISPLAYS:
                self.displays.popitem(last=False)
            return self.display_count

    def display(self, number: int) -> Kept:
        """A display that is still kept."""
        with self.lock:
            if number not in self.displays:
                raise ValueError("these weights are no longer kept: send the text again")
            return self.displays[number]


def kind_of(model: nn.Module) -> str:
    """The part of the page that a model belongs to."""
    if isinstance(model, Translator):
        return "translate"
    if isinstance(model, ImageClassifier):
        return "images"
    if isinstance(model, LanguageModel) and not model.config["classes"]:
        return "language"
    if isinstance(model, TextClassifier | Encoder | LanguageModel) or not isinstance(model, Model):
        return "text"
    raise ValueError(f"a {type(model).__name__} has nothing to be explored")
