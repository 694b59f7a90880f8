"""Measure the rows that are not measured yet, or those that are named; write docs/benchmarks.md and README's table."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks import front, measured
from benchmarks.measure import RUNS, Figures, Row, load_rows, measure
from benchmarks.measured import Measured, table
from regard import files

MEASURED = Path(__file__).with_name("measured.json")
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = ("work", "against", "peer", "regard", "result", "at best", "aim", "met", "row")
INTRODUCTION = f"""# Benchmarks

How fast regard is beside what you would use instead, and where it is slower. Read the column *result* first: it is
the peer's time / regard's time, the median of {RUNS} runs and their range, so that 2× is twice as fast and 0.5× half
as fast; for “× the time” it is the inverse, and lower is better. Regard and its peer run in turn, in one process,
after a check that their answers agree; times depend on the machine, ratios much less. A row of several cases shows
the one in which regard does worst, and its name. *At best* is the share of regard's time that the bare work takes:
its matrix products alone, or the bytes that have to be read, at the memory's bandwidth; 1 would leave nothing to
gain. *Aim* was set before the measurement, and **no** says that it was missed; below the table stands why. Rows
`ablation/…` are regard against its own plain way. On AMD's processors with AVX-512 the models of regard multiply by
oneDNN where PyTorch takes MKL, which is slower there (`ablation/products`): on others they do not.

Made by `make bench` from what it measured (`benchmarks/measured.json`), and not by hand. `make bench ROW=dot`
measures those rows again that have this in their names (the last column)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where every row came to its end, met its aim, and needs no sentence that it lacks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="ROW", help="measure the rows again that have this in their names")
    parser.add_argument(
        "--no-cache", action="store_true", help="measure all rows again; the old figures stay until then"
    )
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args(arguments)
    rows, done = load_rows(), figures_by_name(measured.read(MEASURED))
    names = select(rows, options.parts)
    if not names:
        parser.error(f"{' '.join(options.parts)}: expected parts of {', '.join(rows)}")
    if options.page:
        names = []
    elif not options.parts and not options.no_cache:
        names = [name for name in names if name not in done]
    failures = [name for number, name in enumerate(names) if not run(rows, name, f"{number + 1} of {len(names)}")]
    now = measured.read(MEASURED)
    content = page(rows, now)
    files.write(PAGE, content)
    front.refresh("bench", front.tables(rows, figures_by_name(now)))
    print(f"wrote docs/{PAGE.name}")
    done = figures_by_name(now)
    complaints = [f"failed: {name}" for name in failures] + [
        f"below its peer, or missed, without a sentence why: {name}" for name in unexplained(rows, done)
    ]
    print("\n".join(complaints), end="\n" if complaints else "", file=sys.stderr)
    met = all(row.is_met(done[row.name]) for row in rows.values() if row.name in done)
    return 0 if met and not complaints else 1


def select(rows: Mapping[str, Row], parts: Sequence[str]) -> list[str]:
    """The rows that have one of the parts in their names, or all; but some only by their whole names."""
    names = [name for name in rows if not parts or any(part in name for part in parts)]
    return [name for name in names if not rows[name].on_request or name in parts]


def run(rows: Mapping[str, Row], name: str, which: str) -> bool:
    """Measure a row in a process of its own, in which nothing has run before, and store its figures at once."""
    row, start = rows[name], time.perf_counter()
    print(f"{name} ({which}): {row.work}", file=sys.stderr, flush=True)
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            figures = process.submit(measure, name).result()
    except Exception:  # the rows before are stored, and those after can still be measured
        traceback.print_exc()
        return False
    figures |= {"seconds": round(time.perf_counter() - start, 1), "versions": versions()}
    subject, short_name = name.split("/")
    order = [other.split("/")[1] for other in rows if other.split("/")[0] == subject]
    measured.save(MEASURED, subject, order, short_name, figures)
    print(f"{'met   ' if row.is_met(figures) else 'MISSED'} {row.result(figures)} (aim {row.aim})", flush=True)
    return True


def figures_by_name(content: Measured) -> dict[str, Figures]:
    """subject/row → figures."""
    groups = {subject: rows for subject, rows in content.items() if subject != "machine"}
    return {f"{subject}/{name}": figures for subject, rows in groups.items() for name, figures in rows.items()}


def unexplained(rows: Mapping[str, Row], done: Mapping[str, Figures]) -> list[str]:
    """The rows that are below their peers, or missed their aims, and do not say why."""
    return [row.name for row in rows.values() if row.name in done and not row.why and is_short(row, done[row.name])]


def is_short(row: Row, figures: Figures) -> bool:
    """Whether a row needs a sentence: below its peer, or its aim missed."""
    return row.is_below_peer(figures) or not row.is_met(figures)


def page(rows: Mapping[str, Row], content: Measured) -> str:
    """The page in Markdown, of what was measured and of nothing else."""
    done = {name: figures for name, figures in figures_by_name(content).items() if name in rows}
    short = [rows[name] for name in rows if name in done and is_short(rows[name], done[name])]
    missing = [name for name, row in rows.items() if name not in done and not row.on_request]
    parts = [INTRODUCTION, table(HEAD, [line(row, done.get(row.name)) for row in rows.values()])]
    if short:
        sentences = (f"- `{row.name}`: {row.why or '**no sentence yet.**'}" for row in short)
        parts.append("Below their peers, or short of their aims, because:\n\n" + "\n".join(sentences))
    if missing:
        parts.append(f"Not measured yet: {len(missing)} of {len(rows)} rows.")
    if done:
        minutes = sum(figures["seconds"] for name, figures in done.items() if not rows[name].on_request) / 60
        days, cores = ({str(figures[key]) for figures in done.values()} for key in ("on", "cores"))
        parts.append(
            f"Machine: {measured.machines(content, done.values())}. Measured from {min(days)} to {max(days)}, on "
            f"{' or '.join(sorted(cores))} cores, in {minutes:.0f} minutes in all."
        )
        parts.append(f"Versions: {'; or '.join(sorted({figures['versions'] for figures in done.values()}))}.")
    return "\n\n".join(parts) + "\n"


def line(row: Row, figures: Figures | None) -> tuple[str, ...]:
    """The cells of a row."""
    if figures is None:
        when = "measured on request" if row.on_request else "not measured yet"
        return row.work, row.against, "", "", when, "", row.aim, "", row.name
    peer, ours = (
        row.amount(statistics.median(figures[side])) if figures.get(side) else "" for side in ("peer", "ours")
    )
    met = "yes" if row.is_met(figures) else "**no**"
    return row.work, row.against, peer, ours, row.result(figures), row.at_best(figures), row.aim, met, row.name


def versions() -> str:
    """The versions of what is measured."""
    names = ("regard", "torch", "numba", "numpy", "pykeops", "transformers", "sentence-transformers")
    packages = [package for name in names for package in [*importlib.metadata.distributions(name=name)][:1]]
    return ", ".join(
        [f"Python {platform.python_version()}", *(f"{package.name} {package.version}" for package in packages)]
    )


if __name__ == "__main__":
    sys.exit(main())
