"""Claim 26: recurrence is far but serial, convolution parallel but near, attention both, at the price of memory."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import MultiHead, attend
from regard.measure import peak_memory
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Bars, Chart, Line, Panel

PLAIN = """
n = 48
x, W_x, W_h = torch.randn(1, n, 16, requires_grad=True), torch.randn(16, 16) / 4, torch.randn(16, 16) / 4


def recurrent(x, state=torch.zeros(1, 16)):
    for vector in x.unbind(1):  # one after the other
        state = torch.tanh(vector @ W_x + state @ W_h)
    return state[:, None]


def convolution(x):
    return F.avg_pool1d(x.transpose(1, 2), kernel_size=3, stride=1).transpose(1, 2) @ W_x  # three places at a time


def self_attention(x):
    return torch.softmax(x @ x.transpose(1, 2) / math.sqrt(16), -1) @ x  # n² weights


def chain(node):  # the longest chain of operations of which each waits for the one before
    return 1 + max((chain(earlier) for earlier, _ in node.next_functions if earlier), default=0)


ways = (recurrent, convolution, self_attention)
chains = [chain(way(x).grad_fn) for way in ways]
reach = [int(torch.autograd.grad(way(x)[0, -1].sum(), x)[0].any(-1).sum()) for way in ways]  # inputs of the last output
"""

SHORT = """
import regard

torch.testing.assert_close(regard.attend(x, x, x), self_attention(x))
"""

SIZE, SYMBOLS, FILLERS = 32, 8, 8  # symbols 0–7 are to be remembered, 8–15 to be passed over
DISTANCES = (3, 6, 12, 24, 48)
LENGTHS, TOKENS = (4, 16, 64, 256), 256  # so many vectors are read as sequences of each length
LONG = 4_096  # vectors of the sequence whose memory is measured
NAMES = (
    Text("recurrent", "循环网络"),
    Text("convolution", "卷积"),
    Text("self-attention", "自注意力"),
    Text("deeper convolution", "更深的卷积"),
)
COLOURS = ("truth", "pooled", "attention", "other")


class Recurrent(nn.Module):
    """A GRU: rows (batch, n, SIZE) → the same."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.GRU(SIZE, SIZE, batch_first=True)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = self.net(rows)[0]
        return output


class Convolutions(nn.Module):
    """Layers of convolutions of three places, with residuals; each sees places that lie `dilation` apart."""

    def __init__(self, dilations: Sequence[int] = (1, 1)) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Conv1d(SIZE, SIZE, 3, dilation=dilation) for dilation in dilations)
        self.dilations = dilations

    def forward(self, rows: Tensor) -> Tensor:
        columns = rows.transpose(1, 2)
        for net, dilation in zip(self.nets, self.dilations, strict=True):
            columns = columns + functional.relu(net(functional.pad(columns, (2 * dilation, 0))))
        return columns.transpose(1, 2)


class SelfAttention(nn.Module):
    """One layer of attention, with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.net = MultiHead(SIZE, 2)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = rows + self.net(rows)
        return output


DEEP = partial(Convolutions, (1, 2, 4, 8, 16))  # which sees 62 places back
Make = Callable[[], nn.Module]


def questions(distance: int, count: int) -> tuple[Tensor, Tensor]:
    """Sequences (count, distance + 1) that begin with a symbol to be remembered, and that symbol."""
    words = torch.randint(SYMBOLS, SYMBOLS + FILLERS, (count, distance + 1))
    words[:, 0] = torch.randint(SYMBOLS, (count,))
    return words, words[:, 0]


def recalled(make: Make, seed: int, steps: int) -> list[float]:
    """The share of new questions answered right at each distance, after training on all of them in turn."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(SYMBOLS + FILLERS, SIZE), make(), nn.Linear(SIZE, SYMBOLS))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    for step in range(steps):
        words, wanted = questions(DISTANCES[step % len(DISTANCES)], 32)
        optimizer.zero_grad()
        functional.cross_entropy(model(words)[:, -1], wanted).backward()
        optimizer.step()
    shares = []
    with torch.no_grad():
        for distance in DISTANCES:
            words, wanted = questions(distance, 256)
            shares.append(float((model(words)[:, -1].argmax(-1) == wanted).float().mean()))
    return shares


@torch.no_grad()
def reading_times(models: Sequence[nn.Module], rounds: int = 15) -> Tensor:
    """Seconds for as many vectors in sequences of each length, (models, lengths).

    The least of several rounds, of processor time: what else the machine does is not in it.
    """
    times = torch.full((len(models), len(LENGTHS)), math.inf)
    for column, length in enumerate(LENGTHS):
        rows = torch.randn(TOKENS // length, length, SIZE)
        for _ in range(rounds):
            for row, model in enumerate(models):
                start = time.thread_time()
                model(rows)
                times[row, column] = min(float(times[row, column]), time.thread_time() - start)
    return times


def slope(times: Tensor) -> Tensor:
    """By which power of the length the times grow: 1 where they are proportional to it, 0 where they stay."""
    x = torch.tensor(LENGTHS).log()
    x = x - x.mean()
    return (times.log() * x).sum(-1) / x.square().sum()


@torch.no_grad()
def megabytes(attention: Make) -> list[float]:
    """The memory for one long sequence: recurrent, convolution, attention with its weights kept, and not kept."""
    rows = torch.randn(1, LONG, SIZE)
    works: list[Callable[[], object]] = [partial(make(), rows) for make in (Recurrent, Convolutions, attention)]
    works[2] = partial(attend, rows, rows, rows, need_weights=True)
    works.append(partial(attend, rows, rows, rows))
    return [max(peak_memory(work), 4e-6 * rows.numel()) for work in works]  # the output at least


def run(seeds: Sequence[int] = range(3), steps: int = 150, attention: Make = SelfAttention) -> Measured:
    """Teach each to recall, then see what time and memory they take as sequences get longer."""
    kinds = (Recurrent, Convolutions, attention, DEEP)
    shares = torch.tensor(
        [[recalled(make, seed, steps) for seed in seeds] for make in kinds]
    )  # (kinds, seeds, distances)
    times = reading_times([make() for make in kinds])
    memory = megabytes(attention)
    mean = shares.mean(1)
    slopes = slope(times)
    numbers = Numbers(
        far=mean[:, -1],
        spreads=shares[:, :, -1].std(1),
        distances=DISTANCES,
        recurrent=mean[0],
        convolution=mean[1],
        attention=mean[2],
        slopes=slopes[:3],
        lengths=LENGTHS,
        megabytes=memory,
        price=memory[2] / memory[1],
        price_streamed=memory[3] / memory[1],
        guessing=1 / SYMBOLS,
    )
    return numbers, draw_measured(mean, times)


def judge(numbers: Numbers) -> Criteria:
    """The statements of the notes, one by one."""
    yield numbers.criterion(
        numbers.far[2] > 0.9,
        "Self-attention, long sequences: it must recall what lies {distances[-1]} places back, more than 0.9 of the "
        "time: {far[2]}.",
        "自注意力，长序列：应能回忆 {distances[-1]} 个位置之前的内容，正确率超过 0.9：实际为 {far[2]}。",
    )
    yield numbers.criterion(
        numbers.slopes[2] < 1 / 3,
        "Self-attention, parallel: the time for the same number of vectors must hardly grow with the length of their "
        "sequences, by less than its power 1/3: the power is {slopes[2]}.",
        "自注意力，并行：同样多的向量，用时应几乎不随序列长度增长，低于长度的 1/3 次幂：实际为 {slopes[2]} 次幂。",
    )
    yield numbers.criterion(
        numbers.price > 10,
        "Self-attention, memory: on a long sequence it must take much more than convolution, over 10 times: {price} "
        "times with the weights kept.",
        "自注意力，内存：长序列上应远多于卷积，超过 10 倍：保留权重时为 {price} 倍。",
    )
    yield numbers.criterion(
        numbers.far[0] > 0.9,
        "Recurrent, long sequences: it must recall at distance {distances[-1]} too: {far[0]}.",
        "循环网络，长序列：距离 {distances[-1]} 处也应能回忆：正确率为 {far[0]}。",
    )
    yield numbers.criterion(
        numbers.slopes[0] > 1 / 3,
        "Recurrent, not parallel: its time must grow by more than the power 1/3 of the length: {slopes[0]}.",
        "循环网络，无法并行：用时应以长度的 1/3 次幂以上增长：实际为 {slopes[0]} 次幂。",
    )
    yield numbers.criterion(
        numbers.slopes[1] < 1 / 3,
        "Convolution, parallel: its time must hardly grow, by less than the power 1/3: {slopes[1]}.",
        "卷积，并行：用时应几乎不增长，低于长度的 1/3 次幂：实际为 {slopes[1]} 次幂。",
    )
    yield numbers.criterion(
        numbers.far[1] < 2 * numbers.guessing,
        "Convolution, long sequences: two layers, which reach 4 places back, cannot recall at distance "
        "{distances[-1]}: {far[1]}, where "
        "guessing gives {guessing}.",
        "卷积，长序列：两层卷积在距离 {distances[-1]} 处应无法回忆：正确率为 {far[1]}，猜测为 {guessing}。",
    )
    yield numbers.correction(
        numbers.far[3] > 0.9,
        "If convolution is not good at long sequences only where its layers do not reach, five layers that reach 62 "
        "places back must recall at distance {distances[-1]}: {far[3]}.",
        "如果卷积不善于处理长序列只是因为各层够不到那么远，那么可达 62 个位置的五层卷积在距离 {distances[-1]} 处应能回"
        "忆：正确率为 {far[3]}。",
    )
    yield numbers.correction(
        numbers.price_streamed < 10,
        "If the memory is that of weights which are kept, attention that never keeps them must do without: it takes "
        "{price_streamed} times convolution's.",
        "如果内存只是保留权重所占，那么从不保留权重的注意力应不需要它：其内存为卷积的 {price_streamed} 倍。",
    )


def draw_measured(shares: Tensor, times: Tensor) -> Chart:
    """Recall by distance, time by length."""
    recall, reading = [], []
    for name, colour, share, seconds in zip(NAMES, COLOURS, shares, times, strict=True):
        recall.append(Line(DISTANCES, share, name, colour, dots=True))
        reading.append(Line(LENGTHS, 1e3 * seconds, name, colour, dots=True))
    return Chart(
        [
            Panel(recall, x=Text("distance", "距离"), y=Text("share recalled", "回忆正确率"), y_limits=(0, 1.05)),
            Panel(
                reading,
                x=Text("length", "长度"),
                y=Text("ms for 256 vectors", "256 个向量的毫秒数"),
                x_log=True,
                y_log=True,
            ),
        ],
        caption=Text(
            "Left, the share of symbols recalled, by their distance. Right, the time for 256 vectors, as sequences of "
            "growing length.",
            "左图：回忆正确的比例随距离的变化。右图：256 个向量的用时，随其序列长度的变化。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The chains of operations, and the inputs that are reached."""
    titles = (
        Text("operations that wait for one another", "依次等待的运算"),
        Text("inputs that the last output depends on", "影响最后输出的输入数"),
    )
    return Chart(
        [
            Panel([Bars(NAMES[:3], heights, colour="attention")], title=title)
            for heights, title in zip((cell.chains, cell.reach), titles, strict=True)
        ],
        caption=Text(
            f"For a sequence of {cell.n} vectors: the longest chain of operations of which each needs the result of "
            "the one before, and the number of inputs with a gradient from the last output.",
            f"对 {cell.n} 个向量的序列：最长的运算链，其中每一步都要等前一步的结果；以及对最后输出有梯度的输入数。",
        ),
        height=220,
    )


SECTION = Section(
    number=26,
    notes=(Passage("004", 95, 99),),
    title=Text("Three ways of reading a sequence", "处理序列的三种方式"),
    claim=Text(
        "Recurrent networks are good at long sequences but cannot work in parallel; one-dimensional convolution is "
        "highly parallel but not good at long sequences; self-attention has the advantages of both, but takes a lot "
        "of memory.",
        "循环神经网络善于处理长序列，却不能并行；一维卷积高度并行，却不善于处理长序列；自注意力兼有两者的长处，但要占"
        "用大量内存。",
    ),
    idea=Text(
        "A recurrent network carries what it has read along, step after step; a convolution sees as far as its layers "
        "reach; attention looks everywhere at once, with n² weights. What cannot be parallel shows in the time: the "
        "same number of vectors takes longer where they are one long sequence than where they are many short ones. "
        "What is good at long sequences shows in a task: the first symbol has to be named after 3 to 48 others.",
        "循环网络把读过的内容一步一步带着走；卷积只看得到各层所及之处；注意力用 n² 个权重一次看遍各处。不能并行表现在"
        "用时上：同样多的向量，排成一个长序列比分成许多短序列更慢。善于处理长序列则表现在任务上：要在 3 到 48 个其他符"
        "号之后说出第一个符号。",
    ),
    formula=r"h_t = \tanh(x_t W_x + h_{t-1} W_h), \qquad y_t = \sum_{k=0}^{2} x_{t-k} W_k, \qquad "
    r"y_t = \sum_{j=1}^{n} a_{tj}\, x_j",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    exercises=(
        Exercise(
            ("n = 48", "n = 96"),
            Text(
                "Twice the length: how long are the chains of operations that wait for one another?",
                "长度加倍：依次等待的运算链有多长？",
            ),
            Text(
                "{now.chains} for recurrence, convolution and self-attention; before {was.chains}. Inputs that reach "
                "the last output: {now.reach}, before {was.reach}.",
                "循环、卷积、自注意力依次为 {now.chains}，原来为 {was.chains}。影响最后输出的输入数：{now.reach}，原来"
                "为 {was.reach}。",
            ),
        ),
        Exercise(
            (
                "return F.avg_pool1d(x.transpose(1, 2), kernel_size=3, stride=1).transpose(1, 2) @ W_x",
                "return F.avg_pool1d(x.transpose(1, 2), kernel_size=9, stride=1).transpose(1, 2) @ W_x",
            ),
            Text(
                "Nine places at a time: how far does the convolution reach, and how long is its chain?",
                "一次九个位置：卷积能看到多少个输入？运算链有多长？",
            ),
            Text(
                "It reaches {now.reach[1]} inputs by a chain of {now.chains[1]}; before {was.reach[1]} by one of "
                "{was.chains[1]}.",
                "看到 {now.reach[1]} 个输入，运算链长 {now.chains[1]}；原来为 {was.reach[1]} 个，链长 "
                "{was.chains[1]}。",
            ),
        ),
    ),
    meanings={
        "far": Text(
            "recalled at the largest distance: recurrent, convolution, self-attention, deeper convolution",
            "最大距离处的回忆正确率：循环、卷积、自注意力、更深的卷积",
        ),
        "spreads": Text("their standard deviations over the seeds", "其在种子间的标准差"),
        "distances": Text("distances", "距离"),
        "recurrent": Text("recalled by distance, recurrent", "各距离的回忆正确率，循环网络"),
        "convolution": Text("the same, convolution", "同上，卷积"),
        "attention": Text("the same, self-attention", "同上，自注意力"),
        "slopes": Text(
            "power of the length by which the time for 256 vectors grows: recurrent, convolution, self-attention",
            "256 个向量的用时以长度的几次幂增长：循环、卷积、自注意力",
        ),
        "lengths": Text("lengths that were timed", "计时所用的长度"),
        "megabytes": Text(
            f"megabytes for {LONG} vectors: recurrent, convolution, attention with its weights kept, and not kept",
            f"{LONG} 个向量所需的内存（MB）：循环、卷积、保留权重的注意力、不保留的注意力",
        ),
        "price": Text("memory of attention over that of convolution, weights kept", "注意力与卷积的内存之比，保留权重"),
        "price_streamed": Text("the same, weights not kept", "同上，不保留权重"),
        "guessing": Text("what guessing recalls", "猜测的正确率"),
    },
    deciding="far",
    run=run,
    full=partial(run, range(5), 600),
    rehearsal=partial(run, range(2), 5),
    judge=judge,
)
