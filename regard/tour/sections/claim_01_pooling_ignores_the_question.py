"""Claim 1: pooling, convolution and fully connected layers know no query; attention answers it."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn

import regard
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Bars, Chart, Heat, Line, Panel

PLAIN = """
# Newspaper, paper, red cup, notebook, book: a key says what a thing is good for, drinking, reading or writing.
keys = torch.tensor([[0.0, 4, 0], [0, 3, 1], [4, 0, 0], [0, 1, 4], [0, 5, 0]])
brightness = torch.tensor([0.3, 0.4, 0.9, 0.5, 0.2])
values = torch.diag(brightness)  # (5 things, 5 channels): what the eye gets, each thing in a channel of its own
queries = torch.eye(3)  # something to drink? to read? to write on?

convolution, fully_connected = nn.Conv1d(5, 5, 3, padding=1), nn.Linear(25, 5)
layers = {
    "average pooling": lambda query: values.mean(0),
    "max pooling": lambda query: values.max(0).values,
    "convolution": lambda query: convolution(values.T).max(-1).values,
    "fully connected": lambda query: fully_connected(values.flatten()),
    "attention": lambda query: torch.softmax(keys @ query, 0) @ values,
}
with torch.no_grad():
    answers = {name: torch.stack([layer(query) for query in queries]) for name, layer in layers.items()}  # (3, 5) each
chosen = {name: answer.argmax(-1).tolist() for name, answer in answers.items()}  # the thing that is strongest in it
"""

SHORT = """
import regard

torch.testing.assert_close(regard.attend(queries, keys, values, score=regard.Dot(scale=1.0)), answers["attention"])
torch.testing.assert_close(regard.average_pool(values).expand(3, 5), answers["average pooling"])
torch.testing.assert_close(regard.max_pool(values).expand(3, 5), answers["max pooling"])
"""

THINGS = (
    Text("newspaper", "报纸"),
    Text("paper", "论文"),
    Text("red cup", "红杯子"),
    Text("notebook", "笔记本"),
    Text("book", "书"),
)
QUESTIONS = (Text("to drink?", "想喝？"), Text("to read?", "想读？"), Text("to write on?", "想写？"))
NAMES = {
    "average pooling": Text("average pooling", "平均汇聚"),
    "max pooling": Text("max pooling", "最大汇聚"),
    "convolution": Text("convolution", "卷积"),
    "fully connected": Text("fully connected", "全连接"),
    "attention": Text("attention", "注意力"),
}
SEEDS, ITEMS, SIZE = 5, 5, 16


def make_layers(seed: int) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """From queries (tasks, 1, size), keys (tasks, items, size), values (tasks, items, items) to (tasks, items)."""
    torch.manual_seed(seed)
    convolution, dense = nn.Conv1d(ITEMS, ITEMS, 3, padding=1), nn.Linear(ITEMS * ITEMS, ITEMS)
    return {
        "average pooling": lambda q, k, v: regard.average_pool(v)[:, 0],
        "max pooling": lambda q, k, v: regard.max_pool(v)[:, 0],
        "convolution": lambda q, k, v: convolution(v.transpose(1, 2)).amax(-1),
        "fully connected": lambda q, k, v: dense(v.flatten(1)),
        "attention": lambda q, k, v: regard.attend(q, k, v, score=regard.Dot(scale=1.0))[:, 0],
    }


@torch.no_grad()
def measure(noise: float = 0.3, tasks: int = 500) -> Measured:
    """Ask for each of five things in turn; the query is the asked one's key with noise, brightness is random."""
    right, bright, moved = torch.zeros(3, SEEDS, len(NAMES))
    for seed in range(SEEDS):
        layers = make_layers(seed)
        keys = torch.randn(tasks, ITEMS, SIZE)
        values = torch.diag_embed(0.2 + 0.8 * torch.rand(tasks, ITEMS))
        queries = keys + noise * torch.randn(keys.shape)
        for column, layer in enumerate(layers.values()):
            answers = torch.stack([layer(queries[:, i : i + 1], keys, values) for i in range(ITEMS)], 1)
            chosen, brightest = (
                answers.argmax(-1),
                values.sum(-1).argmax(-1, keepdim=True),
            )  # (tasks, asked), (tasks, 1)
            right[seed, column] = (chosen == torch.arange(ITEMS)).float().mean()
            bright[seed, column] = (chosen == brightest).float().mean()
            moved[seed, column] = (answers - answers[:, :1]).abs().max()
    mean, spread = right.mean(0), right.std(0)
    numbers = Numbers(
        moved=moved[:, :-1].max(),
        attention_moved=moved[:, -1].min(),
        right=mean[-1],
        spread=spread[-1],
        without=mean[:-1],
        brightest=bright.mean(0),
        chance=1 / ITEMS,
        tasks=SEEDS * tasks * ITEMS,
    )
    bars = Bars(list(NAMES.values()), mean, spread=spread, colour="attention")
    blind = Line([-0.5, 4.5], [1 / ITEMS] * 2, Text("guessing", "猜测"), "ink", style="dashed")
    caption = Text(
        f"How often the strongest of {ITEMS} things in the answer is the one asked for; spread over {SEEDS} seeds.",
        f"结果中最强的恰是所问之物的比例（共 {ITEMS} 样东西）；误差线为 {SEEDS} 个种子间的波动。",
    )
    return numbers, Chart([Panel([bars, blind], y=Text("share", "比例"), y_limits=(0, 1.05))], caption)


def judge(numbers: Numbers) -> Criteria:
    """The four have no query; attention has to give what is asked for."""
    yield numbers.identity(
        numbers.moved == 0,
        "A layer without a query must answer every query with the same numbers: those of the four move by {moved}.",
        "没有查询的层对每个查询都应给出同样的数：四种层的结果变化为 {moved}。",
    )
    yield numbers.identity(
        numbers.brightest[1] == 1,
        "Max pooling must take the brightest thing every time: it does in {brightest[1]:.1%}. In the answers of the "
        "others it is the strongest in {brightest[0]:.1%} (average pooling), {brightest[2]:.1%} and "
        "{brightest[3]:.1%} (convolution and fully connected, with random weights) and {brightest[4]:.1%} (attention).",
        "最大汇聚每次都应取出最亮的东西：实际为 {brightest[1]:.1%}。在其余层的结果中，最亮之物最强的比例为 "
        "{brightest[0]:.1%}（平均汇聚）、{brightest[2]:.1%} 和 {brightest[3]:.1%}（随机权重的卷积和全连接）以及 "
        "{brightest[4]:.1%}（注意力）。",
    )
    yield numbers.criterion(
        numbers.right - numbers.spread >= 0.9,
        "Attention must choose the thing that is asked for in 9 of 10 random tasks, beyond the spread: over {tasks} "
        "questions it does in {right:.1%} ± {spread:.1%}; guessing gives {chance:.1%}.",
        "注意力应在十分之九以上的随机任务中选中所问之物，且超出波动：{tasks} 个问题中为 {right:.1%} ± {spread:.1%}；猜"
        "测为 {chance:.1%}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """What each layer answers to the three questions."""
    panels = [
        Panel([Heat(cell.answers[name].clamp(min=0), QUESTIONS, THINGS)], title=NAMES[name]) for name in cell.layers
    ]
    caption = Text(
        "What each layer returns for three questions about the same five things: the darker, the stronger is the "
        "thing in the answer.",
        "对同样五样东西提出三个问题时各层的输出：颜色越深，该物在结果中越强。",
    )
    return Chart(panels, caption, columns=3)


SECTION = Section(
    number=1,
    notes=(
        Passage("000", 5, 6),
        Passage("000", 14, 14),
        Passage("000", 24, 27),
        Passage("002", 94, 101),
        Passage("003", 7, 9),
    ),
    title=Text("Pooling ignores what is asked", "汇聚不理会查询"),
    claim=Text(
        "Convolution and pooling layers often take out what is brightest, for instance the largest value, and fully "
        "connected layers too use involuntary "
        "cues "
        "only: nobody has to want anything. Attention looks for the voluntary cue, the query, and so selects some of "
        "the inputs on purpose.",
        "卷积层、汇聚层往往取出最亮的东西，例如最大的值，全连接层也只用到不随意线索，不需要任何意图。注意力机制寻找随"
        "意线索，即查"
        "询，从"
        "而有偏向地选择某些输入。",
    ),
    idea=Text(
        "Five things lie on a table: each has a value, how it looks, and a key, what it is good for. The first four "
        "layers are functions of the values alone, so there is no place where a question could enter. Attention "
        "compares the question with the keys and only then reads the values.",
        "桌上有五样东西：每样都有值（看起来怎样）和键（能用来做什么）。前四种层只是值的函数，问题无处可入。注意力先拿"
        "查询与键比较，然后才去读值。",
    ),
    formula=r"\max_i v_i, \quad \frac1n \sum_i v_i, \quad \sum_i W_i v_i \qquad\qquad "
    r"\sum_i \mathrm{softmax}_i(q \cdot k_i)\, v_i",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    exercises=(
        Exercise(
            (
                "brightness = torch.tensor([0.3, 0.4, 0.9, 0.5, 0.2])",
                "brightness = torch.tensor([0.3, 0.4, 0.1, 0.5, 0.9])",
            ),
            Text(
                "The book (4) shines instead of the cup (2): what does max pooling choose, and attention?",
                "换成书（4）最亮，而不是杯子（2）：最大汇聚选什么，注意力选什么？",
            ),
            Text(
                "Max pooling {now.chosen[max pooling]}, before {was.chosen[max pooling]}; attention "
                "{now.chosen[attention]}, before {was.chosen[attention]}.",
                "最大汇聚选 {now.chosen[max pooling]}，原来选 {was.chosen[max pooling]}；注意力选 "
                "{now.chosen[attention]}，原来选 {was.chosen[attention]}。",
            ),
        ),
        Exercise(
            ("queries = torch.eye(3)", "queries = torch.zeros(3, 3)"),
            Text("Ask for nothing: what is left of attention?", "什么也不问：注意力还剩下什么？"),
            Text(
                "It answers {now.answers[attention][0][2]:.3f} for the cup, average pooling "
                "{now.answers[average pooling][0][2]:.3f}.",
                "它对杯子的回答为 {now.answers[attention][0][2]:.3f}，平均汇聚为 "
                "{now.answers[average pooling][0][2]:.3f}。",
            ),
        ),
    ),
    meanings={
        "moved": Text(
            "largest change of the four layers' answers from query to query", "换查询后四种层的结果的最大变化"
        ),
        "attention_moved": Text("the same for attention, least of the seeds", "注意力的同一变化，种子中最小者"),
        "right": Text("share of questions in which attention chooses the asked-for thing", "注意力选中所问之物的比例"),
        "spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "without": Text(
            "the same share: average pooling, max pooling, convolution, fully connected",
            "同一比例：平均汇聚、最大汇聚、卷积、全连接",
        ),
        "brightest": Text(
            "share of the answers in which the brightest thing is the strongest: the same four, and attention",
            "最亮之物在结果中最强的比例：同样四种层，以及注意力",
        ),
        "chance": Text("the same share by guessing", "猜测时的同一比例"),
        "tasks": Text("questions asked", "提问次数"),
    },
    deciding="right",
    run=measure,
    judge=judge,
)
