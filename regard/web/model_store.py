"""The models of the page: those it was given and those it trained; and the last displays of what they attended to."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel
from regard.models.model import Model
from regard.models.translator import Translator
from regard.view.attention import AttentionDisplay
from regard.view.foreign import load
from regard.web.training import RECIPES, is_trained, trained_folder

__all__ = ["ModelStore"]

DISPLAYS = 8  # that are kept: a few steps back


class ModelStore:
    """Models by name, loaded when they are first used, and displays by number.

    folders: model folders. Each is named as its folder is, or by its path where two have one name; all are loaded at
    once, so that errors come before the page is served.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        names = [folder.resolve().name for folder in folders]
        self.folders = {
            str(folder) if names.count(name) > 1 else name: folder for name, folder in zip(names, folders, strict=True)
        }
        self.models: dict[str, nn.Module] = {}
        self.displays: OrderedDict[int, AttentionDisplay] = OrderedDict()
        self.display_count = 0
        self.lock = threading.Lock()
        for name in self.folders:
            _kind(self.model(name))

    def model(self, name: str) -> nn.Module:
        """A model by its name."""
        with self.lock:
            if name not in self.models:
                folder = self.folders.get(name)
                if folder is None:
                    raise ValueError(f"model: expected one of {', '.join(self.folders) or 'none'}, got {name!r}")
                self.models[name] = load(folder).eval()
            return self.models[name]

    def list_models(self) -> list[dict[str, Any]]:
        """Names and kinds of what the page offers: what it was given, and what it has trained, now or earlier."""
        with self.lock:
            for name in (name for recipes in RECIPES.values() for name in recipes):
                if is_trained(name):
                    self.folders.setdefault(f"embedded {name}", trained_folder(name))
        return [{"name": name, "kind": _kind(self.model(name))} for name in self.folders]

    def add_display(self, display: AttentionDisplay) -> int:
        """Keep a display for a while; the number by which `display` finds it."""
        with self.lock:
            self.display_count += 1
            self.displays[self.display_count] = display
            while len(self.displays) > DISPLAYS:
                self.displays.popitem(last=False)
            return self.display_count

    def display(self, number: int) -> AttentionDisplay:
        """A display that is still kept."""
        with self.lock:
            if number not in self.displays:
                raise ValueError("these weights are no longer kept: send the text again")
            return self.displays[number]


def _kind(model: nn.Module) -> str:
    """The tab that a model belongs to."""
    if isinstance(model, Translator):
        return "translate"
    if isinstance(model, ImageClassifier):
        return "images"
    if isinstance(model, LanguageModel) and not model.config["classes"]:
        return "language"
    if isinstance(model, TextClassifier | Encoder | LanguageModel) or not isinstance(model, Model):
        return "text"
    raise ValueError(f"a {type(model).__name__} has nothing to be explored")
