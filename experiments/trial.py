"""A trial, and how it trains: by the command that anybody would type."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import regard
from benchmarks.measured import read
from benchmarks.measured import replace_between as replace_between
from benchmarks.measured import table as table
from regard.data import fetching
from regard.data.fetching import SETS
from regard.training.options import TASKS

Figures = dict[str, Any]
MEASURED = Path(__file__).with_name("measured.json")

# With tiny=True, as the tests run them, trials take seconds: so few steps, and models of these sizes.
FEW_STEPS = {"steps": 12, "warmup": 1, "evaluate_every": 12, "save_every": 12}
SMALL = {"size": 12, "layers": 1, "heads": 3}
TINY: dict[tuple[str, str], dict[str, Any]] = {  # by task and kind of model
    ("translate", "rnn"): {"size": 12, "hidden_size": 12, "vocab_size": 300, "batch": 512, "beam_size": 1},
    ("translate", "transformer"): {**SMALL, "vocab_size": 300, "batch": 512, "beam_size": 1},
    ("language", "causal"): {**SMALL, "context": 40, "vocab_size": 300, "batch": 512},
    ("text", ""): {**SMALL, "vocab_size": 300, "batch": 512},
    ("images", "vit"): {**SMALL, "batch": 32},
    ("images", "resnet"): {"width": 4, "depths": "1,1", "batch": 32},
}


@dataclass(frozen=True)
class Trial:
    """Work in a folder that results in figures. It may be interrupted and called again."""

    name: str
    minutes: float  # about
    work: Callable[[Path, bool], Figures]  # the folder, and whether to be tiny


@dataclass(frozen=True)
class Experiment:
    """Trials, and what the page says about their figures."""

    title: str
    aim: str
    trials: Sequence[Trial]
    render: Callable[[Mapping[str, Figures]], str]  # the figures of the trials that are done → Markdown


def trial_folder(experiment: str, trial: str) -> Path:
    """Where a trial works; it goes on there if it was interrupted."""
    return fetching.cache() / "experiments" / experiment / trial.replace(" ", "-").replace(",", "")


def figures_of(experiment: str, trial: str) -> Figures:
    """What a trial resulted in that another one builds on."""
    try:
        figures: Figures = read(MEASURED)[experiment][trial]
    except KeyError:
        raise SystemExit(f"experiments: expected {trial!r} of {experiment} to be measured before") from None
    return figures


def train(
    folder: Path, task: str, *data: str, launcher: Sequence[str] = (), tiny: bool = False, **options: Any
) -> Figures:
    """Train by a command, or resume; return its results and the command."""
    if tiny:
        options = _shrink(task, options)
    flags = [_flag(name, value) for name, value in options.items()]
    resume = (folder / "training.yaml").exists()
    start = time.monotonic()
    if tiny and not launcher:  # here, because Python would take longer to start than such a training takes
        results = regard.train(task, *data, out=folder, resume=resume, **options).results
    else:
        command = [*(launcher or [sys.executable]), "-m", "regard", "train", task, *data, *chain(*flags)]
        results = _run(command, folder, resume)
    shown = ["torchrun", *launcher[3:], "-m", "regard"] if launcher else ["regard"]
    words = map(_shorten, chain(data, *flags))
    # From start to end, with reading, evaluating and saving; unknown for a run that was interrupted.
    wall = {} if resume else {"wall_seconds": round(time.monotonic() - start, 1)}
    return {"command": " ".join([*shown, "train", task, *words]), **results, **wall}


def _shrink(task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A model that starts from another one has its shape."""
    kept = {name: value for name, value in options.items() if name != "minutes"}
    if "init_from" in kept:
        return {**kept, **FEW_STEPS}
    model = kept.get("model", getattr(TASKS[task], "model", ""))
    return {**kept, **TINY[task, model], **FEW_STEPS}


def _run(command: list[str], folder: Path, resume: bool) -> Figures:
    more = [*(["--resume"] if resume else []), "--out", str(folder), "--json"]
    done = subprocess.run([*command, *more], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"experiments: `{' '.join(command)}` failed with exit code {done.returncode}")
    results: Figures = json.loads(done.stdout)
    del results["folder"]
    return results


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else ["--no-" + flag[2:]]
    return [flag, "none" if value is None else str(value)]


def _shorten(word: str) -> str:
    """A path as a reader needs it: of a fetched data set the command that prints its folder, else folder and file."""
    path = Path(word)
    for name in SETS:
        if path.is_relative_to(fetching.folder(name)):
            return "/".join([f'"$(regard data fetch {name})"', *path.relative_to(fetching.folder(name)).parts])
    return "/".join(path.parts[-2:]) if "/" in word else word


def block(commands: Iterable[str]) -> str:
    """Commands as a block of the page."""
    return "\n".join(["```sh", *commands, "```"])


def spread(numbers: Sequence[float], form: str = ".1f") -> str:
    """A mean, and the range of the numbers."""
    mean = sum(numbers) / len(numbers)
    if len(numbers) == 1:
        return f"{mean:{form}}"
    return f"{mean:{form}} ({min(numbers):{form}}–{max(numbers):{form}})"
