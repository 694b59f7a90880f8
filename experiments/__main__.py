"""Run the experiments that are not done yet, and write docs/results.md: python -m experiments [NAME …]."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
from pathlib import Path

from benchmarks import measured
from benchmarks.front import refresh
from benchmarks.measured import Measured
from experiments import EXPERIMENTS
from experiments.grammar import sentences
from experiments.trial import MEASURED, Experiment, trial_folder
from regard import files

PAGE = Path(__file__).parent.parent / "docs" / "results.md"
INTRODUCTION = """# Results

What regard's models learn from real data in a given time. Each section begins with the aim that was set before
anything was measured, and an aim that was missed stays. The commands stand above a table or in its rows, so that you
can repeat them. Metrics are of data that training never had: BLEU (0 to 100) and accuracy should be high, alignment
error rates, losses and bits per byte low. Of several seeds the mean is given, and in brackets the range. Seconds and
tokens/s are of this machine, and say little about another one.

Made by `make experiments` from what it measured (`experiments/measured.json`), and not by hand."""


def main() -> int:
    """Exit code 0 if all the experiments that were named are done."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}; default: all")
    parser.add_argument("--trial", default="", metavar="TEXT", help="only trials that have this in their names")
    parser.add_argument("--no-cache", action="store_true", help="measure again; the old figures stay until then")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args()
    for name in options.names:
        if name not in EXPERIMENTS:
            parser.error(f"{name}: expected some of {', '.join(EXPERIMENTS)}")
    if not options.page:
        for name in options.names or EXPERIMENTS:
            run(name, options.trial, no_cache=options.no_cache)
    done = read()
    files.write(PAGE, page(done))
    refresh("experiments", sentences(done.get("grammar", {})))
    print(f"wrote docs/{PAGE.name}")
    return 0


def run(name: str, part: str, *, no_cache: bool) -> None:
    """Run the trials of an experiment, with `part` in their names, that are not done yet (no_cache=True: all).

    The figures of each are saved as soon as it is done.
    """
    experiment, done = load(name), read().get(name, {})
    trials = [trial for trial in experiment.trials if part in trial.name and (no_cache or trial.name not in done)]
    for number, trial in enumerate(trials):
        minutes = sum(later.minutes for later in trials[number:])
        print(f"{name}: {trial.name} ({number + 1} of {len(trials)}, {minutes:.0f} minutes left)", file=sys.stderr)
        folder = trial_folder(name, trial.name)
        if no_cache:
            shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        order = [other.name for other in experiment.trials]
        measured.save(MEASURED, name, order, trial.name, trial.work(folder, False))


def load(name: str) -> Experiment:
    """The experiment of this name."""
    experiment: Experiment = importlib.import_module(f"experiments.{name}").experiment()
    return experiment


def read() -> Measured:
    """What was measured so far."""
    return measured.read(MEASURED)


def page(done_by_name: Measured) -> str:
    """The page in Markdown."""
    parts = [INTRODUCTION]
    for name in EXPERIMENTS:
        experiment, done = load(name), done_by_name.get(name, {})
        parts += ["", f"## {experiment.title}", "", f"Aim: {experiment.aim}", ""]
        missing = [trial.name for trial in experiment.trials if trial.name not in done]
        if done:
            cores = sorted({figures["cores"] for figures in done.values() if "cores" in figures})
            parts.append(experiment.render(done))
            if cores:
                at = measured.machines(done_by_name, done.values())
                parts += ["", f"Cores of each trial: {' or '.join(map(str, cores))}. Machine: {at}."]
        if missing:
            count = len(experiment.trials)
            parts += ["", f"Not measured yet: {len(missing)} of {count} trials, the first: {missing[0]}."]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
