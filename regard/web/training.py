"""Models that the page trains itself, on the data that come with regard, when none was given; they are kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from regard.data.fetching import cache
from regard.training.folder import LOG, RESULTS, has_run, read_options

__all__ = ["RECIPES", "Trainer", "is_trained", "trained_folder"]

# By tab, the models to train and how, as one would type it after `regard train`.
RECIPES: dict[str, dict[str, list[str]]] = {
    "translate": {"translate": ["translate"]},
    "language": {"language": ["language"]},
    "images": {"vit": ["images", "--model", "vit"], "resnet": ["images", "--model", "resnet"]},
}


def trained_folder(name: str) -> Path:
    """Where a model that was trained here is kept."""
    return cache() / "explore" / name


def is_trained(name: str) -> bool:
    """Whether there is a model that was trained to its end."""
    return (trained_folder(name) / RESULTS).exists()


class Trainer:
    """One training run at a time, in a child process, which is resumed where it was cut short."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.name = ""
        self.queue: list[tuple[str, list[str]]] = []
        self.error = ""

    def start(self, kind: str) -> dict[str, Any]:
        """Train what this tab needs, unless something is being trained; the status."""
        if self.process is None and not self.queue:
            self.error = ""
            self.queue = [(name, arguments) for name, arguments in RECIPES[kind].items() if not is_trained(name)]
            self._next()
        return self.status()

    def status(self) -> dict[str, Any]:
        """How far the run is, or how it ended."""
        if self.process is not None and self.process.poll() is not None:
            code, self.process = self.process.returncode, None
            if code:
                self.queue = []
                self.error = _last_line(trained_folder(self.name))
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
        folder.parent.mkdir(parents=True, exist_ok=True)
        # -P: without it the child would import from the working folder first, whatever lies there under a module's name
        command = [sys.executable, "-P", "-m", "regard", "train", *arguments, "--out", str(folder)]
        if has_run(folder):
            command.append("--resume")
        with folder.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _progress(folder: Path) -> dict[str, Any]:
    """Steps done and to do, and the loss, from the run's log."""
    try:
        lines = (folder / LOG).read_text(encoding="utf-8").splitlines()
        steps = [record for line in lines[-3:] if "loss" in (record := json.loads(line))]
        _, options = read_options(folder)
        return {"step": steps[-1]["step"], "steps": options.steps, "loss": steps[-1]["loss"]}
    except (OSError, ValueError, IndexError):  # the run has only begun, or its last line is half written
        return {"step": 0, "steps": 0, "loss": None}


def _last_line(folder: Path) -> str:
    lines = folder.with_suffix(".log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "training ended without a message"
