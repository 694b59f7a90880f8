"""Claim 26: recurrence is far but serial, convolution parallel but near, self-attention both, at the price of
memory."""

from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.measure import median_seconds, peak_memory
from regard.tour.learning import fit
from regard.tour.section import Criteria, Measured, Numbers, Section, Text, show
from regard.training.task import IGNORE_INDEX
from regard.view import pictures

MIXERS = ("recurrent", "convolution", "attention")
SYMBOLS, FILLERS = 8, 8  # tokens 0–7 are to be remembered, 8–15 are to be passed over, 16 asks
ASK = SYMBOLS + FILLERS
DISTANCES = (2, 4, 8, 16, 32, 64)
LENGTHS = (128, 256, 512, 1024)


def run(seeds: Sequence[int] = range(3), steps: int = 150) -> Measured:
    """One model, three ways of mixing its vectors: teach it to recall, then time it."""
    recalled = torch.zeros(len(MIXERS), len(seeds), len(DISTANCES))
    models = []
    for row, mixer in enumerate(MIXERS):
        for column, seed in enumerate(seeds):
            torch.manual_seed(seed)
            model = regard.LanguageModel(ASK + 1, size=32, layers=2, heads=2, mixer=mixer)
            fit(model, sample, steps=steps)
            right = [accuracy(model, distance) for distance in DISTANCES]
            recalled[row, column] = torch.tensor(right)
        models.append(model)

    # (lengths, mixers)
    times = torch.tensor([reading_times(length, models) for length in LENGTHS])
    materialized, fused = memory_growth()
    recurrent, convolution, attention = recalled.mean(1)
    numbers = Numbers(
        far=attention[-1],
        distances=DISTANCES,
        recurrent=recurrent,
        convolution=convolution,
        attention=attention,
        spread=recalled[:, :, -1].std(1),
        parameters=tuple(model.parameter_count for model in models),
        lengths=LENGTHS,
        milliseconds=times[-1],
        kept_growth=materialized,
        fused_growth=fused,
    )
    return numbers, partial(draw, recalled, times)


def questions(distance: int, count: int) -> tuple[Tensor, Tensor]:
    """Sequences (count, distance + 1) that begin with a symbol and end with the question, and their targets."""
    words = torch.randint(SYMBOLS, ASK, (count, distance + 1))
    words[:, 0] = torch.randint(SYMBOLS, (count,))
    words[:, -1] = ASK
    targets = torch.full_like(words, IGNORE_INDEX)
    targets[:, -1] = words[:, 0]
    return words, targets


def sample(step: int) -> tuple[Tensor, Tensor]:
    """A batch for training: every distance in its turn."""
    return questions(DISTANCES[step % len(DISTANCES)], 32)


@torch.no_grad()
def accuracy(model: regard.LanguageModel, distance: int) -> float:
    """The share of 256 new questions that are answered right."""
    words, targets = questions(distance, 256)
    return float((model(words)[:, -1].argmax(-1) == targets[:, -1]).float().mean())


@torch.no_grad()
def reading_times(length: int, models: Sequence[regard.LanguageModel]) -> tuple[float, ...]:
    """Milliseconds for one sequence of this length, for each model."""
    words = torch.randint(SYMBOLS, (1, length))
    return tuple(1e3 * time for time in median_seconds(*(partial(model, words) for model in models), rounds=5))


@torch.no_grad()
def memory_growth(length: int = 4096) -> tuple[float, float]:
    """How much more memory 2 × length takes than length: with weights that are kept, and with none."""
    growths = []
    for keep in (True, False):
        used = []
        for count in (length, 2 * length):
            rows = torch.randn(1, count, 64)
            work = partial(regard.attend, rows, rows, rows, need_weights=keep)
            used.append(max(peak_memory(work), 4e-6 * rows.numel()))  # the output at least
        growths.append(used[1] / used[0])
    return growths[0], growths[1]


def judge(numbers: Numbers) -> Criteria:
    """Near, far, serial, and the price."""
    guessing = 1 / SYMBOLS
    yield numbers.criterion(
        numbers.far > 0.9 and numbers.convolution[-1] < 2 * guessing,
        "At distance {distances[-1]} self-attention must recall and convolution must not: {far} and {convolution[-1]} "
        f"of the questions, where guessing gives {show(guessing)}.",
        "距离 {distances[-1]} 处，自注意力应能回忆而卷积不能：正确率 {far} 与 {convolution[-1]}，猜测为 "
        f"{show(guessing)}。",
    )
    yield numbers.criterion(
        numbers.convolution[0] > 0.9,
        "Convolution must recall what is near: {convolution[0]} at distance {distances[0]}.",
        "卷积应能回忆近处：距离 {distances[0]} 处为 {convolution[0]}。",
    )
    yield numbers.criterion(
        numbers.recurrent[-1] > 0.9,
        "Recurrence must reach as far as attention: {recurrent[-1]} at distance {distances[-1]}.",
        "循环网络应与注意力看得一样远：距离 {distances[-1]} 处为 {recurrent[-1]}。",
    )
    yield numbers.criterion(
        numbers.milliseconds[0] > 1.5 * numbers.milliseconds[1],
        "It must pay for reading one by one: {milliseconds[0]} ms for {lengths[-1]} words, where convolution takes "
        "{milliseconds[1]} and attention {milliseconds[2]}.",
        "它应为逐个阅读付出代价：{lengths[-1]} 个词用时 {milliseconds[0]} 毫秒，卷积 {milliseconds[1]} 毫秒，注意力 "
        "{milliseconds[2]} 毫秒。",
    )
    yield numbers.criterion(
        numbers.kept_growth > 3,
        "Attention's memory must grow with the square of the length: twice the length takes {kept_growth} times the "
        "memory where the weights are kept.",
        "注意力的内存应随长度的平方增长：保留权重时，长度加倍内存为 {kept_growth} 倍。",
    )
    yield numbers.criterion(
        numbers.fused_growth > 3,
        "That must be the price in any case: it is {fused_growth} times where the weights are made piece by piece and "
        "never kept, so the price is one of the method, not of attention.",
        "这应是任何情况下都要付的代价：若权重逐块计算、从不保留，则为 {fused_growth} 倍。可见这是算法的代价，而不是注"
        "意力本身的。",
    )


def draw(recalled: Tensor, times: Tensor) -> Figure:
    """Recall against distance, time against length."""
    figure = pictures.figure()
    left, right = figure.subplots(1, 2)
    for row, (name, colour) in enumerate(
        zip(MIXERS, (pictures.TRUTH, pictures.POOLED, pictures.ATTENTION), strict=True)
    ):
        left.plot(DISTANCES, recalled[row].mean(0), "o-", color=colour, markersize=4, label=name)
        left.fill_between(
            DISTANCES, recalled[row].amin(0), recalled[row].amax(0), color=colour, alpha=0.15, linewidth=0
        )
        right.plot(LENGTHS, times[:, row], "o-", color=colour, markersize=4)
    left.axhline(1 / SYMBOLS, color=pictures.SAMPLES, linestyle=":", linewidth=1.2, label="guessing")
    for axes, values in ((left, DISTANCES), (right, LENGTHS)):
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, map(str, values))
        axes.set_ylim(0, None)
    left.set(xlabel="distance of what is asked for", title="share recalled")
    right.set(xlabel="words in the sequence", title="milliseconds to read it")
    pictures.legend(figure)
    return figure


SECTION = Section(
    number=26,
    notes=("004",),
    title=Text("Three ways of reading a sequence", "处理序列的三种方式"),
    claim=Text(
        "Recurrent networks are good at long sequences but cannot be parallel; 1-D convolution is highly parallel but "
        "not good at long sequences; self-attention combines the advantages of both, but takes much memory.",
        "递归神经网络擅长处理长序列，但是无法并行；一维卷积高度并行，但是不擅长处理长序列；自注意力集上两种方法的优"
        "点，但是会占用大量的内存。",
    ),
    idea=Text(
        "The same small language model three times, with another way for its vectors to hear of each other. The task: "
        "the first word has to be named after 1 to 63 others. A convolution sees as far as its layers reach; a "
        "recurrent network carries the word along, step after step; attention looks it up. The memory of attention is "
        "that of its n² weights, if they are kept; summed up piece by piece they need not be.",
        "同一个小语言模型做三次，只换向量互通消息的方式。任务是在 1 到 63 个其他词之后说出第一个词。卷积只看得到各层所"
        "及之处；循环网络一步一步把这个词带着走；注意力则直接去查。注意力的内存是 n² 个权重所占的，前提是把它们存下"
        "来；若逐块累加，则不必。",
    ),
    formula=Text(
        "steps in a row: n, 1, 1     reach: all, layers · width, all     weights: 0, 0, n²",
        "先后步数：n, 1, 1     所及：全部，层数 · 宽度，全部     权重：0, 0, n²",
    ),
    caption=Text(
        "Left, the share of words recalled against their distance: convolution drops to guessing beyond its reach. "
        "Right, the time to read a sequence against its length.",
        "左图：回忆正确的比例随距离的变化，卷积超出其范围后降到猜测的水平。右图：读完一个序列的用时随长度的变化。",
    ),
    meanings={
        "far": Text("recalled at the largest distance, self-attention", "最大距离处的回忆正确率，自注意力"),
        "distances": Text("distances of the recall task", "回忆任务的距离"),
        "recurrent": Text("recalled, recurrent, mean of the seeds", "回忆正确率，循环网络，种子均值"),
        "convolution": Text("recalled, convolution, mean of the seeds", "回忆正确率，卷积，种子均值"),
        "attention": Text("recalled, self-attention, mean of the seeds", "回忆正确率，自注意力，种子均值"),
        "spread": Text(
            "spread over the seeds at the largest distance, in this order", "最大距离处种子间的标准差，顺序同上"
        ),
        "parameters": Text("parameters, in this order", "参数量，顺序同上"),
        "lengths": Text("lengths that are timed", "计时所用的长度"),
        "milliseconds": Text("milliseconds at the largest length, in this order", "最大长度下的毫秒数，顺序同上"),
        "kept_growth": Text(
            "memory when the length doubles, attention that keeps its weights", "长度加倍时的内存倍数，保留权重的注意力"
        ),
        "fused_growth": Text(
            "memory when the length doubles, attention that does not", "长度加倍时的内存倍数，不保留权重的注意力"
        ),
    },
    deciding="far",
    run=run,
    full=partial(run, range(5), 1_000),
    rehearsal=partial(run, range(2), 3),
    judge=judge,
)
