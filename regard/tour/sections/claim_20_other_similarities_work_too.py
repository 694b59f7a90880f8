"""Claim 20: cosine and other similarities can serve as the score."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.tour.translators import LONG, REHEARSAL, SHORT, Training, needed, quality, translator, unseen
from regard.view.chart import Bars, Chart, Heat, Panel

PLAIN = """
temperature = 0.2
keys, values = torch.randn(12, 8), torch.eye(12)
asked = torch.arange(0, 12, 3)  # four of them are asked for
queries = 2 * keys[asked] + 0.5 * torch.randn(4, 8)  # other lengths, a little off


def cosine(queries, keys):
    return F.normalize(queries, dim=-1) @ F.normalize(keys, dim=-1).T / temperature


scores = {
    "dot": queries @ keys.T / math.sqrt(8),
    "cosine": cosine(queries, keys),
    "distance": -(torch.cdist(queries, keys) ** 2) / 2,
}
weights = {name: torch.softmax(score, -1) for name, score in scores.items()}  # (4, 12) each
right = {name: weight[torch.arange(4), asked].mean().item() for name, weight in weights.items()}
"""

SHORT_CELL = """
import regard

similarities = {"dot": regard.Dot(), "cosine": regard.Cosine(temperature), "distance": regard.Kernel("gaussian")}
for name, score in similarities.items():
    ours = regard.attend(queries, keys, values, score=score)
    torch.testing.assert_close(ours, weights[name] @ values, rtol=1e-4, atol=1e-5)
"""

SCORES = ("additive", "bilinear", "cosine", "dot")
ALL_SCORES = (*SCORES, "gaussian")
LEARNED = 95.0  # BLEU


def run(training: Training = SHORT, scores: Sequence[str] = SCORES) -> Measured:
    """The same translator with one score after the other, as many steps each."""
    pairs = unseen(training.pairs)
    bleu = torch.tensor(
        [[quality(translator(s, seed, training.steps), pairs) for seed in training.seeds] for s in scores]
    )
    cosine = bleu[scores.index("cosine")]
    numbers = Numbers(
        cosine=cosine,
        scores=bleu.mean(1),
        spreads=bleu.std(1),
        worst=bleu.mean(1).min(),
        below=bleu.mean(1).max() - cosine.mean(),
        spread=bleu.std(1).max(),
        seeds=len(training.seeds),
    )
    return numbers, draw_scores(bleu, scores)


def judge(numbers: Numbers) -> Criteria:
    """Cosine must do, and so must the others."""
    yield numbers.criterion(
        sum(numbers.cosine) / len(numbers.cosine) >= LEARNED,
        "With cosine the translator must learn its language, 95 BLEU on average: the {seeds} seeds reach {cosine}.",
        "用余弦时翻译模型应学会这门语言，平均 95 BLEU：{seeds} 个种子为 {cosine}。",
    )
    yield numbers.criterion(
        numbers.worst >= LEARNED,
        "So must every other score in as many steps: additive, bilinear, cosine and dot reach {scores} ± {spreads}.",
        "在同样的步数内，其余评分也应如此：加性、双线性、余弦、点积分别为 {scores} ± {spreads}。",
    )
    yield numbers.criterion(
        numbers.below <= numbers.spread,
        "Cosine must not trail the best of them by more than the spread over the seeds, {spread}: it trails by "
        "{below}.",
        "余弦落后于其中最好者不应超过种子间的波动 {spread} BLEU：实际落后 {below} BLEU。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights of the three similarities."""
    titles = {
        "dot": Text("dot product", "点积"),
        "cosine": Text("cosine", "余弦"),
        "distance": Text("distance", "距离"),
    }
    marked = list(enumerate(cell.asked.tolist()))
    panels = [
        Panel([Heat(weight, marked=marked)], title=titles[name], x=Text("key", "键"), y=Text("query", "查询"))
        for name, weight in cell.weights.items()
    ]
    caption = Text(
        "What four queries look at under three similarities; the frames are the keys that were asked for.",
        "四个查询在三种相似度下看向哪里；方框是所问的键。",
    )
    return Chart(panels, caption=caption)


def draw_scores(bleu: Tensor, scores: Sequence[str]) -> Chart:
    """BLEU of every score and seed."""
    chinese = {"additive": "加性", "bilinear": "双线性", "cosine": "余弦", "dot": "点积", "gaussian": "高斯核"}
    names = [Text(score, chinese[score]) for score in scores]
    bars = [Bars(names, row, Text(f"seed {seed}", f"种子 {seed}")) for seed, row in enumerate(bleu.T)]
    caption = Text(
        "BLEU of the same translator with each score, on sentences that were not learned from; a bar for each seed.",
        "同一翻译模型换用各种评分，在未学过的句子上的 BLEU；每个种子一根柱。",
    )
    return Chart([Panel(bars, y="BLEU")], caption=caption)


SECTION = Section(
    number=20,
    notes=(Passage("001", 39, 39), Passage("002", 28, 32)),
    title=Text("Cosine and other similarities work too", "余弦等其他相似度也可以"),
    claim=Text(
        "A query is compared with every vector of the encoder by some similarity, for which cosine and others can be "
        "used.",
        "查询与编码器的每个向量比较相似度，余弦度量和其他方式都可以用。",
    ),
    idea=Text(
        "Attention asks of a similarity only that it is a number for each pair, out of which softmax makes weights. "
        "Cosine "
        "looks at directions alone and lies between −1 and 1, so it needs a temperature to become decided. The same "
        "translator is trained with each score, equally long.",
        "注意力对相似度只有一个要求：每一对给出一个数，再由 softmax 变成权重。余弦只看方向，取值在 −1 与 1 之间，所以"
        "需要一个温度"
        "才能拉开差距。同一个翻译模型用各种评分训练同样的步数。",
    ),
    formula=r"a_{ij} = \mathrm{softmax}_j\left(F(q_i, k_j)\right), \qquad F = \frac{q \cdot k}{\|q\| \|k\| \tau}",
    plain=PLAIN,
    short=SHORT_CELL,
    show=draw,
    controls=(
        Control("temperature = 0.2", Text("temperature of the cosine", "余弦的温度"), Slider(0.02, 2.0, log=True)),
    ),
    exercises=(
        Exercise(
            ("temperature = 0.2", "temperature = 1.0"),
            Text("Cosine without a temperature: how decided is it?", "不用温度的余弦：权重有多集中？"),
            Text(
                "The asked-for key gets {now.right[cosine]:.2f} of the weight; it got {was.right[cosine]:.2f}.",
                "所问的键得到 {now.right[cosine]:.2f} 的权重，原来为 {was.right[cosine]:.2f}。",
            ),
        ),
        Exercise(
            (
                "queries = 2 * keys[asked] + 0.5 * torch.randn(4, 8)",
                "queries = 0.2 * keys[asked] + 0.05 * torch.randn(4, 8)",
            ),
            Text("Queries ten times shorter: who notices?", "查询缩短为十分之一：谁会察觉？"),
            Text(
                "Dot goes from {was.right[dot]:.2f} to {now.right[dot]:.2f}, cosine from {was.right[cosine]:.2f} to "
                "{now.right[cosine]:.2f}.",
                "点积由 {was.right[dot]:.2f} 变为 {now.right[dot]:.2f}，余弦由 {was.right[cosine]:.2f} 变为 "
                "{now.right[cosine]:.2f}。",
            ),
        ),
    ),
    meanings={
        "cosine": Text("BLEU with cosine, each seed", "余弦的 BLEU，每个种子"),
        "scores": Text("BLEU with each score, mean over the seeds", "各评分的 BLEU，种子均值"),
        "spreads": Text("their standard deviations", "其标准差"),
        "worst": Text("least of these means", "这些均值的最小者"),
        "below": Text("best mean − that of cosine", "最高均值 − 余弦的均值"),
        "spread": Text("largest standard deviation", "最大的标准差"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="cosine",
    run=run,
    judge=judge,
    full=lambda: run(LONG, ALL_SCORES),
    rehearsal=lambda: run(REHEARSAL),
    needs=needed(SCORES, SHORT),
    full_needs=needed(ALL_SCORES, LONG),
)
