"""What was measured, in a JSON file: group → name → figures, and on what machine. Shared with the experiments."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from regard import files
from regard.data.store import cache

Measured = dict[str, Any]


def read(path: Path) -> Measured:
    """What was measured so far."""
    content: Measured = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content


def save(path: Path, group: str, order: Sequence[str], name: str, figures: dict[str, Any]) -> None:
    """Put the figures of this name beside the others of its group, in this order.

    One at a time: something else may be measured on another core.
    """
    lock = cache() / "experiments" / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        measured = read(path)
        version = torch.__version__.partition("+")[0]
        machine = f"{processor()}, {os.cpu_count()} cores, PyTorch {version}, {platform.system()}"
        at = {"cores": cores(), "on": time.strftime("%Y-%m-%d"), "machine": machine}
        done = {**measured.get(group, {}), name: {**figures, **at}}
        measured[group] = {known: done[known] for known in order if known in done}
        measured.setdefault("machine", machine)
        files.write(path, json.dumps(measured, indent=1, ensure_ascii=False) + "\n")


def machines(measured: Measured, rows: Iterable[dict[str, Any]]) -> str:
    """On what these figures were measured; where they do not say, it was on the first machine."""
    return " or ".join(sorted({figures.get("machine", measured["machine"]) for figures in rows}))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def replace_between(page: str, word: str, content: str) -> str:
    """The page with this content between the marks that say that `make word` makes it."""
    begin, end = f"<!-- {word}: made by `make {word}` -->", f"<!-- end of {word} -->"
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not begins or not ends:
        raise ValueError(f"expected the marks {begin} and {end} on a page that begins with {page[:40]!r}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
