"""Claim 17: one context vector is a bottleneck as inputs grow; attention removes it."""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from regard.data.pairs import Pair
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.tour.translators import LONG, PATIENCE, REHEARSAL, SHORT, Training, needed, quality, translator, unseen
from regard.view.chart import Chart, Heat, Line, Panel

PLAIN = """
class Decoder(nn.Module):
    def __init__(self, vocabulary, size):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(vocabulary, size), nn.GRUCell(2 * size, size)
        self.attention, self.output = AdditiveAttention(size, size, size), nn.Linear(2 * size, vocabulary)

    def forward(self, target, states, lengths):  # (batch, n), (batch, m, size), (batch,)
        state, steps = states[:, -1], []
        for token in self.embedding(target).unbind(1):  # (batch, size): what was written last
            context, weights = self.attention(state[:, None], states, states, lengths)  # anew at every step
            state = self.rnn(torch.cat([token, context[:, 0]], -1), state)
            steps.append((self.output(torch.cat([state, context[:, 0]], -1)), weights[:, 0]))
        return [torch.stack(parts, 1) for parts in zip(*steps)]  # (batch, n, vocabulary), (batch, n, m)


encoder, decoder = Encoder(11, 32), Decoder(11, 32)  # digits 1 to 10; 0 begins
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)
for step in range(200):  # the task: a language in which 1 is called 10, 2 is called 9, …
    source = torch.randint(1, 11, (64, 8))
    target = 11 - source
    logits, maps = decoder(F.pad(target[:, :-1], (1, 0)), encoder(source), torch.full((64,), source.shape[1]))
    loss = F.cross_entropy(logits.mT, target)
    optimizer.zero_grad(), loss.backward(), optimizer.step()
accuracy = (logits.argmax(-1) == target).float().mean()
"""

SHORT_CELL = """
import regard

model = regard.Seq2Seq(11, 11, 32, 32, attention="additive", bidirectional=False)
for ours, plain in [
    (model.source_embedding, encoder.embedding),
    (model.encoder, encoder.rnn),
    (model.target_embedding, decoder.embedding),
    (model.output, decoder.output),
]:
    ours.load_state_dict(plain.state_dict())
model.decoder.load_state_dict({f"{name}_l0": weight for name, weight in decoder.rnn.state_dict().items()})
model.score.query_weight.data = decoder.attention.W_q.weight.data
model.score.key_weight.data = decoder.attention.W_k.weight.data
model.score.value_weight.data = decoder.attention.w_v.weight.data[0]
again = decoder(F.pad(target[:, :-1], (1, 0)), encoder(source), torch.full((64,), source.shape[1]))[0]
torch.testing.assert_close(model(source, F.pad(target[:, :-1], (1, 0))), again, rtol=1e-4, atol=1e-4)
"""

LENGTHS = ((5, 6), (7, 8), (9, 10), (11, 12), (13, 14))  # English words
MIDDLES = [(low + high) / 2 for low, high in LENGTHS]
KINDS = ("none", "additive")
LEARNED = 95.0  # BLEU


def run(training: Training = SHORT, kinds: tuple[str, str] = KINDS) -> Measured:
    """The same encoder–decoder without and with attention; without, it is trained longer."""
    pairs = unseen(training.pairs)
    groups = [*by_length(pairs), pairs]
    scores = torch.zeros(len(training.seeds), len(kinds), len(groups))
    for row, seed in enumerate(training.seeds):
        for column, kind in enumerate(kinds):
            model = translator(kind, seed, training.steps)
            scores[row, column] = torch.tensor([quality(model, group) for group in groups])
    slopes = slope(scores[..., :-1])  # (seeds, kinds)
    flatter = slopes[:, 1] - slopes[:, 0]
    numbers = Numbers(
        slopes_without=slopes[:, 0],
        slopes_attention=slopes[:, 1],
        flatter=flatter.mean(),
        spread=flatter.std(),
        without=scores[:, 0, :-1].mean(0),
        attention=scores[:, 1, :-1].mean(0),
        overall_without=scores[:, 0, -1],
        overall_attention=scores[:, 1, -1],
        shortest=scores[..., 0].min(),
        words_from=[low for low, _ in LENGTHS],
        patience=PATIENCE,
    )
    return numbers, draw_scores(scores)


def by_length(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Those whose English sentence has as many words."""
    return [[pair for pair in pairs if low <= len(pair.source.split()) <= high] for low, high in LENGTHS]


def slope(scores: Tensor) -> Tensor:
    """BLEU for each word more: the straight line through scores (…, lengths) by least squares."""
    away = torch.tensor(MIDDLES) - sum(MIDDLES) / len(MIDDLES)
    return (scores * away).sum(-1) / away.square().sum()


def judge(numbers: Numbers) -> Criteria:
    """Without attention quality must fall with length, though short sentences are learned; with it the fall is gone."""
    yield numbers.criterion(
        max(numbers.slopes_without) < 0 and numbers.flatter > numbers.spread and numbers.shortest >= LEARNED,
        "If one vector is a bottleneck, BLEU without attention must fall with length in every seed, and more than "
        "with attention, though both have learned the shortest sentences (95 BLEU; the least is {shortest}): "
        "{slopes_without} BLEU for each word more, one number for each seed, and with attention {slopes_attention}; "
        "the difference is {flatter} ± {spread}. Without attention there were {patience} times as many steps.",
        "若单个向量是瓶颈，那么在两者都已学会最短的句子（要求 95 BLEU，最低的为 {shortest}）时，无注意力的 BLEU 仍应在"
        "每个"
        "种子下随长度下降，且比有注意力降得更多：每多一个词 BLEU 变化 {slopes_without}，每个种子一个数，有注意力为 "
        "{slopes_attention}；两者之差为 {flatter} ± {spread}。无注意力的训练步数是 {patience} 倍。",
    )
    yield numbers.criterion(
        min(numbers.overall_attention) >= LEARNED and numbers.attention[-1] >= LEARNED,
        "If attention removes it, the longest sentences must reach 95 BLEU as all do: they have {attention[-1]} with "
        "attention, and {without[-1]} without; all sentences {overall_attention} and {overall_without}, for each seed.",
        "若注意力消除了瓶颈，那么最长的句子也应和全体一样达到 95 BLEU：有注意力 {attention[-1]}，无注意力 "
        "{without[-1]}；全体句子为 {overall_attention} 与 {overall_without}，每个种子一个数。",
    )


def draw_scores(scores: Tensor) -> Chart:
    """BLEU by length, a line for each seed. scores: (seeds, kinds, lengths and all)."""
    names = (
        (Text("one vector for all", "只有一个向量"), "pooled"),
        (Text("additive attention", "加性注意力"), "attention"),
    )
    lines = [
        Line(MIDDLES, scores[seed, kind, :-1], name, colour, dots=True)
        for kind, (name, colour) in enumerate(names)
        for seed in range(len(scores))
    ]
    return Chart(
        [Panel(lines, x=Text("words of the English sentence", "英语句子的词数"), y="BLEU", y_limits=(0, 105))],
        caption=Text(
            "BLEU on unseen sentences against their length, a line for each seed. 100 is perfect.",
            "未见句子上的 BLEU 随句长的变化，每个种子一条线。100 为完美。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """Where the decoder looks while it translates two strings."""
    panels = [
        Panel(
            [
                Heat(
                    cell.maps[row].detach(),
                    rows=[str(digit) for digit in cell.target[row].tolist()],
                    columns=[str(digit) for digit in cell.source[row].tolist()],
                )
            ],
            x=Text("digit that was read", "读到的数字"),
            y=Text("digit that is written", "写出的数字"),
        )
        for row in range(2)
    ]
    return Chart(
        panels,
        caption=Text(
            f"The weights of the cell's decoder for two strings. {cell.accuracy:.0%} of the last batch is right.",
            f"上面的解码器翻译两串数字时的权重。最后一批数字中有 {cell.accuracy:.0%} 写对。",
        ),
    )


SECTION = Section(
    number=17,
    notes=(Passage("004", 10, 12), Passage("004", 27, 27), Passage("001", 17, 19)),
    title=Text("One vector is a bottleneck", "单个向量是瓶颈"),
    claim=Text(
        "Where the whole input is summed up in one context vector, the length of the input becomes the bottleneck; "
        "with a context of its own for every step of the decoder, the input is no longer held up by a single vector.",
        "把整个输入总结为一个上下文向量时，输入序列的长度成为瓶颈；让解码器的每一步都有不同的上下文向量，输入就不再受"
        "单个向量所限。",
    ),
    idea=Text(
        "Two recurrent encoder–decoders of one size learn the same English–French pairs; one hands over the last "
        "state of its encoder and nothing else, the other may look at all states, anew at every step. Both are tested "
        "on sentences that they have not seen. If the vector is too small for long sentences, quality falls with "
        "length for the first and not for the second.",
        "两个同样大小的循环编码器–解码器学习同样的英法句对；一个只交出编码器的最后状态，另一个可以在每一步重新查看所有"
        "状态。两者都在没见过的句子上测试。如果一个向量装不下长句，第一个的质量会随长度下降，第二个不会。",
    ),
    formula=r"c_t = h_m \quad \mathrm{vs.} \quad c_t = \sum_i \mathrm{softmax}_i\left(a(s_{t-1}, h_i)\right) h_i",
    plain=PLAIN,
    short=SHORT_CELL,
    uses=(13, 32),
    show=draw,
    exercises=(
        Exercise(
            (
                "context, weights = self.attention(state[:, None], states, states, lengths)",
                "context, weights = states[:, -1:], torch.zeros(len(states), 1, states.shape[1])",
            ),
            Text("Give every step the encoder's last state only.", "让每一步都只得到编码器的最后状态。"),
            Text(
                "{now.accuracy:.1%} of the digits are right after as many steps, instead of {was.accuracy:.1%}.",
                "同样步数之后有 {now.accuracy:.1%} 的数字写对，原来为 {was.accuracy:.1%}。",
            ),
        ),
        Exercise(
            ("target = 11 - source", "target = source.flip(1)"),
            Text("Another task: the digits in reverse. Is it as easy?", "另一个任务：把数字倒着写。同样容易吗？"),
            Text(
                "{now.accuracy:.1%} of the digits are right after as many steps, instead of {was.accuracy:.1%}.",
                "同样步数之后有 {now.accuracy:.1%} 的数字写对，原来为 {was.accuracy:.1%}。",
            ),
        ),
    ),
    meanings={
        "slopes_without": Text(
            "BLEU for each word more, without attention, for each seed", "每多一个词的 BLEU 变化，无注意力，逐个种子"
        ),
        "slopes_attention": Text("the same with attention", "同上，有注意力"),
        "flatter": Text("their difference, mean of the seeds", "两者之差，种子均值"),
        "spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "without": Text("BLEU by length without attention, mean of the seeds", "无注意力的各长度 BLEU，种子均值"),
        "attention": Text("BLEU by length with attention, mean of the seeds", "有注意力的各长度 BLEU，种子均值"),
        "overall_without": Text("BLEU on all without attention, for each seed", "无注意力的总 BLEU，逐个种子"),
        "overall_attention": Text("BLEU on all with attention, for each seed", "有注意力的总 BLEU，逐个种子"),
        "shortest": Text(
            "least BLEU on the shortest sentences, of both, in any seed", "两者在最短句子上的 BLEU，所有种子的最小值"
        ),
        "words_from": Text("the lengths: words, from", "长度：词数，不少于"),
        "patience": Text("steps without attention ÷ steps with", "无注意力的步数 ÷ 有注意力的步数"),
    },
    deciding="slopes_without",
    run=run,
    judge=judge,
    full=partial(run, LONG),
    rehearsal=partial(run, REHEARSAL),
    needs=needed(KINDS, SHORT),
    full_needs=needed(KINDS, LONG),
)
