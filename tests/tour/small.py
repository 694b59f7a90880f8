"""Sections that take no time, as functions that other processes can import."""

import os
import signal
from pathlib import Path

from matplotlib.figure import Figure

from regard.tour.section import Need, Numbers, Section, Text


def measured(size):
    return Numbers(size=size, parts=(2, 3)), drawing


def drawing():
    return Figure(figsize=(1, 1))


def half():
    return measured(0.5)


def below():
    return measured(-0.5)


def tiny():
    return measured(1e-9)


def unknown():
    return measured(float("nan"))


def misnamed():
    return Numbers(width=1.0), drawing


def fail():
    raise ValueError("two\nlines & <more>")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt():
    raise KeyboardInterrupt


def make(path):
    """Something that is needed: writes down that it was made."""
    with Path(path).open("a") as file:
        file.write("made\n")


def judge(numbers):
    yield numbers.criterion(numbers.size > 0, "{size} must be > 0 & <small>.", "{size} 应大于 0。")


def section(number, run=half, needs=(), **more):
    texts = dict.fromkeys(("title", "claim", "idea", "caption"), Text(f"Title {number} <&>", f"标题 {number}"))
    return Section(
        number=number,
        notes=("000",),
        **texts,
        formula="a < b",
        meanings={"size": Text("the size", "大小"), "parts": Text("the parts", "部分")},
        deciding="size",
        run=run,
        judge=judge,
        needs=tuple(Need(make, (str(path),)) for path in needs),
        **more,
    )
