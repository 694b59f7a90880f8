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
    "vit": {"model": "vit", "patch_size": 4, "size": 64, "layers": 6, "heads": 4, "dropout": 0.0},
    "resnet": {"model": "resnet", "width": 16, "depths": "1,1,1,1"},
}
SAME = {"threads": 1, "flip": True, "batch": 128, "learning_rate": 1e-3, "evaluate_every": 400, "warmup": 100}
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
                half = {"images": whole["images"][rows], "labels": whole["labels"][rows] - low}
                numpy.savez(folder / name, **half, names=whole["names"][low : low + HALF])
    return first, second


def learn(folder: Path, kind: str, examples: int, tiny: bool) -> Figures:
    """From scratch, for the same time whatever the number of images."""
    options = {**SHAPES[kind], **({"examples": examples} if examples else {})}
    return _train(folder, kind, fetch("cifar10"), options, MINUTES, tiny)


def pretrain(folder: Path, kind: str, tiny: bool) -> Figures:
    return _train(folder, kind, halves()[0], SHAPES[kind], MINUTES, tiny)


def transfer(folder: Path, kind: str, pretrained: bool, tiny: bool) -> Figures:
    """1 % of the other classes, a quarter of the time; after pretraining or from scratch."""
    home = cache() / HOME
    start = {"init_from": str(home / f"{kind}-pretrained")} if pretrained else SHAPES[kind]
    options = {**start, "examples": SHARES["1 %"] // 2}
    results = _train(folder, kind, halves()[1], options, MINUTES / 4, tiny)
    return {**results, "command": results["command"].replace(str(home) + "/", "")}


def _train(folder: Path, kind: str, data: Path, options: Mapping[str, object], minutes: float, tiny: bool) -> Figures:
    """As many steps as models of this kind take in a time on all of CIFAR-10."""
    pace = cache() / HOME / f"pace-of-{kind}"
    pace.mkdir(parents=True, exist_ok=True)
    steps = steps_within(minutes, pace, "images", str(fetch("cifar10")), tiny=tiny, **SHAPES[kind], **SAME)
    return train(folder, "images", str(data), tiny=tiny, **options, **SAME, steps=steps)


def render(done: Mapping[str, Figures]) -> str:
    """A row for each share, and those of the transfer."""
    rows = []
    for name in (*SHARES, "1 % of five classes", "1 % of five classes, after the other five"):
        pair = [done[f"{kind}, {name}"] for kind in SHAPES if f"{kind}, {name}" in done]
        if len(pair) < len(SHAPES):
            continue
        vit, resnet = (100 * figures["test"]["accuracy"] for figures in pair)
        minutes = " · ".join(f"{figures['seconds'] / 60:.1f}" for figures in pair)
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
        Trial(f"{kind}, {share}", MINUTES + 1, lambda folder, tiny, k=kind, n=count: learn(folder, k, n, tiny))
        for share, count in SHARES.items()
        for kind in SHAPES
    ]
    for kind in SHAPES:
        trials += [
            Trial(f"{kind} pretrained", MINUTES + 1, lambda folder, tiny, k=kind: pretrain(folder, k, tiny)),
            Trial(f"{kind}, 1 % of five classes", 3, lambda folder, tiny, k=kind: transfer(folder, k, False, tiny)),
            Trial(
                f"{kind}, 1 % of five classes, after the other five",
                3,
                lambda folder, tiny, k=kind: transfer(folder, k, True, tiny),
            ),
        ]
    return Experiment(
        "CIFAR-10: ViT and ResNet",
        "The gap between models of equal parameters and equal time at each size of the data, and after pretraining.",
        trials,
        render,
    )
