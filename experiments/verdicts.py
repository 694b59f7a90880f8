"""The tour's verdicts as a page: python -m experiments.verdicts [FOLDER] [--check].

FOLDER is what `regard tour --out` has written. With --check nothing is written: the verdicts of that tour are compared
with the published ones, and each difference is a line and exit code 1. Numbers may differ between machines, verdicts
may not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from experiments.trial import table
from regard import files

PAGE = Path(__file__).parent.parent / "docs" / "verdicts.md"
INTRODUCTION = """# Verdicts

What came of the claims of the course notes. A verdict is computed from the criteria in the last column, and from
nothing else. The first criterion is the claim itself: if it is not met, the claim *did not hold*; if another one is
not met, it held *partly*. *True by definition* is an identity, which is checked and is no evidence; *imprecise* is
what is true after a correction, which the criteria state; *not testable here* is what would take more than a small
machine. A number after ± is the spread over seeds. The code of each claim, its picture and its exercises are on the
page of [the tour](student.md): `regard tour --only 17` makes that of claim 17.

Made from a whole tour by `make verdicts`, and not by hand.
"""


def main() -> int:
    """Write the page, or compare with it."""
    parser = argparse.ArgumentParser(prog="python -m experiments.verdicts", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("regard-tour"), help="default: regard-tour")
    parser.add_argument("--check", action="store_true", help="compare with docs/verdicts.md and write nothing")
    options = parser.parse_args()
    tour = json.loads((options.folder / "results.json").read_text(encoding="utf-8"))
    if options.check:
        changes = differences(published(PAGE.read_text(encoding="utf-8")), verdicts(tour))
        print("\n".join(changes) or "the verdicts are those of docs/verdicts.md")
        return 1 if changes else 0
    files.write(PAGE, page(tour))
    print(f"wrote docs/{PAGE.name}")
    return 0


def verdicts(tour: dict[str, Any]) -> dict[int, str]:
    """The verdict on each claim of a tour."""
    return {claim["number"]: claim["verdict"] for claim in tour["claims"]}


def published(content: str) -> dict[int, str]:
    """The verdict on each claim, as a page says it."""
    lines = [line for line in content.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {int(row[0]): row[2] for row in rows if row[0].isdigit()}


def differences(expected: dict[int, str], measured: dict[int, str]) -> list[str]:
    """A line for each claim whose verdict is another one, or that one side lacks."""
    return [
        f"claim {number}: published: {expected.get(number, 'nothing')}; now: {measured.get(number, 'nothing')}"
        for number in sorted(expected.keys() | measured.keys())
        if expected.get(number) != measured.get(number)
    ]


def page(tour: dict[str, Any]) -> str:
    """The page in Markdown: claim, verdict, and the criteria that decide."""
    rows = [
        [
            claim["number"],
            claim["title"],
            claim["verdict"],
            " · ".join(("" if part["met"] else "**not met:** ") + part["sentence"] for part in claim["criteria"]),
        ]
        for claim in sorted(tour["claims"], key=lambda claim: claim["number"])
    ]
    versions = ", ".join(f"{name} {number}" for name, number in tour["versions"].items())
    rows = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join([INTRODUCTION, table(["#", "claim", "verdict", "what decides"], rows), "", f"{versions}.", ""])


if __name__ == "__main__":
    sys.exit(main())
