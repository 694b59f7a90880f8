"""Claim 30: with little data ViT trails a ResNet of equal size, and surpasses it after enough pretraining."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.nn import functional

from regard import ResNet, ViT
from regard.data.fetching import fetch
from regard.data.images import digits, read_images
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text, points
from regard.view.chart import Band, Chart, Heat, Line, Mark, Panel

PLAIN = """
from sklearn.datasets import load_digits


class TinyViT(nn.Module):
    def __init__(self, size=32, heads=4, depth=2):
        super().__init__()
        self.embed, self.answer = nn.Linear(4, size), nn.Linear(size, 10)
        self.blocks = nn.Sequential(*(Block(size, heads) for _ in range(depth)))

    def forward(self, images):  # (batch, 8, 8) → logits of the ten digits (batch, 10)
        patches = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4)  # 16 patches of 2 × 2 pixels
        return self.answer(self.blocks(self.embed(patches) + positional_encoding(16, 32)).mean(1))


images, labels = torch.tensor(load_digits().images).float() / 8 - 1, torch.tensor(load_digits().target)
count = 1400  # of 1797 to learn from; the last 397 are the test
vit = TinyViT()
optimizer = torch.optim.Adam(vit.parameters(), lr=3e-3)
for chosen in torch.randint(count, (200, 32)):  # 200 batches of 32
    loss = F.cross_entropy(vit(images[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
accuracy = (vit(images[1400:]).argmax(-1) == labels[1400:]).float().mean().item()
"""

SHORT = """
import regard

patches = images[:5].unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4)
x = vit.embed(patches) + positional_encoding(16, 32)
for block in vit.blocks:
    W, mixer, mlp = block.attention, regard.MultiHead(32, 4, bias=False), regard.FeedForward(32, 128, "relu")
    mixer.in_proj[0].weight.data = torch.cat([W.W_q.weight, W.W_k.weight, W.W_v.weight])
    mixer.out_proj.weight = W.W_o.weight
    mlp.in_proj.load_state_dict(block.mlp[0].state_dict())
    mlp.out_proj.load_state_dict(block.mlp[2].state_dict())
    ours = regard.Block(mixer, mlp, pre_norm=False)
    ours.mixer_norm, ours.feed_forward_norm = block.norm_1, block.norm_2
    x = ours(x)
torch.testing.assert_close(vit.answer(x.mean(1)), vit(images[:5]), rtol=1e-4, atol=1e-4)
"""

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
    pictures = (digits() if source == "digits" else read_images(fetch(source))).train
    order = torch.randperm(len(pictures.labels), generator=torch.Generator().manual_seed(seed))
    parts = (order[:most], order[most:][:2_000])
    train, test = ((pictures.pixels[rows].float() / 127.5 - 1, pictures.labels[rows]) for rows in parts)
    return train, test


def fit(model: Model, images: Labelled, count: int, steps: int) -> Model:
    """Train on the first `count` of these images."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for chosen in torch.randint(count, (steps, 32)):
        optimizer.zero_grad()
        functional.cross_entropy(model(images[0][chosen]), images[1][chosen]).backward()
        optimizer.step()
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
    return numbers, draw_accuracies(counts, accuracies[0])


def judge(numbers: Numbers) -> Criteria:
    """Behind on few images; the other half is out of reach."""
    gap = f"{points(numbers.gap)} ± {100 * numbers.spread:.1f}"
    each = [f"{points(gap)} ± {100 * spread:.1f}" for gap, spread in zip(numbers.gaps, numbers.spreads, strict=True)]
    yield numbers.criterion(
        numbers.gap < -numbers.spread,
        "On few images the ViT must be behind the ResNet of equal size, by more than the spread over {seeds} seeds: "
        f"ViT − ResNet is {gap} points on average; on {{images}} images {', '.join(each)}. Of the images they learned "
        "from, the ViT gets {vit_fitted} right and the ResNet {resnet_fitted}.",
        "图像少时，ViT 应落后于同等大小的 ResNet，差距超过 {seeds} 个种子间的波动："
        f"ViT 减 ResNet 平均为 {gap} 个百分点；{{images}} 张图像时分别为 {'、'.join(each)}。"
        "训练图像上的正确率：ViT {vit_fitted}，ResNet {resnet_fitted}。",
    )
    yield numbers.untestable(
        "That ViT surpasses convolutional networks after enough pretraining, and transfers well, cannot be tested "
        "here: it would take both models pretrained on the same millions of images, several times, and then "
        "transferred.",
        "“预训练数据足够多时 ViT 超过卷积网络、迁移效果好”在此无法检验：需要把两个模型在同样的数百万张图像上各预训练数"
        "次，再做迁移。",
    )


def draw_accuracies(counts: Sequence[int], accuracies: Tensor) -> Chart:
    """Accuracy (ViT or ResNet, seeds, counts) by images."""
    marks: list[Mark] = []
    for by_seed, name, colour in zip(accuracies, ("ViT", "ResNet"), ("attention", "truth"), strict=True):
        marks.append(Band(counts, by_seed.amin(0), by_seed.amax(0), colour=colour))
        marks.append(Line(counts, by_seed.mean(0), name, colour, dots=True))
    return Chart(
        [Panel(marks, x=Text("images to learn from", "训练图像数"), y=Text("accuracy", "准确率"), y_limits=(0, 1))],
        caption=Text(
            "Accuracy on images set aside, by the number of images to learn from: mean and range of the seeds.",
            "留出图像上的准确率随训练图像数的变化：种子的均值与范围。",
        ),
    )


@torch.no_grad()
def draw(cell: SimpleNamespace) -> Chart:
    """Digits of the test, and how much each patch is looked at."""
    images = cell.images[1400::13][:4]
    guesses = cell.vit(images).argmax(-1).tolist()
    patches = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4)
    x = cell.vit.embed(patches) + cell.positional_encoding(16, 32)
    looked_at = cell.vit.blocks[0].attention.weights(x).mean((1, 2)).view(-1, 4, 4)  # over heads and queries
    named = [Text(f"read as {guess}", f"读作 {guess}") for guess in guesses]
    digit_panels = [
        Panel([Heat(image + 1, colour="ink")], title=name) for image, name in zip(images, named, strict=True)
    ]
    return Chart(
        [*digit_panels, *(Panel([Heat(weights)]) for weights in looked_at)],
        columns=4,
        height=130,
        caption=Text(
            "Four digits of the test and what the tiny ViT reads; below, how much weight each of the 16 patches gets "
            "in the first block, mean over heads and queries.",
            "测试集中的四个数字，以及小 ViT 的读法；下方：第一个块中 16 个小块各得多少权重，为各头与各查询的均值。",
        ),
    )


SECTION = Section(
    number=30,
    notes=(Passage("004", 126, 128),),
    title=Text("ViT and ResNet", "ViT 与 ResNet"),
    claim=Text(
        "With enough data to pretrain on, ViT surpasses convolutional networks and transfers well to other tasks; "
        "where the training set is not large enough, it is usually somewhat worse than a ResNet of equal size.",
        "预训练数据足够多时，ViT 胜过卷积网络，迁移到下游任务的效果也好；训练集不够大时，它通常略逊于同等大小的 "
        "ResNet。",
    ),
    idea=Text(
        "A ViT cuts an image into patches, and lets them look at each other as words do. A convolution knows from the "
        "start that neighbouring pixels belong together and that a shape is the same shape elsewhere; a ViT has to "
        "learn both from data. So both, with about as many parameters, learn handwritten digits of 8 × 8 pixels from "
        "few images; with --full, clothes of 28 × 28.",
        "ViT 把图像切成小块，让它们像词一样互相看。卷积一开始就知道相邻像素彼此相关，知道同一形状换个地方还是同一形"
        "状；ViT 这两点都要从数据中学。所以让参数量相近的两者用少量图像学 8 × 8 像素的手写数字；加上 --full 则是 28 × "
        "28 像素的服装图像。",
    ),
    formula=r"x_p = \mathrm{patch}_p E + \mathrm{position}_p, \qquad x \leftarrow \mathrm{block}(x), \qquad "
    r"\mathrm{class} = \mathrm{softmax}\!\left(\frac{1}{P} \sum_p x_p W\right)",
    plain=PLAIN,
    short=SHORT,
    uses=(27, 23),
    show=draw,
    exercises=(
        Exercise(
            ("count = 1400", "count = 100"),
            Text(
                "With 100 images to learn from, how many of the test does it read right?",
                "只用 100 张图像学习，测试集读对多少？",
            ),
            Text(
                "{now.accuracy:.1%}, at a training loss of {now.loss:.2f}; with 1,400 {was.accuracy:.1%}, at "
                "{was.loss:.2f}.",
                "{now.accuracy:.1%}，训练损失 {now.loss:.2f}；用 1400 张时 {was.accuracy:.1%}，训练损失 "
                "{was.loss:.2f}。",
            ),
        ),
        Exercise(
            (
                "return self.answer(self.blocks(self.embed(patches) + positional_encoding(16, 32)).mean(1))",
                "return self.answer(self.blocks(self.embed(patches)).mean(1))",
            ),
            Text(
                "Do not tell it where the patches lie: how many does it read right?", "不告诉它小块的位置：读对多少？"
            ),
            Text(
                "{now.accuracy:.1%}; with positions {was.accuracy:.1%}.",
                "{now.accuracy:.1%}；有位置编码时 {was.accuracy:.1%}。",
            ),
        ),
    ),
    meanings={
        "gap": Text(
            "accuracy of ViT − of ResNet, mean over the numbers of images", "ViT 与 ResNet 的准确率之差，各图像数的均值"
        ),
        "spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "images": Text("images to learn from", "训练图像数"),
        "vit": Text("accuracy of the ViT", "ViT 的准确率"),
        "resnet": Text("accuracy of the ResNet", "ResNet 的准确率"),
        "gaps": Text("their difference", "两者之差"),
        "spreads": Text("standard deviation of the difference over the seeds", "差在种子间的标准差"),
        "vit_fitted": Text("accuracy of the ViT on the images it learned from", "ViT 在训练图像上的准确率"),
        "resnet_fitted": Text("the same, ResNet", "同上，ResNet"),
        "parameters": Text("parameters of ViT and ResNet, for images of 8 × 8", "ViT 与 ResNet 的参数量，8 × 8 的图像"),
        "seeds": Text("seeds", "种子数"),
    },
    deciding="gap",
    run=run,
    full=partial(run, "fashion-mnist", range(3), 1_000, (600, 6_000, 50_000)),
    rehearsal=partial(run, "digits", range(2), 2, (30, 60)),
    judge=judge,
)
