"""Claim 20: cosine and other similarities work too."""

from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.tour.translators import LONG, REHEARSAL, SHORT, Training, needed, quality, translator, unseen
from regard.view import pictures

SCORES = ("additive", "bilinear", "cosine", "dot")
ALL_SCORES = (*SCORES, "gaussian")


def run(training: Training = SHORT, scores: Sequence[str] = SCORES) -> Measured:
    """The same translator, without attention and with one score after the other."""
    pairs = unseen(training.pairs)
    bleu = torch.zeros(1 + len(scores), len(training.seeds))
    for row, score in enumerate(("none", *scores)):
        for column, seed in enumerate(training.seeds):
            bleu[row, column] = quality(translator(score, seed, training.steps), pairs)

    without, scored = bleu[0], bleu[1:]
    numbers = Numbers(
        cosine=scored[scores.index("cosine")].mean(),
        without=without.mean(),
        scores=scored.mean(1),
        spreads=scored.std(1),
        worst=scored.min(),
        best_without=without.max(),
    )
    return numbers, partial(draw, bleu, scores)


def judge(numbers: Numbers) -> Criteria:
    """Cosine, and every other score, above no attention at all."""
    yield numbers.criterion(
        numbers.cosine > numbers.without,
        "Cosine must be better than no attention: {cosine} BLEU against {without}.",
        "余弦应优于无注意力：BLEU {cosine} 比 {without}。",
    )
    yield numbers.criterion(
        numbers.worst > numbers.best_without,
        "So must every score with every seed: the least is {worst}, and the most without attention {best_without}.",
        "每种评分、每个种子都应如此：最小者为 {worst}，无注意力的最大者为 {best_without}。",
    )


def draw(bleu: Tensor, scores: Sequence[str]) -> Figure:
    """A bar for each score, a dot for each seed."""
    figure = pictures.figure(2.8)
    axes = figure.subplots()
    colours = [pictures.POOLED] + [pictures.ATTENTION] * len(scores)
    axes.bar(range(len(bleu)), bleu.mean(1).tolist(), color=colours, width=0.6)
    for seed in bleu.T:
        axes.plot(range(len(bleu)), seed, ".", color=pictures.SAMPLES)
    axes.set_xticks(range(len(bleu)), ["no attention", *scores])
    axes.set(ylabel="BLEU", ylim=(0, 100))
    axes.grid(False, axis="x")
    return figure


SECTION = Section(
    number=20,
    notes=("001",),
    title=Text("Cosine and other similarities work too", "余弦等其他相似度也可以"),
    claim=Text(
        "The similarity of query and key can be computed in different ways, as a dot product, as a cosine, or by a "
        "small network.",
        "查询与键的相似度可以用不同的方式计算：点积、余弦相似度，或者一个小网络。",
    ),
    idea=Text(
        "The score is the one part of the formula that is free. Additive is a small network, bilinear a dot product "
        "with a learned matrix between, cosine a dot product of directions with a learned temperature; with "
        "--full there is also the Gaussian, for which what is near is alike. The translator around it stays the same, "
        "and so do size, steps and seeds.",
        "评分是公式中唯一自由的部分。加性是一个小网络；双线性是中间带可学习矩阵的点积；余弦是方向的点积，温度可学习；"
        "加上 --full 还有高斯，近者即相似。外面的翻译模型不变，大小、步数和种子也不变。",
    ),
    formula="w_vᵀ tanh(W_q q + W_k k),     qᵀ W k,     cos(q, k)/t,     q·k/√d,     −‖q − k‖²/2w²",
    caption=Text(
        "BLEU of the same translator with each score and without attention; dots are seeds.",
        "同一翻译模型用各种评分以及不用注意力时的 BLEU；点为各个种子。",
    ),
    meanings={
        "cosine": Text("BLEU with cosine, mean of the seeds", "余弦的 BLEU，种子均值"),
        "without": Text("BLEU without attention, mean of the seeds", "无注意力的 BLEU，种子均值"),
        "scores": Text("BLEU with each score, in the order of the picture", "各评分的 BLEU，次序同图"),
        "spreads": Text("their standard deviations over the seeds", "各自在种子间的标准差"),
        "worst": Text("the least of all, in any seed", "所有种子中的最小者"),
        "best_without": Text("the most without attention, in any seed", "无注意力在所有种子中的最大者"),
    },
    deciding="cosine",
    run=run,
    full=partial(run, LONG, ALL_SCORES),
    rehearsal=partial(run, REHEARSAL),
    judge=judge,
    needs=needed(("none", *SCORES), SHORT),
    full_needs=needed(("none", *ALL_SCORES), LONG),
)
