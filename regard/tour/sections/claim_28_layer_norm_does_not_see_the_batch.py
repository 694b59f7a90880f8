"""Claim 28: layer norm does not depend on the batch, batch norm does."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

SIZE = 13
BATCHES = (1, 2, 3, 5, 9, 17, 33)


def run() -> Measured:
    """The same sample among others, more and more of them."""
    sample = torch.randn(1, SIZE).double()
    layer, batch = nn.LayerNorm(SIZE).double(), nn.BatchNorm1d(SIZE).double()  # training
    refused, outputs = 0, []
    for count in BATCHES:
        whole = torch.cat([sample, 3 * torch.randn(count - 1, SIZE).double()])
        try:
            normalised = batch(whole)[0]
        except ValueError:  # a variance needs two numbers
            refused += 1
            normalised = torch.full((SIZE,), float("nan")).double()
        outputs.append(torch.stack([layer(whole)[0], normalised]))
    rows = torch.stack(outputs).detach()  # (batches, layer or batch norm, features)

    several = rows[1:]  # batches of more than one sample
    numbers = Numbers(
        layer=(rows[:, 0] - rows[0, 0]).abs().max(),
        batch=(several[:, 1] - several[0, 1]).abs().max(),
        alone=refused,
    )
    return numbers, partial(draw, rows)


def judge(numbers: Numbers) -> Criteria:
    """Equal to rounding, and not."""
    yield numbers.criterion(
        numbers.layer <= 1e-12,
        "Under layer norm a sample must be the same in every batch, to 1e-12: it changes by {layer} at most.",
        "层归一化下，同一样本在任何批次中都应相同，误差 1e-12 以内：最大变化 {layer}。",
    )
    yield numbers.criterion(
        numbers.batch > 0.1,
        "Under batch norm it must not be: it changes by {batch}.",
        "批归一化下则不应相同：最大变化 {batch}。",
    )
    yield numbers.criterion(
        numbers.alone == 1,
        "A batch of one sample must be beyond batch norm while training: it refused {alone} of 1.",
        "训练时只有一个样本的批次，批归一化应无法处理：1 个批次中拒绝了 {alone} 个。",
    )


def draw(rows: Tensor) -> Figure:
    """The features of the sample, a row for each batch."""
    figure = pictures.figure(2.5)
    for kind, (axes, title) in enumerate(zip(figure.subplots(1, 2), ("layer norm", "batch norm"), strict=True)):
        pictures.signed(axes, rows[:, kind].nan_to_num(), 2.5)
        axes.set(title=title, xlabel="feature of the sample", aspect="auto")
        axes.set_yticks(range(len(BATCHES)), BATCHES)
    figure.axes[0].set_ylabel("samples in the batch")
    figure.axes[1].text(SIZE / 2 - 0.5, 0, "refused", ha="center", va="center", fontsize=8.5)
    return figure


SECTION = Section(
    number=28,
    notes=("004",),
    title=Text("Layer norm does not see the batch", "层归一化与批次无关"),
    claim=Text(
        "Layer normalisation does not depend on the size of the batch, which helps with inputs of variable size; batch "
        "normalisation can be unstable with small or changing batches.",
        "层归一化不依赖于批次大小，这在处理可变大小的输入时非常有用；批量归一化在小批次或不一致的批次大小下可能不稳"
        "定。",
    ),
    idea=Text(
        "Both subtract a mean and divide by a standard deviation. Layer norm takes them over the features of one "
        "vector, batch norm over the vectors of a batch, feature by feature: so what a sample becomes depends on who "
        "else is there. Once trained, batch norm uses averages that it kept, and does not depend on the batch any "
        "more.",
        "两者都减去均值、除以标准差。层归一化在一个向量的各特征上取，批归一化则逐个特征在一批向量上取：于是一个样本变"
        "成什么，取决于同批还有谁。训练完之后，批归一化使用存下的平均值，便不再依赖批次。",
    ),
    formula=Text(
        "(x − mean(x)) / √(var(x) + ε):     over features, or over the batch",
        "(x − mean(x)) / √(var(x) + ε)：     对特征，或对批次",
    ),
    caption=Text(
        "The same sample, normalised in batches of 1 to 33. Layer norm: all rows are equal. Batch norm: each row is "
        "different, and the batch of one is refused.",
        "同一样本在 1 到 33 个样本的批次中归一化的结果。层归一化：各行相同。批归一化：各行不同，且只有一个样本的批次被"
        "拒绝。",
    ),
    meanings={
        "layer": Text(
            "largest change of the sample over the batches, layer norm", "层归一化：同一样本在各批次中的最大变化"
        ),
        "batch": Text("the same, batch norm", "批归一化：同上"),
        "alone": Text("batches of one that batch norm refused, of one", "一个样本的批次中被批归一化拒绝的个数，共一个"),
    },
    deciding="layer",
    run=run,
    judge=judge,
)
