"""Claim 16: where sizes agree, dot scoring is computationally cheaper than additive scoring."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

import regard
from regard.measure import Work, median_seconds, peak_memory
from regard.tour.section import Choice, Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Bars, Chart, Panel

REPEATS = 3

PLAIN = """
import time

n = 128
hidden = 64
queries, keys, values = torch.randn(3, 1, n, 64)  # (1, n, 64) each
additive = AdditiveAttention(64, 64, hidden)


def milliseconds(work):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


with torch.no_grad():
    dot_output, dot_weights = dot_product_attention(queries, keys, values)  # softmax(q·k / √d)
    output, weights = additive(queries, keys, values, torch.tensor([n]))  # softmax(w · tanh(W q + W' k))
    dot_time = milliseconds(lambda: dot_product_attention(queries, keys, values))
    additive_time = milliseconds(lambda: additive(queries, keys, values, torch.tensor([n])))
ratio = additive_time / dot_time
"""

SHORT = """
import regard

score = regard.Additive(64, 64, hidden)
score.query_weight.data, score.key_weight.data = additive.W_q.weight.data, additive.W_k.weight.data
score.value_weight.data = additive.w_v.weight.data[0]
torch.testing.assert_close(regard.attend(queries, keys, values), dot_output)
torch.testing.assert_close(regard.attend(queries, keys, values, score=score).detach(), output)
"""


def textbook(query: Tensor, key: Tensor, value: Tensor, score: regard.Additive) -> Tensor:
    """Additive attention as textbooks write it, with a tensor (batch, n, m, hidden)."""
    query, key = query @ score.query_weight.T, key @ score.key_weight.T
    hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
    return torch.softmax(hidden @ score.value_weight, -1) @ value


def projected(query: Tensor, key: Tensor, value: Tensor, score: regard.Additive) -> Tensor:
    """Dot attention after the same two matrices."""
    return regard.attend(query @ score.query_weight.T, key @ score.key_weight.T, value)


def ways(n: int, size: int, hidden: int) -> dict[str, Work]:
    """Ways to attend with the same queries, keys and values."""
    query, key, value = torch.randn(3, 1, n, size)
    additive = regard.Additive(size, size, hidden)
    return {
        "dot": partial(regard.attend, query, key, value),
        "additive": partial(regard.attend, query, key, value, score=additive),
        "textbook": partial(textbook, query, key, value, additive),
        "projected": partial(projected, query, key, value, additive),
    }


@torch.no_grad()
def measure(n: int = 384, size: int = 64, hidden: int = 64) -> Measured:
    """Time and memory of each."""
    works = ways(n, size, hidden)
    times = torch.tensor([median_seconds(*works.values(), rounds=5) for _ in range(REPEATS)])  # (repeats, ways)
    ratios = times / times[:, :1]
    numbers = Numbers(
        additive_time=ratios[:, 1].mean(),
        additive_least=ratios[:, 1].min(),
        textbook_time=ratios[:, 2].mean(),
        textbook_least=ratios[:, 2].min(),
        projected_time=ratios[:, 3].mean(),
        milliseconds=1e3 * times.median(0).values,
        megabytes=[peak_memory(work) for work in works.values()],
        repeats=REPEATS,
    )
    return numbers, draw_costs(numbers)


def run() -> Measured:
    """384 queries and keys of 64 numbers, 64 hidden units."""
    return measure()


def judge(numbers: Numbers) -> Criteria:
    """Dot has to be faster than either way to compute additive attention, every time."""
    yield numbers.criterion(
        numbers.additive_least > 1,
        "With regard, additive attention must take longer than dot attention in each of {repeats} measurements: "
        "{additive_time} times as long on average, {additive_least} times at least.",
        "用 regard 计算时，{repeats} 次测量中加性注意力每次都应比点积慢：平均为 {additive_time} 倍，最少 "
        "{additive_least} 倍。",
    )
    yield numbers.criterion(
        numbers.textbook_least > 1,
        "So must additive attention as textbooks write it: {textbook_time} times on average, {textbook_least} at "
        "least.",
        "教科书式的加性注意力也应如此：平均为 {textbook_time} 倍，最少 {textbook_least} 倍。",
    )


NAMES = (
    Text("dot", "点积"),
    Text("additive", "加性"),
    Text("textbook", "教科书"),
    Text("dot, 2 matrices", "点积加矩阵"),
)


def draw_costs(numbers: Numbers) -> Chart:
    """Bars of time and of memory."""
    panels = [
        Panel([Bars(NAMES, numbers.milliseconds, colour="attention")], title=Text("milliseconds", "毫秒"), y_log=True),
        Panel([Bars(NAMES, numbers.megabytes, colour="truth")], title=Text("megabytes", "内存（MB）"), y_log=True),
    ]
    return Chart(
        panels,
        height=230,
        caption=Text(
            "Time and memory of attention over 384 queries and keys of 64 numbers: dot and additive scores with "
            "regard, additive scores as textbooks write them, and dot scores after the two matrices that additive "
            "ones have.",
            "384 个长度为 64 的查询和键做注意力的用时和内存：regard 的点积与加性评分、教科书式的加性评分、以及先乘以与"
            "加性相同的两个矩阵再作点积。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The two times of the cell."""
    bars = Bars(NAMES[:2], [cell.dot_time, cell.additive_time], colour="attention")
    return Chart(
        [Panel([bars], y=Text("milliseconds", "毫秒"))],
        height=200,
        caption=Text(
            "The best of five times of the cell's two functions, as they are written there.",
            "代码中两个函数五次计时中最短的时间。",
        ),
    )


SECTION = Section(
    number=16,
    notes=(Passage("003", 83, 83), Passage("003", 93, 93)),
    title=Text("Dot scoring is cheaper than additive", "点积评分比加性评分计算效率高"),
    claim=Text(
        "Where queries and keys have the same length, the scaled dot product is the score that is computed more "
        "efficiently.",
        "当查询和键的长度相同时，缩放点积是计算效率更高的评分函数。",
    ),
    idea=Text(
        "All dot products together are one matrix product, which takes n · m · d multiplications. Additive scores "
        "take a tanh for every query, every key and every hidden unit, and the textbook's way keeps all of them, a "
        "tensor of n · m · hidden numbers. regard's way keeps none of them, so that both comparisons are made.",
        "所有点积合起来就是一次矩阵乘法，共 n·m·d 次乘法。加性评分要对每个查询、每个键、每个隐藏单元各算一次 tanh；教"
        "科书式的写法还要把它们全部存下来，即 n·m·hidden 个数。regard 的算法一个也不存，所以两种比较都做。",
    ),
    formula=r"\frac{q^\top k}{\sqrt d} \qquad \mathrm{vs.} \qquad w_v^\top \tanh(W_q q + W_k k)",
    plain=PLAIN,
    short=SHORT,
    uses=(13, 14),
    show=draw,
    controls=(
        Control("n = 128", Text("queries and keys", "查询与键的个数"), Choice((16, 64, 128, 256))),
        Control("hidden = 64", Text("hidden units", "隐藏单元"), Choice((1, 8, 64))),
    ),
    exercises=(
        Exercise(
            ("hidden = 64", "hidden = 1"),
            Text("With a single hidden unit, is additive as cheap as dot?", "只有一个隐藏单元时，加性和点积一样快吗？"),
            Text(
                "It takes {now.ratio:.1f} times as long; with 64 units {was.ratio:.1f} times.",
                "用时为 {now.ratio:.1f} 倍；64 个单元时为 {was.ratio:.1f} 倍。",
            ),
        ),
        Exercise(
            ("n = 128", "n = 16"),
            Text("With 16 queries and keys, does it matter?", "只有 16 个查询和键时，有区别吗？"),
            Text(
                "{now.additive_time:.3f} ms against {now.dot_time:.3f} ms; with 128, {was.additive_time:.2f} against "
                "{was.dot_time:.2f}.",
                "{now.additive_time:.3f} 毫秒对 {now.dot_time:.3f} 毫秒；128 个时为 {was.additive_time:.2f} 对 "
                "{was.dot_time:.2f}。",
            ),
        ),
    ),
    meanings={
        "additive_time": Text("time of additive ÷ time of dot, with regard", "regard 中加性与点积的用时之比"),
        "additive_least": Text("the least of the measurements", "各次测量中最小的"),
        "textbook_time": Text("time of the textbook's additive way ÷ time of dot", "教科书式加性与点积的用时之比"),
        "textbook_least": Text("the least of the measurements", "各次测量中最小的"),
        "projected_time": Text(
            "for comparison: dot after the two matrices ÷ dot", "对照：先乘两个矩阵的点积与点积的用时之比"
        ),
        "milliseconds": Text(
            "milliseconds: dot, additive, textbook, dot after two matrices",
            "毫秒：点积、加性、教科书、先乘两个矩阵的点积",
        ),
        "megabytes": Text("megabytes of memory at work, likewise", "运行所占内存（MB），同上"),
        "repeats": Text("measurements", "测量次数"),
    },
    deciding="additive_time",
    run=run,
    rehearsal=partial(measure, n=64),
    judge=judge,
)
