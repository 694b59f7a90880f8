"""Claim 19: translating "on" in "The cat is on the mat" weights where it should."""

from functools import partial

import torch
from matplotlib.figure import Figure

from regard.models.alignment import Alignment, align
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.tour.translators import LONG, REHEARSAL, SHORT, Training, needed, translator, unseen
from regard.view import pictures

WORD, TRANSLATION = "on", "sur"


def run(training: Training = SHORT) -> Measured:
    """The notes' own sentence; the translators have seen none with “on the mat”."""
    pair = unseen(1)[0]  # the cat is on the mat → le chat est sur le tapis
    rows, alignments, right = [], [], []
    for seed in training.seeds:
        model = translator("additive", seed, training.steps)
        (alignment,) = align(model, [pair.source], [pair.target])
        rows.append(alignment.weights[alignment.target.index(TRANSLATION)])
        alignments.append(alignment)
        right.append(model.translate(pair.source) == pair.target)

    weights = torch.stack(rows)  # (seeds, English words)
    column = alignments[0].source.index(WORD)
    others = weights.clone()
    others[:, column] = 0
    numbers = Numbers(
        weight=weights[:, column].mean(),
        spread=weights[:, column].std(),
        others=others.amax(-1).mean(),
        right=(weights.argmax(-1) == column).sum(),
        seeds=len(training.seeds),
        translated=sum(right),
    )
    return numbers, partial(draw, alignments[0])


def judge(numbers: Numbers) -> Criteria:
    """Most of the weight on the right word, with every seed."""
    yield numbers.criterion(
        numbers.weight > numbers.others,
        "“sur” must look at “on” more than at any other word: with {weight} ± {spread} of its weight, where the next "
        "has {others}.",
        "“sur” 应最看重 “on”：权重 {weight} ± {spread}，其次者为 {others}。",
    )
    yield numbers.criterion(
        numbers.right == numbers.seeds,
        "It must do so with every one of {seeds} seeds: it does with {right}.",
        "{seeds} 个种子中每一个都应如此：实际为 {right} 个。",
    )


def draw(alignment: Alignment) -> Figure:
    """The alignment of the sentence, with the row of the word marked."""
    figure = pictures.figure(2.8)
    axes = figure.subplots()
    pictures.heat(axes, alignment.weights, digits=2)
    axes.set_xticks(range(len(alignment.source)), alignment.source)
    axes.set_yticks(range(len(alignment.target)), alignment.target)
    pictures.frame(axes, alignment.target.index(TRANSLATION), 0, width=len(alignment.source))
    axes.set(xlabel="key (looked at)", ylabel="query (looks)")
    return figure


SECTION = Section(
    number=19,
    notes=("002",),
    title=Text("Where “sur” looks when it translates “on”", "翻译 “on” 时看向哪里"),
    claim=Text(
        "When “on” in “The cat is on the mat” is translated, attention looks at the words that matter for it.",
        "翻译 “The cat is on the mat” 中的 “on” 时，注意力会看向与之相关的词。",
    ),
    idea=Text(
        "This is the notes' own example. While the decoder writes “sur”, its state is the query and the states of the "
        "encoder at “the”, “cat”, “is”, “on”, “the”, “mat” are the keys. “on” and “mat” were never next to each other "
        "in what the model learned from, so it cannot know the sentence by heart.",
        "这是笔记里的例子。解码器写 “sur” 时，它的状态是查询，编码器在 “the”、“cat”、“is”、“on”、“the”、“mat” 处的状态"
        "是键。“on” 和 “mat” 在训练句子中从未相邻，所以模型不可能背下这句话。",
    ),
    formula=Text(
        "α(sur, on) = softmax(a(s_sur, h_on)) = largest",
        "α(sur, on) = softmax(a(s_sur, h_on)) = 最大",
    ),
    caption=Text(
        "The weights of every French word over the English ones; the row of “sur” is framed.",
        "每个法语词对各英语词的权重；“sur” 一行加了方框。",
    ),
    meanings={
        "weight": Text("weight of “on” in the row of “sur”, mean of the seeds", "“sur” 一行中 “on” 的权重，种子均值"),
        "spread": Text("its standard deviation over the seeds", "该权重在种子间的标准差"),
        "others": Text("the largest other weight of that row, mean of the seeds", "该行其他权重的最大者，种子均值"),
        "right": Text("seeds in which “sur” looks at “on” most", "“sur” 最看重 “on” 的种子数"),
        "seeds": Text("seeds", "种子数"),
        "translated": Text("seeds in which the whole sentence is translated right", "整句译对的种子数"),
    },
    deciding="weight",
    run=run,
    full=partial(run, LONG),
    rehearsal=partial(run, REHEARSAL),
    judge=judge,
    needs=needed(["additive"], SHORT),
    full_needs=needed(["additive"], LONG),
)
