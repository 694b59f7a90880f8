"""CIFAR-10: ViT and ResNet of equal size in equal time, on 1 %, 10 % and all of the images; and after pretraining."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy

from experiments.trial import Experiment, Figures, Trial, steps_within, table, train
from regard.data.fetching import cache, fetch

SHARES = {"1 %": 475, "10 %": 4_750, "100 %": 0}  # images to learn from
MINUTES = 8  # for each run, on one thread
SHAPES = {
    "vit": {"model": "vit", "patch": 4, "size": 64, "layers": 6, "heads": 4, "dropout": 0.0},
    "resnet": {"model": "resnet", "width": 16, "depths": "1,1,1,1"},
}
BESIDES = {"threads": 1, "flip": True, "batch": 128, "learning_rate": 1e-3, "evaluate_every": 400, "warmup": 100}
HOME = "experiments/pictures"
HALF = 5  # classes to pretrain on; the others are learned from 1 % afterwards


def halves() -> tuple[Path, Path]:
    """The classes to pretrain on, and the others, each as a folder with train.npz and test.npz."""
    first, second = (cache() / HOME / name for name in ("first-half", "second-half"))
    for folder, low in ((first, 0), (second, HALF)):
        for name in ("train.npz", "test.npz"):
            if (folder / name).exists():
                continue
            folder.mkdir(parents=True, exist_ok=True)
            with numpy.load(fetch("cifar10") / name) as whole:
                rows = (whole["labels"] >= low) & (whole["labels"] < low + HALF)
                parts = {"images": whole["images"][rows], "labels": whole["labels"][rows] - low}
                numpy.savez(folder / name, **parts, names=whole["names"][low : low + HALF])
    return first, second


def learn(folder: Path, kind: str, examples: int) -> Figures:
    """From scratch, for the same time whatever the number of images."""
    return _timed(folder, kind, str(fetch("cifar10")), {"examples": examples} if examples else {})


def pretrain(folder: Path, kind: str) -> Figures:
    return _timed(folder, kind, str(halves()[0]), {})


def transfer(folder: Path, kind: str, begun: bool) -> Figures:
    """1 % of the other classes, a quarter of the time; after pretraining or from scratch."""
    given = {"examples": SHARES["1 %"] // 2}
    if not begun:
        return _timed(folder, kind, str(halves()[1]), given, minutes=MINUTES / 4)
    home = cache() / HOME
    given |= {"init_from": str(home / f"{kind}-pretrained")}
    found = _timed(folder, kind, str(halves()[1]), given, minutes=MINUTES / 4, shape={})
    return {**found, "command": found["command"].replace(str(home) + "/", "")}


def _timed(
    folder: Path, kind: str, data: str, more: dict[str, object], minutes: float = MINUTES, shape: object = None
) -> Figures:
    given = {**(SHAPES[kind] if shape is None else {}), **BESIDES, **more}
    beside = cache() / HOME / f"pace-of-{kind}"
    beside.mkdir(parents=True, exist_ok=True)
    steps = steps_within(minutes, beside, "images", str(fetch("cifar10")), **SHAPES[kind], **BESIDES)
    return train(folder, "images", data, **given, steps=steps)


def told(done: Mapping[str, Figures]) -> str:
    """A row for each share, and those of the transfer."""
    rows = []
    lines = [*SHARES, "1 % of five classes", "1 % of five classes, after the other five"]
    for name in lines:
        pair = [done.get(f"{kind}, {name}") for kind in SHAPES]
        if any(own is None for own in pair):
            continue
        vit, resnet = (100 * own["test"]["accuracy"] for own in pair if own is not None)
        minutes = " · ".join(f"{own['seconds'] / 60:.1f}" for own in pair if own is not None)
        rows.append([name, f"{vit:.1f}", f"{resnet:.1f}", f"{vit - resnet:+.1f}", minutes])
    sizes = " · ".join(
        f"{kind} {done[key]['parameters']:,}" for kind in SHAPES for key in done if key == f"{kind}, 1 %"
    )
    commands = [f"    {done[f'{kind}, 10 %']['command']}" for kind in SHAPES if f"{kind}, 10 %" in done]
    head = ["images", "ViT, accuracy %", "ResNet", "ViT − ResNet", "minutes of training"]
    limits = (
        "What this scale cannot show: the pretraining on hundreds of millions of images after which ViTs win; and one "
        "seed tells differences of a point or two apart from chance only on the whole test part of 10,000 images."
    )
    return "\n".join([*commands, "", f"Parameters: {sizes}.", "", table(head, rows), "", limits])


def experiment() -> Experiment:
    """Each share with both, then the transfer with both."""
    trials = [
        Trial(f"{kind}, {share}", MINUTES + 1, lambda f, k=kind, n=count: learn(f, k, n))
        for share, count in SHARES.items()
        for kind in SHAPES
    ]
    for kind in SHAPES:
        trials.append(Trial(f"{kind} pretrained", MINUTES + 1, lambda f, k=kind: pretrain(f, k)))
        for name, begun in (("1 % of five classes", False), ("1 % of five classes, after the other five", True)):
            trials.append(Trial(f"{kind}, {name}", 3, lambda f, k=kind, b=begun: transfer(f, k, b)))
    return Experiment(
        "CIFAR-10: ViT and ResNet",
        "The gap between models of equal parameters and equal time at each size of the data, and after pretraining.",
        trials,
        told,
    )
