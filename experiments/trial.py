"""A trial, and how one trains: by the command that anybody would type."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """Work in a folder that comes to figures. It may be cut short and called again."""

    name: str
    minutes: float  # about
    work: Callable[[Path], Figures]


@dataclass(frozen=True)
class Experiment:
    """Trials, and what the page says of their figures."""

    title: str
    aim: str
    trials: Sequence[Trial]
    told: Callable[[Mapping[str, Figures]], str]  # Markdown, of the trials that are done


def train(folder: Path, task: str, *data: str, launcher: Sequence[str] = (), **options: Any) -> Figures:
    """Train by a command of its own, going on where it was, and take its results and the command itself."""
    begin = list(launcher) or [sys.executable]
    flags = [word for name, value in options.items() for word in _flag(name, value)]
    arguments = ["train", task, *data, *flags]
    resume = ["--resume"] if (folder / "training.yaml").exists() else []
    command = [*begin, "-m", "regard", *arguments, *resume, "--out", str(folder), "--json"]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"experiments: `regard {' '.join(arguments)}` failed with exit code {done.returncode}")
    found: Figures = json.loads(done.stdout)
    del found["folder"]
    shown = ["torchrun", *launcher[3:], "-m", "regard"] if launcher else ["regard"]
    # From start to end, with reading, evaluating and saving; unknown where an earlier part of the run is not in it.
    whole = {} if resume else {"wall_seconds": round(time.monotonic() - began, 1)}
    return {"command": " ".join([*shown, "train", task, *map(_short, data), *flags]), **found, **whole}


def steps_within(minutes: float, folder: Path, task: str, *data: str, **options: Any) -> int:
    """How many steps fit into a time, measured once on a few of them: a schedule has to know its end."""
    path = folder / "pace.json"
    if not path.exists():
        few = {**options, "steps": 30, "evaluate_every": 1_000, "save_every": 1_000, "warmup": 30}
        train(folder / "pace", task, *data, **few)
        records = [json.loads(line) for line in (folder / "pace" / "log.jsonl").read_text().splitlines()]
        times = [record["seconds"] for record in records if "loss" in record]
        path.write_text(json.dumps((times[-1] - times[9]) / (len(times) - 10)))
    return int(60 * minutes / float(json.loads(path.read_text())))


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else ["--no-" + flag[2:]]
    return [flag, "none" if value is None else str(value)]


def _short(word: str) -> str:
    """A path as a reader needs it: the set and the file."""
    return "/".join(Path(word).parts[-2:]) if "/" in word else word


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def spread(numbers: Sequence[float], form: str = ".1f") -> str:
    """A mean, and how far apart the numbers lie."""
    mean = sum(numbers) / len(numbers)
    if len(numbers) == 1:
        return f"{mean:{form}}"
    return f"{mean:{form}} ({min(numbers):{form}}–{max(numbers):{form}})"
