"""Claim 30: with little data ViT trails a ResNet of equal size, and surpasses it after enough pretraining."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from regard import ResNet, ViT
from regard.data.fetching import fetch
from regard.data.images import DigitImages, ImageSet, find_images, store_images, stored_part
from regard.tour.learning import ADAMW, descend, share_right
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, by_seed, grid, points, section, single
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


def run(
    source: str = "digits",
    seeds: Sequence[int] = range(3),
    steps: int = 150,
    counts: Sequence[int] = COUNTS,
    kinds: Sequence[Callable[[int], Model]] = KINDS,
) -> Measured:
    """Both on the same images, few and more, for as many steps."""

    def of_seed(seed: int) -> Tensor:
        (images, classes), test = load(source, seed, max(counts))

        def accuracies(make: Callable[[int], Model], count: int) -> list[float]:
            torch.manual_seed(seed)
            model = make(images.shape[-1])
            batches = iter(torch.randint(count, (steps, 32)))

            def loss() -> Tensor:
                chosen = next(batches)
                return functional.cross_entropy(model(images[chosen]), classes[chosen])

            descend(model.parameters(), loss, steps, 3e-3, **ADAMW)
            model.eval()
            with torch.no_grad():
                return [share_right(model(test[0]), test[1]), share_right(model(images[:count]), classes[:count])]

        return grid(accuracies, kinds, counts)

    tested, fitted = grid(of_seed, seeds).permute(3, 1, 0, 2)  # (ViT or ResNet, seeds, counts) each
    gaps = tested[0] - tested[1]  # (seeds, counts)
    numbers = Numbers(
        gap=gaps.mean(),
        spread=gaps.mean(1).std(),
        images=counts,
        vit=tested[0].mean(0),
        resnet=tested[1].mean(0),
        gaps=gaps.mean(0),
        spreads=gaps.std(0),
        vit_fitted=fitted[0].mean(0),
        resnet_fitted=fitted[1].mean(0),
        parameters=[make(8).parameter_count for make in kinds],
        seeds=len(seeds),
    )
    names = zip(tested, ("ViT", "ResNet"), ("attention", "truth"), strict=True)
    marks = [mark for shares, name, colour in names for mark in by_seed(counts, shares.T, name, colour)]
    count, share = say("images to learn from"), say("accuracy")
    return numbers, single(say("measurement"), *marks, x=count, y=share, y_limits=(0, 1))


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
    digits = [
        Panel([Heat(image + 1, colour="ink")], title=say("read as {guess}", guess=guess))
        for image, guess in zip(images, guesses, strict=True)
    ]
    return Chart([*digits, *(Panel([Heat(weights)]) for weights in looked_at)], say("cell"), height=130, columns=4)


LONGER = ("fashion-mnist", range(3), 1_000, (600, 6_000, 50_000))
SECTION = section(say, draw, judge, run, full=LONGER, rehearsal=("digits", range(2), 2, (30, 60)))
