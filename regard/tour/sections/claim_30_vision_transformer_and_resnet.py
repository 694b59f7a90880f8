"""Claim 30: with little data ViT trails a ResNet of equal size, and surpasses it after enough pretraining."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from regard import ResNet, ViT
from regard.data.fetching import fetch
from regard.data.images import DigitImages, ImageSet, find_images, store_images, stored_part
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section, by_seed, points
from regard.view.chart import Chart, Heat, Panel

say = Content(__file__)

COUNTS = (30, 100, 300)
Model = ViT | ResNet
Labelled = tuple[Tensor, Tensor]  # images (count, 1, side, side) from −1 to 1, and their classes


def vit(side: int) -> ViT:
    """A small Vision Transformer, which cuts an image into 4 × 4 patches."""
    return ViT(side, side // 4, size=24, layers=2, heads=4, classes=10, channels=1, pooling="mean")


def resnet(side: int) -> ResNet:
    """A ResNet with as many parameters, for images of any size."""
    return ResNet((1, 1), 10, width=14, stem="cifar", channels=1)


KINDS: tuple[Callable[[int], Model], ...] = (vit, resnet)


def load(source: str, seed: int, most: int) -> tuple[Labelled, Labelled]:
    """So many images to learn from, and others to be tested with; the seed decides which."""
    images = ImageSet(DigitImages()) if source == "digits" else find_images(fetch(source))
    pictures = stored_part(store_images(images, images.shape(None)), "train")
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(seed)).numpy()
    parts = (order[:most], order[most:][:2_000])
    train, test = ((pictures.pixels(rows).float() / 127.5 - 1, pictures.labels(rows)) for rows in parts)
    return train, test


def fit(model: Model, images: Labelled, count: int, steps: int) -> Model:
    """Train on the first `count` of these images."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for chosen in torch.randint(count, (steps, 32)):
        descend(optimizer, functional.cross_entropy(model(images[0][chosen]), images[1][chosen]))
    return model.eval()


@torch.no_grad()
def accuracy(model: Model, images: Labelled) -> float:
    """The share of images that are classified right."""
    return float((model(images[0]).argmax(-1) == images[1]).float().mean())


def run(
    source: str = "digits",
    seeds: Sequence[int] = range(3),
    steps: int = 150,
    counts: Sequence[int] = COUNTS,
    kinds: Sequence[Callable[[int], Model]] = KINDS,
) -> Measured:
    """Both on the same images, few and more, for as many steps."""
    accuracies = torch.zeros(2, 2, len(seeds), len(counts))  # (test or training, ViT or ResNet, seeds, counts)
    for row, seed in enumerate(seeds):
        train, test = load(source, seed, max(counts))
        for column, count in enumerate(counts):
            for kind, make in enumerate(kinds):
                torch.manual_seed(seed)
                model = fit(make(train[0].shape[-1]), train, count, steps)
                accuracies[0, kind, row, column] = accuracy(model, test)
                accuracies[1, kind, row, column] = accuracy(model, (train[0][:count], train[1][:count]))
    gaps = accuracies[0, 0] - accuracies[0, 1]  # (seeds, counts)
    numbers = Numbers(
        gap=gaps.mean(),
        spread=gaps.mean(1).std(),
        images=counts,
        vit=accuracies[0, 0].mean(0),
        resnet=accuracies[0, 1].mean(0),
        gaps=gaps.mean(0),
        spreads=gaps.std(0),
        vit_fitted=accuracies[1, 0].mean(0),
        resnet_fitted=accuracies[1, 1].mean(0),
        parameters=[make(8).parameter_count for make in kinds],
        seeds=len(seeds),
    )
    names = zip(accuracies[0], ("ViT", "ResNet"), ("attention", "truth"), strict=True)
    marks = [mark for shares, name, colour in names for mark in by_seed(counts, shares.T, name, colour)]
    panel = Panel(marks, x=say("images to learn from"), y=say("accuracy"), y_limits=(0, 1))
    return numbers, Chart([panel], caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Behind on few images; the other half is out of reach."""
    rows = [points(gap, spread) for gap, spread in zip(numbers.gaps, numbers.spreads, strict=True)]
    difference = points(numbers.gap, numbers.spread)
    yield numbers.criterion(numbers.gap < -numbers.spread, say("behind"), difference=difference, by_count=rows)
    yield numbers.untestable(say("millions of images"))


@torch.no_grad()
def draw(cell: Cell) -> Chart:
    """Digits of the test, and how much each patch is looked at."""
    images = cell.images[1400::13][:4]
    guesses = cell.vit(images).argmax(-1).tolist()
    patches = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4)
    x = cell.vit.embed(patches) + cell.positional_encoding(16, 32)
    looked_at = cell.vit.blocks[0].attention.weights(x).mean((1, 2)).view(-1, 4, 4)  # over heads and queries
    named = [say("read as {guess}", guess=guess) for guess in guesses]
    digit_panels = [
        Panel([Heat(image + 1, colour="ink")], title=name) for image, name in zip(images, named, strict=True)
    ]
    return Chart(
        [*digit_panels, *(Panel([Heat(weights)]) for weights in looked_at)], columns=4, height=130, caption=say("cell")
    )


SECTION = Section(
    **say.fields,
    show=draw,
    run=run,
    full=partial(run, "fashion-mnist", range(3), 1_000, (600, 6_000, 50_000)),
    rehearsal=partial(run, "digits", range(2), 2, (30, 60)),
    judge=judge,
)
