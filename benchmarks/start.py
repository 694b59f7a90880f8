"""Whole processes: to the first result of attend, against `import torch` and the formula; and `regard --help`."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from benchmarks.measure import Figures, Row, race
from regard.measure import Work

MAKE = "q, k, v = (torch.randn(2, 3, 5) for _ in range(3))"


def process(*command: str) -> Work:
    """Python with these arguments, from its start to its end."""
    return partial(subprocess.run, [sys.executable, *command], check=True, stdout=subprocess.DEVNULL)


def first_result(tiny: bool) -> Figures:
    plain = process("-c", f"import torch; {MAKE}; torch.softmax(q @ k.transpose(-2, -1) / 5 ** 0.5, -1) @ v")
    return race(process("-c", f"import regard, torch; {MAKE}; regard.attend(q, k, v)"), plain, tiny=tiny)


def show_help(tiny: bool) -> Figures:
    return race(process("-m", "regard", "--help"), tiny=tiny)


ROWS = (
    Row(
        "start/attend",
        "from `import regard` to the first result of attend",
        "`import torch` and the same in plain torch",
        first_result,
        at_most=1.3,
        why="It does more: it imports torch as well, and then regard.",
    ),
    Row("start/help", "`regard --help`, the whole process", "", show_help, limit=0.3),
)
