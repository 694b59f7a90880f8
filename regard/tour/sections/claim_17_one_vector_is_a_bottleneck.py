"""Claim 17: one context vector is a bottleneck; attention removes it."""

from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.data.pairs import Pair
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.tour.translators import LONG, REHEARSAL, SHORT, Training, needed, quality, translator, unseen
from regard.view import pictures

LENGTHS = ((1, 6), (7, 10), (11, 15), (16, 99))  # English words
KINDS = ("none", "additive")


def run(training: Training = SHORT) -> Measured:
    """The same encoder–decoder with and without attention, same size and same steps."""
    pairs = unseen(training.pairs)
    groups = [*by_length(pairs), pairs]
    scores = torch.zeros(len(training.seeds), len(KINDS), len(groups))
    parameters = []
    for kind, attention in enumerate(KINDS):
        for row, seed in enumerate(training.seeds):
            model = translator(attention, seed, training.steps)
            scores[row, kind] = torch.tensor([quality(model, group) for group in groups])
        parameters.append(model.parameter_count)

    without, attention = scores.mean(0).tolist()
    gaps = scores[:, 1, -1] - scores[:, 0, -1]
    numbers = Numbers(
        words_from=tuple(low for low, _ in LENGTHS),
        without=tuple(without[:-1]),
        attention=tuple(attention[:-1]),
        gap=gaps.mean(),
        spread=gaps.std(),
        worst=gaps.min(),
        kept_without=without[-2] / max(without[0], 1e-9),
        kept_attention=attention[-2] / max(attention[0], 1e-9),
        parameters=parameters,
    )
    return numbers, partial(draw, scores)


def by_length(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Those whose English sentence has as many words."""
    return [[pair for pair in pairs if low <= len(pair.source.split()) <= high] for low, high in LENGTHS]


def judge(numbers: Numbers) -> Criteria:
    """Ahead with every seed; and long sentences suffer more without."""
    yield numbers.criterion(
        numbers.worst > 0,
        "Attention must be ahead with every seed: by {gap} ± {spread} BLEU, by {worst} at least.",
        "每个种子都应是有注意力的领先：BLEU 高 {gap} ± {spread}，至少高 {worst}。",
    )
    yield numbers.criterion(
        numbers.kept_without < numbers.kept_attention,
        "Long sentences must suffer more where all has to go through one vector: the longest keep {kept_without} of "
        "the shortest ones' BLEU without attention, and {kept_attention} with it.",
        "全部信息要挤过一个向量时，长句应受损更多：最长句的 BLEU 是最短句的 {kept_without}（无注意力）与 "
        "{kept_attention}（有注意力）。",
    )


def draw(scores: Tensor) -> Figure:
    """BLEU by length."""
    figure = pictures.figure()
    axes = figure.subplots()
    names = [f"{low}–{high}" if high < 99 else f"{low} and more" for low, high in LENGTHS]
    styles = (("one vector for all", pictures.POOLED), ("additive attention", pictures.ATTENTION))
    for kind, (name, colour) in enumerate(styles):
        by_seed = scores[:, kind, :-1]
        axes.plot(range(len(names)), by_seed.mean(0), "o-", color=colour, label=name)
        axes.fill_between(range(len(names)), by_seed.amin(0), by_seed.amax(0), color=colour, alpha=0.15, linewidth=0)
    axes.set_xticks(range(len(names)), names)
    axes.set(xlabel="words of the English sentence", ylabel="BLEU", ylim=(0, 100))
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=17,
    notes=("001", "004"),
    title=Text("One vector is a bottleneck", "单个向量是瓶颈"),
    claim=Text(
        "When an encoder has to put all of a sentence into one context vector, the length of the input becomes a "
        "bottleneck; attention, which gives every step of the decoder a vector of its own, removes it.",
        "编码器若把整句话都总结为一个上下文向量，输入序列的长度就成为瓶颈；注意力让解码器的每一步都有自己的上下文向"
        "量，输入不再被单个向量所限。",
    ),
    idea=Text(
        "Two recurrent encoder–decoders learn the same English–French pairs for the same number of steps, and "
        "translate sentences of which they have seen every word, but not every combination. One hands over the last "
        "state of its encoder and nothing else. BLEU counts how many runs of one to four words a translation shares "
        "with the right one: 100 is perfect.",
        "两个循环编码器–解码器用同样的步数学习同样的英法句对，然后翻译新的句子：每个词都见过，但不是每种组合都见过。其"
        "中一个只交出编码器的最后一个状态。BLEU 统计译文与正确译文共有多少一到四个词的片段：100 为完美。",
    ),
    formula=Text(
        "cₜ = h_n for all t     against     cₜ = Σᵢ softmaxᵢ(a(sₜ₋₁, hᵢ)) hᵢ",
        "对所有 t，cₜ = h_n     与     cₜ = Σᵢ softmaxᵢ(a(sₜ₋₁, hᵢ)) hᵢ",
    ),
    caption=Text(
        "BLEU against the length of the sentence. Without attention it falls steeply with length; with attention it "
        "stays much higher. Shades: from the worst to the best seed.",
        "BLEU 随句长的变化。无注意力时随长度急剧下降，有注意力时高得多。阴影：从最差到最好的种子。",
    ),
    meanings={
        "words_from": Text("words of a sentence, from", "句子的词数，不少于"),
        "without": Text("BLEU without attention, mean of the seeds", "无注意力的 BLEU，种子均值"),
        "attention": Text("BLEU with attention, mean of the seeds", "有注意力的 BLEU，种子均值"),
        "gap": Text("gap over all lengths, mean of the seeds", "所有长度合计的差距，种子均值"),
        "spread": Text("its standard deviation over the seeds", "该差距在种子间的标准差"),
        "worst": Text("the gap in the seed where it is smallest", "差距最小的种子的差距"),
        "kept_without": Text("BLEU of the longest ÷ of the shortest, without", "无注意力：最长句与最短句的 BLEU 之比"),
        "kept_attention": Text("BLEU of the longest ÷ of the shortest, with", "有注意力：最长句与最短句的 BLEU 之比"),
        "parameters": Text("parameters without and with", "参数量：无、有"),
    },
    deciding="gap",
    run=run,
    full=partial(run, LONG),
    rehearsal=partial(run, REHEARSAL),
    judge=judge,
    needs=needed(KINDS, SHORT),
    full_needs=needed(KINDS, LONG),
)
