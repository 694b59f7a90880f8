"""Claim 16: where sizes agree, dot scoring is cheaper than additive scoring."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.measure import median_seconds, peak_memory
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

NAMES = ("dot", "additive", "additive,\nas in textbooks")


def textbook(query: Tensor, key: Tensor, value: Tensor, score: regard.Additive) -> Tensor:
    """Additive attention as textbooks write it, with a tensor (batch, n, m, hidden)."""
    query, key = query @ score.query_weight.T, key @ score.key_weight.T
    hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
    return regard.masked_softmax(hidden @ score.value_weight) @ value


@torch.no_grad()
def run() -> Measured:
    """The same queries, keys and values, three ways: time and memory."""
    query, key, value = (torch.randn(2, 512, 64) for _ in range(3))
    additive = regard.Additive(64, 64, 64)
    ways = (
        lambda: regard.attend(query, key, value, score=regard.Dot()),
        lambda: regard.attend(query, key, value, score=additive),
        lambda: textbook(query, key, value, additive),
    )
    times = median_seconds(*ways)
    numbers = Numbers(
        additive_time=times[1] / times[0],
        textbook_time=times[2] / times[0],
        milliseconds=tuple(1e3 * time for time in times),
        megabytes=tuple(peak_memory(way) for way in ways),
    )
    return numbers, partial(draw, numbers)


def judge(numbers: Numbers) -> Criteria:
    """Dot has to be faster than either form of additive attention."""
    yield numbers.criterion(
        numbers.additive_time > 1,
        "Additive attention must take longer than dot attention: it takes {additive_time} times as long.",
        "加性注意力的用时应比点积长：实际为 {additive_time} 倍。",
    )
    yield numbers.criterion(
        numbers.textbook_time > 1,
        "So must the textbook's formula: it takes {textbook_time} times as long.",
        "教科书式的加性公式也应如此：实际为 {textbook_time} 倍。",
    )


def draw(numbers: Numbers) -> Figure:
    """Bars of time and of memory."""
    figure = pictures.figure(2.4)
    left, right = figure.subplots(1, 2)
    colours = (pictures.OTHER, pictures.ATTENTION, pictures.POOLED)
    for axes, title in ((left, "milliseconds"), (right, "megabytes")):
        measured = getattr(numbers, title)
        axes.barh(range(3), measured, color=colours, height=0.6)
        axes.set_yticks(range(3), NAMES if axes is left else [""] * 3)
        axes.set_xlim(0, 1.25 * max(*measured, 1e-9))
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set_title(title)
        for row, number in enumerate(measured):
            axes.text(number, row, f" {number:.3g}", va="center", fontsize=8.5)
    return figure


SECTION = Section(
    number=16,
    notes=("003",),
    title=Text("Dot scoring is cheaper than additive", "点积评分比加性评分省"),
    claim=Text(
        "Where queries and keys have the same size, the dot product is the more efficient score.",
        "当查询和键的长度相同时，用点积作评分函数计算效率更高。",
    ),
    idea=Text(
        "All dot products together are one matrix product, the thing that computers do best. Additive scores need a "
        "tanh for every query, every key and every hidden unit; the textbook's formula even keeps them all, which is a "
        "tensor of n · m · hidden numbers. Here the additive score goes through an engine that keeps none of them and "
        "replaces each tanh by a reciprocal, so both comparisons are shown.",
        "所有点积合起来就是一次矩阵乘法，正是计算机最擅长的。加性评分则要对每个查询、每个键、每个隐藏单元各算一次 "
        "tanh；教科书式的公式还要把它们全部存下来，即 n·m·hidden 个数。这里的加性评分由专门的引擎计算，一个也不存，并"
        "用一次倒数代替tanh，所以两种比较都列出。",
    ),
    formula=Text(
        "q·k / √d     against     w_vᵀ tanh(W_q q + W_k k)",
        "q·k / √d     与     w_vᵀ tanh(W_q q + W_k k)",
    ),
    caption=Text(
        "Time and memory of attention over 2 × 512 queries and keys of 64 numbers: dot, additive, and additive as in "
        "textbooks, which takes far more of both.",
        "对 2 × 512 个长度为 64 的查询和键做注意力的用时和内存：点积、加性、教科书式加性，后者两样都多得多。",
    ),
    meanings={
        "additive_time": Text("time of additive ÷ time of dot", "加性评分的用时与点积之比"),
        "textbook_time": Text(
            "time of the textbook's additive formula ÷ time of dot", "教科书式加性公式的用时与点积之比"
        ),
        "milliseconds": Text("milliseconds: dot, additive, textbook", "毫秒：点积、加性、教科书式加性"),
        "megabytes": Text(
            "megabytes of memory at work: dot, additive, textbook", "运行所占内存（MB）：点积、加性、教科书式加性"
        ),
    },
    deciding="additive_time",
    run=run,
    judge=judge,
)
