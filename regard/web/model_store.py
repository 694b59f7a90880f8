"""The models of the explorer: those it was given, those it trained itself, and what they were seen looking at."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.encoder import Encoder
from regard.models.folders import load
from regard.models.language_model import LanguageModel
from regard.models.model import Model
from regard.models.translator import Translator
from regard.view.attention import AttentionDisplay
from regard.web.training import RECIPES, is_trained, trained_folder

__all__ = ["KINDS", "Shelf", "kind_of"]

KINDS = ("translate", "language", "images", "text")
KEPT = 8  # displays: a few steps back


def kind_of(model: Model) -> str:
    """What a model is for."""
    if isinstance(model, Translator):
        return "translate"
    if isinstance(model, ImageClassifier):
        return "images"
    if isinstance(model, LanguageModel) and not model.config["classes"]:
        return "language"
    if isinstance(model, TextClassifier | Encoder | LanguageModel):
        return "text"
    raise ValueError(f"a {type(model).__name__} has nothing to be explored")


@dataclass
class Shelf:
    """Folders by name, loaded when they are first asked for; and the last displays, by number."""

    folders: dict[str, Path]
    models: dict[str, Model] = field(default_factory=dict)
    displays: OrderedDict[int, AttentionDisplay] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    count: int = 0

    @classmethod
    def of(cls, folders: Sequence[Path]) -> Shelf:
        """Named as their folders are; two of one name by their paths. All are loaded now, so that errors come early."""
        names = [folder.resolve().name for folder in folders]
        named = {
            str(folder) if names.count(name) > 1 else name: folder for name, folder in zip(names, folders, strict=True)
        }
        shelf = cls(named)
        for name in named:
            shelf.model(name)
        return shelf

    def model(self, name: str) -> Model:
        """A model by its name."""
        with self.lock:
            if name not in self.models:
                folder = self.folders.get(name)
                if folder is None:
                    raise ValueError(f"model: expected one of {', '.join(self.folders) or 'none'}, got {name!r}")
                self.models[name] = load(folder).eval()
            return self.models[name]

    def keep(self, display: AttentionDisplay) -> int:
        """A number under which a display can be asked for."""
        with self.lock:
            self.count += 1
            self.displays[self.count] = display
            while len(self.displays) > KEPT:
                self.displays.popitem(last=False)
            return self.count

    def display(self, number: int) -> AttentionDisplay:
        """A display that is still kept."""
        with self.lock:
            if number not in self.displays:
                raise ValueError("these weights are no longer kept: ask for them again")
            return self.displays[number]

    def listed(self) -> list[dict[str, Any]]:
        """What the page offers: what it was given, and what was trained here meanwhile or before."""
        with self.lock:
            for names in RECIPES.values():
                for name in names:
                    if is_trained(name):
                        self.folders.setdefault(f"embedded {name}", trained_folder(name))
        return [{"name": name, "kind": kind_of(self.model(name))} for name in self.folders]
