"""Claim 25: several heads raise the expressive power."""

from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional

import regard
from regard.attention.numbers import similarity
from regard.tour.learning import fit
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.training.task import IGNORE_INDEX
from regard.view import pictures

HEADS = (1, 2, 4, 8)
SYMBOLS, BACK = 4, (1, 3, 6)  # what has to be named at every place: the symbols 1, 3 and 6 places back
LENGTH = 24


def run(seeds: Sequence[int] = range(3), steps: int = 250) -> Measured:
    """One layer with 1, 2, 4 and 8 heads: three things have to be looked up at once."""
    layers = [(1, "learned"), *((heads, "rotary") for heads in HEADS)]
    losses = torch.zeros(len(seeds), len(layers))
    for row, seed in enumerate(seeds):
        for column, (heads, positions) in enumerate(layers):
            torch.manual_seed(seed)
            model = regard.LanguageModel(
                SYMBOLS ** len(BACK),
                size=32,
                layers=1,
                heads=heads,
                positions=positions,
                max_positions=LENGTH,
            )
            fit(model, sample, steps=steps, learning_rate=1e-2)
            losses[row, column] = loss(model)

    with torch.no_grad(), regard.capture(model) as maps:  # the last one has 8 heads
        model(sample(0)[0])
    overlaps = similarity(maps[0].weights)  # (heads, heads)
    placed, losses = losses[:, 0], losses[:, 1:]
    gains = losses[:, 0] - losses[:, -1]
    numbers = Numbers(
        heads=HEADS,
        losses=losses.mean(0),
        spreads=losses.std(0),
        gain=gains.mean(),
        noise=gains.std() / len(seeds) ** 0.5,
        alike=overlaps[~torch.eye(HEADS[-1], dtype=torch.bool)].mean(),
        placed=placed.mean(),
        guessing=torch.tensor(float(SYMBOLS ** len(BACK))).log(),
        parameters=model.parameter_count,
    )
    return numbers, partial(draw, losses, numbers.guessing, maps[0].weights[0].detach())


def sample(step: int, count: int = 32) -> tuple[Tensor, Tensor]:
    """Random symbols (count, LENGTH), and at every place the number that the three symbols further back make."""
    symbols = torch.randint(SYMBOLS, (count, LENGTH))
    targets = torch.full_like(symbols, IGNORE_INDEX)
    first = max(BACK)
    parts = [symbols[:, first - back : LENGTH - back] * SYMBOLS**digit for digit, back in enumerate(BACK)]
    targets[:, first:] = torch.stack(parts).sum(0)
    return symbols, targets


@torch.no_grad()
def loss(model: regard.LanguageModel) -> float:
    """Nats for each answer, over 200 new sequences."""
    symbols, targets = sample(0, 200)
    return float(functional.cross_entropy(model(symbols).flatten(0, 1), targets.flatten(), ignore_index=IGNORE_INDEX))


def judge(numbers: Numbers) -> Criteria:
    """Eight heads must beat one by more than chance, must not look alike, and one must be too few in any case."""
    yield numbers.criterion(
        numbers.gain > 2 * numbers.noise,
        "Eight heads must lose less than one, by more than twice the standard error: {gain} ± {noise} less, where "
        "guessing loses {guessing}.",
        "8 个头的损失应比 1 个头小，超过标准误的两倍：小 {gain} ± {noise}，猜测的损失为 {guessing}。",
    )
    yield numbers.criterion(
        numbers.alike < 0.5,
        "Heads must look at different places: two of them share {alike} of their weight on average.",
        "各个头应看不同的位置：两个头的权重平均有 {alike} 重合。",
    )
    yield numbers.criterion(
        numbers.placed > 0.5 * numbers.losses[0],
        "One head must be too few in any case: where positions are added to the vectors, so that what comes back "
        "tells where it comes from, one head loses {placed} only.",
        "一个头应在任何情况下都不够：若把位置编码加在向量上，取回的内容就带着来处，一个头的损失也只有 {placed}。",
    )


def draw(losses: Tensor, guessing: float, weights: Tensor) -> Figure:
    """Losses by heads; what the eight heads look at."""
    figure = pictures.figure()
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    columns = range(len(HEADS))
    for by_heads in losses:
        left.plot(columns, by_heads, "o", color=pictures.SAMPLES, markersize=4)
    left.plot(columns, losses.mean(0), "o-", color=pictures.ATTENTION)
    left.axhline(guessing, color=pictures.POOLED, linestyle=":", linewidth=1.2)
    left.text(len(HEADS) - 1, guessing - 0.3, "guessing", color=pictures.POOLED, ha="right")
    left.set_xticks(columns, map(str, HEADS))
    left.set(xlabel="heads", title="loss", ylim=(0, None))
    pictures.heat(right, torch.cat([torch.cat(list(weights[row : row + 4]), 1) for row in (0, 4)]))
    right.set(xticks=[], yticks=[], title="what each of 8 heads looks at", aspect="equal")
    for head in range(1, 4):
        right.axvline(head * LENGTH - 0.5, color=pictures.TRUTH, linewidth=0.8)
    right.axhline(LENGTH - 0.5, color=pictures.TRUTH, linewidth=0.8)
    return figure


SECTION = Section(
    number=25,
    notes=("004",),
    title=Text("Several heads raise the expressive power", "多头增强表示能力"),
    claim=Text(
        "The input vectors are split into several parts, which parallel self-attention layers process independently: "
        "that increases the expressive power of the model.",
        "将输入向量分割成多个部分，并在多个并行的自注意力层上独立地处理这些部分，从而增加模型的表示能力。",
    ),
    idea=Text(
        "One head gives one average: it can look at two places, but then it cannot tell which of the two said what. So "
        "the task asks for three symbols at once, at fixed distances, and for their order. Heads are narrower the more "
        "there are: all models have the same number of parameters. Positions turn queries and keys (rotary), so that a "
        "value does not say where it stands. Where positions are added to the vectors instead, it does.",
        "一个头只给出一个平均：它可以看两个位置，但分不清哪个位置说了什么。所以任务是同时说出固定距离处的三个符号，连"
        "同次序。头越多每个头越窄：各模型的参数量相同。位置只旋转查询和键（旋转位置编码），所以值不带位置信息；若把位"
        "置编码加在向量上，值就带有位置信息了。",
    ),
    formula="MultiHead(X) = [head₁ … head_h] W_o,     headᵢ = attend(X Qᵢ, X Kᵢ, X Vᵢ)",
    caption=Text(
        "Left, the mean loss against the number of heads, each seed a dot. Right, the weights of eight heads over the "
        "same sequence: some keep to one distance, some to two, and some look all around.",
        "左图：平均损失随头数的变化，每个种子一个点。右图：八个头对同一序列的权重，有的盯住一个距离，有的两个，有的四处"
        "张望。",
    ),
    meanings={
        "heads": Text("heads", "头数"),
        "losses": Text("loss on new sequences, mean of the seeds", "新序列上的损失，种子均值"),
        "spreads": Text("its standard deviation over the seeds", "该损失在种子间的标准差"),
        "gain": Text("loss of 1 head − loss of 8", "1 个头与 8 个头的损失之差"),
        "noise": Text("standard error of that difference", "该差的标准误"),
        "alike": Text(
            "share of weight that two of 8 heads have on the same places", "8 个头中两个头落在相同位置上的权重比例"
        ),
        "placed": Text(
            "loss of 1 head where positions are added to the vectors", "把位置编码加在向量上时 1 个头的损失"
        ),
        "guessing": Text("loss of guessing", "猜测的损失"),
        "parameters": Text("parameters of each model", "每个模型的参数量"),
    },
    deciding="gain",
    run=run,
    full=partial(run, range(5), 1_500),
    rehearsal=partial(run, range(2), 3),
    judge=judge,
)
