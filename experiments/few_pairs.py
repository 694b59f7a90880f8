"""Ten thousand real pairs and no options: what the defaults make of the data that somebody has."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measured import cores
from experiments.trial import Experiment, Figures, Trial, spread, table, train
from regard.data.fetching import fetch
from regard.data.store import cache

PAIRS = 10_000
SEEDS = (0, 1, 2)  # of the weights, and of which pairs there are
CORE_MINUTES = 16  # 8 minutes of two cores


def draw(seed: int) -> Path:
    """A file with as many pairs of the catalogues."""
    path = cache() / "experiments" / "few_pairs" / "data" / f"pairs-{seed}.tsv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (fetch("catalogues-fr") / "pairs.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(random.Random(seed).sample(lines, min(PAIRS, len(lines)))), encoding="utf-8")
    return path


def work(folder: Path, seed: int, tiny: bool) -> Figures:
    """Train on them; the split into training, validation and test is the command's."""
    return train(folder, "translate", str(draw(seed)), tiny=tiny, minutes=CORE_MINUTES / cores(), seed=seed)


def render(done: Mapping[str, Figures]) -> str:
    """A row for all seeds."""
    runs = list(done.values())
    row = [
        len(runs),
        spread([run["test"]["bleu"] for run in runs]),
        spread([run["test"]["chrf"] for run in runs]),
        f"{runs[0]['parameters']:,}",
        spread([run["tokens_per_second"] for run in runs], ",.0f"),
        f"`{runs[0]['command'].rpartition(' --seed')[0]}`",
    ]
    return table(["seeds", "BLEU", "chrF", "parameters", "tokens/s", "command"], [row])


def experiment() -> Experiment:
    """Three draws."""
    trials = [
        Trial(f"seed {seed}", CORE_MINUTES, lambda folder, tiny, seed=seed: work(folder, seed, tiny)) for seed in SEEDS
    ]
    return Experiment(
        "Ten thousand pairs and no options",
        f"In {CORE_MINUTES // 2} minutes on two cores, or {CORE_MINUTES} on one, English to French: BLEU 12 or more.",
        trials,
        render,
    )
