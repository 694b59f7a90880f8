"""Whole processes: to the first result of attend, against `import torch` and the formula; and `regard --help`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.measure import Row, duration

MAKE = "q, k, v = (torch.randn(2, 3, 5) for _ in range(3))"
COMMANDS = {
    "plain": ("-c", f"import torch; {MAKE}; torch.softmax(q @ k.transpose(-2, -1) / 5 ** 0.5, -1) @ v"),
    "attend": ("-c", f"import regard, torch; {MAKE}; regard.attend(q, k, v)"),
    "help": ("-m", "regard", "--help"),
}


def rows(tiny: bool = False) -> Iterator[Row]:
    """Whole processes, in turn."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(1 if tiny else 7):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - start)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    ratio = seconds["attend"] / seconds["plain"]
    yield Row(
        "from `import regard` to the first result of attend",
        "`import torch` and the same in plain torch",
        duration(seconds["plain"]),
        duration(seconds["attend"]),
        f"{ratio:.2f}× the time",
        "≤ 1.3× the time",
        ratio <= 1.3,
    )
    text = duration(seconds["help"])
    yield Row("`regard --help`, the whole process", "absolute", "", text, text, "≤ 0.3 s", seconds["help"] <= 0.3)
