"""Run the benchmarks, show each line as it comes, and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks import SUBJECTS
from benchmarks.front import refresh
from benchmarks.measure import Row
from regard import files

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = ("work", "against", "peer", "regard", "result", "at least", "met")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where every subject came to its end and every bar was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join(SUBJECTS)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {names}; default: all, and write the page")
    subjects = parser.parse_args(arguments).subjects
    for subject in subjects:
        if subject not in SUBJECTS:
            parser.error(f"{subject}: expected some of {names}")
    rows: list[Row] = []
    failures: list[str] = []
    for subject in subjects or SUBJECTS:
        try:
            for row in run(subject):
                rows.append(row)
        except Exception as error:  # the other subjects, and the rows before, took an hour: they are not lost
            traceback.print_exc()
            failures.append(f"{subject}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    if not subjects:
        content = page(rows, failures)
        files.write(PAGE, content)
        refresh(content)
        print(f"wrote {PAGE.relative_to(Path.cwd())}" if PAGE.is_relative_to(Path.cwd()) else f"wrote {PAGE}")
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 0 if not failures and all(row.met for row in rows) else 1


def run(subject: str) -> Iterator[Row]:
    """The rows of one subject, shown as they come."""
    for row in importlib.import_module(f"benchmarks.{subject}").rows():
        verdict = "met   " if row.met else "MISSED"
        print(f"{verdict} {row.result:>14} ({row.bar})  {row.work}; against {row.against}", flush=True)
        yield row


def page(rows: Sequence[Row], failures: Sequence[str] = ()) -> str:
    """The page in Markdown.

    rows: what was measured. failures: what went wrong, one line for each subject that did not come to its end.
    """
    cells = [(row.work, row.against, row.peer, row.ours, row.result, row.bar, row.met) for row in rows]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Made by `make bench`; nothing here is written by hand. Each line is regard and its peer in one process,",
            "in turn, as the ratio of the medians: times depend on the machine, ratios much less. That the answers",
            "agree is checked first. A row of several cases shows the one in which regard does worst, and its name.",
            "",
            _line(*HEAD),
            _line(*["---"] * len(HEAD)),
            *(_line(*texts, "yes" if met else "**no**") for *texts, met in cells),
            "",
            *(line for failure in failures for line in (f"Failed, so that rows are missing: {failure}", "")),
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
    packages = [package for name in names for package in [*importlib.metadata.distributions(name=name)][:1]]
    return ", ".join(f"{package.name} {package.version}" for package in packages)


if __name__ == "__main__":
    sys.exit(main())
