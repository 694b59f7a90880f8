"""Models that the explorer trains itself, on the data that come with regard, when none was given; and keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from regard.data.fetching import cache
from regard.training.folder import LOG, RESULTS, has_run, read_options

__all__ = ["RECIPES", "Trainer", "trained_folder"]

# What is trained for a tab, and how, as one would type it after `regard train`.
RECIPES: dict[str, dict[str, list[str]]] = {
    "translate": {"translate": ["translate"]},
    "language": {"language": ["language"]},
    "images": {"vit": ["images", "--model", "vit"], "resnet": ["images", "--model", "resnet"]},
}


def trained_folder(name: str) -> Path:
    """Where a model that was trained here is kept."""
    return cache() / "explore" / name


class Trainer:
    """One training at a time, in a process of its own, which goes on from where it was cut short."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.name = ""
        self.waiting: list[tuple[str, list[str]]] = []
        self.trouble = ""

    def start(self, kind: str) -> dict[str, Any]:
        """Train what this tab needs, unless something is being trained; and say how far it is."""
        if self.process is None and not self.waiting:
            self.trouble = ""
            self.waiting = [(name, words) for name, words in RECIPES[kind].items() if not is_trained(name)]
            self._next()
        return self.status()

    def status(self) -> dict[str, Any]:
        """How far it is."""
        if self.process is not None and self.process.poll() is not None:
            code, self.process = self.process.returncode, None
            if code:
                self.waiting = []
                self.trouble = _last_line(trained_folder(self.name))
            self._next()
        if self.process is None:
            return {"running": False, "trouble": self.trouble}
        return {"running": True, "name": self.name, "left": len(self.waiting), **_progress(trained_folder(self.name))}

    def stop(self) -> None:
        """Ask it to save and end; it can go on another time."""
        self.waiting = []
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def _next(self) -> None:
        if not self.waiting:
            return
        self.name, words = self.waiting.pop(0)
        folder = trained_folder(self.name)
        folder.parent.mkdir(parents=True, exist_ok=True)
        more = ["--resume"] if has_run(folder) else []
        with folder.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "regard", "train", *words, "--out", str(folder), *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def is_trained(name: str) -> bool:
    """Whether there is a model that was trained to its end."""
    return (trained_folder(name) / RESULTS).exists()


def _progress(folder: Path) -> dict[str, Any]:
    """Steps done and to do, and the loss, from the run's own log."""
    try:
        lines = (folder / LOG).read_text(encoding="utf-8").splitlines()
        steps = [own for line in lines[-3:] if "loss" in (own := json.loads(line))]
        _, options = read_options(folder)
        return {"step": steps[-1]["step"], "steps": options.steps, "loss": steps[-1]["loss"]}
    except (OSError, ValueError, IndexError):  # it has only begun, or is writing its line just now
        return {"step": 0, "steps": 0, "loss": None}


def _last_line(folder: Path) -> str:
    lines = folder.with_suffix(".log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "training ended without a word"
