"""The models of the page: those it was given, those that it trains itself, on the data that come with regard, and the
small ones that come with regard, too; and the last displays of what they attended to."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.store import cache, writable
from regard.errors import RegardError
from regard.models.classifier import ImageClassifier, TextClassifier
from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel
from regard.models.model import Model, evaluation
from regard.models.translator import Translator
from regard.training.folder import RESULTS, has_run, read_log, read_options
from regard.view.attention import AttentionDisplay
from regard.view.capture import capture
from regard.view.page import Scores
from regard.view.reading import load, prepare

SMALLEST = 16  # tokens of a vocabulary: what has fewer values at each position predicts no tokens
DISPLAYS, BYTES = 8, 1 << 30  # that are kept: a few steps back, or fewer large ones
CUTS = 32  # for which a display keeps logits
# They come with regard, so that no part of the page is empty; `python -m experiments.embedded` makes them.
HOME = Path(str(files("regard.web"))) / "models"
SMALL = {f"small {name}": HOME / name for name in ("language", "translator", "vit", "resnet")}
# By tab, the models to train and how, as one would type it after `regard train`.
RECIPES: dict[str, dict[str, list[str]]] = {
    "translate": {"translate": ["translate"]},
    "language": {"language": ["language"]},
    "images": {"vit": ["images", "--model", "vit"], "resnet": ["images", "--model", "resnet"]},
}


@dataclass
class Kept:
    """A text that was read, and what came of it: what has to be computed later starts from here."""

    model: str
    text: str
    target: str | None
    display: AttentionDisplay
    logits: dict[frozenset[tuple[int, int]], Tensor] = field(default_factory=dict)  # by the heads that were cut

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return sum(layer.weights.nbytes for layer in self.display.maps)


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
        self.scores: dict[str, Scores] = {}  # of heads on repeated tokens, by model
        self.displays: OrderedDict[int, Kept] = OrderedDict()
        self.display_count = 0
        self.lock = threading.Lock()
        self.kinds = {name: kind_of(self.model(name), self.tokenizer(name)) for name in self.given}

    def model(self, name: str) -> nn.Module:
        """A model by its name."""
        with self.lock:
            if name not in self.models:
                folder = {**SMALL, **self.folders}.get(name)
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
                if f"embedded {name}" not in self.folders and is_trained(name):
                    self.folders[f"embedded {name}"] = trained_folder(name)
        listed = []
        for name in dict.fromkeys([*self.given, *self.folders, *SMALL]):
            count = sum(parameter.numel() for parameter in self.model(name).parameters())
            listed.append({"name": name, "kind": self.kind(name), "given": name in self.given, "parameters": count})
        return listed

    def kind(self, name: str) -> str:
        """The part of the page that a model belongs to: translate, images, language or text."""
        if name not in self.kinds:
            self.kinds[name] = kind_of(self.model(name))
        return self.kinds[name]

    def keep(self, kept: Kept) -> int:
        """Keep a display for a while; the number by which `display` finds it."""
        with self.lock:
            self.display_count += 1
            self.displays[self.display_count] = kept
            while len(self.displays) > 1 and (
                len(self.displays) > DISPLAYS or sum(one.size for one in self.displays.values()) > BYTES
            ):
                self.displays.popitem(last=False)
            return self.display_count

    def display(self, number: int) -> Kept:
        """A display that is still kept."""
        with self.lock:
            if number not in self.displays:
                raise ValueError("these weights are no longer kept: send the text again")
            return self.displays[number]


def kind_of(model: nn.Module, tokenizer: Any = None) -> str:
    """The part of the page that a model belongs to. One that regard has not made is asked: a language model looks at no
    later token, and returns logits of its tokenizer's tokens at every position."""
    if isinstance(model, Translator):
        return "translate"
    if isinstance(model, ImageClassifier):
        return "images"
    if isinstance(model, LanguageModel) and not model.config["classes"]:
        return "language"
    if isinstance(model, TextClassifier | Encoder | LanguageModel):
        return "text"
    if isinstance(model, Model):
        raise ValueError(f"a {type(model).__name__} has nothing to be explored")
    reads_two = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    reading = prepare(model, "a b", "a b" if reads_two else None, tokenizer)
    with torch.inference_mode(), evaluation(model), capture(model) as captured:
        output = reading.run()
    logits = getattr(output, "logits", output)
    is_causal = len(reading.inputs) == 1 and all(layer.kind == "causal" for layer in captured)
    of_tokens = (
        isinstance(logits, Tensor) and logits.shape[:2] == reading.inputs[0].shape and logits.shape[-1] > SMALLEST
    )
    return "language" if is_causal and of_tokens and max(reading.inputs[0][0]) < logits.shape[-1] else "text"


def trained_folder(name: str) -> Path:
    """Where a model that was trained here is kept."""
    return writable(cache() / "explore") / name


def is_trained(name: str) -> bool:
    """Whether there is a model that was trained to its end. One that cannot be read is not: training repairs it."""
    try:
        return (trained_folder(name) / RESULTS).exists() and bool(load(trained_folder(name)))
    except RegardError:
        return False


class Trainer:
    """One training run at a time, in a child process, which is resumed where it was cut short."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.name = ""
        self.queue: list[tuple[str, list[str]]] = []
        self.error = ""
        self.lock = threading.RLock()

    def start(self, kind: str) -> dict[str, Any]:
        """Train what this tab needs, unless something is being trained; the status."""
        with self.lock:
            if self.process is None:
                self.error = ""
                self.queue = [(name, arguments) for name, arguments in RECIPES[kind].items() if not is_trained(name)]
                self._next()
            return self.status()

    def status(self) -> dict[str, Any]:
        """How far the run is, or how it ended."""
        with self.lock:
            if self.process is not None and self.process.poll() is not None:
                code, self.process = self.process.returncode, None
                if code:
                    self.queue = []
                    log = trained_folder(self.name).with_suffix(".log").read_text(encoding="utf-8", errors="replace")
                    self.error = (log.strip().splitlines() or ["training ended without a message"])[-1]
                self._next()
            if self.process is None:
                return {"running": False, "error": self.error}
            return {"running": True, "name": self.name, "left": len(self.queue), **_progress(trained_folder(self.name))}

    def stop(self) -> None:
        """Let the run save and end; it can be resumed."""
        self.queue = []
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def _next(self) -> None:
        if not self.queue:
            return
        self.name, arguments = self.queue.pop(0)
        folder = trained_folder(self.name)
        # -P: without it the child would import from the working folder first, whatever lies there under a module's name
        command = [sys.executable, "-P", "-m", "regard", "train", *arguments, "--out", str(folder)]
        if has_run(folder):
            command.append("--resume")
        with folder.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _progress(folder: Path) -> dict[str, Any]:
    """Steps done and to do, and the loss, from the run's log."""
    try:
        last = next(record for record in reversed(read_log(folder)) if isinstance(record.get("loss"), float))
        _, options = read_options(folder)
        return {"step": last["step"], "steps": options.steps, "loss": last["loss"]}
    except (OSError, ValueError, StopIteration):  # the run has only begun
        return {"step": 0, "steps": 0, "loss": None}
