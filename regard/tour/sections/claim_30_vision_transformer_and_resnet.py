"""Claim 30: ViT trails a ResNet of equal size on little data, and wins after enough pretraining."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import regard
from regard.data.digits import digits
from regard.data.fetching import fetch
from regard.data.images import read_images
from regard.tour.learning import fit
from regard.tour.section import Criteria, Measured, Numbers, Section, Text, points
from regard.view import pictures

SHARES = (0.01, 0.1, 1.0)
LABELLED = 40  # images of the new classes after pretraining


def run(
    source: str = "digits",
    seeds: Sequence[int] = range(3),
    steps: int = 150,
) -> Measured:
    """Both on 1 %, 10 % and all of the images; then on five classes after five others."""
    accuracies = torch.zeros(len(seeds), 2, len(SHARES))  # (seeds, ViT or ResNet, shares)
    transfers = torch.zeros(len(seeds), 2, 2)  # (seeds, ViT or ResNet, pretrained or not)
    for row, seed in enumerate(seeds):
        train, test = load(source, seed)
        old, new = of_classes(train, range(5)), of_classes(train, range(5, 10))
        new_test = of_classes(test, range(5, 10))
        side = train[0].shape[-1]
        counts = [round(share * len(train[1])) for share in SHARES]
        for kind, make in enumerate(KINDS):
            for column, count in enumerate(counts):
                torch.manual_seed(seed)
                model = fit(make(side), partial(batch, train, count), steps=steps)
                accuracies[row, kind, column] = accuracy(model, test)
            for pretrained in (0, 1):
                torch.manual_seed(seed)
                model = make(side)
                if pretrained:
                    fit(model, partial(batch, old, len(old[1])), steps=steps)
                    model.classifier.reset_parameters()  # for new classes
                fit(model, partial(batch, new, LABELLED), steps=steps // 2)
                transfers[row, kind, pretrained] = accuracy(model, new_test)

    vits, resnets = accuracies.mean(0).tolist()
    vit_transfer, resnet_transfer = transfers.mean(0).tolist()
    numbers = Numbers(
        images=counts,
        vit=vits,
        resnet=resnets,
        spreads=(accuracies[:, 0] - accuracies[:, 1]).std(0),
        gap=vits[0] - resnets[0],
        gap_all=vits[-1] - resnets[-1],
        vit_transfer=vit_transfer,
        resnet_transfer=resnet_transfer,
        gap_pretrained=vit_transfer[1] - resnet_transfer[1],
        parameters=(vit(side).parameter_count, resnet(side).parameter_count),
    )
    return numbers, partial(draw, counts, accuracies, transfers)


def vit(side: int) -> regard.ViT:
    """A small Vision Transformer, which cuts an image into 4 × 4 patches."""
    return regard.ViT(side, side // 4, size=32, layers=3, heads=4, classes=10, channels=1, pooling="mean")


def resnet(side: int) -> regard.ResNet:
    """A ResNet with as many parameters, for images of any size."""
    return regard.ResNet((1, 1, 1), 10, width=11, stem="cifar", channels=1)


KINDS: tuple[Callable[[int], regard.ViT | regard.ResNet], ...] = (vit, resnet)
Labelled = tuple[Tensor, Tensor]  # images (count, 1, side, side) and their classes


def load(source: str, seed: int) -> tuple[Labelled, Labelled]:
    """Images to learn from, in an order that the seed decides, and some that are set aside."""
    images = digits() if source == "digits" else read_images(fetch(source))
    train = images.train
    order = torch.randperm(len(train.labels), generator=torch.Generator().manual_seed(seed))
    aside = len(order) // 5  # where the data have no test part
    test = (train.pixels[order[:aside]], train.labels[order[:aside]])
    if images.test is not None:
        aside, test = 0, (images.test.pixels[:2_000], images.test.labels[:2_000])
    order = order[aside:]
    return (scaled(train.pixels[order]), train.labels[order]), (scaled(test[0]), test[1])


def scaled(pixels: Tensor) -> Tensor:
    """Bytes as numbers from −1 to 1."""
    return pixels.float() / 127.5 - 1


def of_classes(images: Labelled, classes: Sequence[int]) -> Labelled:
    """The images of these classes alone."""
    chosen = torch.isin(images[1], torch.tensor(list(classes)))
    return images[0][chosen], images[1][chosen]


def batch(images: Labelled, count: int, step: int) -> Labelled:
    """Sixty-four of the first `count` images, drawn at random."""
    drawn = torch.randint(count, (64,))
    return images[0][drawn], images[1][drawn]


@torch.no_grad()
def accuracy(model: nn.Module, images: Labelled) -> float:
    """The share of images that are classified right."""
    return float((model(images[0]).argmax(-1) == images[1]).float().mean())


def judge(numbers: Numbers) -> Criteria:
    """Behind on little data; nearer on all of it; ahead after pretraining."""
    gap = f"{points(numbers.gap)} ± {100 * numbers.spreads[0]:.1f}"
    yield numbers.criterion(
        numbers.gap < 0,
        f"On {numbers.images[0]} images the ViT must be behind the ResNet: {gap} points.",
        f"只有 {numbers.images[0]} 张图像时，ViT 应落后于 ResNet：{gap} 个百分点。",
    )
    yield numbers.criterion(
        numbers.gap_all > numbers.gap,
        f"On all {numbers.images[-1]} the gap must be smaller: it is {points(numbers.gap_all)} points.",
        f"全部 {numbers.images[-1]} 张图像时差距应更小：实际为 {points(numbers.gap_all)} 个百分点。",
    )
    yield numbers.criterion(
        numbers.gap_pretrained > 0,
        f"After pretraining the ViT must be ahead: it is {points(numbers.gap_pretrained)} points, with "
        "{vit_transfer[1]:.1%} against {resnet_transfer[1]:.1%}. Enough pretraining means millions of images, which "
        "this scale cannot show.",
        f"预训练之后 ViT 应领先：实际为 {points(numbers.gap_pretrained)} 个百分点（"
        "{vit_transfer[1]:.1%} 与 {resnet_transfer[1]:.1%}）。“足够多”的预训练是指数百万张图像，这个规模无法说明。",
    )


def draw(counts: Sequence[int], accuracies: Tensor, transfers: Tensor) -> Figure:
    """Accuracy against the number of images; after pretraining."""
    figure = pictures.figure()
    left, right = figure.subplots(1, 2, width_ratios=(1.3, 1))
    styles = (("ViT", pictures.ATTENTION), ("ResNet", pictures.TRUTH))
    for kind, (name, colour) in enumerate(styles):
        by_seed = accuracies[:, kind]
        left.plot(counts, by_seed.mean(0), "o-", color=colour, label=name)
        left.fill_between(counts, by_seed.amin(0), by_seed.amax(0), color=colour, alpha=0.15, linewidth=0)
        columns = [kind * 0.35, 1 + kind * 0.35]
        right.bar(columns, transfers[:, kind].mean(0).tolist(), width=0.3, color=colour)
        for seed in transfers[:, kind]:
            right.plot(columns, seed, ".", color=pictures.SAMPLES, markersize=4)
    left.set_xscale("log")
    left.set_xticks(counts, map(str, counts))
    left.minorticks_off()
    left.set(xlabel="images to learn from", title="accuracy", ylim=(0, 1))
    right.set_xticks([0.175, 1.175], ["from scratch", "pretrained"])
    right.set(title="40 images of five new classes", ylim=(0, 1))
    right.grid(False, axis="x")
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=30,
    notes=("004",),
    title=Text("ViT and ResNet, on little data and after pretraining", "ViT 与 ResNet：少量数据与预训练之后"),
    claim=Text(
        "With enough data to pretrain on, ViT surpasses CNNs and transfers well to other tasks; where the training "
        "set is not large enough, it is usually somewhat worse than a ResNet of the same size.",
        "当拥有足够多的数据进行预训练的时候，ViT 的表现会超过 CNN，可以在下游任务中获得较好的迁移效果；但是当训练数据"
        "集不够大的时候，ViT 的表现通常比同等大小的 ResNet 要差一些。",
    ),
    idea=Text(
        "A convolution knows from the start that neighbouring pixels belong together and that a shape is the same "
        "shape elsewhere; a ViT, which cuts an image into patches and lets them look at each other, has to learn both "
        "from data. Here both see as many batches, have about as many parameters, and read handwritten digits of 8 × 8 "
        "pixels. For transfer, they first learn the digits 0 to 4, then 5 to 9 from 40 images. With --full "
        "the pictures are clothes, 60,000 of 28 × 28.",
        "卷积一开始就知道相邻像素彼此相关，知道同一形状换个地方还是同一形状；ViT 把图像切成小块、让它们互相看，这两点"
        "都得从数据中学。这里两者看同样多的批次，参数量相近，读的是 8 × 8 像素的手写数字。迁移时，先学数字 0 到 4，再"
        "用 40 张图像学 5 到 9。加上 --full 则是 60,000 张 28 × 28 像素的服装图像。",
    ),
    formula=Text(
        "ViT: patches → vectors → blocks → mean → class     ResNet: x + convolutions(x), …",
        "ViT：小块 → 向量 → 块 → 均值 → 类别     ResNet：x + 卷积(x), …",
    ),
    caption=Text(
        "Left, accuracy on images set aside against the number of images to learn from. Right, accuracy on five new "
        "digits after 40 images, from scratch and after learning five others.",
        "左图：留出图像上的准确率随训练图像数的变化。右图：用 40 张图像学五个新数字的准确率，从零开始与先学另外五个数"
        "字之后。",
    ),
    meanings={
        "images": Text("images to learn from", "训练图像数"),
        "vit": Text("accuracy of the ViT, mean of the seeds", "ViT 的准确率，种子均值"),
        "resnet": Text("accuracy of the ResNet, mean of the seeds", "ResNet 的准确率，种子均值"),
        "spreads": Text("standard deviation of the gap over the seeds", "差距在种子间的标准差"),
        "gap": Text("ViT − ResNet on the fewest images", "图像最少时 ViT 与 ResNet 之差"),
        "gap_all": Text("ViT − ResNet on all images", "全部图像时 ViT 与 ResNet 之差"),
        "vit_transfer": Text(
            "40 images of five new classes, ViT: from scratch, pretrained", "五个新类别共 40 张图像，ViT：从零、预训练"
        ),
        "resnet_transfer": Text("the same, ResNet: from scratch, pretrained", "同上，ResNet：从零、预训练"),
        "gap_pretrained": Text("ViT − ResNet after pretraining", "预训练之后 ViT 与 ResNet 之差"),
        "parameters": Text("parameters of ViT and ResNet", "ViT 与 ResNet 的参数量"),
    },
    deciding="gap",
    run=run,
    full=partial(run, "fashion-mnist", range(3), 1_000),
    rehearsal=partial(run, "digits", range(2), 3),
    judge=judge,
)
