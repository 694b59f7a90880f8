"""Claim 1: max and average pooling ignore what is asked; attention does not."""

from collections.abc import Callable
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Ask three questions about the same five things."""
    # What each is good for (drink, read, write), and how bright it is.
    things = ["newspaper", "paper", "red cup", "notebook", "book"]
    key = torch.tensor([[0.0, 4, 0], [0, 3, 1], [4, 0, 0], [0, 1, 4], [0, 5, 0]]).double()
    value = torch.tensor([[0.3], [0.4], [0.9], [0.5], [0.2]]).double()  # (5, 1)
    questions = ["to drink?", "to read?", "to write on?"]
    queries = torch.eye(3).double().split(1)  # (1, 3) each

    flat = regard.Kernel("constant")
    pools: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "average pooling": lambda q, v: regard.attend(q, key, v, score=flat),
        "max pooling": lambda q, v: regard.max_pool(v),
        "attention": lambda q, v: regard.attend(q, key, v),
    }
    changes, shares = {}, {}
    # How much a thing counts: how much the answer rises when the thing gets brighter.
    brighter = value + 0.01 * torch.eye(5)[:, :, None]  # (5 changes, 5, 1)
    for name, pool in pools.items():
        answers = torch.cat([pool(query, value) for query in queries])  # (3, 1)
        changes[name] = float(answers.max() - answers.min())
        raised = torch.stack([pool(query, brighter)[:, 0, 0] for query in queries])
        shares[name] = (raised - answers) / 0.01

    difference = pools["average pooling"](queries[0], value) - regard.average_pool(value)
    numbers = Numbers(
        pooled_moved=max(changes["average pooling"], changes["max pooling"]),
        attention_moved=changes["attention"],
        constant_score=difference.abs().max(),
    )
    return numbers, partial(draw, shares, things, questions)


def judge(numbers: Numbers) -> Criteria:
    """Identical for all queries, next to something that is not."""
    yield numbers.criterion(
        numbers.pooled_moved == 0,
        "Whatever is asked, max and average pooling must give the same answer: it moved by {pooled_moved}.",
        "无论查询是什么，最大池化和平均池化的结果都应相同：变化为 {pooled_moved}。",
    )
    yield numbers.criterion(
        numbers.attention_moved > 0.1,
        "Attention must answer differently, by more than 0.1: it moved by {attention_moved}.",
        "注意力的结果应随查询而变，且变化大于 0.1：变化为 {attention_moved}。",
    )
    yield numbers.criterion(
        numbers.constant_score <= 1e-6,
        "Average pooling must be attention whose score is a constant, to 10⁻⁶: the two differ by {constant_score}.",
        "平均池化应等于评分为常数的注意力，误差不超过 10⁻⁶：两者相差 {constant_score}。",
    )


def draw(shares: dict[str, Tensor], things: list[str], questions: list[str]) -> Figure:
    """Three heat maps: the rows differ for attention only."""
    figure = pictures.figure(height=2.5)
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (name, share) in zip(panels, shares.items(), strict=True):
        pictures.heat(axes, share, digits=2)
        axes.set_title(name)
        axes.set_xticks(range(len(things)), things, rotation=40, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(questions)), questions)
    return figure


SECTION = Section(
    number=1,
    notes=("000",),
    title=Text("Pooling ignores what is asked", "池化不理会查询"),
    claim=Text(
        "Max and average pooling are involuntary cues: they pick out what stands out, or mix everything, without an "
        "aim. Attention adds the voluntary cue, the query.",
        "最大池化和平均池化是不随意线索：要么挑出最显眼的，要么一概混合，没有目的。注意力机制加入了随意线索，即查询。",
    ),
    idea=Text(
        "Five things lie on a table. Each has a value (how bright it is) and a key (what it is good for). We ask "
        "three questions. Max pooling returns the red cup every time because it is the brightest; average pooling "
        "blurs all five; attention compares the question with the keys, and only then reads the values. Average "
        "pooling is itself attention, with a score that is the same for every key.",
        "桌上有五样东西，每样都有值（有多亮）和键（能用来做什么）。我们提三个问题。最大池化每次都返回最亮的红杯子；平"
        "均池化把五样东西糊在一起；注意力先拿查询与键比较，再去读值。其实平均池化也是注意力，只不过每个键的评分都一"
        "样。",
    ),
    formula=Text(
        "max: maxⱼ vⱼ     average: Σⱼ (1/m) vⱼ     attention: Σⱼ softmaxⱼ(q·kⱼ/√d) vⱼ",
        "最大: maxⱼ vⱼ     平均: Σⱼ (1/m) vⱼ     注意力: Σⱼ softmaxⱼ(q·kⱼ/√d) vⱼ",
    ),
    caption=Text(
        "How much each thing counts, for each question. The rows are equal under average pooling (one fifth each) and "
        "under max pooling (always the red cup); under attention each question has a row of its own.",
        "每个问题下各样东西所占的份量。平均池化（各占五分之一）和最大池化（总是红杯子）的各行完全相同；注意力的每一行"
        "各不相同。",
    ),
    meanings={
        "pooled_moved": Text("change of the pooled answers", "换查询后池化结果的变化"),
        "attention_moved": Text("change of attention's answer", "换查询后注意力结果的变化"),
        "constant_score": Text("average pooling − attention with a constant score", "平均池化与常数评分注意力之差"),
    },
    deciding="pooled_moved",
    run=run,
    judge=judge,
)
