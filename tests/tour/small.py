"""Sections that take no time, as functions that other processes can import."""

import os
import signal
import time
from pathlib import Path

from regard.tour.section import Choice, Control, Exercise, Need, Numbers, Passage, Section, Slider, Text, Words
from regard.view.chart import Bars, Chart, Panel


def measured(size):
    return Numbers(size=size, parts=(2, 3)), chart(size)


def chart(size):
    bars = Bars(["a & b", Text("two", "二")], [size, 2.0], Text("Bars <&>", "条"))
    return Chart([Panel([bars])], caption=Text("Bars of a size <&>.", "条形。"))


def draw(cell):
    return chart(cell.width + cell.count)


def half():
    return measured(0.5)


def below():
    return measured(-0.5)


def tiny():
    return measured(1e-9)


def unknown():
    return measured(float("nan"))


def misnamed():
    return Numbers(width=1.0), None


def fail():
    raise ValueError("two\nlines & <more>")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def sleep():
    """Write down which process this is, and stay."""
    Path(os.environ["SLEEPER"]).write_text(str(os.getpid()))
    time.sleep(120)


def interrupt():
    raise KeyboardInterrupt


def make(path):
    """Something that is needed: writes down that it was made."""
    with Path(path).open("a") as file:
        file.write("made\n")


def judge(numbers):
    yield numbers.criterion(numbers.size > 0, Text("{size} must be > 0 & <small>.", "{size} 应大于 0。"))


PLAIN = """
width = 1.0  # a < b
count = 3
kind = "round"
sentence = "the cat"
total = torch.ones(count).sum() * width
"""
SHORT = """
import regard

torch.testing.assert_close(regard.average_pool(torch.ones(count, 1)), torch.ones(1, 1))
"""
CONTROLS = (
    Control("width = 1.0", Text("width", "宽度"), Slider(0.1, 10.0, log=True)),
    Control("count = 3", Text("count", "个数"), Slider(1, 9, 1, whole=True)),
    Control('kind = "round"', Text("kind", "种类"), Choice(("round", "square"))),
    Control('sentence = "the cat"', Text("sentence", "句子"), Words(20)),
)


def section(number, run=half, needs=(), **more):
    texts = dict.fromkeys(("title", "claim", "idea"), Text(f"Title {number} <&>", f"标题 {number}"))
    doubled = Text("{was.total:.1f} becomes {now.total:.1f}.", "由 {was.total:.1f} 变为 {now.total:.1f}。")
    more = {"plain": PLAIN, "short": SHORT, "show": draw, "controls": CONTROLS} | more
    return Section(
        number=number,
        notes=(Passage("000", 3, 4),),
        **texts,
        formula="a < b",
        exercises=(Exercise(("width = 1.0", "width = 2.0"), Text("Wider?", "更宽？"), doubled),),
        meanings={"size": Text("the size", "大小"), "parts": Text("the parts", "部分")},
        deciding="size",
        run=run,
        judge=judge,
        needs=tuple(Need(make, (str(path),)) for path in needs),
        **more,
    )
