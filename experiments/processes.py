"""One process and two: the same losses, and the speed of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from experiments.trial import Experiment, Figures, Trial, table, train
from regard.training.folder import read_log

SAME = {"steps": 200, "dropout": 0.0, "evaluate_every": 200, "evaluate_pairs": 50}
WAYS = {
    "1 process, 1 thread": (1, 1, False),
    "1 process, 2 threads": (1, 2, False),
    "2 processes, 1 thread each (DDP)": (2, 1, False),
    "2 processes, 1 thread each (FSDP2)": (2, 1, True),
}


def work(folder: Path, processes: int, threads: int, shard: bool, tiny: bool) -> Figures:
    """The same 200 steps on the embedded grammar."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    options = {**SAME, "threads": threads, **({"shard": True} if shard else {})}
    results = train(folder, "translate", launcher=torchrun if processes > 1 else (), tiny=tiny, **options)
    return {**results, "losses": [record["loss"] for record in read_log(folder) if "loss" in record]}


def render(done: Mapping[str, Figures]) -> str:
    """Speeds, and the largest difference of the losses from those of the first."""
    first = next(iter(done.values()))
    rows = []
    for name, figures in done.items():
        difference = max(abs(a - b) for a, b in zip(figures["losses"], first["losses"], strict=True))
        rows.append([name, f"{figures['tokens_per_second']:,.0f}", f"{difference:.1e}", f"`{figures['command']}`"])
    return table(["", "tokens/s", "largest difference of a loss", "command"], rows)


def experiment() -> Experiment:
    """Every way once."""
    trials = [Trial(name, 1, lambda folder, tiny, way=way: work(folder, *way, tiny)) for name, way in WAYS.items()]
    return Experiment("Two processes and one", "Equal losses, and the throughput of both.", trials, render)
