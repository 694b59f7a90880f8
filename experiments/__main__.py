"""Run the experiments that are not done yet, and write docs/results.md: python -m experiments [NAME …]."""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.__main__ import processor
from benchmarks.front import refresh
from experiments import EXPERIMENTS
from experiments.trial import Experiment, Figures
from regard import files
from regard.data.fetching import cache

Measured = dict[str, Any]  # experiment → trial → figures; and the machine
MEASURED = Path(__file__).with_name("measured.json")
PAGE = Path(__file__).parent.parent / "docs" / "results.md"


def main() -> int:
    """Exit code 0 where everything that was asked for is done."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}; default: all")
    parser.add_argument("--trial", default="", metavar="TEXT", help="only trials that have this in their names")
    parser.add_argument("--no-cache", action="store_true", help="measure these anew; the old figures stay until then")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    options = parser.parse_args()
    for name in options.names:
        if name not in EXPERIMENTS:
            parser.error(f"{name}: expected some of {', '.join(EXPERIMENTS)}")
    chosen = options.names or EXPERIMENTS
    if not options.page:
        for name in chosen:
            run(name, options.trial, again=options.again)
    PAGE.write_text(page(read()), encoding="utf-8")
    refresh(page(read()))
    print(f"wrote docs/{PAGE.name}")
    return 0


def run(name: str, some: str, *, again: bool) -> None:
    """The trials of one experiment that are not done yet (`again`: all); each is kept as soon as it is."""
    own, done = load(name), read().get(name, {})
    left = [trial for trial in own.trials if some in trial.name and (again or trial.name not in done)]
    for number, trial in enumerate(left):
        rest = sum(each.minutes for each in left[number:])
        print(f"{name}: {trial.name} ({number + 1} of {len(left)}, about {rest:.0f} minutes left)", file=sys.stderr)
        folder = cache() / "experiments" / name / trial.name.replace(" ", "-").replace(",", "")
        if again:
            shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        keep(name, [each.name for each in own.trials], trial.name, trial.work(folder))


def load(name: str) -> Experiment:
    """The experiment of this name."""
    found: Experiment = importlib.import_module(f"experiments.{name}").experiment()
    return found


def read() -> Measured:
    """What was measured so far."""
    content: Measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    return content


def keep(name: str, order: Sequence[str], trial: str, figures: Figures) -> None:
    """Put the figures of a trial beside the others, in the order of the experiment.

    One at a time: another experiment may be running, a core for each.
    """
    with (cache() / "experiments" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        measured = read()
        done = {**measured.get(name, {}), trial: {**figures, "on": time.strftime("%Y-%m-%d")}}
        measured[name] = {each: done[each] for each in order if each in done}
        version = torch.__version__.partition("+")[0]
        measured["machine"] = f"{processor()}, {os.cpu_count()} cores, PyTorch {version}, {platform.system()}"
        content = json.dumps(measured, indent=1, ensure_ascii=False) + "\n"
        files.write(MEASURED, content)


def page(measured: Measured) -> str:
    """The page in Markdown."""
    parts = [
        "# Results",
        "",
        "Made by `make experiments` from what it measured (`experiments/measured.json`), and not by hand.",
        f"Machine: {measured.get('machine', '')}.",
    ]
    for name in EXPERIMENTS:
        own, done = load(name), measured.get(name, {})
        parts += ["", f"## {own.title}", "", f"Aim: {own.aim}", ""]
        missing = [trial.name for trial in own.trials if trial.name not in done]
        if done:
            parts.append(own.told(done))
        if missing:
            parts += ["", f"Not measured yet: {len(missing)} of {len(own.trials)} trials, the first: {missing[0]}."]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
