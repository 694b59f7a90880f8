"""Claim 18: each decoding step has its own context."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.data.pairs import Pair
from regard.data.words import split
from regard.models.alignment import Alignment, align
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.tour.translators import LONG, REHEARSAL, SHORT, Training, needed, translator, unseen
from regard.training.metrics import alignment_error_rate
from regard.view import pictures


def run(training: Training = SHORT) -> Measured:
    """What a translator looks at while it writes, against which words belong together."""
    pairs = unseen(training.pairs)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    gold = [pair.alignment or frozenset() for pair in pairs]
    apart, errors = [], []
    for seed in training.seeds:
        model = translator("additive", seed, training.steps)
        alignments = align(model, sources, targets)
        shifts = [shift(alignment.weights) for alignment in alignments]
        links = [alignment.links for alignment in alignments]
        apart.append(torch.stack(shifts).mean())
        errors.append(alignment_error_rate(links, gold))

    numbers = Numbers(
        apart=torch.stack(apart).mean(),
        error=torch.tensor(errors).mean(),
        spread=torch.tensor(errors).std(),
        straight=alignment_error_rate([diagonal(pair) for pair in pairs], gold),
        sentences=len(pairs),
    )
    sizes = [len(alignment.target) for alignment in alignments]
    chosen = sizes.index(max(size for size in sizes if size < 14))
    return numbers, partial(draw, alignments[chosen], gold[chosen])


def shift(weights: Tensor) -> Tensor:
    """How much of the weight (target words, source words) moves from one word to the next, on average."""
    return weights.diff(dim=0).abs().sum(-1).mean() / 2


def diagonal(pair: Pair) -> frozenset[tuple[int, int]]:
    """Every word of the target with the word of the source at the same share of the sentence."""
    n, m = len(split(pair.target)), len(split(pair.source))
    return frozenset((round(word * (m - 1) / max(n - 1, 1)), word) for word in range(n))


def judge(numbers: Numbers) -> Criteria:
    """Another look for another word; and a right one."""
    yield numbers.criterion(
        numbers.apart > 0.3,
        "From one word to the next, more than 0.3 of the weight must move: on average {apart} of it does.",
        "从一个词到下一个词，应有超过 0.3 的权重移动：平均为 {apart}。",
    )
    yield numbers.criterion(
        numbers.error < numbers.straight,
        "Looks must fit the words better than going along the diagonal does: an error rate of {error} ± {spread} "
        "against {straight}.",
        "所看之处应比沿对角线逐词走更符合对应关系：错误率 {error} ± {spread}，对角线为 {straight}。",
    )


def draw(alignment: Alignment, gold: frozenset[tuple[int, int]]) -> Figure:
    """The alignment of one sentence; frames where words belong together."""
    figure = pictures.figure(3.6)
    axes = figure.subplots()
    image = pictures.heat(axes, alignment.weights)
    axes.set_xticks(range(len(alignment.source)), alignment.source, rotation=45, ha="right")
    axes.set_yticks(range(len(alignment.target)), alignment.target)
    for source, target in gold:
        pictures.frame(axes, target, source)
    axes.set(xlabel="key (looked at)", ylabel="query (looks)", title="frames: words that belong together")
    figure.colorbar(image, ax=axes, label="weight")
    return figure


SECTION = Section(
    number=18,
    notes=("004",),
    title=Text("Every step of the decoder has its own context", "解码的每一步有自己的上下文"),
    claim=Text(
        "By using a different context vector at every time step of the decoder, each step can weigh different parts of "
        "the input sequence.",
        "通过在解码器的每个时间步使用不同的上下文向量，每一步都可以重视输入序列的不同部分。",
    ),
    idea=Text(
        "The weights of all steps are a matrix, the alignment: a row for each French word, a column for each English "
        "one. If a step has a context of its own, neighbouring rows differ. The grammar that made the sentences knows "
        "which words belong together, so the matrix can be marked: the error rate is 0 where the model looks exactly "
        "at those.",
        "所有步的权重构成一个矩阵，即对齐：每个法语词一行，每个英语词一列。若每一步有自己的上下文，相邻两行就不同。生"
        "成句子的语法知道哪些词相互对应，所以可以给这个矩阵评分：若模型所看之处与之完全一致，错误率为 0。",
    ),
    formula=Text(
        "cₜ = Σᵢ αₜᵢ hᵢ,     error rate = 1 − 2 |looks ∩ gold| / (|looks| + |gold|)",
        "cₜ = Σᵢ αₜᵢ hᵢ,     错误率 = 1 − 2 |所看 ∩ 正确| / (|所看| + |正确|)",
    ),
    caption=Text(
        "The alignment of one sentence: weights as colours, with frames around the pairs of words that belong "
        "together.",
        "一个句子的对齐：颜色为权重，方框为相互对应的词。",
    ),
    meanings={
        "apart": Text(
            "weight that moves from one word to the next, mean of the seeds", "相邻两步之间移动的权重，种子均值"
        ),
        "error": Text("alignment error rate, mean of the seeds", "对齐错误率，种子均值"),
        "spread": Text("its standard deviation over the seeds", "该错误率在种子间的标准差"),
        "straight": Text(
            "error rate of the diagonal: word by word in the same order", "对角线（逐词按原顺序）的错误率"
        ),
        "sentences": Text("sentences", "句子数"),
    },
    deciding="error",
    run=run,
    full=partial(run, LONG),
    rehearsal=partial(run, REHEARSAL),
    judge=judge,
    needs=needed(["additive"], SHORT),
    full_needs=needed(["additive"], LONG),
)
