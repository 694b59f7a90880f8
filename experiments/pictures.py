"""CIFAR-10: ViT and ResNet of equal size in equal time, on 1 %, 10 % and all of the images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.trial import Experiment, Figures, Trial, block, spread, table, train
from regard.data.fetching import fetch

SHARES = {"1 %": 475, "10 %": 4_750, "100 %": 0}  # images to learn from
SEEDS = {"1 %": (0, 1, 2), "10 %": (0, 1, 2), "100 %": (0,)}
MINUTES = 30  # for each run at most: a run whose accuracy grows no more ends sooner
SHAPES = {
    "vit": {"model": "vit", "patch_size": 4, "size": 64, "layers": 6, "heads": 4, "dropout": 0.0},
    "resnet": {"model": "resnet", "width": 16, "depths": "1,1,1,1"},
}
SAME = {"flip": True, "precision": "bf16", "minutes": MINUTES}


def learn(folder: Path, kind: str, share: str, seed: int, tiny: bool) -> Figures:
    """From scratch, for the same time whatever the number of images."""
    few = {"examples": SHARES[share]} if SHARES[share] else {}
    return train(folder, "images", str(fetch("cifar10")), tiny=tiny, **SHAPES[kind], **SAME, **few, seed=seed)


def render(done: Mapping[str, Figures]) -> str:
    """A row for each share."""
    rows = []
    for share in SHARES:
        runs = {kind: [done[name] for name in names(kind, share) if name in done] for kind in SHAPES}
        if not all(runs.values()):
            continue
        vit, resnet = ([100 * run["test"]["accuracy"] for run in runs[kind]] for kind in SHAPES)
        minutes = " · ".join(spread([run["seconds"] / 60 for run in runs[kind]], ".0f") for kind in SHAPES)
        gap = sum(vit) / len(vit) - sum(resnet) / len(resnet)
        rows.append([share, len(vit), spread(vit), spread(resnet), f"{gap:+.1f}", minutes])
    first = {kind: run for kind in SHAPES for name, run in done.items() if name.startswith(kind)}
    sizes = " · ".join(f"{kind} {run['parameters']:,}" for kind, run in first.items())
    commands = block(run["command"].rpartition(" --seed")[0] for run in first.values())
    head = ["images", "seeds", "ViT, accuracy %", "ResNet", "ViT − ResNet", "minutes of training, ViT · ResNet"]
    limits = "What this scale cannot show: the pretraining on hundreds of millions of images after which ViTs win."
    return "\n".join([commands, "", f"Parameters: {sizes}.", "", table(head, rows), "", limits])


def names(kind: str, share: str) -> list[str]:
    """The trials of a kind of model on a share of the images."""
    return [f"{kind}, {share}, seed {seed}" for seed in SEEDS[share]]


def experiment() -> Experiment:
    """Each share with both models."""
    trials = []
    for share in SHARES:
        for kind in SHAPES:
            for seed, name in zip(SEEDS[share], names(kind, share), strict=True):
                way = (kind, share, seed)
                trials.append(Trial(name, MINUTES + 1, lambda folder, tiny, way=way: learn(folder, *way, tiny)))
    return Experiment(
        "CIFAR-10: ViT and ResNet",
        f"With equal parameters, in {MINUTES} minutes, on all images: ResNet 88 % or more, ViT 72 % or more; and the "
        "gap between them at each size of the data.",
        trials,
        render,
    )
