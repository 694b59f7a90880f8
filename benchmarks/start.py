"""From a fresh interpreter to the first result of attend, against `import torch` and the plain formula."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.measure import Row, milliseconds

MAKE = "q, k, v = (torch.randn(2, 3, 5) for _ in range(3))"
PLAIN = f"import torch; {MAKE}; torch.softmax(q @ k.transpose(-2, -1) / 5 ** 0.5, -1) @ v"
OURS = f"import regard, torch; {MAKE}; regard.attend(q, k, v)"


def rows() -> Iterator[Row]:
    """Whole processes, in turn."""
    times: dict[str, list[float]] = {PLAIN: [], OURS: []}
    for _ in range(7):
        for code in times:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times[code].append(time.perf_counter() - start)
    plain, ours = (statistics.median(times[code]) for code in (PLAIN, OURS))
    yield Row(
        "from `import regard` to the first result of attend",
        "`import torch` and the same in plain torch",
        milliseconds(plain),
        milliseconds(ours),
        f"{ours / plain:.2f}× the time",
        "≤ 1.3× the time",
        ours / plain <= 1.3,
    )
