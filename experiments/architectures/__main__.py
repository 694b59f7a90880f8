"""Try the architectures that were not tried yet, and write the table into docs/architectures.md."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is loaded: all weights are random

import torch

from experiments.architectures import generation, machinery, media, modules, shapes, texts, unfamiliar, written
from experiments.architectures.campaign import FAULTS, Architecture, Outcome, examine
from experiments.trial import replace_between, table
from regard import files

Measured = dict[str, Any]  # the name of an architecture → its outcome
MEASURED = Path(__file__).with_name("measured.json")
PAGE = Path(__file__).parent.parent.parent / "docs" / "architectures.md"
HEAD = ("architecture", "kind of model", "result", "layers seen", "reported", "largest difference")
ROWS: list[Architecture] = [
    row for module in (texts, media, generation, written, shapes, unfamiliar, modules, machinery) for row in module.ROWS
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if no architecture has a fault."""
    parser = argparse.ArgumentParser(prog="python -m experiments.architectures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="architectures to try again; default: those not tried")
    parser.add_argument("--no-cache", action="store_true", help="try all of them again")
    parser.add_argument("--page", action="store_true", help="only write the table again")
    options = parser.parse_args(arguments)
    known = {row.name for row in ROWS}
    for name in options.names:
        if name not in known:
            parser.error(f"{name}: expected an architecture of the table, such as {ROWS[0].name}")
    if not options.page:
        run(options.names, no_cache=options.no_cache)
    measured = read()
    files.write(PAGE, with_table(PAGE.read_text(encoding="utf-8"), measured))
    counts = Counter(outcome["result"] for outcome in measured.values())
    print(f"wrote docs/{PAGE.name}: " + ", ".join(f"{count} {result}" for result, count in counts.items()))
    return int(any(counts[fault] for fault in FAULTS))


def run(names: Sequence[str], *, no_cache: bool) -> None:
    """Try these architectures, or all that were not tried; what came of each is saved at once."""
    torch.set_num_threads(1)
    done = read()
    wanted = [row for row in ROWS if row.name in names or (not names and (no_cache or row.name not in done))]
    for number, row in enumerate(wanted):
        start = time.monotonic()
        outcome = examine(row)
        seconds = time.monotonic() - start
        print(f"{number + 1:3}/{len(wanted)}  {row.name}: {outcome.result}, {seconds:.1f} s", flush=True)
        for fault in outcome.faults:
            print(f"         {fault}", flush=True)
        save(row.name, outcome)


def read() -> Measured:
    """What came of those that were tried."""
    content: Measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    return content


def save(name: str, outcome: Outcome) -> None:
    """Put an outcome beside the others, in the order of the rows."""
    done = {**read(), name: {"result": outcome.result, **asdict(outcome)}}
    ordered = {row.name: done[row.name] for row in ROWS if row.name in done}
    files.write(MEASURED, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def with_table(page: str, measured: Mapping[str, Any]) -> str:
    """The page, with the table between its marks."""
    return replace_between(page, "architectures", summary(measured))


def summary(measured: Mapping[str, Any]) -> str:
    """What was tried, the table, and every fault."""
    tried = [row for row in ROWS if row.name in measured]
    counts = Counter(measured[row.name]["result"] for row in tried)
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name).partition('+')[0]}" for name in ("torch", "transformers")
    )
    results = ", ".join(f"{count} {result}" for result, count in sorted(counts.items(), key=lambda item: -item[1]))
    faults = [
        f"- {row.name}: {'; '.join(measured[row.name]['faults'])}" for row in tried if measured[row.name]["faults"]
    ]
    lines = [
        f"{len(tried)} architectures ({versions}): {results}.",
        "",
        table(HEAD, [_cells(row, measured) for row in tried]),
    ]
    return "\n".join([*lines, *(["", "Faults:", "", *faults] if faults else [])])


def _cells(row: Architecture, measured: Mapping[str, Any]) -> list[str]:
    outcome = measured[row.name]
    result = f"**{outcome['result']}**" if outcome["result"] in FAULTS else outcome["result"]
    layers = f"{outcome['right']} of {outcome['layers']}" if outcome["layers"] else "–"
    difference = f"{outcome['difference']:.0e}" if outcome["right"] else "–"
    return [row.name.replace("|", "\\|"), row.kind, result, layers, str(outcome["reported"] or "–"), difference]


if __name__ == "__main__":
    sys.exit(main())
