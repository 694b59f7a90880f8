"""Claim 40, beyond the notes: are attention weights an explanation?"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

import regard
from regard.data.pairs import Pair
from regard.data.tokens import PAD, UNK
from regard.models.seq2seq import Seq2Seq
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Section, Text
from regard.tour.translators import REHEARSAL, SHORT, Training, encoded, needed, translator, unseen
from regard.view.chart import Bars, Chart, Dots, Panel

PLAIN = """
embedding, key, output = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 4)
query = nn.Parameter(torch.randn(16))


def read(tokens, kept):  # (batch, 8) each: words, and whether they are there
    rows = embedding(tokens)
    weights = torch.softmax((key(rows) @ query / 4).masked_fill(~kept, -torch.inf), -1)  # (batch, 8)
    return F.log_softmax(output((weights[:, None] @ rows)[:, 0]), -1), weights


def sentences(count):  # one of the words 0 to 3 says what the answer is, the other seven say nothing
    tokens, answer, places = torch.randint(4, 20, (count, 8)), torch.randint(4, (count,)), torch.randint(8, (count,))
    return tokens.index_put((torch.arange(count), places), answer), answer, torch.ones(count, 8) > 0


optimizer = torch.optim.Adam([query, *(p for part in (embedding, key, output) for p in part.parameters())], lr=0.02)
for step in range(150):
    tokens, answer, kept = sentences(64)
    optimizer.zero_grad(), F.nll_loss(read(tokens, kept)[0], answer).backward(), optimizer.step()
tokens, answer, kept = sentences(200)
before, weights = read(tokens, kept)
without = torch.stack([read(tokens, kept & (torch.arange(8) != place))[0] for place in range(8)], 1)  # (200, 8, 4)
drops = (before[:, None] - without).gather(-1, answer[:, None, None].expand(-1, 8, 1))[..., 0].detach()  # (200, 8)
top, cost = weights.max(-1).values.mean(), drops.gather(1, weights.argmax(-1, keepdim=True)).mean()
"""

SHORT_CELL = """
import regard

rows = embedding(tokens)
ours = regard.weights(query.expand(len(rows), 1, 16), key(rows), mask=regard.keep(kept[:, None]))
torch.testing.assert_close(ours[:, 0], weights, rtol=1e-4, atol=1e-6)
"""

# --------------------------------------------------------------------------------------------------- three explanations


class Explained(NamedTuple):
    """What each target word depends on, (target words, m) each; `counts` says which of the m are source words."""

    drops: Tensor  # of the logarithm of its probability, when a source word becomes unknown
    weights: Tensor  # of attention
    gradients: Tensor  # |gradient · vector|
    counts: Tensor


def explain(model: Seq2Seq, pairs: Sequence[Pair]) -> Explained:
    """The drops, and what the weights and the gradients say that they would be."""
    source, lengths, given, expected = encoded(model, pairs)
    sentence, step = (expected != PAD).nonzero(as_tuple=True)  # of each target word
    counts = torch.tensor(lengths)[sentence]

    def scores(method: str, baseline: int | None = None) -> Tensor:
        return regard.Attribution.from_model(
            model,
            source[sentence],
            method=method,
            target=expected[sentence, step],
            position=step,
            baseline=baseline,
            forward=lambda words: model(words, given[sentence], counts),
        ).scores

    is_word = torch.arange(source.shape[1]) < counts[:, None]
    return Explained(scores("occlusion", UNK), scores("weights"), scores("gradient_input").abs(), is_word)


def drop_of_the_first(explained: Explained, by: Tensor) -> Tensor:
    """The mean drop when the word is deleted that an explanation puts first."""
    first = by.masked_fill(~explained.counts, -torch.inf).argmax(-1, keepdim=True)
    return explained.drops.gather(-1, first).mean()


def rank_correlation(explained: Explained, by: Tensor) -> Tensor:
    """Spearman's, between an explanation and the drops over the words of a sentence, on average."""
    found = []
    for drops, scores, counts in zip(explained.drops, by, explained.counts, strict=True):
        ranks = torch.stack([part[counts].argsort().argsort().double() for part in (drops, scores)])
        found.append(torch.corrcoef(ranks)[0, 1])
    return torch.stack(found).nanmean()


def measure(
    training: Training = SHORT, weigh: Callable[[Tensor], Tensor] = lambda weights: weights, sentences: int = 60
) -> Measured:
    """Delete words from unseen sentences, and compare. weigh: what is taken for the weights."""
    pairs = unseen(training.pairs)[:sentences]
    rows = []
    for seed in training.seeds:
        explained = explain(translator("additive", seed, training.steps), pairs)
        torch.manual_seed(seed)
        chance, weights = torch.rand(explained.drops.shape), weigh(explained.weights)
        explanations = (weights, explained.gradients, chance, explained.drops)
        firsts = [drop_of_the_first(explained, by) for by in explanations]
        rows.append([*firsts, *(rank_correlation(explained, by) for by in explanations[:3])])
    table = torch.tensor(rows)  # (seeds, 7)
    mean, spread = table.mean(0), table.std(0)
    numbers = Numbers(
        by_attention=mean[0],
        by_gradient=mean[1],
        by_chance=mean[2],
        most=mean[3],
        spread=spread[:3].max(),
        share=mean[0] / mean[3],
        correlation=mean[4],
        correlation_gradient=mean[5],
        sentences=len(pairs),
        seeds=len(training.seeds),
    )
    return numbers, draw_drops(table)


def run() -> Measured:
    """Three translators, sixty sentences that they have not seen."""
    return measure()


def judge(numbers: Numbers) -> Criteria:
    """Better than chance, as good as the gradient, and the whole order."""
    yield numbers.criterion(
        numbers.by_attention > numbers.by_chance + numbers.spread,
        "Deleting the source word with the most attention must cost a translation more than deleting a random word, "
        "by more "
        "than the spread over {seeds} seeds: the logarithm of the right word's probability falls by {by_attention}, "
        "and by "
        "{by_chance} for a random word (± {spread}); {most} is the most that one word can cost.",
        "删去注意力最多的源词，对译文的损害应大于随机删去一词，且超过 {seeds} 个种子间的波动：正确词的对数概率下降 "
        "{by_attention}，随机删词为 {by_chance}（± {spread}）；删一个词最多可下降 {most}。",
    )
    yield numbers.criterion(
        numbers.by_attention > numbers.by_gradient - numbers.spread,
        "The weights must point as well as the gradient does, up to the spread: {by_attention} against {by_gradient}.",
        "权重所指应不逊于梯度归因（在波动范围内）：{by_attention} 对 {by_gradient}。",
    )
    yield numbers.criterion(
        numbers.correlation > 0.7,
        "As an explanation of everything, the order of the weights must be that of the drops, with a rank correlation "
        "of "
        "0.7 or more: it is {correlation}; that of the gradients is {correlation_gradient}.",
        "若要解释全部影响，权重的次序应与下降量的次序一致，秩相关至少 0.7：实际为 {correlation}；梯度归因为 "
        "{correlation_gradient}。",
    )


# ------------------------------------------------------------------------------------------------------------- pictures


def draw(cell: SimpleNamespace) -> Chart:
    """Each word's weight, and what its deletion costs."""
    dots = Dots(cell.weights.detach().flatten(), cell.drops.flatten(), Text("a word", "一个词"), "attention", 2)
    panel = Panel([dots], x=Text("weight", "权重"), y=Text("cost of deleting it", "删去它的代价"))
    caption = Text(
        "The words of 200 sentences: how much attention each gets, and by how much the logarithm of the answer's "
        "probability falls without it.",
        "200 个句子的各个词：每个词得到的注意力，以及删去它之后答案的对数概率下降多少。",
    )
    return Chart([panel], caption=caption)


def draw_drops(table: Tensor) -> Chart:
    """The drop by who chose the word."""
    names = [
        Text("attention", "注意力"),
        Text("gradient", "梯度"),
        Text("chance", "随机"),
        Text("the most", "最大可能"),
    ]
    bars = Bars(names, table[:, :4].mean(0), spread=table[:, :4].std(0), colour="attention")
    caption = Text(
        "By how much the logarithm of the right word's probability falls when one source word is deleted, by who chose "
        "that word; mean and spread of the seeds.",
        "删去一个源词后正确词的对数概率下降多少，按由谁选词分列；种子间的均值与波动。",
    )
    return Chart([Panel([bars], y=Text("drop", "下降量"))], caption=caption)


SECTION = Section(
    number=40,
    notes=(),
    title=Text("Are attention weights an explanation?", "注意力权重能当作解释吗？"),
    claim=Text(
        "The notes do not ask this, but read the weights as what a model finds relevant: if so, what gets the most "
        "attention should be what the output depends on most.",
        "笔记没有问这个问题，但把权重读作模型认为相关的东西：果真如此，得到注意力最多的部分就应是输出最依赖的部分。",
    ),
    idea=Text(
        "An explanation can be tested by taking away what it points to. Each source word in turn is made unknown, and "
        "the "
        "probability of each right target word is measured before and after. The weights are compared with chance, "
        "with "
        "the gradient times the word's vector, and with the largest drop that any word can cause.",
        "解释可以这样检验：把它所指的东西拿掉。依次把每个源词变为未知词，测量每个正确目标词的概率前后的变化。把权重与"
        "随机、与"
        "“梯度乘词向量”、以及与任何一个词所能造成的最大下降相比较。",
    ),
    formula=r"\mathrm{drop}_{ij} = \log p(y_i \mid x) - \log p(y_i \mid x\ \mathrm{without}\ x_j)",
    plain=PLAIN,
    short=SHORT_CELL,
    show=draw,
    exercises=(
        Exercise(
            ("for step in range(150):", "for step in range(5):"),
            Text("Hardly trained: do the weights still tell?", "几乎没有训练：权重还能说明问题吗？"),
            Text(
                "The mean of the largest weights goes from {was.top:.2f} to {now.top:.2f}, that of the drops they "
                "cause from {was.cost:.2f} to {now.cost:.2f}.",
                "最大权重的均值由 {was.top:.2f} 变为 {now.top:.2f}，删去它们造成的下降由 {was.cost:.2f} 变为 "
                "{now.cost:.2f}。",
            ),
        ),
        Exercise(
            ("tokens, answer, kept = sentences(200)", "tokens, answer, kept = sentences(2000)"),
            Text("Ten times the sentences: does the picture change?", "句子增为十倍：图会变吗？"),
            Text(
                "The mean drop of the most attended word is {now.cost:.2f}; it was {was.cost:.2f}.",
                "注意力最多的词的平均下降为 {now.cost:.2f}，原来为 {was.cost:.2f}。",
            ),
        ),
    ),
    meanings={
        "by_attention": Text("drop when the most attended word is deleted", "删去注意力最多的词时的下降量"),
        "by_gradient": Text("the same, the word with the largest |gradient · vector|", "同上，|梯度·向量| 最大的词"),
        "by_chance": Text("the same, a random word", "同上，随机一词"),
        "most": Text("the same, the word that costs most", "同上，代价最大的词"),
        "spread": Text("largest standard deviation of the first three over the seeds", "前三者在种子间标准差的最大者"),
        "share": Text("attention's drop ÷ the largest possible", "注意力的下降量 ÷ 最大可能"),
        "correlation": Text("rank correlation of weights and drops", "权重与下降量的秩相关"),
        "correlation_gradient": Text("rank correlation of gradients and drops", "梯度归因与下降量的秩相关"),
        "sentences": Text("unseen sentences", "未见过的句子数"),
        "seeds": Text("translators, one for each seed", "翻译模型数，每个种子一个"),
    },
    deciding="share",
    run=run,
    judge=judge,
    rehearsal=lambda: measure(REHEARSAL, sentences=11),
    needs=needed(["additive"], SHORT),
)
