"""Sections for processes of their own: functions that another process can import."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from matplotlib.figure import Figure

from regard.tour.section import Criterion, Need, Numbers, Section, Text


@dataclass(frozen=True)
class Size(Numbers):
    size: Annotated[float, Text("the size", "大小")]
    parts: Annotated[tuple[int, ...], Text("the parts", "部分")] = (2, 3)


def run():
    return Size(0.5), drawing


def drawing():
    return Figure(figsize=(1, 1))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt():
    raise KeyboardInterrupt


def make(path):
    """Something that is needed: tells how often it was made."""
    with Path(path).open("a") as file:
        file.write("made\n")


def judge(size: Size):
    return [Criterion(size.size > 0, Text("It is > 0.", "它大于 0。"))]


def section(number, work=run, needs=()):
    texts = dict.fromkeys(("title", "claim", "idea", "caption"), Text(f"Title {number}", f"标题 {number}"))
    return Section(
        number=number,
        notes=("000",),
        **texts,
        formula="",
        deciding="size",
        run=work,
        judge=judge,
        needs=tuple(Need(make, (str(path),)) for path in needs),
    )
