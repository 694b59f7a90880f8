"""Run the benchmarks, show each line as it comes, and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import torch

from benchmarks import SUBJECTS
from benchmarks.front import refresh
from benchmarks.measure import Row

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = ("work", "against", "peer", "regard", "result", "at least", "met")


def main() -> int:
    """Exit code 0 where every bar was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="default: all, and the page is written")
    chosen = parser.parse_args().subjects
    found = [row for subject in chosen or SUBJECTS for row in run(subject)]
    if not chosen:
        PAGE.write_text(page(found), encoding="utf-8")
        refresh(page(found))
        print(f"wrote {PAGE.relative_to(Path.cwd())}" if PAGE.is_relative_to(Path.cwd()) else f"wrote {PAGE}")
    return 0 if all(row.met for row in found) else 1


def run(subject: str) -> list[Row]:
    """The rows of one subject, shown as they come."""
    found = []
    for row in importlib.import_module(f"benchmarks.{subject}").rows():
        found.append(row)
        verdict = "met   " if row.met else "MISSED"
        print(f"{verdict} {row.result:>14} ({row.bar})  {row.work}; against {row.against}", flush=True)
    return found


def page(found: list[Row]) -> str:
    """The page in Markdown."""
    cells = [(row.work, row.against, row.peer, row.ours, row.result, row.bar, row.met) for row in found]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Made by `make bench`; nothing here is written by hand. Each line is regard and its peer in one process,",
            "in turn, as the ratio of the medians: times depend on the machine, ratios much less. That the answers",
            "agree is checked first.",
            "",
            _line(*HEAD),
            _line(*["---"] * len(HEAD)),
            *(_line(*texts, "yes" if met else "**no**") for *texts, met in cells),
            "",
            f"Machine: {processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, {platform.system()}.",
            f"Versions: Python {platform.python_version()}, {versions()}.",
            "",
        ]
    )


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def processor() -> str:
    """The name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def versions() -> str:
    """The versions of what was measured."""
    names = ("regard", "torch", "numba", "numpy", "pykeops", "transformers", "sentence-transformers")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


if __name__ == "__main__":
    sys.exit(main())
