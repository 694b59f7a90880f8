"""Claim 33: VALUE is in general the same as KEY."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.tour.translators import LONG, REHEARSAL, SHORT, Training, needed, quality, translator, unseen
from regard.view.chart import Bars, Chart, Heat, Panel

PLAIN = """
states, query = torch.randn(7, 16), torch.randn(1, 16)  # what an encoder has read, and what a decoder asks
W_k, W_v = torch.randn(16, 16) / 4, torch.randn(16, 16) / 4


def attend(query, keys, values):
    weights = torch.softmax(query @ keys.T / 4, -1)  # (1, 7)
    return weights @ values, weights


shared, same_weights = attend(query, states, states)  # VALUE = KEY: the states themselves
separate, other_weights = attend(query, states @ W_k, states @ W_v)  # a matrix for each of them
folded = attend(query, states @ W_k, states)[0] @ W_v  # the value matrix may stand behind the mean as well
difference = (separate - folded).abs().max()
both_weights = torch.cat([same_weights, other_weights])
"""

SHORT_CELL = """
import regard

torch.testing.assert_close(regard.attend(query, states, states), shared)
torch.testing.assert_close(regard.attend(query, states @ W_k, states @ W_v), separate)
"""

KINDS = ("additive", "separate")


def run(training: Training = SHORT, kinds: Sequence[str] = KINDS) -> Measured:
    """The same encoder–decoder with VALUE = KEY, and with values from a matrix of their own."""
    pairs = unseen(training.pairs)
    scores = torch.tensor([[quality(translator(k, s, training.steps), pairs) for s in training.seeds] for k in kinds])
    shared, separate = scores  # (seeds,) each
    numbers = Numbers(
        shared=shared,
        separate=separate,
        gain=(separate - shared).mean(),
        spread=scores.std(1).max(),
        worst=shared.min(),
        seeds=len(training.seeds),
    )
    return numbers, draw_scores(scores)


def judge(numbers: Numbers) -> Criteria:
    """Sharing must do; that it costs nothing is measured, too."""
    yield numbers.criterion(
        numbers.worst >= 95,
        "With VALUE = KEY the translator must learn its language, 95 BLEU with every seed: it reaches {shared}.",
        "VALUE 与 KEY 相同时，翻译模型应学会这门语言，每个种子都达到 95 BLEU：实际为 {shared}。",
    )
    yield numbers.criterion(
        numbers.gain <= numbers.spread,
        "A matrix of their own for the values must not bring more than the spread over {seeds} seeds, {spread}: it "
        "brings "
        "{gain} ({separate}).",
        "给值另设一个矩阵，带来的改进不应超过 {seeds} 个种子间的波动 {spread} BLEU：实际为 {gain} BLEU，各种子为 "
        "{separate}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights in both cases, and the two results."""
    rows = [Text("VALUE = KEY", "VALUE = KEY"), Text("two matrices", "两个矩阵")]
    heat = Panel([Heat(cell.both_weights, rows=rows)], x=Text("state of the encoder", "编码器的状态"))
    numbers = [str(number) for number in range(16)]
    bars = [
        Bars(numbers, cell.separate[0], Text("values by their own matrix", "值用自己的矩阵")),
        Bars(numbers, cell.folded[0], Text("the matrix behind the mean", "矩阵放在平均之后")),
    ]
    caption = Text(
        "Whom the query looks at with and without matrices; and the result with a value matrix, applied before the "
        "weighted mean and behind it.",
        "有无矩阵时查询看哪里；以及值矩阵在加权平均之前与之后作用的结果。",
    )
    return Chart([heat, Panel(bars, x=Text("number of the result", "结果的分量"), share=1.5)], caption=caption)


def draw_scores(scores: Tensor) -> Chart:
    """BLEU of every seed."""
    names = [Text(f"seed {seed}", f"种子 {seed}") for seed in range(scores.shape[1])]
    labels = (Text("VALUE = KEY", "VALUE = KEY"), Text("a matrix for the values", "值另有矩阵"))
    bars = [Bars(names, row, label) for row, label in zip(scores, labels, strict=True)]
    caption = Text(
        "BLEU on sentences that were not learned from, for each seed.", "未学过的句子上的 BLEU，每个种子分列。"
    )
    return Chart([Panel(bars, y="BLEU")], caption=caption, height=220)


SECTION = Section(
    number=33,
    notes=(Passage("001", 35, 35),),
    title=Text("VALUE is in general the same as KEY", "VALUE 一般与 KEY 相同"),
    claim=Text(
        "VALUE is, in general, the same as KEY: both are the hidden states of the encoder, of which the weights pick "
        "what "
        "goes to the decoder.",
        "VALUE 一般就是 KEY：两者都由编码器的全部隐藏状态构成，权重从中挑出交给解码器的内容。",
    ),
    idea=Text(
        "In an encoder–decoder with additive attention the states are compared and averaged, so one set of vectors "
        "serves "
        "as keys and as values. A value matrix of its own can be moved behind the weighted mean, where the decoder's "
        "own "
        "matrices stand already. Whether a translator gains by it is a question for training.",
        "在带加性注意力的编码器–解码器中，状态既被比较又被平均，同一组向量既是键又是值。单独的值矩阵可以移到加权平均之"
        "后，而那里"
        "本来就有解码器自己的矩阵。翻译模型是否因此受益，要由训练来回答。",
    ),
    formula=r"c_i = \sum_j a_{ij} h_j, \qquad \sum_j a_{ij} (W h_j) = W \sum_j a_{ij} h_j",
    plain=PLAIN,
    short=SHORT_CELL,
    show=draw,
    exercises=(
        Exercise(
            ("W_k, W_v = torch.randn(16, 16) / 4, torch.randn(16, 16) / 4", "W_k, W_v = torch.eye(16), torch.eye(16)"),
            Text("Both matrices the identity: what is left of the difference?", "两个矩阵都取单位矩阵：差别还剩多少？"),
            Text(
                "The first number of the result is {now.separate[0][0]:.4f} with matrices and {now.shared[0][0]:.4f} "
                "without.",
                "结果的第一个分量：有矩阵为 {now.separate[0][0]:.4f}，无矩阵为 {now.shared[0][0]:.4f}。",
            ),
        ),
        Exercise(
            (
                "separate, other_weights = attend(query, states @ W_k, states @ W_v)",
                "separate, other_weights = attend(query, states, states @ W_v)",
            ),
            Text("Only the values have a matrix: whom does the query look at?", "只给值加矩阵：查询看向谁？"),
            Text(
                "The first weight is {now.other_weights[0][0]:.3f}, and {now.same_weights[0][0]:.3f} where keys are "
                "values.",
                "第一个权重为 {now.other_weights[0][0]:.3f}；键即值时为 {now.same_weights[0][0]:.3f}。",
            ),
        ),
    ),
    meanings={
        "shared": Text("BLEU with VALUE = KEY, each seed", "VALUE = KEY 时的 BLEU，每个种子"),
        "separate": Text("BLEU with a matrix for the values, each seed", "值另有矩阵时的 BLEU，每个种子"),
        "gain": Text("what the matrix brings, mean over the seeds", "该矩阵带来的改进，种子均值"),
        "spread": Text("larger of the two standard deviations over the seeds", "两者在种子间标准差的较大者"),
        "worst": Text("least BLEU with VALUE = KEY", "VALUE = KEY 时的最低 BLEU"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="shared",
    run=run,
    judge=judge,
    full=lambda: run(LONG),
    rehearsal=lambda: run(REHEARSAL),
    needs=needed(KINDS, SHORT),
    full_needs=needed(KINDS, LONG),
)
