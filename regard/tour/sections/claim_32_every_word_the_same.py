"""Claim 32: without attention every word of the input counts the same."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from regard.data.pairs import Pair
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.tour.translators import LONG, REHEARSAL, SHORT, Training, influence, needed, translator, unseen
from regard.view.chart import Chart, Line, Panel

PLAIN = """
class Encoder(nn.Module):
    def __init__(self, vocabulary, size):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.rnn = nn.GRU(size, size, batch_first=True)

    def forward(self, source):  # (batch, m)
        states, last = self.rnn(self.embedding(source))
        return states  # (batch, m, size): one for each word; without attention the decoder gets the last one only


words, size = 20, 32
encoder = Encoder(vocabulary=100, size=size)
influence = torch.zeros(words)
for sentence in torch.randint(100, (50, 1, words)):
    vectors = encoder.embedding(sentence).detach().requires_grad_()  # (1, m, size)
    summary = encoder.rnn(vectors)[0][:, -1]  # (1, size): c = h_in, all that the decoder is told
    (gradient,) = torch.autograd.grad(summary.pow(2).sum(), vectors)  # (1, m, size)
    influence += gradient[0].norm(dim=-1) / 50
share = influence / influence.sum()
first, last, ratio = share[0], share[-1], share.max() / share.min()
"""

SHORT_CELL = """
import regard

model = regard.Seq2Seq(100, 100, size, size, attention=None, bidirectional=False)
model.source_embedding.load_state_dict(encoder.embedding.state_dict())
model.encoder.load_state_dict(encoder.rnn.state_dict())
torch.testing.assert_close(model.read(sentence).values, encoder(sentence)[:, -1:])  # one value for the decoder: c
"""

KINDS = ("none", "additive")
PARTS = 5  # of a sentence
WORDS = 60  # sentences whose gradients are taken


def shares(kind: str, seed: int, training: Training, pairs: list[Pair]) -> Iterator[tuple[Pair, Tensor]]:
    """For each sentence how much each target word depends on each source word, (n, m), in shares of 1."""
    norms = influence(translator(kind, seed, training.steps), pairs).norms
    for pair, table in zip(pairs, norms, strict=True):
        n, m = len(pair.target.split()), len(pair.source.split())
        part = table[:n, :m]
        yield pair, part / part.sum(-1, keepdim=True).clamp(min=1e-12)


def describe(pair: Pair, table: Tensor) -> Tensor:
    """Largest ÷ smallest share of a word; focus: the share of the words that belong together ÷ that by chance."""
    overall = table.mean(0)
    links = torch.zeros_like(table)
    for source, target in pair.alignment or ():
        if target < len(links) and source < links.shape[1]:
            links[target, source] = 1
    rows = links.sum(-1) > 0
    focus = ((table * links).sum(-1)[rows] / links.mean(-1)[rows]).mean()
    return torch.stack([overall.max() / overall.min().clamp(min=1e-12), focus])


def by_part(table: Tensor) -> Tensor:
    """The shares along the sentence, relative to equal ones, in PARTS parts."""
    overall = table.mean(0) * table.shape[1]
    places = (torch.arange(table.shape[1]) * PARTS / table.shape[1]).long()
    return torch.stack([overall[places == part].mean() for part in range(PARTS)])


def run(training: Training = SHORT, kinds: tuple[str, str] = KINDS) -> Measured:
    """Take the gradient of each word that is written with respect to each word that was read.

    kinds: the translator without attention, and one to compare it with
    """
    pairs = [pair for pair in unseen(4 * WORDS) if len(pair.source.split()) >= 8 and "'" not in pair.target][:WORDS]
    measured, parts = torch.zeros(len(training.seeds), 2, 2), torch.zeros(len(training.seeds), 2, PARTS)
    for row, seed in enumerate(training.seeds):
        for column, kind in enumerate(kinds):
            tables = list(shares(kind, seed, training, pairs))
            measured[row, column] = torch.stack([describe(*table) for table in tables]).median(0).values
            parts[row, column] = torch.stack([by_part(table) for _, table in tables]).mean(0)
    numbers = Numbers(
        ratios=measured[:, 0, 0],
        focus=measured[:, 0, 1],
        focus_attention=measured[:, 1, 1],
        by_part=parts[:, 0].mean(0),
        spread=parts[:, 0].std(0),
        sentences=len(pairs),
    )
    return numbers, draw_parts(parts)


def judge(numbers: Numbers) -> Criteria:
    """Equal weight would be a ratio of 1, and no focus a factor of 1."""
    yield numbers.criterion(
        max(numbers.ratios) < 1.5,
        "If every word counted the same, the largest share of a word in a sentence would be about the smallest, in "
        "every seed: less than 1.5 times as large. It is {ratios} times as large, in the median of {sentences} unseen "
        "sentences, one number for each seed. By place in the sentence alone, from its first fifth to its last, it is "
        "{by_part} of an equal share (± {spread}).",
        "如果每个词同样受重视，那么在每个种子下，一句中最大的词份额都应约等于最小的，不到其 1.5 倍。实际为 {ratios} 倍"
        "（{sentences} 个未见句子的中位数，每个种子一个数）。只按句中位置看，从头到尾五段依次为均等份额的 {by_part} 倍"
        "（± {spread}）。",
    )
    yield numbers.criterion(
        max(numbers.focus) < 1.1,
        "Without a focus, the words that a French word translates would influence it no more than any others, less "
        "than 1.1 times their share by chance: without attention it is {focus} times, with attention "
        "{focus_attention} times.",
        "如果没有侧重点，那么一个法语词所译的英语词对它的影响应不超过其他词，即不到随机份额的 1.1 倍：无注意力为 "
        "{focus} 倍，有注意力为 {focus_attention} 倍。",
    )


def draw_parts(parts: Tensor) -> Chart:
    """Influence along the sentence, for each seed. parts: (seeds, kinds, PARTS)."""
    names = (
        (Text("without attention", "无注意力"), "pooled"),
        (Text("with attention", "有注意力"), "attention"),
    )
    x = [(part + 0.5) / PARTS for part in range(PARTS)]
    lines = [
        Line(x, parts[seed, kind], name, colour, dots=True)
        for kind, (name, colour) in enumerate(names)
        for seed in range(len(parts))
    ]
    equal = Line([0, 1], [1, 1], Text("equal weight", "同等重视"), "ink", style="dashed")
    axis = Text("place in the sentence: 0 = first word, 1 = last", "词在句中的位置：0 为句首，1 为句尾")
    return Chart(
        [Panel([*lines, equal], x=axis, y=Text("influence ÷ equal share", "影响 ÷ 均等份额"))],
        caption=Text(
            "How much the translation depends on the words along the sentence: the norm of the gradient, relative to "
            "equal shares, for every seed. The encoders read in both directions.",
            "译文对句中各处的词的依赖程度：梯度的范数，相对于均等份额，每个种子一条线。编码器从两个方向阅读。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The shares of the words in an untrained encoder's last state."""
    x = list(range(1, cell.words + 1))
    return Chart(
        [
            Panel(
                [
                    Line(x, cell.share, Text("share of the influence on c", "对 c 的影响份额"), "pooled", dots=True),
                    Line(
                        [1, cell.words], [1 / cell.words] * 2, Text("equal weight", "同等重视"), "ink", style="dashed"
                    ),
                ],
                x=Text("word of the sentence", "句中第几个词"),
                y=Text("share", "份额"),
            )
        ],
        caption=Text(
            "How much the last state of an untrained encoder depends on each word of a sentence: the gradient's norm, "
            "in shares, averaged over fifty random sentences.",
            "未训练的编码器的最后状态对句中每个词的依赖：梯度范数的份额，对五十个随机句子取平均。",
        ),
    )


SECTION = Section(
    number=32,
    notes=(Passage("001", 17, 17),),
    title=Text("Without attention every word counts the same", "没有注意力，每个词同样受重视"),
    claim=Text(
        "In the original encoder–decoder the encoder's final output h_in goes into the decoder as it is, which "
        "amounts to giving every input word the same importance, without any focus.",
        "原始的编码器–解码器把编码器的最终输出 h_in 直接输入解码器，这相当于对每个输入单词给予相同的重视，没有侧重点。",
    ),
    idea=Text(
        "An encoder reads word by word and hands over one vector. How much that vector, or a translation made from "
        "it, depends on a word can be measured: it is the size of the gradient with respect to that word's vector. If "
        "all words counted the same, all of these would be of one size.",
        "编码器逐词阅读，最后交出一个向量。这个向量（或由它得到的译文）对某个词的依赖程度可以测量：就是对该词向量的梯"
        "度的大小。如果每个词同样受重视，这些大小应当相同。",
    ),
    formula=r"c = h_{in}, \qquad \mathrm{influence}_i = \left\| \frac{\partial \log p(y)}{\partial x_i} \right\|",
    plain=PLAIN,
    short=SHORT_CELL,
    show=draw,
    exercises=(
        Exercise(
            ("words, size = 20, 32", "words, size = 5, 32"),
            Text("Sentences of five words: how uneven are they?", "句子只有五个词：有多不均匀？"),
            Text(
                "The largest share is {now.ratio:.1f} times the smallest; with twenty words it was {was.ratio:.1f} "
                "times.",
                "最大份额是最小的 {now.ratio:.1f} 倍；二十个词时为 {was.ratio:.1f} 倍。",
            ),
        ),
        Exercise(
            ("self.rnn = nn.GRU(size, size, batch_first=True)", "self.rnn = nn.LSTM(size, size, batch_first=True)"),
            Text(
                "An LSTM instead of the GRU: which end of the sentence counts?",
                "用 LSTM 代替 GRU：句子的哪一端更重要？",
            ),
            Text(
                "First word {now.first:.1%}, last word {now.last:.1%} of the influence; with the GRU {was.first:.1%} "
                "and {was.last:.1%}.",
                "首词占影响的 {now.first:.1%}，末词占 {now.last:.1%}；GRU 时为 {was.first:.1%} 和 {was.last:.1%}。",
            ),
        ),
    ),
    meanings={
        "ratios": Text(
            "largest ÷ smallest share of a word in a sentence, median, without attention, for each seed",
            "一句中最大与最小的词份额之比，中位数，无注意力，逐个种子",
        ),
        "focus": Text(
            "influence of the words that belong to the one being written ÷ by chance, without attention, for each seed",
            "与所写的词对应的词的影响 ÷ 随机份额，无注意力，逐个种子",
        ),
        "focus_attention": Text("the same with attention", "同上，有注意力"),
        "by_part": Text(
            "influence along the sentence ÷ equal share, without attention, mean of the seeds",
            "句中各处的影响 ÷ 均等份额，无注意力，种子均值",
        ),
        "spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "sentences": Text("unseen sentences of eight words or more", "未见过的句子，至少八个词"),
    },
    deciding="ratios",
    run=run,
    judge=judge,
    full=partial(run, LONG),
    rehearsal=partial(run, REHEARSAL),
    needs=needed(KINDS, SHORT),
    full_needs=needed(KINDS, LONG),
)
